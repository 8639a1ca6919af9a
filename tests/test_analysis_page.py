"""The report of ``calyrex analyze``: everything is in it, nothing claims too much, and text stays text."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis_document import ANSWERS, CLASSES, QUESTIONS, SYSTEM, make_document
from calyrex.report import analysis as module
from calyrex.report import numbers
from calyrex.report.analysis import write_analysis
from calyrex.report.analysis_content import Exhibit, collect_groups
from calyrex.report.analysis_figures import draw_chart, draw_masses
from calyrex.report.analysis_rows import Chart, Mass, masses, sections
from calyrex.report.analysis_tables import Table
from calyrex.report.block_figures import draw_matrix, draw_norms, draw_off, draw_scale
from calyrex.report.block_rows import attention_maps, norms_by_class, scale_points, spell_token, switched_off
from calyrex.report.curves import CONTROL, LEVEL, LINES
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

EXHIBIT = Exhibit("figure", "title", "note", Table("", [], []))
NOTHING: dict[str, Any] = {"value": None, "low": None, "high": None}


def read_page(folder: Path, document: dict[str, Any]) -> Page:
    write_analysis(folder, document)
    return Page(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analysis")
    write_analysis(folder, make_document())
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(folder)


def texts_of(drawing: str) -> list[str]:
    return re.findall("<text[^>]*>([^<]*)", drawing)


def measure(**given: Any) -> dict[str, Any]:
    """A measure of three layers, by default of the stream's patching."""
    layers = [
        {"layer": layer, "value": value, "low": value - 0.1, "high": value + 0.1}
        for layer, value in enumerate((0.0, 0.25, 0.4, 1.0))
    ]
    mass = {"value": 0.6, "low": 0.5, "high": 0.7, "even_share": 0.333}
    return {
        **{"name": "patching", "label": "patching", "explanation": "Why.", "unit": "share", "is_cumulative": True},
        **{"layers": layers, "control": None, "control_label": None, "chance": None, "mass": mass},
        **given,
    }


def document_of(*measures: dict[str, Any], **blocks: Any) -> dict[str, Any]:
    run = {"num_layers": 3, "late_layers": [3], "blocks": [3] if blocks else []}
    return {"run": run, "measures": list(measures), "blocks": blocks or None, "verdict": []}


def chart_of(entry: dict[str, Any]) -> Chart:
    return sections(document_of(entry))[0].charts[0]


def mass_of(low: float | None, high: float | None, even_share: float | None = 0.2) -> Mass:
    entry = measure(mass={"value": 0.3, "low": low, "high": high, "even_share": even_share})
    return masses(document_of(entry))[0]


def map_of(**given: Any) -> dict[str, Any]:
    weights = {"3": [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]}
    texts = {"system_tokens": ["Be", " brief", "."], "answer_tokens": ["Yes", "."], "question": "Is it?"}
    return {"id": "one", **texts, "weights": weights, **given}


def test_page_holds_every_measure_and_sentence(page: Page) -> None:
    text, document = page.text(), make_document()

    labels = [entry["label"] for entry in document["measures"]]
    assert [label for label in labels if label.lower() not in text.lower()] == []
    assert [entry["explanation"] for entry in document["measures"] if entry["explanation"] not in text] == []
    assert [sentence for sentence in document["verdict"] if sentence not in text] == []
    assert [question for question in QUESTIONS if question not in text] == []


def test_markdown_holds_every_measure_and_sentence(folder: Path) -> None:
    table, document = (folder / "analysis.md").read_text(encoding="utf-8"), make_document()

    labels = [entry["label"] for entry in document["measures"]]
    assert [label for label in labels if label.lower() not in table.lower()] == []
    assert [entry["explanation"] for entry in document["measures"] if entry["explanation"] not in table] == []
    assert [sentence for sentence in document["verdict"] if sentence not in table] == []


