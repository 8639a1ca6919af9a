"""GSM8K: grade-school word problems, answered with working and a number.

Five solved problems come first, each a user and an assistant turn, then the problem. Questions, scoring and the texts
that end an answer are those of the task ``gsm8k`` of the installed lm-eval: its filters and its metric run here.

Metrics, shares of problems:

- ``strict_match``, lm-eval's ``exact_match,strict-match``: the number after ``####`` is the right one. What papers
  quote for five examples. The model card of SmolLM2-135M-Instruct states 1.4 % by lighteval's
  ``quasi_exact_match_gsm8k``, which wants the same form, with answers of 256 tokens as here;
- ``flexible_extract``, lm-eval's ``exact_match,flexible-extract``: the last number of the answer is the right one.

The five problems are drawn once, with the seed, where lm-eval draws five for each problem. Where the data folder has no
``gsm8k/train.jsonl``, they are the first five of lm-eval's task ``gsm8k_cot``, their last sentence put into the form
that the strict metric wants.

Source: Cobbe et al., "Training verifiers to solve math word problems", 2021, arXiv 2110.14168.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from calyrex.benchmarks.benchmark import Benchmark, Case, Scored, Verdict
from calyrex.benchmarks.harness_tasks import read_task
from calyrex.benchmarks.metric import Metric, share
from calyrex.benchmarks.row import read_text
from calyrex.benchmarks.source import Hub, Source

FILE = "gsm8k/test.jsonl"
TRAIN_FILE = "gsm8k/train.jsonl"
HUB = Hub("openai/gsm8k", "test", "main")
TRAIN_HUB = Hub("openai/gsm8k", "train", "main")

_NUM_EXAMPLES = 5
_MAX_NUMBER_CHARACTERS = 1000  # lm-eval's metric takes seconds for a number of 100,000 digits
_SCORES = {"strict-match": "strict", "flexible-extract": "flexible"}
_LAST_SENTENCE = re.compile(r"\s*The answer is (\S+?)\.\s*$")


def _load(source: Source) -> list[Case]:
    examples = [
        message
        for problem in _pick_examples(source)
        for message in (
            {"role": "user", "content": _ask(problem)},
            {"role": "assistant", "content": problem["answer"]},
        )
    ]
    return [
        Case(str(number), [*examples, {"role": "user", "content": _ask(problem)}], {"answer": problem["answer"]})
        for number, problem in enumerate(_read_problems(source, FILE, HUB))
    ]


def _read_problems(source: Source, file: str, hub: Hub) -> Iterator[dict[str, str]]:
    for row, origin in source.rows(file, hub):
        yield {key: read_text(row, key, origin) for key in ("question", "answer")}


def _pick_examples(source: Source) -> list[dict[str, str]]:
    if source.data_dir is not None and not (source.data_dir / TRAIN_FILE).is_file():
        samples = read_task("gsm8k", "gsm8k-cot")["fewshot_config"]["samples"][:_NUM_EXAMPLES]
        answers = [_LAST_SENTENCE.sub(r"\n#### \1", sample["target"]) for sample in samples]
        return [{"question": one["question"], "answer": answer} for one, answer in zip(samples, answers, strict=True)]
    problems = list(_read_problems(source, TRAIN_FILE, TRAIN_HUB))
    return random.Random(source.seed).sample(problems, min(_NUM_EXAMPLES, len(problems)))


def _ask(problem: Mapping[str, str]) -> str:
    from lm_eval.utils import apply_template

    text: str = apply_template(_task()["doc_to_text"], dict(problem))
    return text


@cache
def _task() -> dict[str, Any]:
    return read_task("gsm8k", "gsm8k")


def _score(case: Case, answers: Sequence[str]) -> Verdict:
    """Give the verdict of each of lm-eval's filters.

    Raises:
        CalyrexError: lm-eval is not installed.
    """
    task = _task()
    answer = answers[0]
    for end in task["generation_kwargs"]["until"]:
        answer = answer.partition(end)[0]
    return {
        _SCORES[pipeline["name"]]: _is_right(_filter(pipeline, answer), case.reference["answer"])
        for pipeline in task["filter_list"]
    }


def _filter(pipeline: Mapping[str, Any], answer: str) -> str:
    """Return what one of lm-eval's filters takes for the number of an answer."""
    from lm_eval.api.instance import Instance
    from lm_eval.filters import build_filter_ensemble

    steps = [(step["function"], {key: step[key] for key in step if key != "function"}) for step in pipeline["filter"]]
    instance = Instance("generate_until", {}, (), 0, metadata=("gsm8k", 0, 1), resps=[answer])
    build_filter_ensemble(pipeline["name"], steps).apply([instance])
    number: str = instance.filtered_resps[pipeline["name"]]
    return number


def _is_right(number: str, gold: str) -> bool:
    from lm_eval.api.registry import get_metric

    if len(number) > _MAX_NUMBER_CHARACTERS:
        return False
    (options,) = _task()["metric_list"]
    metric = options["metric"]
    options = {key: options[key] for key in options if key not in ("metric", "aggregation", "higher_is_better")}
    return bool(get_metric(metric)(references=[gold], predictions=[number], **options)[metric])


def _summarise(scored: Sequence[Scored]) -> dict[str, Metric]:
    return {
        "strict_match": share(one.verdict["strict"] for one in scored),
        "flexible_extract": share(one.verdict["flexible"] for one in scored),
    }


GSM8K = Benchmark(
    name="gsm8k",
    measures="arithmetic word problems, five examples",
    origin="GSM8K (arXiv 2110.14168), scored by lm-eval's task gsm8k",
    licence="MIT",
    max_new_tokens=256,
    load=_load,
    score=_score,
    summarise=_summarise,
)
