"""SQuAD: does a model find the words of a passage that answer a question.

The system prompt asks for the shortest span of the passage; passage and question are one user turn.

Metrics, both as in the official evaluation script of SQuAD 1.1 (``evaluate-v1.1.py``), which gives them in percent:

- ``f1``, its ``f1``: mean over questions of the overlap between the words of answer and gold answer;
- ``exact_match``, its ``exact_match``: share of answers that are a gold answer.

Both take the best of all gold answers, after lower case, without punctuation and articles. The hub data set is the
whole validation split, 10,570 questions with some three gold answers each, on which the published figures
stand. The data folder holds XQuAD's English part: 1,190 of these questions with one gold answer each, so
figures on it are lower than published ones and compare only with each other.

Source: Rajpurkar et al., "SQuAD: 100,000+ questions for machine comprehension of text", 2016, arXiv 1606.05250;
Artetxe et al., "On the cross-lingual transferability of monolingual representations", 2020, arXiv 1910.11856.
"""

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from calyrex.benchmarks.benchmark import Benchmark, Case, Scored, Verdict
from calyrex.benchmarks.metric import Metric, mean, share
from calyrex.benchmarks.row import read_list, read_text
from calyrex.benchmarks.source import Hub, Source
from calyrex.errors import CalyrexError

FILE = "xquad_en/xquad.en.json"
HUB = Hub("rajpurkar/squad", "validation")
SYSTEM_PROMPT = (
    "You extract answers. Answer the question about the passage with the shortest span of words from the passage "
    "that answers it, exactly as it is written there, and with nothing else."
)

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Return a text in lower case without ASCII punctuation and articles, its words a space apart."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def measure_overlap(answer: str, gold: str) -> float:
    """Return the F1 score of the words of an answer against those of a gold answer, 0 .. 1."""
    answer_words, gold_words = normalise(answer).split(), normalise(gold).split()
    num_shared = sum((Counter(answer_words) & Counter(gold_words)).values())
    if num_shared == 0:  # also where neither has a word left, as in SQuAD 1.1
        return 0.0
    precision, recall = num_shared / len(answer_words), num_shared / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def _load(source: Source) -> list[Case]:
    return [case for record in source.rows(FILE, HUB) for case in _read_row(*record)]


def _read_row(row: dict[str, Any], origin: str) -> Iterator[Case]:
    """Yield the questions of an article of the original file, or the one of a hub row."""
    if "paragraphs" not in row:
        yield _make_case(row, read_text(row, "context", origin), _read_answers(row, origin), origin)
        return
    for paragraph in read_list(row, "paragraphs", origin):
        passage = read_text(paragraph, "context", origin)
        for question in read_list(paragraph, "qas", origin):
            golds = [read_text(answer, "text", origin) for answer in read_list(question, "answers", origin)]
            yield _make_case(question, passage, golds, origin)


def _read_answers(row: dict[str, Any], origin: str) -> list[str]:
    texts = read_list(row.get("answers"), "text", origin)
    return [read_text({"text": text}, "text", origin) for text in texts]


def _make_case(question: dict[str, Any], passage: str, golds: list[str], origin: str) -> Case:
    if not golds:
        raise CalyrexError(f"{origin}: expected at least one gold answer for each question, got none")
    user = f"Passage: {passage}\n\nQuestion: {read_text(question, 'question', origin)}"
    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": user}]
    return Case(read_text(question, "id", origin), messages, {"answers": golds})


def _score(case: Case, answers: Sequence[str]) -> Verdict:
    answer, golds = answers[0], case.reference["answers"]
    return {
        "exact_match": any(normalise(answer) == normalise(gold) for gold in golds),
        "f1": max(measure_overlap(answer, gold) for gold in golds),
    }


def _summarise(scored: Sequence[Scored]) -> dict[str, Metric]:
    return {
        "f1": mean(one.verdict["f1"] for one in scored),
        "exact_match": share(one.verdict["exact_match"] for one in scored),
    }


SQUAD = Benchmark(
    name="squad",
    measures="extraction: the words of a passage that answer a question",
    origin="SQuAD 1.1 (arXiv 1606.05250); local files: XQuAD English (arXiv 1910.11856)",
    licence="CC BY-SA 4.0",
    max_new_tokens=64,
    load=_load,
    score=_score,
    summarise=_summarise,
)
