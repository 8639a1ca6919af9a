"""One self-contained HTML page: a template with its style and script, which loads nothing and runs nothing else."""

import base64
import hashlib
import importlib.resources
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from calyrex.report.plain import make_visible

_TEMPLATES = "templates"
_SHARED_STYLE = "page.css"


def render_page(name: str, values: Mapping[str, Any], filters: Mapping[str, Callable[..., str]]) -> str:
    """Render ``NAME.html`` with the style all pages share, ``NAME.css`` and ``NAME.js``.

    Args:
        name: the template's name without its ending.
        values: what the template shows; all text is escaped.
        filters: the template's filters besides ``visible``.
    """
    style, script = _read(_SHARED_STYLE) + _read(f"{name}.css"), _read(f"{name}.js")
    environment = _environment()
    environment.filters.update(filters)
    return environment.get_template(f"{name}.html").render(
        {**values, "style": style, "script": script, "policy": _policy(style, script)}
    )


def write_whole(path: Path, text: str) -> None:
    """Write a file as a whole or not at all; an older one is replaced."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def has_matplotlib() -> bool:
    """Say whether figures can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("calyrex.report", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = make_visible
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    return environment


def _read(name: str) -> Markup:
    return Markup((importlib.resources.files("calyrex.report") / _TEMPLATES / name).read_text(encoding="utf-8"))


def _policy(style: str, script: str) -> str:
    """Allow the page's own style and script and nothing else, so that no text in it can run or fetch anything."""
    sources = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    return f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
