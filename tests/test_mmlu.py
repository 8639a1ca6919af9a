import csv
import os
from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="lm-eval is not installed")

from calyrex.benchmarks import mmlu
from calyrex.benchmarks.harness_tasks import find_tasks
from calyrex.benchmarks.mmlu import FOLDER, HUB, Question, load_questions
from calyrex.benchmarks.source import Source
from calyrex.data.files import Record
from calyrex.errors import CalyrexError

ROW = ["What is 1, or 2?", "one", 'two "2"', "three", "None", "C"]
HEADER = ["question", "choice0", "choice1", "choice2", "choice3", "answer"]


def list_subjects() -> list[str]:
    return sorted(path.stem.removeprefix("mmlu_") for path in find_tasks("mmlu/default").glob("mmlu_*.yaml"))


def write(folder: Path, rows: dict[str, list[list[str]]] | None = None) -> Source:
    """Write a file for each subject: two rows each, or those that are given."""
    (folder / FOLDER).mkdir(parents=True)
    for subject in list_subjects():
        with (folder / FOLDER / f"{subject}_test.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows((rows or {}).get(subject, [ROW, ROW]))
    return Source(folder)


def test_all_questions_of_the_57_subjects_are_read(tmp_path: Path) -> None:
    questions = load_questions(write(tmp_path))

    assert len({question.id for question in questions}) == len(questions) == 114
    assert len({question.subject for question in questions}) == 57
    assert questions[0] == Question("abstract_algebra/0", ROW[0], ROW[1:5], 2)


def test_a_file_with_a_header_and_numbers_for_answers_is_read_too(tmp_path: Path) -> None:
    questions = load_questions(write(tmp_path, {"anatomy": [HEADER, [*ROW[:5], "2"]]}))

    assert [question for question in questions if question.subject == "anatomy"] == [
        Question("anatomy/0", ROW[0], ROW[1:5], 2)
    ]


@pytest.mark.parametrize(
    "row", [["x"], [*ROW, "x"], [*ROW[:5], "E"], [*ROW[:5], "4"], [*ROW[:4], "", "A"], []], ids=str
)
def test_a_row_of_the_wrong_shape_is_one_line_with_file_and_row(tmp_path: Path, row: list[str]) -> None:
    source = write(tmp_path, {"anatomy": [ROW, row]})

    with pytest.raises(CalyrexError, match=r"^\S+anatomy_test\.csv row 2: .+, got .+$"):
        load_questions(source)


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    source = write(tmp_path)
    path = tmp_path / FOLDER / "virology_test.csv"

    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CalyrexError, match=r"^cannot read \S+virology_test\.csv"):
        load_questions(source)

    path.unlink()
    with pytest.raises(CalyrexError, match=r"virology_test\.csv is missing; get it from https://"):
        load_questions(source)


def test_questions_of_the_hub_count_by_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"question": "q", "choices": ["a", "b", "c", "d"], "answer": 3}
    rows = [Record({**row, "subject": subject}, "a row") for subject in ("anatomy", "anatomy", "virology")]
    monkeypatch.setattr(Source, "rows", lambda _source, _file, hub: rows if hub == HUB else [])

    questions = load_questions(Source())

    assert [question.id for question in questions] == ["anatomy/0", "anatomy/1", "virology/0"]
    assert questions[0] == Question("anatomy/0", "q", ["a", "b", "c", "d"], 3)


@pytest.mark.slow
@pytest.mark.skipif("CALYREX_EVAL_DATA" not in os.environ, reason="CALYREX_EVAL_DATA names no folder with the data")
def test_the_real_files_hold_14042_questions() -> None:
    questions = load_questions(Source(Path(os.environ["CALYREX_EVAL_DATA"])))

    assert len({question.id for question in questions}) == 14_042
    assert mmlu.LETTERS == "ABCD"
