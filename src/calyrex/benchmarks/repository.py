"""Files of hub data sets that no configuration of the data set names."""

from collections.abc import Iterator

from calyrex.benchmarks.source import Source
from calyrex.data.files import Record, read_records
from calyrex.hub import fetch


def read_published(source: Source, file: str, *, name: str, path: str) -> Iterator[Record]:
    """Read the rows of a file of the data folder, or of a file of a hub data set where there is no data folder.

    Args:
        source: Where benchmarks look for their data.
        file: Path in the data folder.
        name: Id of the data set on the hub.
        path: Path of the same file there.

    Raises:
        CalyrexError: There is no such file, or it cannot be read.
    """
    if source.data_dir is None:
        return read_records(fetch(name, [path], repo_type="dataset") / path)
    return read_records(source.find(file, published_at=f"https://huggingface.co/datasets/{name}, {path}"))
