"""Where the data of a benchmark comes from: a folder with the original files, or the public hub data set."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from calyrex.data.files import Record, read_records
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

    def __str__(self) -> str:
        return f"the hub data set {self.name}"


class HubFile(NamedTuple):
    """A file of a hub data set that none of its configurations names.

    Attributes:
        name: Id of the data set.
        path: Path of the file in it.
    """

    name: str
    path: str

    def __str__(self) -> str:
        return f"the hub data set {self.name}, {self.path}"


@dataclass(frozen=True)
class Source:
    """Where benchmarks look for their data.

    Attributes:
        data_dir: Folder with a folder for each benchmark; None takes the public hub data sets.
        seed: Seed of what a benchmark draws itself.
    """

    data_dir: Path | None = None
    seed: int = 0

    def find(self, file: str, published: Hub | HubFile | str) -> Path:
        """Return a file of the data folder.

        Args:
            file: Its path in the data folder.
            published: Where a user can get it.

        Raises:
            CalyrexError: There is no data folder, or no such file in it.
        """
        if self.data_dir is None:
            raise CalyrexError(f"no data: get {file} from {published} and give --data-dir the folder it lies in")
        path = self.data_dir / file
        if not path.is_file():
            raise CalyrexError(f"no data: {path} is missing; get it from {published}")
        return path

    def rows(self, file: str, published: Hub | HubFile | str) -> list[Record]:
        """Return the rows of a file of the data folder, or of what the hub has, each an object.

        Args:
            file: Path of the JSON, JSONL or Parquet file in the data folder.
            published: What is read without a data folder; a text says where to get the file that no hub has.

        Raises:
            CalyrexError: There are no such data, they cannot be read, or a row is no object.
        """
        if self.data_dir is None and isinstance(published, Hub):
            return _read_hub(published)
        if self.data_dir is None and isinstance(published, HubFile):
            path = fetch(published.name, [published.path], repo_type="dataset") / published.path
        else:
            path = self.find(file, published)
        records = list(read_records(path))
        for record in records:
            if not isinstance(record.value, dict):
                raise CalyrexError(f"{record.origin}: expected an object, got {type(record.value).__name__}")
        return records


def _read_hub(hub: Hub) -> list[Record]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    fetch(hub.name, ["README.md"], repo_type="dataset")
    try:
        rows = load_dataset(hub.name, hub.config, split=hub.split)
    except (OSError, ValueError, DatasetsError) as error:
        reason = str(error).partition("\n")[0]
        raise CalyrexError(
            f"cannot read the hub data set {hub.name}: {reason}; or give --data-dir a folder with the original files"
        ) from error
    return [Record(row, f"{hub.name} row {number}") for number, row in enumerate(rows, start=1)]
