import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="lm-eval is not installed")

from calyrex.benchmarks.benchmark import Case
from calyrex.benchmarks.gsm8k import FILE, GSM8K, TRAIN_FILE
from calyrex.benchmarks.harness_tasks import find_tasks, read_task
from calyrex.benchmarks.source import Source
from calyrex.errors import CalyrexError
from scored import ODD_ANSWERS, score_all

ROWS = [
    {"question": "Ann has 3 bags of 4 nuts. How many nuts?", "answer": "3 * 4 = <<3*4=12>>12\n#### 12"},
    {"question": "What do 2 cars at $1,500 cost?", "answer": "2 * 1500 = 3000\n#### 3,000"},
    {"question": "How deep is it after 2 m from -3 m?", "answer": "-3 - 2 = -5\n#### -5"},
]
ANSWERS = [
    "#### 12", "The answer is 12", "12", "so 12 in all.", "#### 12.", "####12", "#### 12 #### 13", "a #### 13, no 12",
    "12 nuts.\n\nQuestion: What are 5 and 6?\nAnswer: 11 #### 11", "Question: 12", "12</s>13", "12<|im_end|> 14",
    "3,000", "$3,000.00", "#### $3,000", "#### 3000", "#### 3,000 dollars", "3000.", "-5", "- 5", "#### -5", "#### --5",
    "minus five", "...", "#### .", "#### ", "1 2", "$", "#### 1,2", "12.0", "#### 12.0", "", "word", "A: 12 #### 12 km",
]  # fmt: skip


def write(folder: Path, rows: list[Any], train: list[Any] | None = None) -> Source:
    for file, content in ((FILE, rows), (TRAIN_FILE, train)):
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        if content is not None:
            path.write_text("\n".join(map(json.dumps, content)), encoding="utf-8")
    return Source(folder)


def numbered(count: int) -> list[dict[str, str]]:
    return [{"question": f"What is {n}?", "answer": f"#### {n}"} for n in range(count)]


def harness_verdicts(row: dict[str, str], answers: list[str]) -> list[dict[str, bool]]:
    """What lm-eval's own task makes of answers to a question."""
    from datasets import Dataset
    from lm_eval.models.utils import postprocess_generated_text
    from lm_eval.tasks import TaskManager

    data = Dataset.from_list([row] * len(answers))
    overrides = {"task": "gsm8k", "custom_dataset": lambda **_: {"train": data, "test": data}}
    manager = TaskManager(include_path=str(find_tasks("gsm8k")), include_defaults=False)
    task = manager.load([{"group": "test", "task": [overrides]}])["tasks"]["gsm8k"]
    task.set_fewshot_seed(0)
    task.build_all_requests()
    for instance, answer in zip(task.instances, answers, strict=True):
        until = instance.args[1]["until"]
        instance.resps.append(postprocess_generated_text(answer, until, None))
    task.apply_filters()
    return [
        {
            key: bool(task.process_results(row, [instance.filtered_resps[name]])["exact_match"])
            for key, name in (("strict", "strict-match"), ("flexible", "flexible-extract"))
        }
        for instance in task.instances
    ]


@pytest.mark.filterwarnings("default")  # lm-eval's own are not ours to mend
@pytest.mark.parametrize("row", ROWS, ids=["12", "3000", "-5"])
def test_every_verdict_is_the_one_of_lm_evals_own_task(row: dict[str, str]) -> None:
    case = Case("0", [], {"answer": row["answer"]})

    verdicts = [dict(GSM8K.score(case, [answer])) for answer in ANSWERS]

    assert verdicts == harness_verdicts(row, ANSWERS)


@pytest.mark.parametrize(
    ("answer", "strict", "flexible"),
    [
        ("3 * 4 = 12\n#### 12", True, True),
        ("That makes 12 nuts.", False, True),
        ("#### 12, or maybe 13", True, False),
        ("#### 13", False, False),
        ("#### 12\nQuestion: What is 1 + 1?\nAnswer: #### 2", True, True),
    ],
)
def test_strict_wants_the_marked_number_and_flexible_the_last(answer: str, strict: bool, flexible: bool) -> None:
    case = Case("0", [], {"answer": ROWS[0]["answer"]})

    assert GSM8K.score(case, [answer]) == {"strict": strict, "flexible": flexible}


