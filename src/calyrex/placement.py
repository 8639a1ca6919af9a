"""Named placements: after which decoder layers the blocks sit."""

from collections.abc import Sequence

DEFAULT_PLACEMENT = "late8th"
PLACEMENTS = ("all", "every2", "every4", "early8th", "mid8th", "middle", "late4th", "late8th", "last")


def _spread(first: int, last: int, num_blocks: int) -> list[int]:
    """Pick up to ``num_blocks`` layers, evenly from ``first`` to ``last``; the deepest one is always among them."""
    count = min(num_blocks, last - first + 1)
    if count == 1:
        return [last]
    return [first + round(i * (last - first) / (count - 1)) for i in range(count)]


def resolve_placement(placement: str | Sequence[int], num_layers: int, num_blocks: int = 5) -> list[int]:
    """Turn a placement into layer numbers; a block sits *after* each of them.

    ``late8th``, the default and the paper's optimum (arXiv 2605.09737), spreads ``num_blocks`` over ⌊7L/8⌋ .. L;
    ``late4th`` over ⌊3L/4⌋ .. L; ``early8th`` and ``mid8th`` are windows of the width of ``late8th`` at the beginning
    and around the middle. ``middle`` spreads them over ⌊2L/5⌋ + 1 .. ⌊5L/6⌋, most of what carries a rule to the answer
    in SmolLM2-135M by activation patching (``calyrex analyze``).
    ``all``, ``every2``, ``every4`` and ``last`` say it themselves and do not look at ``num_blocks``.

    Args:
        placement: one of ``PLACEMENTS`` or layer numbers, 1 .. ``num_layers``.
        num_layers: decoder layers of the base, at least 1.
        num_blocks: blocks that a window holds at most, at least 1.

    Returns:
        Sorted layer numbers, each in 1 .. ``num_layers``.

    Raises:
        ValueError: the name is unknown, the list is empty or repeats itself, a number is outside the model, or
            ``num_blocks`` is below 1.
    """
    if num_blocks < 1:
        raise ValueError(f"num_blocks must be at least 1, got {num_blocks}")
    if not isinstance(placement, str):
        return _check_layers(placement, num_layers)
    late = max(1, 7 * num_layers // 8)
    width = num_layers - late
    centre = max(1, (num_layers - width + 1) // 2)
    spread = max(1, min(2 * num_layers // 5 + 1, 5 * num_layers // 6))
    windows = {
        "early8th": (1, 1 + width),
        "mid8th": (centre, centre + width),
        "middle": (spread, max(spread, 5 * num_layers // 6)),
        "late4th": (max(1, 3 * num_layers // 4), num_layers),
        "late8th": (late, num_layers),
        "last": (num_layers, num_layers),
    }
    steps = {"all": 1, "every2": 2, "every4": 4}
    if placement in windows:
        return _spread(*windows[placement], num_blocks)
    if placement not in steps:
        raise ValueError(f"placement must be one of {', '.join(PLACEMENTS)} or a list of layers, got {placement!r}")
    layers = list(range(steps[placement], num_layers + 1, steps[placement]))
    if not layers:
        raise ValueError(f"placement {placement!r} names no layer of a model with layers 1 to {num_layers}")
    return layers


def _check_layers(layers: Sequence[int], num_layers: int) -> list[int]:
    if not isinstance(layers, Sequence):
        raise ValueError(f"placement must be a name or a list of layers, got {layers!r}")
    if not layers:
        raise ValueError(f"placement must name at least one layer between 1 and {num_layers}, got an empty list")
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, int) or not 1 <= layer <= num_layers:
            raise ValueError(f"placement must name layers between 1 and {num_layers}, got {layer!r}")
    if len(set(layers)) != len(layers):
        raise ValueError(f"placement must name each layer once, got {list(layers)}")
    return sorted(layers)
