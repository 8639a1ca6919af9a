"""Rows of a data set, one at a time: from files of any size, a folder of them, or the hub."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from calyrex.errors import CalyrexError
from calyrex.hub import fetch, is_hub_id

JSON_LIMIT_BYTES = 200 * 2**20
"""Largest ``.json`` file that is read: it must be held in memory as a whole."""

_KNOWN = ".jsonl, .jsonl.gz, .json or .parquet"
_EXCERPT_CHARACTERS = 60
_BATCH_ROWS = 256


class Record(NamedTuple):
    """One row of a data set.

    Attributes:
        value: what the row holds, a mapping if the data is sound.
        origin: where it stands, such as ``train.jsonl line 3``.
    """

    value: Any
    origin: str


def read_records(source: str | Path) -> Iterator[Record]:
    """Stream the rows of a data set; memory does not grow with its size.

    Args:
        source: A file (``.jsonl``, ``.jsonl.gz``, ``.json``, ``.parquet``), a folder of such files, or a hub
            data set, ``owner/name`` or ``owner/name:split``.

    Raises:
        CalyrexError: The source does not exist (at once), or it is empty, damaged or no JSON (when reached).
    """
    path = Path(source).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and _is_known(file))
        if not files:
            raise CalyrexError(f"no data in {path}: expected files that end in {_KNOWN}")
        return (row for file in files for row in _read_file(file))
    if path.exists():
        if not _is_known(path):
            raise CalyrexError(f"cannot read {path}: expected a file that ends in {_KNOWN}")
        return _read_file(path)
    name, _, split = str(source).partition(":")
    if isinstance(source, Path) or _is_known(path) or not is_hub_id(name):
        raise CalyrexError(f"no data at {source}: expected a file, a folder or a hub data set")
    return _read_hub(name, split or "train")


def _is_known(path: Path) -> bool:
    return path.name.endswith((".jsonl", ".jsonl.gz", ".json", ".parquet"))


def _read_file(path: Path) -> Iterator[Record]:
    if path.suffix == ".parquet":
        rows = _read_parquet(path)
    elif path.suffix == ".json":
        rows = _read_json(path)
    else:
        rows = _read_json_lines(path)
    is_empty = True
    try:
        for row in rows:
            is_empty = False
            yield row
    except (OSError, EOFError, zlib.error) as error:
        raise CalyrexError(f"cannot read {path}: {error}; check the file or copy it again") from error
    if is_empty:
        raise CalyrexError(f"{path} is empty: expected at least one conversation")


def _read_json_lines(path: Path) -> Iterator[Record]:
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            origin = f"{path} line {number}"
            text = _decode(line, origin)
            if text.strip():
                yield Record(_parse(text, origin), origin)


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _read_json(path: Path) -> Iterator[Record]:
    size_bytes = path.stat().st_size
    if size_bytes > JSON_LIMIT_BYTES:
        raise CalyrexError(
            f"{path} has {size_bytes // 2**20} MB, and a .json file may have {JSON_LIMIT_BYTES // 2**20}: "
            "write one conversation a line (.jsonl), which is read at any size"
        )
    text = _decode(path.read_bytes(), str(path))
    if not text.strip():
        return
    content = _parse(text, str(path))
    rows = content.get("data") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise CalyrexError(f'{path} must hold a list of conversations, or {{"data": [...]}}')
    for number, row in enumerate(rows, start=1):
        yield Record(row, f"{path} row {number}")


def _decode(content: bytes, origin: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CalyrexError(
            f"{origin}: byte {error.start + 1} is no UTF-8 ({content[error.start]:#04x}); save the file as UTF-8"
        ) from error


def _parse(text: str, origin: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        excerpt = text[max(0, error.pos - _EXCERPT_CHARACTERS // 2) :][:_EXCERPT_CHARACTERS].strip()
        way_out = "; name it .jsonl if each line is a conversation" if error.msg == "Extra data" else ""
        raise CalyrexError(
            f"{origin}: broken JSON at character {error.pos + 1} ({error.msg}), near {excerpt!r}{way_out}"
        ) from error
    except RecursionError as error:
        raise CalyrexError(f"{origin}: the JSON is nested too deeply to be a conversation") from error
    except ValueError as error:
        raise CalyrexError(f"{origin}: a number has too many digits ({error})") from error


def _read_parquet(path: Path) -> Iterator[Record]:
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for value in batch.to_pylist():
                    number += 1
                    yield Record(value, f"{path} row {number}")
    except pyarrow.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise CalyrexError(f"cannot read {path}: {reason}; check the file or copy it again") from error


def _read_hub(name: str, split: str) -> Iterator[Record]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    fetch(name, ["README.md"], repo_type="dataset")
    try:
        dataset = load_dataset(name, split=split, streaming=True)
    except (OSError, ValueError, DatasetsError) as error:
        reason = str(error).partition("\n")[0]
        raise CalyrexError(
            f"cannot read the split {split!r} of the hub data set {name}: {reason}; give name:split"
        ) from error
    return (Record(value, f"{name}:{split} row {number}") for number, value in enumerate(dataset, start=1))
