"""Where the data of a benchmark comes from: a folder with the original files, or the public hub data set."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from calyrex.data.files import read_records
from calyrex.errors import CalyrexError
from calyrex.hub import fetch


class Hub(NamedTuple):
    """A data set on the hub.

    Attributes:
        name: Its id there.
        split: Which of its splits.
        config: Which of its configurations, None where it has one only.
    """

    name: str
    split: str
    config: str | None = None


@dataclass(frozen=True)
class Source:
    """Where benchmarks look for their data.

    Attributes:
        data_dir: Folder with a folder for each benchmark; None takes the public hub data sets.
        seed: Seed of what a benchmark draws itself.
    """

    data_dir: Path | None = None
    seed: int = 0

    def find(self, file: str, *, published_at: str) -> Path:
        """Return a file of the data folder.

        Args:
            file: Its path in the data folder.
            published_at: Where a user can get it.

        Raises:
            CalyrexError: There is no data folder, or no such file in it.
        """
        if self.data_dir is None:
            raise CalyrexError(f"no data: get {file} from {published_at} and give --data-dir the folder it lies in")
        path = self.data_dir / file
        if not path.is_file():
            raise CalyrexError(f"no data: {path} is missing; get it from {published_at}")
        return path

    def rows(self, file: str, hub: Hub) -> list[dict[str, Any]]:
        """Return the rows of a file of the data folder, or of the hub data set where there is no data folder.

        Args:
            file: Path of the JSON, JSONL, CSV or Parquet file in the data folder.
            hub: The data set that is read without a data folder.

        Raises:
            CalyrexError: There are no such data, or they cannot be read.
        """
        if self.data_dir is None:
            return _read_hub(hub)
        path = self.find(file, published_at=f"the hub data set {hub.name}, or leave --data-dir out")
        return read_objects(path)


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file.

    Raises:
        CalyrexError: The file cannot be read, or a row is no object.
    """
    rows: list[dict[str, Any]] = []
    for record in read_records(path):
        if not isinstance(record.value, dict):
            raise CalyrexError(f"{record.origin} must be an object, got {type(record.value).__name__}")
        rows.append(record.value)
    return rows


def _read_hub(hub: Hub) -> list[dict[str, Any]]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    fetch(hub.name, ["README.md"], repo_type="dataset")
    try:
        return list(load_dataset(hub.name, hub.config, split=hub.split))
    except (OSError, ValueError, DatasetsError) as error:
        reason = str(error).partition("\n")[0]
        raise CalyrexError(
            f"cannot read the hub data set {hub.name}: {reason}; or give --data-dir a folder with the original files"
        ) from error
