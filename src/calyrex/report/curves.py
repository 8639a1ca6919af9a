"""Lines with bands and dots with intervals that can be told apart without colour, and the samples of a legend."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from calyrex.report import svg
from calyrex.report.analysis_rows import SHARE, Point

WIDTH = 5.0
"""Width of a panel in inches; the page stretches it."""

_NAN = float("nan")
_BAND_OPACITY = 0.18


class Look(NamedTuple):
    """How a line or dot is drawn.

    Attributes:
        color: one of the stand-ins.
        line: matplotlib's line style, ``None`` for dots only.
        marker: matplotlib's marker, empty for none.
        is_filled: whether the marker is filled.
    """

    color: str
    line: Any
    marker: str
    is_filled: bool = True

    def options(self) -> dict[str, Any]:
        """Return matplotlib's arguments."""
        face = self.color if self.is_filled else svg.SURFACE
        shape = {"marker": self.marker or "None", "markersize": 4.2, "markerfacecolor": face, "markeredgewidth": 1.1}
        return {"color": self.color, "linestyle": self.line or "None", "linewidth": 1.7, **shape}


LINES = (
    Look(svg.ACCENT, "-", "o"),
    Look(svg.SERIES[5], (0, (5, 2)), "s"),
    Look(svg.SERIES[4], (0, (7, 2, 1.5, 2)), "^"),
    Look(svg.SERIES[6], (0, (3, 2, 1.5, 2, 1.5, 2)), "D"),
    Look(svg.SERIES[0], (0, (2, 2)), "v"),
)
"""For what was measured, one after the other."""

CONTROL = Look(svg.MUTED, (0, (1, 1.6)), "D", is_filled=False)
LEVEL = Look(svg.INK, (0, (6, 3)), "")


def to_shown(value: float | None, unit: str) -> float:
    """Return a value as it is drawn: shares in percent, nothing where it is missing."""
    return _NAN if value is None else 100 * value if unit == SHARE else value


def draw_curve(axes: Axes, points: Sequence[Point], look: Look, unit: str) -> None:
    """Draw values as a line with their 95 % intervals as a band; both are broken where something is missing."""
    places = [point.place for point in points]
    low, high = ([to_shown(end, unit) for end in ends] for ends in zip(*(point[2:] for point in points), strict=True))
    axes.fill_between(
        places,
        low,
        high,
        where=[bottom <= top for bottom, top in zip(low, high, strict=True)],
        color=look.color,
        alpha=_BAND_OPACITY,
        linewidth=0,
    )
    axes.plot(places, [to_shown(point.value, unit) for point in points], **look.options())


def draw_dots(axes: Axes, points: Sequence[Point], look: Look, unit: str, *, shift: float = 0.0) -> None:
    """Draw values as dots with their 95 % intervals as upright lines, all moved aside by ``shift``."""
    places = [point.place + shift for point in points]
    low, high = ([to_shown(end, unit) for end in ends] for ends in zip(*(point[2:] for point in points), strict=True))
    axes.vlines(places, low, high, colors=look.color, linewidth=1.5)
    axes.plot(places, [to_shown(point.value, unit) for point in points], **look._replace(line=None).options())


def count_in_whole(axes: Axes, most: int = 8) -> None:
    """Number the layers or blocks along an axis."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=most, integer=True, min_n_ticks=1))


def draw_sample(look: Look, name: str) -> Markup:
    """Draw a short piece of a line with its marker for the legend."""
    with matplotlib.rc_context(svg.settings()):
        figure = Figure(figsize=(0.56, 0.2))
        figure.add_artist(Line2D([0.03, 0.5, 0.97], [0.5, 0.5, 0.5], markevery=[1], **look.options()))
        return svg.to_svg(figure, name, "")
