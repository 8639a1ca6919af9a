"""How a run was made: the facts that the pages of all studies end with."""

from collections.abc import Mapping, Sequence
from typing import Any

from calyrex.report import numbers

_MAPPINGS = (("Options", "options"), ("Versions", "versions"))


def tabulate_facts(
    run: Mapping[str, Any], own: Sequence[tuple[str, object]]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the facts of a run as captions with names and values.

    Args:
        run: command, commit, machine, seconds, options and versions; each may be missing.
        own: names and values that only this kind of study has.
    """
    facts = [
        ("command", run.get("command")),
        ("commit", run.get("commit")),
        ("machine", run.get("machine")),
        ("time", numbers.spell_seconds(run.get("seconds"))),
        *own,
    ]
    tables = [("Run", facts if run else []), *((title, list((run.get(key) or {}).items())) for title, key in _MAPPINGS)]
    return [
        (title, [(str(name), numbers.MISSING if value is None else str(value)) for name, value in table])
        for title, table in tables
        if table
    ]
