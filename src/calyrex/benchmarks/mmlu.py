"""MMLU: questions with four choices in 57 subjects.

Metrics, shares of questions; ``calyrex.benchmarks.harness`` asks them:

- ``accuracy``: lm-eval's ``acc`` of its group ``mmlu``: the likeliest of the letters A .. D is the right one;
- ``accuracy_cloze``: lm-eval's ``acc_norm`` of its group ``mmlu_continuation``: the likeliest of the choices, by
  log-likelihood for each character, is the right one. The model card of SmolLM2-135M-Instruct states 29.3 % for
  "MMLU (cloze)", measured with lighteval and a slightly different first line.

No examples come first, lm-eval's default; figures with the usual five are not comparable.

Source: Hendrycks et al., "Measuring massive multitask language understanding", 2020, arXiv 2009.03300.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from calyrex.benchmarks.benchmark import Scored
from calyrex.benchmarks.harness_tasks import find_tasks
from calyrex.benchmarks.metric import Metric, share
from calyrex.benchmarks.row import read_list, read_text
from calyrex.benchmarks.source import Hub, Source
from calyrex.errors import CalyrexError

NAME = "mmlu"
ORIGIN = "MMLU (arXiv 2009.03300) through lm-eval's tasks mmlu and mmlu_continuation"
LICENCE = "MIT"
FOLDER = "mmlu/test"
HUB = Hub("cais/mmlu", "test", "all")
LETTERS = "ABCD"


class Question(NamedTuple):
    """A question of MMLU.

    Attributes:
        id: ``subject/number``, such as ``anatomy/0``, counted as in the original file.
        text: The question.
        choices: The four choices.
        gold: Number of the right choice, 0 .. 3.
    """

    id: str
    text: str
    choices: list[str]
    gold: int

    @property
    def subject(self) -> str:
        """Name of the subject."""
        return self.id.partition("/")[0]


def load_questions(source: Source) -> list[Question]:
    """Return the questions of all subjects.

    Args:
        source: Where the data are: ``mmlu/test/<subject>_test.csv`` with or without a header, or the hub.

    Raises:
        CalyrexError: lm-eval is not installed, the data are missing, or a row is wrong.
    """
    return list(_read_folder(source) if source.data_dir else _read_hub(source))


def summarise_mmlu(scored: Sequence[Scored]) -> dict[str, Metric]:
    """Return the figures of the table, the headline first."""
    return {
        "accuracy": share(one.verdict["letters"] for one in scored),
        "accuracy_cloze": share(one.verdict["cloze"] for one in scored),
    }


def _list_subjects() -> list[str]:
    """Return lm-eval's 57 subjects."""
    stems = [path.stem for path in find_tasks("mmlu/continuation").glob("mmlu_*.yaml")]
    return sorted(stem.removeprefix("mmlu_") for stem in stems)


def _read_folder(source: Source) -> Iterator[Question]:
    for subject in _list_subjects():
        path = source.find(f"{FOLDER}/{subject}_test.csv", "https://github.com/hendrycks/test")
        rows = _read_csv(path)
        has_header = bool(rows) and rows[0][:1] == ["question"] and rows[0][-1] == "answer"
        for number, row in enumerate(rows[has_header:]):
            origin = f"{path} row {number + 1}"
            if len(row) != len(LETTERS) + 2:
                raise CalyrexError(f"{origin}: expected question, four choices and answer, got {len(row)} columns")
            question, *choices, answer = row
            yield _make_question(f"{subject}/{number}", question, choices, answer, origin)


def _read_csv(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CalyrexError(f"cannot read {path}: {error}") from error


def _read_hub(source: Source) -> Iterator[Question]:
    counts: dict[str, int] = {}
    for row, origin in source.rows(FOLDER, HUB):
        subject = read_text(row, "subject", origin)
        counts[subject] = counts.get(subject, -1) + 1
        question, choices = read_text(row, "question", origin), read_list(row, "choices", origin)
        yield _make_question(f"{subject}/{counts[subject]}", question, choices, str(row.get("answer")), origin)


def _make_question(question_id: str, text: str, choices: list[Any], answer: str, origin: str) -> Question:
    """Make a question whose answer is given as its letter or its number."""
    if len(choices) != len(LETTERS) or not all(isinstance(choice, str) and choice for choice in choices):
        raise CalyrexError(f"{origin}: expected four choices with text, got {choices!r}")
    gold = {**{letter: at for at, letter in enumerate(LETTERS)}, **{str(at): at for at in range(len(LETTERS))}}
    if answer not in gold:
        raise CalyrexError(f"{origin}: the answer must be A .. D or 0 .. 3, got {answer!r}")
    return Question(question_id, text, choices, gold[answer])
