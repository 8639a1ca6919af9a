"""Labels of a figure: beside the points of a scatter plot, none over another, and in two lines on an axis."""

import itertools
import math
import textwrap
import warnings
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.transforms import Bbox

from calyrex.report import svg

_ANGLES = (0, 180, 90, 270, 45, 135, 315, 225, 22, 158, 338, 202, 67, 113, 247, 293)
_DISTANCES = (11, 18, 28, 40, 54, 70, 90, 115, 145)
"""Directions in degrees and distances in pixels that are tried, the best first."""

_LINE_POINTS = 13.0
_MARKER, _GAP, _LEADER = 8.0, 3.0, 20.0
_LABEL_LENGTH = 27


def place_labels(axes: Axes, points: Sequence[tuple[str, float, float]]) -> list[Bbox]:
    """Write each point's label where it covers no other label or marker, with a thin line to it where that is far.

    Args:
        axes: with its points drawn and its limits final.
        points: label and place of each.

    Returns:
        The boxes of the labels in pixels, in the order of the points.
    """
    FigureCanvasAgg(axes.get_figure(root=True))
    limits = axes.get_xlim(), axes.get_ylim()
    spots = [(float(x), float(y)) for x, y in axes.transData.transform([point[1:] for point in points])]
    taken = [Bbox.from_extents(x - _MARKER, y - _MARKER, x + _MARKER, y + _MARKER) for x, y in spots]
    frame, boxes = axes.get_window_extent(), []
    for (label, x, y), spot in zip(points, spots, strict=True):
        text = axes.annotate(label, (x, y), ha="left", va="bottom", fontsize=10, annotation_clip=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")
            size = text.get_window_extent()
        text.remove()
        box = _find_place(spot, (size.width, size.height), frame, taken)
        centre = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
        near = (min(max(spot[0], box.x0), box.x1), min(max(spot[1], box.y0), box.y1))
        if math.dist(spot, near) > _LEADER:
            ends = axes.transData.inverted().transform([spot, near])
            axes.plot(ends[:, 0], ends[:, 1], color=svg.MUTED, linewidth=0.8, zorder=1)
        place = axes.transData.inverted().transform(centre)
        axes.text(place[0], place[1], label, ha="center", va="center", fontsize=10)
        taken.append(box)
        boxes.append(box)
    axes.set(xlim=limits[0], ylim=limits[1])
    return boxes


def label_column(axes: Axes, points: Sequence[tuple[str, float, float, str]]) -> list[float]:
    """Write each point's label in a column to the right of a plot, the highest on top, with a thin line to its point.

    Args:
        axes: with its points drawn and its limits final.
        points: label, place and colour of each.

    Returns:
        The heights of the labels in pixels, in the order of the points; no two are nearer than a line of text.
    """
    canvas = FigureCanvasAgg(axes.get_figure(root=True))
    line = _LINE_POINTS * canvas.figure.dpi / 72
    frame, _limits = axes.get_window_extent(), (axes.get_xlim(), axes.get_ylim())  # to ask for limits is to settle them
    wanted = [float(axes.transData.transform((x, y))[1]) for _, x, y, _ in points]
    order = sorted(range(len(points)), key=lambda place: -wanted[place])
    heights = dict.fromkeys(order, 0.0)
    ceiling = frame.y1
    for place in order:
        heights[place] = ceiling = min(wanted[place], ceiling - line)
    floor = frame.y0 - line
    for place in reversed(order):
        heights[place] = floor = max(heights[place], floor + line)
    for place, (label, x, y, color) in enumerate(points):
        axes.annotate(
            label,
            (x, y),
            (1.03, (heights[place] - frame.y0) / frame.height),
            textcoords="axes fraction",
            va="center",
            fontsize=10,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.8, "alpha": 0.6, "shrinkB": 4},
        )
    return [heights[place] for place in range(len(points))]


def spread(values: Sequence[float], step: float) -> list[float]:
    """Move equal values apart, by one step each and around where they were."""
    twins = {value: [place for place, other in enumerate(values) if other == value] for value in values}
    return [
        value + step * (twins[value].index(place) - (len(twins[value]) - 1) / 2) for place, value in enumerate(values)
    ]


def wrap_label(label: str) -> str:
    """Break a label into two lines where it is long; more is cut, the tables have it whole."""
    lines = textwrap.wrap(svg.clean(label), _LABEL_LENGTH, max_lines=2, placeholder="…", break_on_hyphens=False)
    return "\n".join(lines)


def label_rows(axes: Axes, labels: Sequence[str], axis_label: str) -> None:
    """Label the rows of a plot with one dot in each, the first on top, and its axis below."""
    axes.set_yticks(range(len(labels)), [wrap_label(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelsize=10)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.margins(x=0.06)
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel(svg.clean(axis_label))


def write_above(axes: Axes, text: str, place: float) -> None:
    """Write a short text above a plot, in the middle over a place of its axis."""
    across = axes.get_xaxis_transform()
    axes.text(place, 1.02, svg.clean(text), transform=across, ha="center", va="bottom", fontsize=9.5)


def _find_place(spot: tuple[float, float], size: tuple[float, float], frame: Bbox, taken: Sequence[Bbox]) -> Bbox:
    """Return the first box around a spot that is free and inside the frame, else the one that covers the fewest."""
    candidates = [
        _box(spot, size, distance, angle) for distance, angle in itertools.product(_DISTANCES, _ANGLES)
    ]  # nearest first
    inside = [box for box in candidates if frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0]
    inside = [box for box in inside if box.y1 <= frame.y1] or candidates
    return min(inside, key=lambda box: sum(box.overlaps(other) for other in taken))


def _box(spot: tuple[float, float], size: tuple[float, float], distance: float, angle: float) -> Bbox:
    """Return the box of a label whose near edge is at a distance from the spot."""
    across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    width, height = size[0] + 2 * _GAP, size[1] + 2 * _GAP
    x = spot[0] + across * (distance + width / 2)
    y = spot[1] + up * (distance + height / 2)
    return Bbox.from_extents(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
