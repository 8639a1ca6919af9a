"""Numbers as a reader wants them: percent and points, intervals, counts and sizes with their units."""

import math

MISSING = "\u2013"
"""What stands where nothing was measured."""

_MINUS = "\u2212"
_SHARE = "share"
_PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3))


def finite(value: object) -> float | None:
    """Return a number, None where it is none, not finite or missing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def spell_value(value: object, unit: str, digits: int = 3) -> str:
    """Write a figure: a share of 0 .. 1 in percent, all else with three digits, or others, and its unit."""
    number = finite(value)
    if number is None:
        return MISSING
    return f"{_decimal(100 * number, 1)} %" if unit == _SHARE else f"{_decimal(number, digits)} {unit}".rstrip()


def spell_interval(low: object, high: object, unit: str, digits: int = 3) -> str:
    """Write a 95 % interval without its unit, ``[33.0-50.1]`` with an en dash; nothing where an end is missing."""
    ends = finite(low), finite(high)
    if ends[0] is None or ends[1] is None:
        return ""
    first, second = (_plain(end, unit, digits) for end in ends if end is not None)
    return f"[{first} to {second}]" if _MINUS in first + second else f"[{first}\u2013{second}]"


def spell_difference(value: object, unit: str) -> str:
    """Write a difference with its sign: of shares in percentage points, else in the unit."""
    number = finite(value)
    if number is None:
        return MISSING
    return f"{_signed(number, unit)} {'points' if unit == _SHARE else unit}".rstrip()


def spell_difference_interval(low: object, high: object, unit: str) -> str:
    """Write the 95 % interval of a difference, such as ``[+1.0 to +3.0]``; nothing where an end is missing."""
    ends = finite(low), finite(high)
    if ends[0] is None or ends[1] is None:
        return ""
    return "[" + " to ".join(_signed(end, unit) for end in ends if end is not None) + "]"


def spell_p(value: object) -> str:
    """Write a p-value with three digits."""
    number = finite(value)
    if number is None:
        return MISSING
    return "< 0.001" if number < 0.001 else f"{number:.3f}"


def spell_count(value: object) -> str:
    """Write a count with its thousands apart."""
    number = finite(value)
    return MISSING if number is None else f"{number:,.0f}"


def spell_percentage(value: object) -> str:
    """Write a relative deviation of some percent, with its sign."""
    number = finite(value)
    return MISSING if number is None else f"{_signed(number, _SHARE)} %"


def spell_rate(value: object) -> str:
    """Write a learning rate or another number of any size, as short as it can be."""
    number = finite(value)
    return MISSING if number is None else f"{number:g}".replace("-", _MINUS)


def spell_loss(value: object) -> str:
    """Write a loss in nats a token; one that is missing has diverged."""
    number = finite(value)
    return "diverged" if number is None else _decimal(number, 3)


def spell_size(value: object, unit: str) -> str:
    """Write a large number with the prefix of its unit: 1.90 GB, 13.0 MFLOP."""
    number = finite(value)
    if number is None:
        return MISSING
    for prefix, factor in _PREFIXES:
        if abs(number) >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}" if number else "0"


def spell_seconds(value: object) -> str:
    """Write a time with its two largest units."""
    number = finite(value)
    if number is None:
        return MISSING
    if number < 60:
        return f"{number:.1f} s"
    seconds = round(number)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def _plain(number: float, unit: str, digits: int = 3) -> str:
    return _decimal(100 * number, 1) if unit == _SHARE else _decimal(number, digits)


def _signed(number: float, unit: str) -> str:
    text = _plain(number, unit)
    is_zero = not text.strip("0.")
    return text if is_zero or text.startswith(_MINUS) else f"+{text}"


def _decimal(number: float, digits: int) -> str:
    # Rounded first, so that no figure is minus zero.
    return f"{round(number, digits) + 0.0:.{digits}f}".replace("-", _MINUS)
