"""MMLU through lm-eval: which of four choices a model finds likeliest.

The prompts, the choices and the verdicts are those of the installed lm-eval's tasks, in two formats of the same
questions:

- *letters*, its group ``mmlu``: the choices stand in the prompt, the model rates their letters;
- *cloze*, its group ``mmlu_continuation``: only the question does, the model rates the text of each choice. Small
  models know more than they can put into letters.

Without a system prompt the model gets the plain text that published figures stand for, without chat template. With one
the question is a user turn in the chat template, and lm-eval's first line about the subject follows the system prompt
in the system turn, as lm-eval does it, so that blocks hear both.
"""

import io
import logging
import math
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calyrex.benchmarks.benchmark import Case, Scored
from calyrex.benchmarks.harness_tasks import find_tasks
from calyrex.benchmarks.mmlu import LETTERS, Question
from calyrex.benchmarks.repetition import SystemPrompt
from calyrex.errors import CalyrexError

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_FORMATS = {"letters": ("mmlu/default", "mmlu_{}"), "cloze": ("mmlu/continuation", "mmlu_{}_continuation")}
_METRICS = {"letters": "acc", "cloze": "acc_norm"}
_logger = logging.getLogger(__name__)


def evaluate_mmlu(
    model: "PreTrainedModel | PeftModel",
    tokenizer: "PreTrainedTokenizerBase",
    questions: Sequence[Question],
    *,
    system: SystemPrompt | None = None,
    cache_file: Path | None = None,
    on_progress: Callable[[float], object] = lambda _share: None,
) -> list[Scored]:
    """Ask questions in both formats.

    Args:
        model: The base, or the base with an adapter.
        tokenizer: Its tokenizer.
        questions: What to ask, at least one question.
        system: System prompt; None asks in plain text without chat template.
        cache_file: Where answers are kept as they come, to go on after a stop; for this model and adapter only.
        on_progress: Called after each batch with the share of the work that is done, 0 .. 1.

    Returns:
        For each question that fits the model: a case whose reference holds ``gold``, and for both formats the
        ``prompts`` and the ``log_likelihoods`` of the choices; as answers the likeliest letter and the likeliest
        choice; the verdict ``letters`` and ``cloze``.

    Raises:
        CalyrexError: lm-eval is not installed, or the chat template has no place for the system prompt.
    """
    find_tasks("mmlu")
    from lm_eval.evaluator import evaluate

    from calyrex.benchmarks.harness_model import HarnessModel

    num_requests = len(_FORMATS) * len(LETTERS) * len(questions)

    def report(num_left: int) -> None:
        on_progress(1 - num_left / num_requests)

    with _quiet():
        inner = HarnessModel(
            model,
            tokenizer,
            has_system=system is not None,
            repeats_system=system is not None and system.is_repeated,
            on_batch=report,
        )
        with _caching(inner, cache_file) as lm:
            tasks = _build_tasks(questions)
            with redirect_stderr(io.StringIO()):  # lm-eval's bars; ours is written by the caller's console
                results = evaluate(
                    lm,
                    tasks,
                    bootstrap_iters=0,
                    system_instruction=system.text if system else None,
                    apply_chat_template=system is not None,
                )
    samples = _sort_samples(results["samples"])
    scored = [_make_scored(question, samples[question.id], system, inner.tok_encode) for question in questions]
    measured = [one for one in scored if one is not None]
    if len(measured) < len(questions):
        _logger.warning("left out, too long for the model: %d of MMLU's questions", len(questions) - len(measured))
    on_progress(1.0)
    return measured


def _build_tasks(questions: Sequence[Question]) -> dict[str, Any]:
    """Make lm-eval's tasks of these questions, both formats of each subject."""
    from lm_eval.tasks import TaskManager

    subjects = defaultdict(list)
    for question in questions:
        subjects[question.subject].append(question)
    manager = TaskManager(
        include_path=[str(find_tasks(folder)) for folder, _ in _FORMATS.values()], include_defaults=False
    )
    members = [
        {"task": name.format(subject), "custom_dataset": _dataset_of(chosen), "num_fewshot": 0}
        for subject, chosen in subjects.items()
        for _, name in _FORMATS.values()
    ]
    tasks: dict[str, Any] = manager.load([{"group": "calyrex_mmlu", "task": members}])
    return tasks


def _dataset_of(questions: Sequence[Question]) -> Callable[..., Any]:
    """Return a function that gives lm-eval the data set of one subject."""
    from datasets import Dataset

    rows = Dataset.from_list(
        [{"id": one.id, "question": one.text, "choices": one.choices, "answer": one.gold} for one in questions]
    )
    # Examples are drawn from "dev", and there are none.
    return lambda **_options: {"test": rows, "dev": rows.select([])}


def _sort_samples(samples: Mapping[str, list[dict[str, Any]]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what lm-eval found, by the question's id and the format."""
    found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for task, rows in samples.items():
        form = "cloze" if task.endswith("_continuation") else "letters"
        for row in rows:
            found[row["doc"]["id"]][form] = row
    return found


def _make_scored(
    question: Question,
    samples: Mapping[str, dict[str, Any]],
    system: SystemPrompt | None,
    encode: Callable[[str], list[int]],
) -> Scored | None:
    """Return the question with its verdict, None where it was too long for the model."""
    prompts = {form: row["arguments"][0][0] for form, row in samples.items()}
    rated = {form: [float(answer[0]) for answer in row["filtered_resps"]] for form, row in samples.items()}
    if any(math.isnan(value) for values in rated.values() for value in values):
        return None
    by_character = [value / len(choice) for value, choice in zip(rated["cloze"], question.choices, strict=True)]
    messages = [{"role": "user", "content": question.text}]
    if system:
        messages.insert(0, {"role": "system", "content": system.text})
    reference = {"gold": question.gold, "choices": question.choices, "prompts": prompts, "log_likelihoods": rated}
    return Scored(
        case=Case(question.id, messages, reference),
        answers=[
            LETTERS[rated["letters"].index(max(rated["letters"]))],
            question.choices[by_character.index(max(by_character))],
        ],
        verdict={form: bool(samples[form][metric]) for form, metric in _METRICS.items()},
        num_prompt_tokens=max(len(encode(prompt)) for prompt in prompts.values()),
    )


@contextmanager
def _caching(model: Any, file: Path | None) -> Iterator[Any]:
    """Let lm-eval keep the answers of a model in an SQLite file as they come."""
    if file is None:
        yield model
        return
    from lm_eval.api.model import CachingLM

    _set_aside_if_damaged(file)
    caching = CachingLM(model, str(file))
    try:
        yield caching
    finally:
        caching.dbdict.close()


def _set_aside_if_damaged(file: Path) -> None:
    """Rename a cache file that is no sound database.

    Raises:
        CalyrexError: The file cannot be opened, such as while another run uses it.
    """
    if not file.exists():
        return
    try:
        with closing(sqlite3.connect(file, timeout=1)) as database:
            is_sound = database.execute("PRAGMA quick_check").fetchone() == ("ok",)
    except sqlite3.OperationalError as error:
        raise CalyrexError(f"cannot open the cache {file}: {error}; is another run using it?") from error
    except sqlite3.DatabaseError:
        is_sound = False
    if not is_sound:
        aside = file.with_name(f"{file.name}.damaged")
        file.replace(aside)
        file.with_name(f"{file.name}-journal").unlink(missing_ok=True)  # belongs to the damaged file
        _logger.warning("the cache %s is damaged: it is now %s, and all questions are asked anew", file, aside)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence lm-eval's advice about things that are meant as they are."""
    log = logging.getLogger("lm_eval")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