def test_five_solved_problems_of_the_training_split_come_first(tmp_path: Path) -> None:
    source = write(tmp_path, ROWS, numbered(9))

    first, second, _ = GSM8K.load(source)

    assert [message["role"] for message in first.messages] == ["user", "assistant"] * 5 + ["user"]
    assert first.messages[-1]["content"] == f"Question: {ROWS[0]['question']}\nAnswer:"
    assert first.messages[:10] == second.messages[:10]
    examples = {(first.messages[at]["content"], first.messages[at + 1]["content"]) for at in range(0, 10, 2)}
    assert len(examples) == 5
    assert examples <= {(f"Question: {row['question']}\nAnswer:", row["answer"]) for row in numbered(9)}
    assert first.reference == {"answer": ROWS[0]["answer"]}


def test_another_seed_draws_other_problems(tmp_path: Path) -> None:
    source = write(tmp_path, ROWS, numbered(50))

    first, again, other = (GSM8K.load(Source(source.data_dir, seed))[0].messages for seed in (0, 0, 1))

    assert first == again
    assert first != other


def test_without_a_training_split_lm_evals_problems_come_first_in_the_strict_form(tmp_path: Path) -> None:
    (case,) = GSM8K.load(write(tmp_path, ROWS[:1]))

    solved = [message["content"] for message in case.messages if message["role"] == "assistant"]
    samples = read_task("gsm8k", "gsm8k-cot")["fewshot_config"]["samples"][:5]
    for text, sample in zip(solved, samples, strict=True):
        number = text.rpartition("#### ")[2]
        assert sample["target"].endswith(f" The answer is {number}.")
        assert GSM8K.score(Case("0", [], {"answer": f"#### {number}"}), [text])["strict"]


@pytest.mark.parametrize("row", [{}, {"question": "x"}, {"question": 3, "answer": "x"}])
def test_a_row_of_the_wrong_shape_is_one_line_with_file_and_row(tmp_path: Path, row: object) -> None:
    with pytest.raises(CalyrexError, match=r"^\S+/gsm8k/test\.jsonl line 2: expected a text '.+', got .+$"):
        GSM8K.load(write(tmp_path, [ROWS[0], row], numbered(5)))


@pytest.mark.parametrize("answer", ODD_ANSWERS)
def test_any_text_gets_a_verdict(answer: str) -> None:
    assert not any(GSM8K.score(Case("0", [], {"answer": "#### 12"}), [answer]).values())


def test_the_headline_is_the_strict_match() -> None:
    case = Case("0", [], {"answer": "#### 12"})

    metrics = GSM8K.summarise(score_all(GSM8K, [(case, "#### 12"), (case, "12"), (case, "1"), (case, "")]))

    assert [(name, metric.value) for name, metric in metrics.items()] == [
        ("strict_match", 0.25), ("flexible_extract", 0.5),
    ]  # fmt: skip


def test_a_missing_lm_eval_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)

    with pytest.raises(CalyrexError, match=r"pip install 'calyrex\[eval\]'$"):
        read_task("gsm8k", "gsm8k")


def test_a_task_that_the_installed_lm_eval_lacks_is_named() -> None:
    with pytest.raises(CalyrexError, match="no task gsm9k"):
        read_task("gsm8k", "gsm9k")
    with pytest.raises(CalyrexError, match="no tasks in gsm9k"):
        find_tasks("gsm9k")


@pytest.mark.slow
@pytest.mark.skipif("CALYREX_EVAL_DATA" not in os.environ, reason="CALYREX_EVAL_DATA names no folder with the data")
def test_every_solution_of_the_real_file_is_right() -> None:
    cases = GSM8K.load(Source(Path(os.environ["CALYREX_EVAL_DATA"])))

    assert len(cases) == 1319
    assert all(GSM8K.score(case, [case.reference["answer"]])["strict"] for case in cases)
