import json
import os
import re
import string
from collections import Counter
from pathlib import Path

import pytest

from calyrex.benchmarks.benchmark import Case
from calyrex.benchmarks.source import Source
from calyrex.benchmarks.squad import FILE, SQUAD, measure_overlap
from calyrex.errors import CalyrexError
from scored import ODD_ANSWERS, score_all

FLAT = {"id": "q1", "title": "t", "context": "Ann has a red cat.", "question": "What is red?", "answers": {
    "text": ["a red cat", "cat"], "answer_start": [8, 14]}}  # fmt: skip
NESTED = {"data": [{"title": "t", "paragraphs": [{"context": "Ann has a red cat.", "qas": [
    {"id": "q1", "question": "What is red?", "answers": [{"text": "a red cat", "answer_start": 8}]},
    {"id": "q2", "question": "Who has it?", "answers": [{"text": "Ann", "answer_start": 0}]},
]}]}]}  # fmt: skip
WORDS = ["", "The", "a cat", "cat", "the cat!", "Cats, cats", "a  red\tcat", "U.S.", "us", "3,000", "an-other", "ça va"]


def write(folder: Path, content: object) -> Source:
    path = folder / FILE
    path.parent.mkdir()
    path.write_text(json.dumps(content), encoding="utf-8")
    return Source(folder)


def case_of(*golds: str) -> Case:
    return Case("q", [], {"answers": list(golds)})


def plain_tokens(text: str) -> list[str]:
    """The official script, written out plainly: lower case, punctuation, articles, whitespace."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


@pytest.mark.parametrize("gold", WORDS)
def test_both_scores_are_those_of_the_official_script(gold: str) -> None:
    for answer in WORDS:
        said, wanted = plain_tokens(answer), plain_tokens(gold)
        shared = sum(min(count, Counter(wanted)[word]) for word, count in Counter(said).items())
        f1 = 2 * shared / (len(said) + len(wanted)) if shared else 0.0

        verdict = SQUAD.score(case_of(gold), [answer])

        assert verdict["exact_match"] == (" ".join(said) == " ".join(wanted))
        assert verdict["f1"] == pytest.approx(f1)


@pytest.mark.parametrize(
    ("answer", "exact_match", "f1"),
    [
        ("The red cat.", True, 1.0),
        ("cat", False, 2 / 3),
        ("It is a red cat", False, 2 * (2 / 4) * 1 / (2 / 4 + 1)),
        ("dog", False, 0.0),
    ],
)
def test_the_words_shared_with_the_gold_answer_count(answer: str, exact_match: bool, f1: float) -> None:
    verdict = SQUAD.score(case_of("a red cat"), [answer])

    assert verdict == {"exact_match": exact_match, "f1": pytest.approx(f1)}


def test_the_best_of_all_gold_answers_counts() -> None:
    assert SQUAD.score(case_of("a red cat", "the cat"), ["cat"]) == {"exact_match": True, "f1": 1.0}


def test_two_answers_of_articles_only_match_without_sharing_a_word() -> None:
    assert SQUAD.score(case_of("the"), ["a"]) == {"exact_match": True, "f1": 0.0}
    assert measure_overlap("", "") == 0.0


def test_a_case_holds_passage_and_question_and_the_rule_to_answer_with_a_span(tmp_path: Path) -> None:
    first, second = SQUAD.load(write(tmp_path, NESTED))

    assert (first.id, second.id) == ("q1", "q2")
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert "shortest span" in first.messages[0]["content"]
    assert first.messages[1]["content"] == "Passage: Ann has a red cat.\n\nQuestion: What is red?"
    assert second.reference == {"answers": ["Ann"]}


def test_rows_in_the_hubs_format_are_read_too(tmp_path: Path) -> None:
    (case,) = SQUAD.load(write(tmp_path, [FLAT]))

    assert case.reference == {"answers": ["a red cat", "cat"]}


@pytest.mark.parametrize(
    "row",
    [
        {},
        {**FLAT, "question": None},
        {**FLAT, "answers": ["cat"]},
        {**FLAT, "answers": {"text": []}},
        {**FLAT, "answers": {"text": [3]}},
        {"paragraphs": 3},
        {"paragraphs": [3]},
        {"paragraphs": [{"context": "c", "qas": [{"id": "x", "question": "q"}]}]},
    ],
)
def test_a_row_of_the_wrong_shape_is_one_line_with_file_and_row(tmp_path: Path, row: object) -> None:
    with pytest.raises(CalyrexError, match=r"^\S+/xquad_en/xquad\.en\.json row 2: expected .+, got .+$"):
        SQUAD.load(write(tmp_path, [FLAT, row]))


@pytest.mark.parametrize("answer", ODD_ANSWERS)
def test_any_text_gets_a_verdict(answer: str) -> None:
    verdict = SQUAD.score(case_of("a red cat"), [answer])

    assert verdict == {"exact_match": False, "f1": 0.0}


def test_the_headline_is_the_mean_overlap() -> None:
    metrics = SQUAD.summarise(score_all(SQUAD, [(case_of("red cat"), "red cat"), (case_of("red cat"), "blue")]))

    assert list(metrics) == ["f1", "exact_match"]
    assert metrics["f1"].value == metrics["exact_match"].value == 0.5


@pytest.mark.slow
@pytest.mark.skipif("CALYREX_EVAL_DATA" not in os.environ, reason="CALYREX_EVAL_DATA names no folder with the data")
def test_every_gold_answer_of_the_real_file_is_right() -> None:
    cases = SQUAD.load(Source(Path(os.environ["CALYREX_EVAL_DATA"])))

    assert len({case.id for case in cases}) == 1190
    assert all(SQUAD.score(case, [case.reference["answers"][0]])["exact_match"] for case in cases)
