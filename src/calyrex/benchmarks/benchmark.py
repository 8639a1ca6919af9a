"""What a benchmark is: cases, the verdict on each answer, and figures from all verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calyrex.benchmarks.metric import Metric
from calyrex.benchmarks.source import Source
from calyrex.conversation import check_messages
from calyrex.errors import CalyrexError
from calyrex.masking import Message

Verdict = Mapping[str, bool | float]
"""Named scores of one case, such as ``{"strict": True}``; every case of a benchmark has the same names."""


@dataclass(frozen=True)
class Case:
    """One conversation that a model is asked to go on with.

    Attributes:
        id: Name of the case, the same in every run and unique in its benchmark.
        messages: The conversation in OpenAI's format, the last message from the user.
        reference: What the verdict needs to know, as JSON values.
        answers_each_turn: Whether the model answers every user turn, one after the other; else only the last.
        shares: What it shares with other cases, such as their rule, so that they are not independent; intervals then
            count what is shared. None where it shares nothing.
        repeats_system: Whether the system prompt is said again right before each user turn that is answered.
    """

    id: str
    messages: list[Message]
    reference: dict[str, Any] = field(default_factory=dict)
    answers_each_turn: bool = False
    shares: str | None = None
    repeats_system: bool = False


def check_cases(name: str, cases: list[Case]) -> list[Case]:
    """Return the cases of a benchmark if a model can be asked all of them.

    Raises:
        CalyrexError: There is none, two have the same name, or the messages of one are no conversation that ends
            with the user.
    """
    if not cases:
        raise CalyrexError(f"the data of {name} hold no case")
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise CalyrexError(f"the data of {name} hold two cases that are called {case.id}")
        seen.add(case.id)
        try:
            check_messages(case.messages)
        except CalyrexError as error:
            raise CalyrexError(f"case {case.id} of {name}: {error}") from error
        roles = [message["role"] for message in case.messages]
        if roles[-1] != "user" or not set(roles) <= {"system", "user", "assistant"}:
            raise CalyrexError(f"case {case.id} of {name} must end with the user and hold no tools, got {roles}")
    return cases


@dataclass(frozen=True)
class Scored:
    """A case that was answered, and the verdict on it.

    Attributes:
        case: The case.
        answers: What the model said, one text for each turn that it answered.
        verdict: The verdict on the answers.
        num_prompt_tokens: Tokens of the longest prompt of the case, as the model counts them.
    """

    case: Case
    answers: list[str]
    verdict: Verdict
    num_prompt_tokens: int = 0


def clusters_of(scored: Sequence[Scored]) -> list[str]:
    """Return what each case shares with others, its own name where nothing; as ``metric.share`` takes it."""
    return [one.case.shares or one.case.id for one in scored]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark whose answers are generated.

    Attributes:
        name: Task name, also its key in ``results.json``.
        measures: What it measures, in a few words.
        origin: Paper or repository that it comes from.
        licence: Licence of its data.
        max_new_tokens: Longest answer in tokens.
        load: Makes all cases from a source of data, or raises ``CalyrexError`` in one line.
        score: Gives the verdict on a case from the texts of its answers; where there are ``questions``, from the
            judge's replies to them.
        summarise: Makes the figures of the table from all scored cases, at least one; the first is the headline.
        questions: What a judge model is asked about the answers to a case; None where the check is exact.
    """

    name: str
    measures: str
    origin: str
    licence: str
    max_new_tokens: int
    load: Callable[[Source], list[Case]]
    score: Callable[[Case, Sequence[str]], Verdict]
    summarise: Callable[[Sequence[Scored]], dict[str, Metric]]
    questions: Callable[[Case, Sequence[str]], list[str]] | None = None
