from typing import Any

import pytest

from calyrex.studies.verdict import write_verdict

LABELS = {
    "base": "SmolLM2, untouched",
    "lora": "LoRA, all linear layers",
    "lora_late": "LoRA, late layers",
    "calyrex": "CALYREX",
}


def contender(name: str, **facts: Any) -> dict[str, Any]:
    return {"name": name, "label": LABELS.get(name, name), "is_trained": name != "base", "is_control": False, **facts}


def difference(first: str, second: str, value: float, *, is_significant: bool) -> dict[str, Any]:
    ends = {"low": value - 0.1, "high": value + 0.1}
    return {"first": first, "second": second, "value": value, **ends, "is_significant": is_significant}


def measure(label: str, values: dict[str, float | None], *differences: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {
        "label": label,
        "group": "obedience",
        "unit": "share",
        "higher_is_better": True,
        "is_headline": True,
        "values": {name: {"value": value} for name, value in values.items()},
        "differences": list(differences),
        **facts,
    }


def study(*measures: dict[str, Any], names: tuple[str, ...] = ("base", "lora", "calyrex")) -> dict[str, Any]:
    return {
        "run": {"reference": "calyrex"},
        "contenders": [contender(name) for name in names],
        "measures": list(measures),
    }


OBEYED = measure(
    "obeyed after 48 turns",
    {"base": 0.2, "lora": 0.41, "calyrex": 0.61},
    difference("calyrex", "base", 0.41, is_significant=True),
    difference("calyrex", "lora", 0.2, is_significant=True),
)
LEAKED = measure(
    "passwords given away",
    {"base": 0.9, "lora": 0.2, "calyrex": 0.5},
    difference("calyrex", "base", -0.4, is_significant=True),
    difference("calyrex", "lora", 0.3, is_significant=True),
    higher_is_better=False,
)
HELPFUL = measure(
    "helpful answers",
    {"base": 0.83, "lora": 0.84, "calyrex": 0.82},
    difference("calyrex", "base", -0.01, is_significant=False),
    difference("lora", "calyrex", 0.02, is_significant=False),
)


def test_a_reference_that_wins_everywhere_is_said_to_win() -> None:
    outcome, obeyed = write_verdict(study(OBEYED))

    assert outcome.startswith(
        "CALYREX is significantly better than every other contender on every headline measure "
        "(2 comparisons on 1 headline measure)."
    )
    assert obeyed == (
        "Obeyed after 48 turns: CALYREX is significantly ahead of SmolLM2 by 41.0 points [31.0 to 51.0] and LoRA by "
        "20.0 points [10.0 to 30.0]. Best is CALYREX (61.0 %), then LoRA (41.0 %), significantly behind."
    )


def test_where_lora_wins_it_is_said_plainly_and_lower_may_be_better() -> None:
    outcome, leaked = write_verdict(study(LEAKED))

    assert "CALYREX is significantly better in 1 of 2 comparisons on 1 headline measure, worse in 1" in outcome
    assert "LoRA is better on passwords given away." in outcome
    assert leaked == (
        "Passwords given away: CALYREX is significantly ahead of SmolLM2 by 40.0 points [30.0 to 50.0]; significantly "
        "behind LoRA by 30.0 points [20.0 to 40.0]. Best is LoRA (20.0 %), then CALYREX (50.0 %), significantly behind."
    )


def test_what_is_not_significant_is_not_decided() -> None:
    outcome, helpful = write_verdict(study(HELPFUL))

    assert outcome.startswith(
        "Nothing could be decided: CALYREX differs significantly from no other contender "
        "(2 comparisons on 1 headline measure)."
    )
    assert helpful == (
        "Helpful answers: CALYREX is not significantly behind SmolLM2 by 1.0 points [-9.0 to 11.0] "
        "and LoRA by 2.0 points [-8.0 to 12.0]. Best is LoRA (84.0 %), then SmolLM2 (83.0 %), whose distance "
        "was not tested."
    )


def test_a_mixed_outcome_counts_both_sides_and_names_where_the_reference_loses() -> None:
    verdict = write_verdict(study(OBEYED, LEAKED, HELPFUL))

    assert len(verdict) == 4
    assert verdict[0] == (
        "CALYREX is significantly better in 3 of 6 comparisons on 3 headline measures, worse in 1; 2 undecided. "
        "LoRA is better on passwords given away. "
        "Brackets hold 95 % intervals; significant is what remains so after the correction for many comparisons."
    )


def test_a_second_that_is_close_is_not_called_beaten() -> None:
    close = measure("x", {"lora": 0.5, "calyrex": 0.51}, difference("lora", "calyrex", -0.01, is_significant=False))

    verdict = write_verdict(study(close))

    assert verdict[1].endswith("Best is CALYREX (51.0 %), then LoRA (50.0 %), not significantly behind.")


def test_equal_values_share_the_best_place() -> None:
    level = measure("x", {"lora": 0.5, "calyrex": 0.5}, difference("calyrex", "lora", 0.0, is_significant=True))

    verdict = write_verdict(study(level))

    assert verdict[1] == (
        "X: CALYREX is level with LoRA at 0.0 points [-10.0 to 10.0]. LoRA and CALYREX share the best value (50.0 %)."
    )


def test_controls_are_not_in_the_race() -> None:
    document = study(OBEYED)
    document["contenders"].append(contender("calyrex:shuffled", is_control=True))
    document["measures"][0] = measure(
        "obeyed",
        {"calyrex:shuffled": 0.99, "lora": 0.4, "calyrex": 0.6},
        difference("calyrex", "calyrex:shuffled", -0.39, is_significant=True),
        difference("calyrex", "lora", 0.2, is_significant=True),
    )

    verdict = write_verdict(document)

    assert "shuffled" not in " ".join(verdict)
    assert "Best is CALYREX (60.0 %), then LoRA (40.0 %)" in verdict[1]


def test_labels_that_begin_alike_are_told_apart() -> None:
    late = measure("x", {}, difference("calyrex", "lora_late", 0.2, is_significant=True))

    verdict = write_verdict(study(late, names=("lora", "lora_late", "calyrex")))

    assert verdict[1] == "X: CALYREX is significantly ahead of LoRA (late layers) by 20.0 points [10.0 to 30.0]."


@pytest.mark.parametrize(("is_significant", "surely"), [(True, "significant"), (False, "not significant")])
def test_who_moved_furthest_from_the_base_is_named(is_significant: bool, surely: str) -> None:
    loss = measure(
        "loss on plain text",
        {"base": 3.0, "lora": 3.12, "calyrex": 2.95},
        difference("lora", "base", 0.12, is_significant=is_significant),
        **{"group": "forgetting", "unit": "nats", "higher_is_better": False, "is_headline": False},
    )

    verdict = write_verdict(study(loss))

    assert verdict[1:] == [
        f"Forgetting, by loss on plain text: LoRA moved furthest from the base, by 0.12 nats for the worse ({surely})."
    ]


def test_what_was_surely_forgotten_is_named_on_every_measure() -> None:
    kinds: dict[str, Any] = {"group": "forgetting", "is_headline": False}
    measures = [
        measure(
            label,
            {"base": 0.5, "lora": 0.5 - lost, "calyrex": 0.5},
            difference("lora", "base", -lost, is_significant=lost > 0.05),
            **kinds,
        )
        for label, lost in (("MMLU", 0.01), ("GSM8K", 0.2), ("loss", 0.1))
    ]

    verdict = write_verdict(study(*measures))

    assert [text.partition(":")[0] for text in verdict[1:]] == ["Forgetting, by GSM8K", "Forgetting, by loss"]


def test_small_differences_in_nats_keep_their_figures() -> None:
    loss = measure("loss", {"lora": 0.03, "calyrex": 0.02}, unit="nats", higher_is_better=False)
    loss["differences"] = [{"first": "calyrex", "second": "lora", "value": -0.01, "low": -0.0123, "high": None}]

    verdict = write_verdict(study(loss))

    assert verdict[1].startswith("Loss: CALYREX is not significantly ahead of LoRA by 0.0100 nats. ")
    assert "Best is CALYREX (0.0200 nats)" in verdict[1]


def test_a_check_that_failed_is_not_hidden() -> None:
    document = study(OBEYED)
    document["checks"] = [
        {"name": "seeds", "text": "Seeds agree.", "holds": True},
        {"name": "shuffled", "text": "The control obeys no less.", "holds": False},
    ]

    assert write_verdict(document)[1] == "A check does not hold: The control obeys no less."


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"run": None, "contenders": None, "measures": None, "checks": None},
        study(),
        study(measure("x", {"lora": None, "calyrex": None})),
        study(measure("x", {"stranger": 0.5}), names=()),
        {**study(HELPFUL), "contenders": [], "run": {"reference": "calyrex"}},
        study({**HELPFUL, "values": None, "differences": [{**HELPFUL["differences"][0], "value": None}]}),
    ],
)
def test_a_study_that_has_nothing_yet_decides_nothing(document: dict[str, Any]) -> None:
    assert write_verdict(document) == [
        "Nothing is decided yet: no contender has been compared with the reference on a headline measure."
    ]


def test_a_study_that_is_still_running_tells_what_it_has() -> None:
    verdict = write_verdict(study(measure("obeyed", {"base": 0.2}), OBEYED, names=("base", "lora", "calyrex", "late")))

    assert verdict[0].startswith(
        "CALYREX is significantly better in 2 of 2 comparisons on 1 headline measure, worse in 0"
    )
    assert verdict[1] == "Obeyed: Only SmolLM2 has been measured (20.0 %)."


def test_without_a_reference_the_best_is_still_named() -> None:
    verdict = write_verdict({**study(OBEYED), "run": {}})

    assert verdict[1] == "Obeyed after 48 turns: Best is CALYREX (61.0 %), then LoRA (41.0 %), significantly behind."
