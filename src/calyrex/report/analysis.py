"""The report of ``calyrex analyze``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE, TABLE = "report.html", "analysis.md"


def write_analysis(folder: Path, document: Mapping[str, Any]) -> None:
    """Write the verdict as ``analysis.md``.

    Args:
        folder: an existing folder.
        document: what ``analysis.json`` holds.
    """
    (folder / TABLE).write_text("\n\n".join(document["verdict"]) + "\n", encoding="utf-8")