def test_page_begins_with_the_verdict_and_the_facts_in_one_line(page: Page) -> None:
    facts = (
        "smollm2-135m; adapter runs/mine; 200 conversations; 2,312 answer tokens; mean log-probability of the obedient "
        "answer in nats a token: −1.204 with its rule, −1.913 with another rule, −1.822 with a neutral prompt; "
        "its own answers obey the rule in 31.0 %"
    )

    text = page.text()

    order = [text.index(part) for part in (make_document()["verdict"][0], facts, "Share of each effect")]
    assert order == sorted(order)


def test_sections_are_in_their_order(page: Page) -> None:
    headings = [data for tag, data in page.texts if tag == "h2"]

    assert headings == [
        "Where the mass lies",
        "How far a rule moves the stream",
        "What can be read off the stream",
        "Which layers make the answer obey",
        "What the blocks do",
        "Where the answers look",
        "How this was made",
    ]


def test_a_model_without_blocks_has_a_page_without_them(tmp_path: Path) -> None:
    page = read_page(tmp_path, make_document(num_blocks=0))

    assert "no adapter" in page.text()
    assert "block" not in page.text("h2", "p", "span", "figcaption")
    assert [tag for tag, _ in page.elements if tag in ("button", "select")] == []
    assert page.mistakes == []


def test_every_value_and_interval_of_every_layer_is_in_a_table(page: Page, folder: Path) -> None:
    cells, table = page.text("td", "small"), (folder / "analysis.md").read_text(encoding="utf-8")
    points = [
        (point, "share" if entry["unit"] in ("share", "accuracy") else "")
        for entry in make_document()["measures"]
        for point in [*entry["layers"], *(entry["control"] or [])]
    ]

    spelled = [
        part
        for point, unit in points
        for part in (
            numbers.spell_value(point["value"], unit, 4),
            numbers.spell_interval(point["low"], point["high"], unit, 4),
        )
    ]

    assert len(spelled) > 600
    assert [part for part in spelled if part not in cells or part not in table] == []


def test_markdown_rows_have_as_many_cells_as_their_heading(folder: Path) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", (folder / "analysis.md").read_text(encoding="utf-8"), flags=re.MULTILINE)

    widths = [{len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()} for table in tables]

    assert len(tables) == 16
    assert all(len(width) == 1 for width in widths)


@pytest.mark.parametrize("num_blocks", [0, 5, 9])
def test_elements_are_balanced_and_ids_unique(tmp_path: Path, num_blocks: int) -> None:
    assert_well_formed(read_page(tmp_path, make_document(num_blocks=num_blocks)))


def test_page_loads_nothing_and_has_no_style_or_handler_of_its_own(page: Page) -> None:
    assert_self_contained(page)


def test_figures_refer_only_to_what_is_in_the_page(page: Page) -> None:
    assert_references_inside(page)


def test_every_figure_says_what_it_shows(page: Page) -> None:
    figures = [given for tag, given in page.elements if tag == "svg" and given.get("class") == "figure"]

    described = [str(given["aria-label"]) for given in figures if given["aria-label"]]
    assert len(described) == 7 + 3 + len(ANSWERS)
    assert any("at layer 30" in text for text in described)


def test_text_of_others_is_text_and_nothing_else(tmp_path: Path) -> None:
    def fill(text: str) -> Page:
        control = measure()["layers"]
        entries = [
            measure(name=name, label=text, explanation=text, unit=unit, control=control, control_label=text)
            for name, unit in ((f"shift/{text}", text), ("probe/rule", "accuracy"), ("patching", "share"), (text, text))
        ]
        blocks = {
            "norms": [{"block": 3, "class": text, **measure()["layers"][1]}],
            "off": [{"block": text, **measure()["layers"][1]}],
            "maps": [map_of(id=text, question=text, system_tokens=[text] * 3, answer_tokens=[text] * 2)],
        }
        document = {**document_of(*entries, **blocks), "verdict": [text]}
        facts = ("command", "commit", "machine", "model", "adapter", "data", "licence")
        document["run"] |= {**dict.fromkeys(facts, text), "options": {text: text}, "versions": {text: text}}
        return read_page(tmp_path, document)

    hostile, plain = fill(HOSTILE), fill("x")

    watched = ("script", "img", "option", "th", "td", "li", "button", "span", "article", "p", "svg")
    assert [tag for tag, _ in hostile.elements if tag in watched] == [
        tag for tag, _ in plain.elements if tag in watched
    ]
    assert hostile.mistakes == []
    assert hostile.text("li").count(SHOWN) == 1
    assert hostile.text("button").count(SHOWN) == 2
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", hostile.source)


