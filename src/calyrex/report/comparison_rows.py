"""The tables of a comparison as rows of text, the same for HTML and Markdown, also of an incomplete document."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from calyrex.report import numbers
from calyrex.report.facts import tabulate_facts

Document = Mapping[str, Any]
BETTER, WORSE = "better", "worse"
GROUPS = ("obedience", "security", "utility", "forgetting")
"""Groups of measures, in the order in which they are shown; others follow."""


class Cell(NamedTuple):
    """A figure of one contender.

    Attributes:
        value: the figure with its unit.
        interval: its 95 % interval, empty where there is none.
        verdict: ``BETTER`` or ``WORSE`` than the reference where that is significant after correction, else empty.
    """

    value: str
    interval: str
    verdict: str


class ContenderRow(NamedTuple):
    """A contender and what was measured of it.

    Attributes:
        contender: its entry of the document.
        is_reference: whether the others are compared with it.
        cells: one for each headline measure.
    """

    contender: Mapping[str, Any]
    is_reference: bool
    cells: list[Cell]


class BudgetRow(NamedTuple):
    """What a contender takes to train and to use, as text.

    Attributes:
        label: its name for readers.
        parameters: number of trainable parameters.
        budget_difference: how far that is from the budget, in percent.
        learning_rate: the one chosen.
        search: learning rate, loss and whether it was chosen, for each one tried.
        tokens: tokens trained on.
        train_time: CPU time of one seed's training.
        wall_time: its wall time, other jobs beside it.
        peak_memory: the most memory held in training.
        added_flops: floating-point operations added to each token.
    """

    label: str
    parameters: str
    budget_difference: str
    learning_rate: str
    search: list[tuple[str, str, bool]]
    tokens: str
    train_time: str
    wall_time: str
    peak_memory: str
    added_flops: str


class DifferenceRow(NamedTuple):
    """One difference between two contenders, as text.

    Attributes:
        first: label of the first contender.
        second: label of the one whose figure is subtracted.
        value: the difference with its unit.
        interval: its 95 % interval.
        p_value: before correction.
        adjusted_p_value: after correction.
        winner: label of the better one where the difference is significant after correction, else empty.
    """

    first: str
    second: str
    value: str
    interval: str
    p_value: str
    adjusted_p_value: str
    winner: str


def list_of(entry: Mapping[str, Any], key: str) -> list[Any]:
    """Return a list of the document, empty where it is missing."""
    return list(entry.get(key) or [])


def labels(document: Document) -> dict[str, str]:
    """Return each contender's label by its name."""
    return {str(entry["name"]): label_of(entry) for entry in list_of(document, "contenders")}


def label_of(entry: Mapping[str, Any]) -> str:
    """Return the label of a contender or a measure, its name where it has none."""
    return str(entry.get("label") or entry["name"])


def reference_of(document: Document) -> str | None:
    """Return the name of the contender that the others are compared with."""
    reference = (document.get("run") or {}).get("reference")
    return None if reference is None else str(reference)


def verb_of(document: Document) -> str:
    """Return the verb that made the document, from its command."""
    command = str((document.get("run") or {}).get("command") or "")
    return "ablate" if command.startswith("calyrex ablate") else "compare"


def headlines(document: Document) -> list[Mapping[str, Any]]:
    """Return the measures that the verdict rests on."""
    return [measure for measure in list_of(document, "measures") if measure.get("is_headline")]


def unit_of(measure: Mapping[str, Any]) -> str:
    """Return the unit of a measure, ``share`` being one of 0 .. 1."""
    return str(measure.get("unit") or "")


def is_higher_better(measure: Mapping[str, Any]) -> bool:
    """Say whether a higher figure is the better one."""
    return bool(measure.get("higher_is_better", True))


