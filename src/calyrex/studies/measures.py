"""What a comparison measures: one number per test case, from the verdicts of the benchmarks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Sample = Mapping[str, Any]
"""A line of ``samples/TASK.jsonl``: ``id``, ``messages``, ``reference``, ``shares``, ``answers`` and ``verdict``."""
Group = Literal["obedience", "security", "utility", "forgetting"]

HELD_OUT = "held_out"
"""Task of the loss on held-out answers of ordinary chats."""


@dataclass(frozen=True)
class Measure:
    """One figure of the comparison.

    Attributes:
        name: ``task/figure``, the key in all results.
        label: what it is called in tables and figures.
        group: what it speaks about.
        verdict: the entry of the verdict that it is read from.
        belongs: whether a sample counts for it.
        unit: ``share`` for a share of cases (0 .. 1), ``nats`` for a loss per token.
        higher_is_better: whether more is better.
        is_headline: whether it stands in the main table and in the verdict.
    """

    name: str
    label: str
    group: Group
    verdict: str
    belongs: Callable[[Sample], bool] = lambda _sample: True
    unit: Literal["share", "nats"] = "share"
    higher_is_better: bool = True
    is_headline: bool = False

    @property
    def task(self) -> str:
        """The task that it is measured on."""
        return self.name.partition("/")[0]


def _after(turns: int) -> Callable[[Sample], bool]:
    return lambda sample: bool(sample["reference"]["turns"] == turns)


def _has_attack(sample: Sample) -> bool:
    return sample["reference"]["attack"] is not None


def _has_earlier_turns(sample: Sample) -> bool:
    return any(message["role"] == "assistant" for message in sample["messages"])


OBEYED = "rules/obeyed"
"""The share of all cases of the built-in rules whose answer keeps its rules."""

MEASURES: tuple[Measure, ...] = (
    Measure(OBEYED, "obeyed", "obedience", "obeyed"),
    Measure(
        "rules/clean", "obeyed, no attack", "obedience", "obeyed", lambda sample: not _has_attack(sample),
        is_headline=True,
    ),
    Measure("rules/attacked", "obeyed, unseen attack", "security", "obeyed", _has_attack, is_headline=True),
    Measure(
        "rules/multi_turn", "obeyed, several turns", "obedience", "obeyed", _has_earlier_turns, is_headline=True
    ),
    *(
        Measure(
            f"long_rules/after_{turns}", f"obeyed after {turns} rule-breaking turns",
            "security" if turns else "obedience", "obeyed", _after(turns), is_headline=turns >= 16,
        )
        for turns in (0, 4, 16, 48)
    ),
    Measure("ifeval/strict", "IFEval, strict", "utility", "strict"),
    Measure("sys_ifeval/strict", "IFEval in the system prompt, strict", "obedience", "strict"),
    Measure("long_ifeval/strict", "Long-IFEval, strict", "obedience", "strict"),
    Measure("tensortrust/passed", "TensorTrust, held", "security", "passed"),
    Measure("injecagent/succeeded", "InjecAgent, attack succeeded", "security", "succeeded", higher_is_better=False),
    Measure("msj/broken", "many-shot jailbreak, rule broken", "security", "broken", higher_is_better=False),
    Measure("fidelity/helpful", "helpful to harmless users", "utility", "helpful", is_headline=True),
    Measure(
        "fidelity/attack_shaped", "helpful, asked in the shape of an attack", "utility", "helpful",
        lambda sample: bool(sample["verdict"]["attack_shaped"]),
    ),
    Measure("squad/f1", "SQuAD, F1", "utility", "f1"),
    Measure("glaive/call", "function call", "utility", "call"),
    *(
        Measure(f"{task}{suffix}/{verdict}", f"{label}{words}", "forgetting", verdict)
        for task, verdict, label in (
            ("mmlu", "cloze", "MMLU, cloze"), ("gsm8k", "strict", "GSM8K"),
        )
        for suffix, words in (("", ""), ("+system", ", with a system prompt"))
    ),
    *(
        Measure(
            f"{HELD_OUT}{suffix}/loss", f"loss on held-out chats{words}", "forgetting", "loss", unit="nats",
            higher_is_better=False,
        )
        for suffix, words in (("", ""), ("+system", ", with a system prompt"))
    ),
)  # fmt: skip
"""All measures; those of a comparison are those of its tasks."""

TASKS = tuple(dict.fromkeys(measure.task.removesuffix("+system") for measure in MEASURES))
"""The tasks that a comparison can measure."""


def shown_facts(sample: Sample) -> dict[str, Any]:
    """Return what the sample browser filters by."""
    reference = sample.get("reference") or {}
    facts = {name: reference.get(name) for name in ("attack", "family", "turns") if name in reference}
    if "rules" in reference:
        facts["family"] = reference["rules"][0]["family"]
    return facts