def test_markdown_has_no_markup_of_others(tmp_path: Path) -> None:
    document = document_of(
        measure(label=HOSTILE, explanation=HOSTILE), maps=[map_of(system_tokens=[HOSTILE, "|", "*"])]
    )
    document["verdict"] = [HOSTILE, "[a](http://b)", "# not a heading"]

    write_analysis(tmp_path, document)

    table = (tmp_path / "analysis.md").read_text(encoding="utf-8")
    assert not re.search(r"(?<!\\)<|(?<!\\)\*a\*|(?<!\\)\]\(|^# ", table, flags=re.MULTILINE)
    assert "“\\|” 30.0 %" in table


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"run": None, "measures": None, "blocks": None, "verdict": None},
        {"run": {}, "measures": [], "blocks": {}, "verdict": []},
        document_of(),
        document_of(measure(layers=[], mass=None)),
        document_of(measure(layers=[{"layer": layer, **NOTHING} for layer in range(4)], mass=NOTHING)),
        document_of(norms=[], scale=[], off=[], maps=[]),
        document_of(
            norms=[{"block": 3, "class": "system", **NOTHING}],
            scale=[{"scale": 0.0, **NOTHING}],
            off=[{"block": "all", **NOTHING}],
            maps=[{"id": "one", "system_tokens": [], "answer_tokens": [], "question": None, "weights": {}}],
        ),
    ],
)
def test_an_analysis_that_measured_nothing_yet_says_so(tmp_path: Path, document: dict[str, Any]) -> None:
    page = read_page(tmp_path, document)

    assert page.mistakes == []
    assert "There is no verdict yet" in page.text()
    assert "Nothing has been measured yet." in page.text()
    assert (tmp_path / "analysis.md").read_text(encoding="utf-8").startswith("## Analysis\n")


def test_the_missing_part_of_a_measure_is_left_out(tmp_path: Path) -> None:
    layers = [{"layer": 0, **NOTHING}, {"layer": 1, "value": 0.5, "low": None, "high": None}, {"layer": 2}, {}]

    page = read_page(tmp_path, document_of(measure(layers=layers, mass=NOTHING, explanation=None), norms=[]))

    assert "50.0 %" in page.text("td")
    assert "The blocks of this model have not been measured yet." in page.text()
    assert "Where the mass lies" not in page.text()


def test_the_same_analysis_gives_the_same_files(tmp_path: Path, folder: Path) -> None:
    write_analysis(tmp_path, make_document())

    assert (tmp_path / "report.html").read_bytes() == (folder / "report.html").read_bytes()
    assert (tmp_path / "analysis.md").read_bytes() == (folder / "analysis.md").read_bytes()


