"""The folder of a run: its record, and whether it may be gone on with."""

import importlib.metadata
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from calyrex import __version__
from calyrex.data.files import read_records
from calyrex.errors import CalyrexError
from calyrex.flags import save_options
from calyrex.options import TrainOptions

RECORD = "run.json"
"""Beside the results: options, data and versions of a run."""
ROWS = "rows.arrow"
_OPTIONS = "options.yaml"

_FREE = ("output_dir", "save_steps", "logging_steps", "report_to")
"""Options that no weight depends on; they may change between two starts."""


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    libraries = ("torch", "transformers", "peft")
    return {"calyrex": __version__, **{name: importlib.metadata.version(name) for name in libraries}}


def find_commit() -> str | None:
    """Return the commit of this program, ``-dirty`` behind it where files differ; None where it is no checkout."""
    folder = Path(__file__).parent
    git = ("git", "-C", str(folder))
    commands = [
        (*git, "ls-files", "--error-unmatch", __file__),
        (*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"),
    ]
    try:
        outputs = [subprocess.run(words, check=True, capture_output=True, text=True).stdout for words in commands]
    except (OSError, subprocess.CalledProcessError):
        return None
    return outputs[-1].strip()


@contextmanager
def open_folder(options: TrainOptions) -> Iterator[None]:
    """Hold the output folder for one run: record it, and drop rows that a start with other options or data has left.

    Raises:
        CalyrexError: the data do not exist, the folder holds the checkpoints or adapter of a run with other options,
            or files of no run of ours, or another process trains in it; nothing is changed then.
    """
    _examine(options)
    folder = Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        record, changed = _examine(options)  # another process may have come first
        if changed:
            (folder / ROWS).unlink(missing_ok=True)
        partial = folder / f"{RECORD}.partial"
        partial.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        os.replace(partial, folder / RECORD)
        save_options(options, folder / _OPTIONS)
        yield


def _examine(options: TrainOptions) -> tuple[dict[str, Any], str]:
    """Return the record of this start and what differs from an earlier one, or refuse the folder or the data."""
    folder = Path(options.output_dir)
    if not (folder / ROWS).exists():
        read_records(options.data)
    plain = json.loads(json.dumps(asdict(options), default=str))
    record = {"options": plain, "data": fingerprint_files(options.data), "versions": versions()}
    earlier = _read_record(folder)
    changed = _changes(earlier, record)
    if earlier is None and any((folder / name).exists() for name in (ROWS, _OPTIONS)):
        raise CalyrexError(f"{folder} holds files of another program or run ({changed}); choose another output_dir")
    if changed:
        _require_fresh(folder, changed)
    return record, changed


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of the folder of a run; the lock ends with the process, however that ends.

    Raises:
        CalyrexError: another process works there.
    """
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise CalyrexError(f"another process works in {folder}; wait for it or choose another output_dir") from error
    try:
        yield
    finally:
        lock.release()


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint folders of a run, oldest first."""
    found = [path for path in folder.glob("checkpoint-*") if path.is_dir() and path.name.split("-", 1)[1].isdecimal()]
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    """Return the step after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def fingerprint_files(data: str) -> list[list[Any]]:
    """Return name, size and time of change of the data files; nothing for a data set of the hub."""
    path = Path(data)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files if file.is_file()]


def _read_record(folder: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    is_ours = isinstance(record, dict) and isinstance(record.get("options"), dict)
    return record if is_ours else None


def _changes(earlier: dict[str, Any] | None, record: dict[str, Any]) -> str:
    """Say what differs between two starts, or nothing."""
    if earlier is None:
        return f"it has no readable {RECORD}"
    before, now = earlier["options"], record["options"]
    differing = [key for key in now if key not in _FREE and before.get(key) != now[key]]
    changed = [f"{key} {before.get(key)} -> {now[key]}" for key in differing]
    if earlier.get("data") != record["data"]:
        changed.append("the data have changed")
    return ", ".join(changed)


def _require_fresh(folder: Path, changed: str) -> None:
    if checkpoints(folder) or (folder / "adapter_model.safetensors").exists():
        raise CalyrexError(f"{folder} holds another run ({changed}); choose another output_dir")
