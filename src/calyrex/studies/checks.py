"""A comparison's checks of itself: seeds that agree, and a control that falls to the base's level."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from calyrex.studies.contenders import REFERENCE

_CONTROL = f"{REFERENCE}:shuffled"
_RIVAL = "parallel_mlp"
_BASE = "base"
_LEFT_OVER = 0.25
"""Share of the reference's gain that the control may keep: what can be learned without the system prompt."""


def check(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the checks that the document allows, over the headline measures of obedience and security.

    - ``seeds``: two runs of the reference with different seeds differ by less than it and ParallelMLP do, each averaged
      over the measures.
    - ``shuffled``: the control, trained on the system prompts of other chats, keeps less than a quarter of the
      reference's gain over the base: what is measured is the use of the system prompt.
    - ``grid``: no contender's best learning rate is the lowest or the highest that was tried, beyond which a better one
      may lie.
    """
    measures = [
        measure
        for measure in document["measures"]
        if measure["is_headline"] and measure["group"] in ("obedience", "security") and measure["num_cases"]
    ]
    yield from _check_seeds(measures)
    yield from _check_control(measures)
    yield from _check_grid(document["contenders"])


def _check_seeds(measures: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    both = [measure["values"] for measure in measures if {REFERENCE, _RIVAL} <= measure["values"].keys()]
    seeds = [values[REFERENCE]["by_seed"] for values in both]
    if not seeds or len(seeds[0]) < 2:
        return
    apart = _mean([abs(first - second) for own in seeds for first, second in _each_pair(own)])
    distance = _mean([values[REFERENCE]["value"] - values[_RIVAL]["value"] for values in both])
    yield {
        "name": "seeds",
        "text": f"Two runs of {REFERENCE} with different seeds differ by {100 * apart:.1f} points on average, "
        f"{REFERENCE} and {_RIVAL} by {100 * distance:.1f}.",
        "holds": apart < distance,
    }


def _check_control(measures: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    all_three = [m["values"] for m in measures if {REFERENCE, _CONTROL, _BASE} <= m["values"].keys()]
    if not all_three:
        return
    base, control, reference = (
        _mean([values[name]["value"] for values in all_three]) for name in (_BASE, _CONTROL, REFERENCE)
    )
    yield {
        "name": "shuffled",
        "text": f"Trained on shuffled system prompts, {REFERENCE} obeys in {100 * control:.1f} % of the cases "
        f"on average; the base does in {100 * base:.1f} %, {REFERENCE} itself in {100 * reference:.1f} %. It falls to "
        f"the base's level where it keeps less than {100 * _LEFT_OVER:.0f} % of the gain.",
        "holds": reference > base and control - base < _LEFT_OVER * (reference - base),
    }


def _check_grid(contenders: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    searched = [one for one in contenders if one["search"] and one["learning_rate"] is not None]
    searched = [one for one in searched if not one["is_control"]]
    edges = {
        one["label"]: one["learning_rate"]
        for one in searched
        if one["learning_rate"] in (_end(one["search"], min), _end(one["search"], max))
    }
    if searched:
        yield {
            "name": "grid",
            "text": "The best learning rate is the lowest or the highest tried for "
            f"{'; '.join(f'{label} ({rate:g})' for label, rate in edges.items()) or 'no contender'}.",
            "holds": not edges,
        }


def _end(search: Sequence[Mapping[str, Any]], choose: Callable[[Iterable[float]], float]) -> float:
    return choose(trial["learning_rate"] for trial in search)


def _each_pair(values: list[float]) -> Iterator[tuple[float, float]]:
    yield from ((first, second) for place, first in enumerate(values) for second in values[place + 1 :])


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