def test_files_are_written_whole_and_nothing_is_left_beside_them(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [module.TABLE, module.PAGE]


def test_without_matplotlib_the_page_has_all_but_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    page = read_page(tmp_path, make_document())

    assert 'The figures need matplotlib: pip install "calyrex[studies]"' in page.text()
    assert "Activation patching: what is recovered" in page.text("p")
    assert [tag for tag, _ in page.elements if tag == "table"] != []
    assert page.mistakes == []


@pytest.mark.parametrize(
    ("mass", "verdict"),
    [
        (mass_of(0.21, 0.4), "more than an even share"),
        (mass_of(0.2, 0.4), "cannot be told from an even share"),
        (mass_of(0.25, 0.4, 0.5), "less than an even share"),
        (mass_of(None, None), "cannot be told from an even share"),
        (mass_of(0.25, 0.4, None), "cannot be told from an even share"),
    ],
)
def test_a_share_differs_from_an_even_one_only_where_its_interval_excludes_it(mass: Mass, verdict: str) -> None:
    drawing = draw_masses([mass], EXHIBIT).svg

    markers = re.findall(r'<use [^>]*fill="([^"]*)"[^>]*stroke="var\(--anchored\)"', drawing)
    assert mass.verdict == verdict
    assert markers == ["var(--surface)" if verdict.startswith("cannot") else "var(--anchored)"]


def test_a_measure_without_a_share_is_named(tmp_path: Path) -> None:
    entries = [
        measure(),
        measure(name="knock_out", label="knock-out", mass=None),
        measure(name="probe/rule", mass=None),
    ]

    page = read_page(tmp_path, document_of(*entries))

    assert "No share can be stated for: knock-out." in page.text("figcaption")


def test_the_last_eighth_is_named_in_every_figure_over_the_layers() -> None:
    document = make_document()

    drawings = [draw_chart(document, chart, EXHIBIT).svg for section in sections(document) for chart in section.charts]

    assert len(drawings) == 6
    assert all("last eighth: layers 27 to 30" in texts_of(drawing) for drawing in drawings)


def test_axes_have_their_units() -> None:
    document = make_document()

    texts = {
        text
        for section in sections(document)
        for chart in section.charts
        for text in texts_of(draw_chart(document, chart, EXHIBIT).svg)
    }

    assert {"cosine distance", "relative norm", "accuracy, %", "share of the effect, %"} <= texts
    assert {"layer (0: embeddings)", "layer", "own part, points", "above control, points"} <= texts


def test_legends_name_measure_control_chance_and_blocks() -> None:
    document = make_document()
    probe = sections(document)[1].charts[0]

    legend = [label for _, label in draw_chart(document, probe, EXHIBIT).legend]

    assert legend == ["measured", "control: random labels", "chance: 14.0 %", "a block sits behind this layer"]


def test_lines_differ_in_more_than_their_colour() -> None:
    looks = [(str(look.line), look.marker, look.is_filled) for look in (*LINES, CONTROL, LEVEL)]

    assert len({line for line, _, _ in looks}) == len(looks)
    assert len({(marker, is_filled) for _, marker, is_filled in looks}) == len(looks)
    assert len(LINES) == len(CLASSES)


def test_a_layers_own_part_is_what_it_adds_to_the_one_before() -> None:
    chart = chart_of(measure())

    assert [part.place for part in chart.parts] == [1, 2, 3]
    assert [part.value for part in chart.parts] == pytest.approx([0.25, 0.15, 0.6])


def test_what_a_probe_tells_above_its_control_is_the_difference() -> None:
    control = [{"layer": layer, "value": 0.1 * layer} for layer in range(1, 4)]

    chart = chart_of(measure(name="probe/rule", unit="accuracy", control=control))

    assert [part.place for part in chart.parts] == [1, 2, 3]
    assert [part.value for part in chart.parts] == pytest.approx([0.15, 0.2, 0.7])


def test_a_sentence_that_explains_two_measures_stands_once() -> None:
    both = "It says where, not why."
    entries = [
        measure(name=f"shift/{name}/norm", unit="relative norm", explanation=f"Against {name}. {both}") for name in "ab"
    ]

    assert sections(document_of(*entries))[0].charts[0].explanations == ["Against a.", both, "Against b."]


def test_no_part_is_made_up_where_a_layer_is_missing() -> None:
    layers = measure()["layers"]

    chart = chart_of(measure(layers=[layers[0], {"layer": 1, **NOTHING}, layers[3]]))

    assert [(part.place, part.value) for part in chart.parts] == [(1, None)]


def test_a_line_is_broken_where_a_value_is_missing() -> None:
    def count_pieces(layers: list[dict[str, Any]]) -> int:
        entry = measure(name="knock_out", layers=layers)
        drawing = draw_chart(document_of(entry), chart_of(entry), EXHIBIT).svg
        line = re.findall(r'<path d="([^"]*)"[^>]*stroke="var\(--anchored\)" stroke-width="1.7"', drawing)
        return line[0].count("M")

    layers = [{"layer": layer, "value": 0.1, "low": 0.0, "high": 0.2} for layer in range(1, 9)]

    assert count_pieces(layers) == 1
    assert count_pieces([{**entry, "value": None} if entry["layer"] == 4 else entry for entry in layers]) == 2


def test_norms_are_dots_for_few_blocks_and_lines_for_many() -> None:
    few, many = (draw_norms(norms_by_class(make_document(num_blocks=count)), EXHIBIT) for count in (8, 9))

    labels = [label for _, label in few.legend]
    assert labels == ["system prompt", "user", "earlier answers", "the answer", "template"]
    assert [str(number) for number in range(23, 31)] == [text for text in texts_of(few.svg) if text in labels_of(23)]
    assert few.svg.count('stroke-width="1.7"') == 0
    assert many.svg.count('stroke-width="1.7"') == len(CLASSES)


def labels_of(first: int) -> list[str]:
    return [str(number) for number in range(first, 31)]


def test_base_and_trained_are_marked_on_the_scale() -> None:
    panel = draw_scale(scale_points(make_document()), EXHIBIT)

    assert {"base", "as trained", "log-probability, nats a token"} <= set(texts_of(panel.svg))


def test_blocks_switched_off_are_compared_with_all_on() -> None:
    levels: dict[Any, float] = {"all": -2.0, 3: -1.5, "none": -1.25}
    document = document_of(
        off=[{"block": block, "value": value, "difference": {"value": value + 1.25}} for block, value in levels.items()]
    )

    table = next(group for group in collect_groups(document) if group.name == "blocks").exhibits[0].table
    texts = texts_of(draw_off(switched_off(document), EXHIBIT).svg)

    assert [(row.name, row.cells[1].value) for row in table.rows] == [
        ("all on", "0.000"),
        ("block 3 off", "−0.250"),
        ("all off", "−0.750"),
    ]
    assert {"all on", "block 3 off", "all off", "log-probability minus all on, nats a token"} <= set(texts)


def test_without_differences_the_means_are_drawn() -> None:
    entries = switched_off(document_of(off=[{"block": 3, "value": -1.5}]))

    assert "log-probability, nats a token" in texts_of(draw_off(entries, EXHIBIT).svg)


def test_each_token_of_an_answer_is_a_button_and_each_map_one_tab_stop(page: Page) -> None:
    buttons = [given for tag, given in page.elements if tag == "button"]

    words = [data for tag, data in page.texts if tag == "button"]
    assert words == [spell_token(token) for answer in ANSWERS for token in answer]
    assert all(given["type"] == "button" and given["aria-pressed"] == "false" for given in buttons)
    assert sum("tabindex" not in given for given in buttons) == len(ANSWERS)
    assert "".join(spell_token(token) for token in SYSTEM) in "".join(data for _, data in page.texts)


def test_the_page_carries_the_weights(page: Page) -> None:
    maps = make_document()["blocks"]["maps"]

    data: Any = page.data()

    assert [list(found) for found in data] == [list(given["weights"]) for given in maps]
    assert [round(weight, 4) for weight in maps[1]["weights"]["28"][3]] == [part / 10000 for part in data[1]["28"][3]]


@pytest.mark.parametrize(
    "broken",
    [
        {"weights": None},
        {"weights": {"3": [[0.5, 0.5], [0.1, 0.9]]}},
        {"weights": {"3": [[0.5, 0.3, 0.2]]}},
        {"weights": {"3": [[0.5, None, 0.2], [0.1, 0.1, 0.8]]}},
        {"weights": {"3": [[0.5, float("nan"), 0.2], None]}},
        {"system_tokens": None},
    ],
)
def test_a_map_without_complete_weights_is_left_out_and_counted(tmp_path: Path, broken: dict[str, Any]) -> None:
    page = read_page(tmp_path, document_of(maps=[map_of(), map_of(id="two", **broken)]))

    assert "1 more without complete weights is left out." in page.text("p")
    assert [data for tag, data in page.texts if tag == "h3"] == ["one"]


def test_a_map_is_averaged_over_its_blocks() -> None:
    weights = {"2": [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], "3": [[0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]}

    found = attention_maps(document_of(maps=[map_of(weights=weights)]))[0]

    assert found.average() == [[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]]


def test_a_long_map_is_drawn_in_part_and_says_so() -> None:
    rows = [[0.001 if column < 30 else 0.01 for column in range(90)]] * 50
    texts = {"system_tokens": [f"s{column}" for column in range(90)], "answer_tokens": ["a"] * 50}

    panel = draw_matrix(attention_maps(document_of(maps=[map_of(**texts, weights={"3": rows})]))[0], "matrix")

    assert "the first 40 of 50 tokens of the answer" in panel.note
    assert "the 60 of 90 tokens of the system prompt with the largest weights" in panel.note
    assert [text for text in texts_of(panel.svg) if text.startswith("s")] == [f"s{number}" for number in range(30, 90)]


def test_tokens_are_shown_on_one_line() -> None:
    tokens = (" the", "\n\n", "\t", "", ".\n", " ", "  ")

    assert [spell_token(token) for token in tokens] == [" the", "↵↵", "⇥", "∅", ".↵", "␣", "␣␣"]


def act(page: str, script: str) -> str:
    """Return the page without its policy, with a script behind its own that leaves a map's shading in the title."""
    page = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    names = (
        "const card = document.querySelectorAll('.map')[1], words = card.querySelectorAll('button');"
        "const block = document.querySelector('[name=block]');"
        "const press = (word, key) => word.dispatchEvent(new KeyboardEvent('keydown', { key }));"
        "const point = (word, type) => word.dispatchEvent(new PointerEvent(type, { pointerType: 'mouse' }));"
    )
    found = "[...card.querySelectorAll('.system .token')].map((e) => getComputedStyle(e).getPropertyValue('--weight'))"
    waiting = f"setTimeout(() => {{ {script} }}, 50); setTimeout(() => {{ document.title = {found}.join(' '); }}, 400);"
    return page.replace("</body>", f"<script>{names}{waiting}</script></body>")


def shade(rows: list[list[float]]) -> list[float]:
    """Return the mean of rows relative to its largest."""
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return [mean / max(means) for mean in means]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(
    ("script", "blocks", "words"),
    [
        ("", [26, 27, 28, 29, 30], range(13)),
        ("point(words[3], 'pointerenter');", [26, 27, 28, 29, 30], [3]),
        ("point(words[3], 'pointerenter'); point(words[3], 'pointerleave');", [26, 27, 28, 29, 30], range(13)),
        ("words[5].click(); words[5].blur();", [26, 27, 28, 29, 30], [5]),
        ("words[5].click(); words[5].click(); words[5].blur();", [26, 27, 28, 29, 30], range(13)),
        ("words[0].focus(); press(words[0], 'ArrowRight'); press(words[1], 'ArrowRight');", [26, 27, 28, 29, 30], [2]),
        ("words[0].focus(); press(words[0], 'End');", [26, 27, 28, 29, 30], [12]),
        (
            "block.value = '28'; block.dispatchEvent(new Event('change', { bubbles: true })); words[4].focus();",
            [28],
            [4],
        ),
    ],
    ids=["whole answer", "point", "point away", "tap", "tap twice", "arrow keys", "end key", "one block"],
)
def test_a_word_shades_the_system_prompt_in_a_browser(
    tmp_path: Path, folder: Path, script: str, blocks: list[int], words: Any
) -> None:
    path = tmp_path / "page.html"
    path.write_text(act((folder / "report.html").read_text(encoding="utf-8"), script), encoding="utf-8")

    shown = read_in_chromium(path, tmp_path)

    weights = make_document()["blocks"]["maps"][1]["weights"]
    expected = shade([weights[str(block)][word] for block in blocks for word in words])
    found = [float(part) for part in re.findall("<title>(.*?)</title>", shown)[0].split()]
    assert found == pytest.approx(expected, abs=0.002)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_script_runs_under_the_policy_in_a_browser(tmp_path: Path, folder: Path) -> None:
    shown = read_in_chromium(folder / "report.html", tmp_path)

    assert shown.count("--weight:") == len(SYSTEM) * len(ANSWERS)
    assert shown.count("The answer as a whole looks at") >= len(ANSWERS)
