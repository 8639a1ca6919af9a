"""Rows of benchmark data: a value of the expected kind, or one line that says which row is wrong."""

from collections.abc import Mapping
from typing import Any

from calyrex.errors import CalyrexError


def read_text(row: object, key: str, origin: str) -> str:
    """Return a text of a row.

    Raises:
        CalyrexError: The row is no mapping, or has no text of that name.
    """
    value = row.get(key) if isinstance(row, Mapping) else None
    if not isinstance(value, str):
        raise _make_error(row, key, "text", origin)
    return value


def read_list(row: object, key: str, origin: str) -> list[Any]:
    """Return a list of a row.

    Raises:
        CalyrexError: The row is no mapping, or has no list of that name.
    """
    value = row.get(key) if isinstance(row, Mapping) else None
    if not isinstance(value, list):
        raise _make_error(row, key, "list", origin)
    return value


def _make_error(row: object, key: str, kind: str, origin: str) -> CalyrexError:
    if not isinstance(row, Mapping):
        given = f"{type(row).__name__} instead of a row"
    elif key not in row:
        given = f"only {', '.join(map(repr, row)) or 'nothing'}"
    else:
        given = type(row[key]).__name__
    return CalyrexError(f"{origin}: expected a {kind} {key!r}, got {given}")
