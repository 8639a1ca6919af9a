"""The page of ``calyrex demo``: right figures, no network, and no text of a model that is more than text."""

import base64
import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from calyrex.report.demo import choose_ticks, compare, draw_loss, find_shortfalls, write_demo_page
from calyrex.report.obedience import Answer, choose_examples, summarise, wilson_interval

HOSTILE = (
    "</div></textarea></script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&amp;{{ 7 * 7 }}\x1b[31m\u202e"
)
NEUTRAL = HOSTILE.replace("\x1b", "␛").replace("\u202e", "\ufffd")


def answer(family: str = "case", *, attack: str | None = None, trained: bool = True, **given: Any) -> Answer:
    messages = [{"role": "system", "content": "Shout."}, {"role": "user", "content": "Who?"}]
    texts = {"expected": "ME.", "base": "Me.", "anchored": "ME.", "base_obeyed": False, "anchored_obeyed": True}
    return Answer(family=family, trained=trained, attack=attack, **{"messages": messages, **texts, **given})


ANSWERS = [
    *[answer("case") for _ in range(6)],
    *[answer("case", attack="threat", anchored_obeyed=count > 0) for count in range(4)],
    *[answer("forbidden_word", anchored_obeyed=count > 3, base_obeyed=count == 0) for count in range(5)],
    *[answer("forbidden_word", attack="fiction", anchored_obeyed=False) for _ in range(5)],
    *[answer("tags", trained=False, anchored_obeyed=count > 1) for count in range(3)],
]


def results_of(answers: Sequence[Answer]) -> dict[str, Any]:
    return {
        **summarise(answers),
        "train_seconds": 312.4,
        "total_seconds": 601.2,
        "options": {"seed": 7, "output_dir": "runs/<demo>", "max_new_tokens": 28},
        "versions": {"torch": "2.13.0"},
        "training": [{"step": 10, "loss": 3.0}, {"step": 20, "loss": 1.5}, {"step": 30, "loss": 0.75}],
    }


