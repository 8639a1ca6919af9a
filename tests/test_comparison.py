"""The report of ``calyrex compare``: everything is in it, nothing claims too much, and text stays text."""

import json
import re
import sys
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from calyrex.report import numbers
from calyrex.report.comparison import write_comparison
from calyrex.report.figures import draw_differences, draw_losses, draw_trade
from calyrex.report.labels import label_column, place_labels, spread
from comparison_document import CONTENDERS, MEASURES, make_document, make_samples
from pages import (
    CHROMIUM,
    HOSTILE,
    SHOWN,
    Page,
    assert_references_inside,
    assert_self_contained,
    assert_well_formed,
    read_in_chromium,
)


def read_page(folder: Path, document: dict[str, Any], samples: list[dict[str, Any]]) -> Page:
    write_comparison(folder, document, samples)
    return Page(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("comparison")
    write_comparison(folder, make_document(), make_samples(40))
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(folder)


def measure(**given: Any) -> dict[str, Any]:
    """A measure of two contenders, by default with a difference that is not significant."""
    values = {
        "calyrex": {"value": 0.412, "low": 0.33, "high": 0.501},
        "lora": {"value": 0.2, "low": None, "high": None},
    }
    difference = {"first": "calyrex", "second": "lora", "value": 0.212, "low": -0.01, "high": 0.3, "p_value": 0.04}
    difference |= {"adjusted_p_value": 0.2, "is_significant": False}
    return {
        **{"name": "rules", "label": "rules obeyed", "group": "obedience", "unit": "share", "is_headline": True},
        **{"higher_is_better": True, "num_cases": 60, "values": values, "differences": [difference]},
        **given,
    }


def document_of(*measures: dict[str, Any]) -> dict[str, Any]:
    contenders = [{"name": name, "label": name.upper()} for name in ("lora", "calyrex")]
    return {"run": {"reference": "calyrex"}, "contenders": contenders, "measures": list(measures)}


def significant(**given: Any) -> dict[str, Any]:
    entry = measure()
    return measure(**{"differences": [{**entry["differences"][0], "is_significant": True}], **given})


def test_page_holds_every_contender_measure_and_sentence(page: Page) -> None:
    text, document = page.text(), make_document()

    assert [label for _, label, _ in CONTENDERS if label not in text] == []
    assert [label for _, label, *_ in MEASURES if label not in text] == []
    assert [sentence for sentence in document["verdict"] if sentence not in text] == []
    assert [check["text"] for check in document["checks"] if check["text"] not in text] == []


def test_table_holds_every_contender_measure_and_sentence(folder: Path) -> None:
    table, document = (folder / "table.md").read_text(encoding="utf-8"), make_document()

    assert [label for _, label, _ in CONTENDERS if label not in table] == []
    assert [label for _, label, *_ in MEASURES if label not in table] == []
    assert [sentence for sentence in document["verdict"] if sentence not in table] == []


def test_markdown_rows_have_as_many_cells_as_their_heading(folder: Path) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", (folder / "table.md").read_text(encoding="utf-8"), flags=re.MULTILINE)

    widths = [{len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()} for table in tables]

    assert len(tables) == 10
    assert all(len(width) == 1 for width in widths)


def test_page_holds_every_sample_with_every_answer(page: Page) -> None:
    data, samples = page.data(), make_samples(40)

    names = [name for name, _, _ in data["contenders"]]
    assert [entry["id"] for entry in data["samples"]] == [sample["id"] for sample in samples]
    assert [dict(zip(names, entry["answers"], strict=True)) for entry in data["samples"]] == [
        sample["answers"] for sample in samples
    ]
    assert [[text for _, text in entry["messages"]] for entry in data["samples"]] == [
        [message["content"] for message in sample["messages"]] for sample in samples
    ]


def test_elements_are_balanced_and_ids_unique(page: Page) -> None:
    assert_well_formed(page)


def test_page_loads_nothing_and_has_no_style_or_handler_of_its_own(page: Page) -> None:
    assert_self_contained(page)


def test_figures_refer_only_to_what_is_in_the_page(page: Page) -> None:
    assert_references_inside(page)


def test_text_of_others_is_text_and_nothing_else(tmp_path: Path) -> None:
    def fill(text: str) -> Page:
        document = document_of(measure(name=text, label=text, group=text, unit=text))
        document["run"] |= {"command": text, "options": {text: text}, "data": [{"name": text, "licence": text}]}
        document["contenders"][0] |= {"label": text, "description": text}
        document |= {"verdict": [text], "checks": [{"name": text, "text": text, "holds": True}]}
        sample = {"task": text, "id": text, "messages": [{"role": text, "content": text}], "shows": {"fact": text}}
        sample |= {"answers": {"lora": [text]}, "passed": {"lora": [None]}}
        return read_page(tmp_path, document, [sample, {**sample, "shows": {"fact": "y"}}])

    hostile, plain = fill(HOSTILE), fill("x")

    markup = [tag for tag, _ in hostile.elements if tag in ("script", "img", "option", "th", "td", "li")]
    assert markup == [tag for tag, _ in plain.elements if tag in ("script", "img", "option", "th", "td", "li")]
    assert hostile.mistakes == []
    assert hostile.data()["samples"][0]["answers"][0] == [SHOWN]
    assert hostile.text("li").count(SHOWN) == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", hostile.source)


def test_markdown_has_no_markup_of_others(tmp_path: Path) -> None:
    document = document_of(measure(label=HOSTILE))
    document["verdict"] = [HOSTILE, "[a](http://b)", "# not a heading"]

    write_comparison(tmp_path, document, [])

    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert not re.search(r"(?<!\\)<|(?<!\\)\*a\*|(?<!\\)\]\(|^# ", table, flags=re.MULTILINE)
    assert "- \\# not a heading" in table


@pytest.mark.parametrize(
    ("entry", "mark"),
    [
        (significant(), "**20.0 % ▼**"),
        (significant(higher_is_better=False), "**20.0 % ▲**"),
        (measure(), "20.0 %"),
        (measure(differences=[]), "20.0 %"),
    ],
)
def test_a_figure_is_bold_only_where_it_differs_significantly(tmp_path: Path, entry: Any, mark: str) -> None:
    page = read_page(tmp_path, document_of(entry), [])

    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert f"| LORA | {mark} |" in table
    assert "| CALYREX (reference) | 41.2 % [33.0–50.1] |" in table
    assert [text for tag, text in page.texts if tag == "b" and "%" in text] == [mark.strip("*")] * mark.startswith("**")


@pytest.mark.parametrize(("entry", "num_bold"), [(significant(), 1), (measure(), 0)])
def test_a_difference_is_bold_only_where_it_is_significant(tmp_path: Path, entry: Any, num_bold: int) -> None:
    page = read_page(tmp_path, document_of(entry), [])

    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert table.count("**+21.2 points [−1.0 to +30.0]**") == num_bold
    assert [text for tag, text in page.texts if tag == "b"].count("+21.2 points") == num_bold
    assert "[−1.0 to +30.0]" in page.text("td")


def test_checks_differ_in_words(page: Page) -> None:
    assert page.text("span").count("✓ held") == 2
    assert page.text("span").count("✗ did not hold") == 1


def test_budget_tells_the_whole_search(page: Page, folder: Path) -> None:
    tried = make_document()["contenders"][2]["search"]

    shown = [f"{entry['learning_rate']:g}: {numbers.spell_loss(entry['loss'])}" for entry in tried]

    assert [text for text in shown if text not in page.text("span")] == []
    assert "0.003: diverged" in (folder / "table.md").read_text(encoding="utf-8")
    assert "all aim at 6,641,280 trainable parameters" in page.text()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"run": {}, "contenders": [], "measures": [], "checks": [], "verdict": []},
        {"run": {"reference": None, "data": []}, "contenders": [{"name": "base", "losses": {}, "search": []}]},
        document_of(),
        document_of(measure(values={}, differences=[])),
        document_of(measure(values={"lora": {"value": None, "low": None, "high": None}})),
        document_of(measure(differences=[{"first": "calyrex", "second": "lora", "value": None}])),
    ],
)
def test_an_incomplete_study_has_a_page(tmp_path: Path, document: dict[str, Any]) -> None:
    page = read_page(tmp_path, document, [])

    assert page.mistakes == []
    assert "There is no verdict yet" in page.text()
    assert (tmp_path / "table.md").read_text(encoding="utf-8").startswith("## Comparison")


