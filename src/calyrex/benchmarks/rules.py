"""The built-in rules: whether a model keeps exact rules of its system prompt, with and without override attempts.

Source: ``calyrex.data.rules``, whose test split shares no word, phrasing, question or attack with the training split.
The questions are those that ``calyrex demo`` draws for the same seed. Nothing is downloaded, and every check is exact.

``obeyed`` is the share of answers that keep all rules of their system prompt, over the families that the training split
has; ``obeyed_clean`` and ``obeyed_under_attack`` are its parts without and with an override attempt,
``obeyed_single_turn`` and ``obeyed_multi_turn`` those without and with turns before the question. ``never_trained`` is
the same share over the families that no training dialogue has, and ``family_<name>`` over each family.
"""

from collections.abc import Callable, Sequence

from calyrex.benchmarks.benchmark import Benchmark, Case, Scored, Verdict
from calyrex.benchmarks.metric import Metric, share
from calyrex.benchmarks.source import Source
from calyrex.data.rules import HELD_OUT_FAMILIES, TEST_SEED_OFFSET, TRAINED_FAMILIES, Rule, RuleExample, generate_corpus

NUM_TRAINED = 400
"""Questions under a rule of a trained family."""
NUM_NEVER_TRAINED = 100

MAX_NEW_TOKENS = 64
"""An obedient answer has 26 tokens of SmolLM2 at most; other tokenizers need more, and an answer that is cut short
breaks or keeps a rule about its end, its length or its number of lines by accident."""


def _load(source: Source) -> list[Case]:
    """Draw the held-out questions of the source's seed."""
    seed = source.seed + TEST_SEED_OFFSET
    examples = [
        *generate_corpus(NUM_TRAINED, seed=seed, split="test", families=TRAINED_FAMILIES),
        *generate_corpus(NUM_NEVER_TRAINED, seed=seed, split="test", families=HELD_OUT_FAMILIES),
    ]
    return [_make_case(f"rules-{number}", example) for number, example in enumerate(examples, start=1)]


def _score(case: Case, answers: Sequence[str]) -> Verdict:
    """Check the answer.

    Returns:
        ``obeyed``: whether it keeps all rules.
    """
    question = case.reference["question"]
    rules = [Rule(rule["family"], rule["text"], tuple(rule["arguments"])) for rule in case.reference["rules"]]
    return {"obeyed": all(rule.check(question, answers[0]) for rule in rules)}


def _summarise(scored: Sequence[Scored]) -> dict[str, Metric]:
    """Return the shares of obedient answers; the families in the order of the corpus."""
    trained = [item for item in scored if _family(item) in TRAINED_FAMILIES]
    families = [family for family in (*TRAINED_FAMILIES, *HELD_OUT_FAMILIES) if family in map(_family, scored)]
    return {
        "obeyed": _obeyed(trained),
        "obeyed_clean": _obeyed(trained, lambda item: item.case.reference["attack"] is None),
        "obeyed_under_attack": _obeyed(trained, lambda item: item.case.reference["attack"] is not None),
        "obeyed_single_turn": _obeyed(trained, lambda item: not _has_earlier_turns(item)),
        "obeyed_multi_turn": _obeyed(trained, _has_earlier_turns),
        "never_trained": _obeyed(scored, lambda item: _family(item) in HELD_OUT_FAMILIES),
        **{f"family_{family}": _obeyed([item for item in scored if _family(item) == family]) for family in families},
    }


def _make_case(name: str, example: RuleExample) -> Case:
    return Case(
        id=name,
        messages=[{"role": message["role"], "content": message["content"]} for message in example.messages],
        reference={
            "question": example.question,
            "rules": [
                {"family": rule.family, "text": rule.text, "arguments": list(rule.arguments)} for rule in example.rules
            ],
            "attack": example.attack,
            "obedient": example.answer,
        },
    )


def _obeyed(scored: Sequence[Scored], belongs: Callable[[Scored], bool] = lambda _item: True) -> Metric:
    return share(item.verdict["obeyed"] for item in scored if belongs(item))


def _family(item: Scored) -> str:
    return str(item.case.reference["rules"][0]["family"])


def _has_earlier_turns(item: Scored) -> bool:
    return any(message["role"] == "assistant" for message in item.case.messages)


RULES = Benchmark(
    name="rules",
    measures="obeying exact rules of the system prompt, clean and under attack",
    origin="built into CALYREX",
    licence="Apache-2.0",
    max_new_tokens=MAX_NEW_TOKENS,
    load=_load,
    score=_score,
    summarise=_summarise,
)
