import json
from pathlib import Path

import pytest

from calyrex.benchmarks.source import Hub, HubFile, Source
from calyrex.errors import CalyrexError

HUB = Hub("owner/data", "test")


def test_rows_come_from_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "rows.jsonl").write_text(json.dumps({"a": 1}) + "\n" + json.dumps({"a": 2}), encoding="utf-8")

    rows = Source(tmp_path).rows("set/rows.jsonl", HUB)

    file = tmp_path / "set" / "rows.jsonl"
    assert rows == [({"a": 1}, f"{file} line 1"), ({"a": 2}, f"{file} line 2")]


def test_a_row_that_is_no_object_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n[1, 2]\n', encoding="utf-8")

    with pytest.raises(CalyrexError, match=r"rows.jsonl line 2: expected an object, got list"):
        Source(tmp_path).rows("rows.jsonl", HUB)


def test_a_missing_file_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(CalyrexError, match=r"set/rows.jsonl is missing; get it from the hub data set owner/data"):
        Source(tmp_path).rows("set/rows.jsonl", HUB)


def test_without_a_data_folder_an_unreachable_hub_is_one_line() -> None:
    with pytest.raises(CalyrexError, match=r"owner/data.*cannot be reached"):
        Source().rows("set/rows.jsonl", HUB)


def test_what_no_hub_has_is_named_with_where_to_get_it() -> None:
    with pytest.raises(CalyrexError, match=r"get set/rows.jsonl from https://example.org .*--data-dir"):
        Source().find("set/rows.jsonl", "https://example.org")


def test_a_missing_file_of_a_hub_data_set_is_named_with_its_place_there(tmp_path: Path) -> None:
    with pytest.raises(CalyrexError, match=r"rows\.jsonl is missing; .*data set owner/name, data/rows\.jsonl"):
        Source(tmp_path).rows("rows.jsonl", HubFile("owner/name", "data/rows.jsonl"))


def test_without_a_data_folder_the_hub_is_asked_for_a_file() -> None:
    with pytest.raises(CalyrexError, match="owner/name"):
        Source().rows("rows.jsonl", HubFile("owner/name", "data/rows.jsonl"))
