"""Rows of benchmark data: a value of the expected kind, or one line that says which row is wrong."""

from collections.abc import Mapping
from typing import Any

from calyrex.benchmarks.source import Hub, Source
from calyrex.errors import CalyrexError


def name_row(source: Source, file: str, hub: Hub, number: int) -> str:
    """Return where a row of ``Source.rows`` stands, for messages.

    Args:
        source: Where the row was read.
        file: Path of the file in the data folder.
        hub: The data set that is read without a data folder.
        number: Number of the row, from 0.
    """
    return f"{file if source.data_dir else hub.name} row {number + 1}"


def read_text(row: object, key: str, origin: str) -> str:
    """Return a text of a row.

    Raises:
        CalyrexError: The row is no mapping, or has no text of that name.
    """
    value = row.get(key) if isinstance(row, Mapping) else None
    if not isinstance(value, str):
        raise CalyrexError(f"{origin}: expected a text {key!r}, got {_describe(row, key)}")
    return value


def read_list(row: object, key: str, origin: str) -> list[Any]:
    """Return a list of a row.

    Raises:
        CalyrexError: The row is no mapping, or has no list of that name.
    """
    value = row.get(key) if isinstance(row, Mapping) else None
    if not isinstance(value, list):
        raise CalyrexError(f"{origin}: expected a list {key!r}, got {_describe(row, key)}")
    return value


def _describe(row: object, key: str) -> str:
    if not isinstance(row, Mapping):
        return f"{type(row).__name__} instead of a row"
    if key not in row:
        return f"only {', '.join(map(repr, row)) or 'nothing'}"
    return type(row[key]).__name__