def test_a_sample_may_lack_answers_and_verdicts(tmp_path: Path) -> None:
    call = [{"function": {"name": "look_up"}}]
    messages = [
        {"role": "assistant", "content": None, "tool_calls": call},
        {"role": "user", "content": [{"text": "a"}]},
    ]

    page = read_page(tmp_path, document_of(), [{"id": 1, "messages": messages}, {"answers": {"new": ["text"]}}])

    first, second = page.data()["samples"]
    assert [json.loads(text) for _, text in first["messages"]] == [call, [{"text": "a"}]]
    assert page.data()["contenders"] == [["lora", "LORA", []], ["calyrex", "CALYREX", []], ["new", "new", []]]
    assert second["answers"] == [[], [], ["text"]]


def test_facts_of_few_values_are_filters_in_the_order_of_numbers(tmp_path: Path) -> None:
    samples = [{"id": number, "shows": {"turns": number % 11, "place": number, "one": "x"}} for number in range(40)]

    page = read_page(tmp_path, document_of(), samples)

    assert [given["data-fact"] for tag, given in page.elements if "data-fact" in given] == ["turns"]
    assert [text for tag, text in page.texts if tag == "option"][-11:] == [str(number) for number in range(11)]


def test_the_same_study_gives_the_same_files(tmp_path: Path, folder: Path) -> None:
    write_comparison(tmp_path, make_document(), make_samples(40))

    assert (tmp_path / "report.html").read_bytes() == (folder / "report.html").read_bytes()
    assert (tmp_path / "table.md").read_bytes() == (folder / "table.md").read_bytes()


