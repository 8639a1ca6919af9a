"""Lists and tables of Markdown, and text of others that is no markup in them."""

import re
from collections.abc import Sequence

_ACTIVE = re.compile(r"[\\`*<>|~]|\](?=[(\[:])|(?<!\w)_|_(?!\w)|&(?=[#\w])")


def list_lines(sentences: Sequence[str]) -> str:
    """Write a bulleted list of texts that are Markdown already."""
    return "\n".join(f"- {sentence}" for sentence in sentences)


def table_of(heading: Sequence[str], table: Sequence[Sequence[str]], num_texts: int = 1) -> str:
    """Write a table of cells that are Markdown already, all but the first ``num_texts`` columns to the right."""
    rule = ["---"] * num_texts + ["---:"] * (len(heading) - num_texts)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heading, rule, *table])


def escape(text: str) -> str:
    """Write text so that no character of it is Markdown or HTML, on one line."""
    line = " ".join(text.split())
    line = _ACTIVE.sub(lambda match: "&amp;" if match[0] == "&" else f"\\{match[0]}", line)
    return re.sub(r"^([#+-]|\d+[.)])(?=\s)", lambda match: f"{match[0][:-1]}\\{match[0][-1]}", line)
