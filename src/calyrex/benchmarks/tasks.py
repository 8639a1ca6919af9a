"""Benchmarks as Inspect AI tasks: the same cases and verdicts on any model that Inspect can reach."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from inspect_ai import Task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalSample
from inspect_ai.model import (
    CachePolicy,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    Model,
)
from inspect_ai.scorer import Score, Scorer, Target, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from openai import BadRequestError

from calyrex.benchmarks.benchmark import Benchmark, Case, Scored, Verdict
from calyrex.benchmarks.repetition import repeat_system
from calyrex.errors import CalyrexError
from calyrex.masking import Message

_JUDGE_TOKENS = 1024
_CONTEXT = re.compile(r"context.{0,20}(length|window|size)|too long|maximum.{0,20}tokens", re.IGNORECASE)
"""How servers say that a prompt is longer than the model's context."""

_ROLES: Mapping[str, type[ChatMessage]] = {
    "system": ChatMessageSystem,
    "user": ChatMessageUser,
    "assistant": ChatMessageAssistant,
}
_ANSWERS, _PROMPT_TOKENS, _TOO_LONG = "answers", "num_prompt_tokens", "too_long"


def make_task(
    benchmark: Benchmark,
    cases: Sequence[Case],
    judge: Model | None = None,
    on_case: Callable[[], object] = lambda: None,
    failures: list[CalyrexError] | None = None,
    cache: CachePolicy | None = None,
) -> Task:
    """Make the Inspect task of a benchmark.

    Args:
        benchmark: The benchmark.
        cases: Those of its cases that are asked.
        judge: The model that is asked about the answers, where the benchmark needs one.
        on_case: Called when a case has its verdict.
        failures: Gets the user's mistakes that end the run; Inspect keeps their texts only.
        cache: How Inspect keeps the answers. Its keys hold the model's name and the conversation, but neither weights
            nor adapter, so that a cache must be of one model only.

    Raises:
        CalyrexError: The benchmark needs a judge and there is none.
    """
    if benchmark.questions is not None and judge is None:
        raise CalyrexError(f"{benchmark.name} needs a judge model")
    by_id = {case.id: case for case in cases}
    return Task(
        name=benchmark.name,
        dataset=MemoryDataset([Sample(id=case.id, input=[to_inspect(m) for m in case.messages]) for case in cases]),
        solver=converse(by_id, [] if failures is None else failures),
        scorer=verdict(benchmark, by_id, judge, on_case, cache),
        config=GenerateConfig(max_tokens=benchmark.max_new_tokens, temperature=0.0, cache=cache),
    )


def to_inspect(message: Message) -> ChatMessage:
    """Return a message of a case as one of Inspect's."""
    return _ROLES[message["role"]](content=message["content"])


@solver
def converse(cases: Mapping[str, Case], failures: list[CalyrexError]) -> Solver:
    """Answer the last user turn of a case, or each of them."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        try:
            return await answer(state, generate)
        except CalyrexError as error:
            failures.append(error)
            raise

    async def answer(state: TaskState, generate: Generate) -> TaskState:
        case = cases[str(state.sample_id)]
        history: list[ChatMessage] = []
        state.metadata |= {_ANSWERS: [], _PROMPT_TOKENS: 0, _TOO_LONG: False}
        for number, message in enumerate(case.messages, start=1):
            history.append(to_inspect(message))
            if number < len(case.messages) and not (case.answers_each_turn and message["role"] == "user"):
                continue
            said = case.messages[:number]
            again = repeat_system(said)[number - 1 : -1] if case.repeats_system else []
            state.messages = [*history[:-1], *map(to_inspect, again), history[-1]]
            if not await fits(state, generate):
                state.metadata[_TOO_LONG] = True
                break
            history.append(state.messages[-1])
            state.metadata[_ANSWERS].append(state.output.completion)
            usage = state.output.usage
            state.metadata[_PROMPT_TOKENS] = max(state.metadata[_PROMPT_TOKENS], usage.input_tokens if usage else 0)
        return state

    async def fits(state: TaskState, generate: Generate) -> bool:
        try:
            await generate(state, tool_calls="none")
        except RuntimeError as error:  # Inspect's, from what the server said
            if _is_too_long(error):
                return False
            raise
        return state.output.stop_reason != "model_length"

    return solve


@scorer(metrics=[])
def verdict(
    benchmark: Benchmark,
    cases: Mapping[str, Case],
    judge: Model | None,
    on_case: Callable[[], object],
    cache: CachePolicy | None,
) -> Scorer:
    """Give the verdict of a benchmark; a case that is longer than the model's context gets none."""

    async def score(state: TaskState, target: Target) -> Score:
        case, answers = cases[str(state.sample_id)], list(state.metadata[_ANSWERS])
        texts = answers
        value: Verdict = {}
        if not state.metadata[_TOO_LONG]:
            if benchmark.questions is not None and judge is not None:
                texts = [await _ask(judge, question, cache) for question in benchmark.questions(case, answers)]
            value = benchmark.score(case, texts)
        on_case()
        explanation = "\n\n".join(texts) if texts is not answers else None
        return Score(value=dict(value), answer="\n\n".join(answers), explanation=explanation)

    return score


def read_sample(sample: EvalSample, case: Case) -> Scored | None:
    """Read what a model made of a case; None where it was longer than the model's context."""
    if sample.metadata[_TOO_LONG] or not sample.scores:
        return None
    score = sample.scores["verdict"]
    if not isinstance(score.value, dict):
        raise TypeError(f"expected named scores of sample {sample.id}, got {score.value!r}")
    return Scored(
        case, list(sample.metadata[_ANSWERS]), cast(Verdict, score.value), int(sample.metadata[_PROMPT_TOKENS])
    )


def _is_too_long(error: RuntimeError) -> bool:
    return isinstance(error.__cause__, BadRequestError) and _CONTEXT.search(str(error.__cause__)) is not None


async def _ask(judge: Model, question: str, cache: CachePolicy | None) -> str:
    """Ask the judge; a question that is too long for it has no reply, which counts as unjudged."""
    config = GenerateConfig(max_tokens=_JUDGE_TOKENS, temperature=0.0, cache=cache)
    try:
        output = await judge.generate(question, config=config)
    except RuntimeError as error:
        if _is_too_long(error):
            return ""
        raise
    return "" if output.stop_reason == "model_length" else output.completion