def test_without_matplotlib_the_page_has_all_but_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "calyrex.report.figures"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "calyrex.report.figures")
    monkeypatch.delattr("calyrex.report.figures", raising=False)

    page = read_page(tmp_path, make_document(), [])

    assert 'The figures need matplotlib: pip install "calyrex[studies]"' in page.text()
    assert "Base model" in page.text()


def test_the_forest_plot_shows_every_difference_to_the_reference() -> None:
    panels = draw_differences(make_document())

    words = {word for _, label, _ in CONTENDERS if label != "CALYREX, after layers 26 to 30" for word in label.split()}
    assert [panel.title for panel in panels] == [label for _, label, _, _, _, is_headline in MEASURES if is_headline]
    assert all(not words - set(re.sub("<[^>]*>", " ", panel.svg).split()) for panel in panels)
    assert ["nats" in panel.svg for panel in panels] == [False] * 6 + [True]


@pytest.mark.parametrize(("entry", "face"), [(significant(), "var(--anchored)"), (measure(), "var(--surface)")])
def test_only_a_significant_difference_is_filled(entry: dict[str, Any], face: str) -> None:
    drawing = draw_differences(document_of(entry))[0].svg

    markers = re.findall(r'<use [^>]*fill="([^"]*)"[^>]*stroke="var\(--anchored\)"', drawing)
    assert markers == [face]


def test_a_difference_given_the_other_way_round_is_turned() -> None:
    given = {"first": "lora", "second": "calyrex", "value": -0.212, "low": -0.3, "high": 0.01}

    turned, straight = (draw_differences(document_of(measure(**extra)))[0] for extra in ({"differences": [given]}, {}))

    assert turned == straight


def test_the_scatter_labels_every_contender_and_says_what_its_axes_are() -> None:
    panel = draw_trade(make_document())

    assert panel is not None
    texts = set(re.findall("<text[^>]*>([^<]*)", panel.svg))
    assert {name for name, _, _ in CONTENDERS} <= texts
    assert {"security, % (mean of 2 measures)", "utility, %"} <= texts


def test_the_scatter_falls_back_to_other_groups_or_is_left_out() -> None:
    forgetting = measure(name="mmlu", group="forgetting")

    fallen_back = draw_trade(document_of(measure(), forgetting))

    assert fallen_back is not None
    assert fallen_back.title == "Obedience against forgetting"
    assert draw_trade(document_of(measure())) is None


@pytest.mark.parametrize("distance", [1.0, 0.01, 0.0])
def test_labels_do_not_overlap(distance: float) -> None:
    axes = Figure(figsize=(7.4, 5.4)).add_axes((0.1, 0.1, 0.85, 0.85))
    axes.set(xlim=(-1, 2), ylim=(-1, 2))
    points = [(name, distance * (7 * i % 10) / 10, distance * i / 10) for i, (name, _, _) in enumerate(CONTENDERS)]

    boxes = place_labels(axes, points)

    frame = axes.get_window_extent()
    assert [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])] == []
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)


@pytest.mark.parametrize("distance", [1.0, 0.01, 0.0])
def test_labels_in_a_column_keep_the_order_of_their_points_and_a_line_between_them(distance: float) -> None:
    axes = Figure(figsize=(7.4, 4.6)).add_axes((0.1, 0.1, 0.7, 0.85))
    axes.set(xlim=(-1, 2), ylim=(-1, 2))

    heights = label_column(axes, [(name, 0.5, -distance * i / 10, "C0") for i, (name, _, _) in enumerate(CONTENDERS)])

    frame = axes.get_window_extent()
    assert all(above - below > 17 for above, below in pairwise(heights))
    assert frame.y0 <= heights[-1] < heights[0] <= frame.y1


def test_equal_values_are_spread_around_where_they_were() -> None:
    assert spread([2.0, 5.0, 2.0, 2.0], 0.5) == [1.5, 5.0, 2.0, 2.5]


