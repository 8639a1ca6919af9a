import json
from pathlib import Path

import pytest

from calyrex.benchmarks.repository import read_published
from calyrex.benchmarks.source import Source
from calyrex.errors import CalyrexError


def test_rows_of_the_data_folder_come_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"a": 1}), encoding="utf-8")

    records = list(read_published(Source(tmp_path), "rows.jsonl", name="owner/name", path="data/rows.jsonl"))

    assert [(record.value, record.origin) for record in records] == [({"a": 1}, f"{tmp_path}/rows.jsonl line 1")]


def test_a_missing_file_is_named_with_the_place_where_it_is_published(tmp_path: Path) -> None:
    with pytest.raises(CalyrexError, match=r"rows\.jsonl is missing; .*datasets/owner/name, data/rows\.jsonl"):
        read_published(Source(tmp_path), "rows.jsonl", name="owner/name", path="data/rows.jsonl")


def test_without_a_data_folder_the_hub_is_asked() -> None:
    with pytest.raises(CalyrexError, match="owner/name"):
        read_published(Source(), "rows.jsonl", name="owner/name", path="data/rows.jsonl")
