"""A matplotlib figure as SVG inside a page: its text is text, its colours are the page's, and no style is in it."""

import io
import re
import warnings
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

INK, MUTED, LINE, ACCENT, SURFACE = "#000001", "#000002", "#000003", "#000004", "#000005"
"""Stand-ins for the page's colours, which differ in light and dark."""

SERIES = tuple(f"#0001{number:02x}" for number in range(7))
"""Stand-ins for the colours that tell contenders apart."""

_VARIABLES = {
    **{INK: "--ink", MUTED: "--muted", LINE: "--line", ACCENT: "--anchored", SURFACE: "--surface"},
    **{color: f"--series-{number}" for number, color in enumerate(SERIES)},
}
_ATTRIBUTES = (
    *("fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin"),
    *("opacity", "fill-opacity", "stroke-opacity", "text-anchor", "font-size", "font-weight"),
)
_SETTINGS = {
    **{"svg.fonttype": "none", "svg.hashsalt": "calyrex", "text.parse_math": False, "path.simplify": True},
    **{"font.family": "DejaVu Sans", "font.size": 10.5, "axes.unicode_minus": True, "axes.linewidth": 0.8},
    **{"text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": MUTED, "xtick.color": MUTED, "ytick.color": MUTED},
    **{"xtick.labelcolor": INK, "ytick.labelcolor": INK, "grid.color": LINE, "grid.linewidth": 0.8},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True},
}
_NOT_XML = re.compile("[\ufffe\uffff]")
_SIZE = re.compile(r"([\d.]+)px")


class Panel(NamedTuple):
    """A figure and what stands around it.

    Attributes:
        title: what it shows.
        note: how to read it, or what is missing from it.
        svg: the drawing.
        legend: a sample and what it stands for, each.
    """

    title: str
    note: str
    svg: Markup
    legend: Sequence[tuple[Markup, str]] = ()


def settings() -> matplotlib.RcParams:
    """Return matplotlib's settings under which the figures are drawn and written."""
    return matplotlib.RcParams({**matplotlib.rcParamsDefault, "backend": "agg", **_SETTINGS})


def clean(text: str) -> str:
    """Replace what cannot stand in an SVG file; controls have been made visible before."""
    return _NOT_XML.sub("\ufffd", text)


def to_svg(figure: Figure, name: str, description: str) -> Markup:
    """Write a figure as an SVG element for HTML.

    Args:
        figure: drawn under ``settings``, with the stand-ins as colours.
        name: unique in the page; its ids begin with it.
        description: what a reader who does not see it is told.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # The page's fonts draw the text; that matplotlib's own lacks a character only makes a width a guess.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    used = {found for element in root.iter() for found in _references(element)}
    for element in root.iter():
        _neutralise(element, name, used)
    box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update(
        {"viewBox": box, "role": "img", "aria-label": clean(description), "stroke-linejoin": "round", "class": "figure"}
    )
    return Markup(ElementTree.tostring(root, encoding="unicode", short_empty_elements=False).strip())


def _references(element: ElementTree.Element) -> list[str]:
    values = [value for key, value in element.attrib.items() if _local(key) in ("href", "clip-path")]
    return [value.removeprefix("url(").removesuffix(")").removeprefix("#") for value in values]


def _neutralise(element: ElementTree.Element, name: str, used: set[str]) -> None:
    """Turn styles into attributes, which the page's policy allows, and make ids those of this figure."""
    attributes: dict[str, str] = {}
    for full_key, value in element.attrib.items():
        key = _local(full_key)
        if key == "id":
            if value in used:
                attributes[key] = f"{name}-{value}"
        elif key == "style":
            attributes.update(_read_style(value))
        else:
            attributes[key] = value.replace("#", f"#{name}-") if key in ("href", "clip-path") else value
    element.tag = _local(element.tag)
    element.attrib.clear()
    element.attrib.update({key: _VARIABLES_AS_CSS.get(value, value) for key, value in attributes.items()})


def _read_style(style: str) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for declaration in style.split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key in _ATTRIBUTES:
            attributes[key] = value
        elif key == "font" and (size := _SIZE.search(value)):
            attributes["font-size"] = size[1]
    return attributes


def _local(name: str) -> str:
    return name.rpartition("}")[2]


_VARIABLES_AS_CSS = {color: f"var({variable})" for color, variable in _VARIABLES.items()}