def test_each_trained_contender_has_a_panel_of_losses() -> None:
    panels = draw_losses(make_document())

    assert [panel.title for panel in panels] == [label for _, label, _ in CONTENDERS[2:]]
    assert all("3 seeds" in panel.note and "nats a token" in panel.svg for panel in panels)


def test_losses_far_apart_are_drawn_on_a_logarithmic_scale() -> None:
    def draw(last: float) -> str:
        document = document_of()
        document["contenders"][0]["losses"] = {"0": [{"step": 1, "loss": 9.0}, {"step": 2, "loss": last}]}
        return "".join(re.findall("<text[^>]*>([^<]*)", draw_losses(document)[0].svg))

    assert "10" not in draw(3.0)
    assert "10" in draw(0.01).replace("−", "")


@pytest.mark.parametrize(
    ("spell", "given", "text"),
    [
        (numbers.spell_value, (0.4123, "share"), "41.2 %"),
        (numbers.spell_value, (1.23456, "nats"), "1.235 nats"),
        (numbers.spell_value, (float("nan"), "share"), "–"),
        (numbers.spell_value, (None, "share"), "–"),
        (numbers.spell_interval, (0.33, 0.501, "share"), "[33.0–50.1]"),
        (numbers.spell_interval, (-0.1, 0.2, "nats"), "[−0.100 to 0.200]"),
        (numbers.spell_interval, (None, 0.2, "nats"), ""),
        (numbers.spell_difference, (-0.00001, "share"), "0.0 points"),
        (numbers.spell_difference, (0.2, "nats"), "+0.200 nats"),
        (numbers.spell_p, (0.0004,), "< 0.001"),
        (numbers.spell_size, (1.9e9, "B"), "1.9 GB"),
        (numbers.spell_size, (0, "FLOP"), "0"),
        (numbers.spell_seconds, (8123.0,), "2 h 15 min"),
        (numbers.spell_seconds, (119.7,), "2 min 0 s"),
        (numbers.spell_percentage, (-0.0119,), "−1.2 %"),
    ],
)
def test_numbers_are_spelled(spell: Callable[..., str], given: tuple[Any, ...], text: str) -> None:
    assert spell(*given) == text


def choose(page: str, script: str) -> str:
    """Return the page without its policy, with a script behind its own that leaves what it finds in the title."""
    page = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    waiting = f"setTimeout(() => {{ {script} }}, 50); setTimeout(() => {{ document.title = found(); }}, 1000);"
    found = "const found = () => [...document.querySelectorAll('#list .family')].map((e) => e.textContent).join(' ');"
    return page.replace("</body>", f"<script>{found}{waiting}</script></body>")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_script_runs_under_the_policy_in_a_browser(tmp_path: Path, folder: Path) -> None:
    shown = read_in_chromium(folder / "report.html", tmp_path)

    assert "1–10 of 40 samples" in shown
    assert shown.count('<details class="card">') == 10


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(
    ("script", "keep"),
    [
        ("form.task.value = 'rules'; change();", lambda sample: sample["task"] == "rules"),
        (
            "form.passed.value = '5'; form.failed.value = '2'; change();",
            lambda sample: sum(sample["passed"]["calyrex"]) > 1 > sum(sample["passed"]["lora"]) - 1,
        ),
        (
            "form.querySelector('[data-fact=attack]').value = 'none'; change();",
            lambda sample: not sample["shows"]["attack"],
        ),
        (
            "form.text.value = 'QUESTION 7:'; form.dispatchEvent(new Event('input'));",
            lambda sample: sample["id"].endswith("-7"),
        ),
        (
            "form.task.value = 'rules'; change(); form.querySelector('[type=reset]').click();"
            "setTimeout(() => document.querySelector('[data-step=\"1\"]').click(), 300);",
            lambda sample: 10 <= int(sample["id"].rpartition("-")[2]) < 20,
        ),
    ],
    ids=["task", "disagreement", "fact", "text", "clear and next page"],
)
def test_samples_are_filtered_in_a_browser(
    tmp_path: Path, folder: Path, script: str, keep: Callable[[Any], bool]
) -> None:
    names = (
        "const form = document.getElementById('filters'); const change = () => form.dispatchEvent(new Event('change'));"
    )
    path = tmp_path / "page.html"
    path.write_text(choose((folder / "report.html").read_text(encoding="utf-8"), names + script), encoding="utf-8")

    shown = read_in_chromium(path, tmp_path)

    expected = [f"{sample['task']} · {sample['id']}" for sample in make_samples(40) if keep(sample)][:10]
    assert expected
    assert re.findall("<title>(.*?)</title>", shown)[0] == " ".join(expected)