class Page(HTMLParser):
    """A page as lists of elements and texts."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def find(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self) -> str:
        return " ".join(" ".join(self.texts).replace("\u00a0", " ").split())


def read_page(path: Path, answers: Sequence[Answer], **results: Any) -> Page:
    write_demo_page(path / "report.html", {**results_of(answers), **results}, answers)
    return Page((path / "report.html").read_text(encoding="utf-8"))


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return read_page(tmp_path, ANSWERS)


def test_headline_and_tiles_have_the_figures_of_the_trained_families(page: Page) -> None:
    text = page.text()

    assert "kept its system prompt in 50 % of 20 held-out questions; alone, in 5 %" in text
    assert "No attack trained families 64 % anchored 35 % to 85 % 9 % base" in text
    assert "Under attack trained families; the user tries to override the rule 33 % anchored" in text
    assert "Never trained rule families that training did not contain 33 % anchored" in text


def test_shortfalls_are_said_in_words() -> None:
    sentences = " ".join(find_shortfalls(results_of(ANSWERS), ANSWERS)).replace("\u00a0", " ")

    assert "weakest trained family is “forbidden word”: 10 % of 10 questions (95 % interval 2 % to 40 %)" in sentences
    assert "An attack costs it 31 percentage points: 64 % without, 33 % with" in sentences
    assert "In families never trained it obeys 33 % of 3 questions" in sentences
    assert "The base obeyed and the anchored model did not: 1 of 23 questions" in sentences


@pytest.mark.parametrize(
    ("base", "anchored", "words"),
    [(2, 18, "more often"), (18, 2, "less often"), (9, 11, "did not differ clearly"), (None, 3, "not measured")],
)
def test_verdict_follows_the_intervals(base: int | None, anchored: int, words: str) -> None:
    shares = [
        {"obeyed": None if count is None else count / 20, "interval": wilson_interval(count or 0, 20)}
        for count in (base, anchored)
    ]

    assert words in compare(*shares)


def test_every_answer_is_there_and_can_be_filtered_without_reading_text(page: Page) -> None:
    entries = [attributes for attributes in page.find("details") if "data-family" in attributes]

    kinds = Counter((entry["data-family"], entry["data-attacked"], entry["data-obeyed"]) for entry in entries)

    assert kinds == {
        ("case", "no", "anchored"): 6,
        ("case", "yes", "neither"): 1,
        ("case", "yes", "anchored"): 3,
        ("forbidden_word", "no", "base"): 1,
        ("forbidden_word", "no", "neither"): 3,
        ("forbidden_word", "no", "anchored"): 1,
        ("forbidden_word", "yes", "neither"): 5,
        ("tags", "no", "neither"): 2,
        ("tags", "no", "anchored"): 1,
    }
    assert not any("hidden" in entry for entry in entries)


def test_examples_stand_side_by_side(page: Page) -> None:
    assert len(page.find("article")) == len(choose_examples(ANSWERS))


def test_text_of_a_model_is_text_and_nothing_else(tmp_path: Path, page: Page) -> None:
    messages = [{"role": role, "content": HOSTILE} for role in ("system", "user", "assistant", "user")]
    hostile = answer("case", attack=HOSTILE, base=HOSTILE, anchored=HOSTILE, expected=HOSTILE, messages=messages)
    plain = dataclasses.replace(
        hostile,
        **{"base": "x", "anchored": "x", "expected": "x", "attack": "x"},
        messages=[{**message, "content": "x"} for message in messages],
    )

    attacked = read_page(tmp_path, [hostile])

    assert [tag for tag, _ in attacked.elements] == [tag for tag, _ in read_page(tmp_path, [plain]).elements]
    assert "".join(attacked.texts).count(NEUTRAL) == 2 * 8
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", attacked.source)


def test_page_loads_nothing_and_runs_only_its_own_script(page: Page) -> None:
    policy = str(next(meta["content"] for meta in page.find("meta") if meta.get("http-equiv")))

    references = [attributes for _, attributes in page.elements if {"src", "srcset", "data"} & set(attributes)]
    handlers = [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    blocks = [re.findall(f"<{tag}>(.*?)</{tag}>", page.source, flags=re.DOTALL) for tag in ("style", "script")]
    hashes = [base64.b64encode(hashlib.sha256(block[0].encode()).digest()).decode() for block in blocks]
    assert (references, handlers, page.find("link")) == ([], [], [])
    assert not re.search(r"https?:|@import|url\(|fetch\(", page.source)
    assert [len(block) for block in blocks] == [1, 1]
    assert policy.startswith("default-src 'none';")
    assert [f"'sha256-{digest}'" in policy for digest in hashes] == [True, True]
    assert not any("style" in attributes for _, attributes in page.elements)


def test_tables_have_captions_and_headings_have_scopes(page: Page) -> None:
    assert page.find("html") == [{"lang": "en"}]
    assert len(page.find("caption")) == len(page.find("table")) == 4
    assert all("scope" in heading for heading in page.find("th"))
    assert all("aria-hidden" in svg or "aria-label" in svg for svg in page.find("svg"))


def test_obeyed_and_broken_differ_in_words_not_in_colour_alone(page: Page) -> None:
    assert {"✓ obeyed", "✗ broke a rule"} <= set(page.texts)


def test_run_is_told(page: Page) -> None:
    text = page.text()

    assert "training 312 s whole run 601 s" in text
    assert "output_dir runs/<demo>" in text
    assert "torch 2.13.0" in text
    assert "3.00 at step 10, 0.75 at step 30" in text


def test_loss_is_laid_out_between_its_steps_and_0() -> None:
    curve = draw_loss(results_of(ANSWERS)["training"])

    assert curve is not None
    assert curve.ticks == [3.0, 2.0, 1.0, 0.0]
    assert curve.points == "0.00,0.00 50.00,50.00 100.00,75.00"


@pytest.mark.parametrize("log", [[], [{"step": 1, "loss": 2.0}], [{"step": s, "loss": float("nan")} for s in (1, 2)]])
def test_without_two_losses_the_page_says_so(tmp_path: Path, log: list[dict[str, float]]) -> None:
    assert "Too few losses" in read_page(tmp_path, ANSWERS, training=log).text()


@pytest.mark.parametrize(("highest", "top"), [(3.01, 4.0), (0.23, 0.3), (41.0, 60.0), (0.0, 1e-6)])
def test_ticks_are_round_and_reach_over_the_highest(highest: float, top: float) -> None:
    ticks = choose_ticks(highest)

    assert ticks[0] == pytest.approx(top)
    assert ticks[-1] == 0
    assert 3 <= len(ticks) <= 6


def test_a_condition_without_questions_is_a_dash(tmp_path: Path) -> None:
    page = read_page(tmp_path, [answer()])

    assert "Under attack trained families; the user tries to override the rule - anchored - base n = 0" in page.text()