def value_of(measure: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a contender's figure, empty where it was not measured."""
    return (measure.get("values") or {}).get(name) or {}


def contender_rows(document: Document) -> list[ContenderRow]:
    """Return the main table: contenders by headline measures."""
    reference = reference_of(document)
    return [
        ContenderRow(
            entry,
            entry["name"] == reference,
            [_cell(measure, str(entry["name"]), reference) for measure in headlines(document)],
        )
        for entry in list_of(document, "contenders")
    ]


def _cell(measure: Mapping[str, Any], name: str, reference: str | None) -> Cell:
    figure, unit = value_of(measure, name), unit_of(measure)
    value = numbers.spell_value(figure.get("value"), unit)
    interval = numbers.spell_interval(figure.get("low"), figure.get("high"), unit)
    winners = {
        winner_of(measure, difference)
        for difference in list_of(measure, "differences")
        if {difference["first"], difference["second"]} == {name, reference}
    } - {None}
    if value == numbers.MISSING or not winners:
        return Cell(value, interval, "")
    return Cell(value, interval, BETTER if winners == {name} else WORSE)


def winner_of(measure: Mapping[str, Any], difference: Mapping[str, Any]) -> str | None:
    """Return the name of the better contender where a difference is significant after correction, else None."""
    value = numbers.finite(difference.get("value"))
    if not difference.get("is_significant") or not value:
        return None
    return str(difference["first"] if (value > 0) == is_higher_better(measure) else difference["second"])


def difference_rows(document: Document, measure: Mapping[str, Any]) -> list[DifferenceRow]:
    """Return the differences of a measure."""
    names, unit = labels(document), unit_of(measure)
    rows = []
    for entry in list_of(measure, "differences"):
        first, second = str(entry["first"]), str(entry["second"])
        winner = winner_of(measure, entry)
        rows.append(
            DifferenceRow(
                names.get(first, first),
                names.get(second, second),
                numbers.spell_difference(entry.get("value"), unit),
                numbers.spell_difference_interval(entry.get("low"), entry.get("high"), unit),
                numbers.spell_p(entry.get("p_value")),
                numbers.spell_p(entry.get("adjusted_p_value")),
                "" if winner is None else names.get(winner, winner),
            )
        )
    return rows


def group_measures(document: Document) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Return the measures by group, the groups in the order of ``GROUPS``."""
    measures = list_of(document, "measures")
    found = dict.fromkeys(str(measure.get("group") or "other") for measure in measures)
    order = [group for group in GROUPS if group in found] + [group for group in found if group not in GROUPS]
    return [
        (group, [measure for measure in measures if str(measure.get("group") or "other") == group]) for group in order
    ]


def budget_rows(document: Document) -> list[BudgetRow]:
    """Return what each contender takes to train and to use."""
    return [_budget(entry) for entry in list_of(document, "contenders")]


def _budget(entry: Mapping[str, Any]) -> BudgetRow:
    chosen = numbers.finite(entry.get("learning_rate"))
    search: Sequence[Mapping[str, Any]] = list_of(entry, "search")
    return BudgetRow(
        label_of(entry),
        numbers.spell_count(entry.get("trainable_parameters")),
        numbers.spell_percentage(entry.get("budget_difference")),
        numbers.spell_rate(chosen),
        [
            (
                numbers.spell_rate(tried.get("learning_rate")),
                numbers.spell_loss(tried.get("loss")),
                chosen is not None and numbers.finite(tried.get("learning_rate")) == chosen,
            )
            for tried in search
        ],
        numbers.spell_count(entry.get("tokens")),
        numbers.spell_seconds(entry.get("train_seconds")),
        numbers.spell_seconds(entry.get("wall_seconds")),
        numbers.spell_size(entry.get("peak_memory_bytes"), "B"),
        numbers.spell_size(entry.get("added_flops_per_token"), "FLOP"),
    )


def fact_tables(document: Document) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the facts of the run as captions with names and values."""
    run = document.get("run") or {}
    budget = run.get("budget")
    spelled = None if budget is None else f"{numbers.spell_count(budget)} trainable parameters"
    return tabulate_facts(run, [("budget", spelled)])
