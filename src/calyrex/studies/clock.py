"""The wall time of a study over all its starts, kept in its record."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calyrex.studies.study import write_json


@dataclass
class Clock:
    """A record on disk, with the wall time of all starts.

    Attributes:
        path: the record's file.
        record: what it says, ``seconds`` of the earlier starts among it.
        started: when this start began, in seconds of ``time.monotonic``.
    """

    path: Path
    record: dict[str, Any]
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Wall time of all starts so far."""
        return float(self.record["seconds"]) + time.monotonic() - self.started

    def save(self) -> None:
        """Write the record with the time so far."""
        write_json(self.path, {**self.record, "seconds": round(self.seconds, 1)})
