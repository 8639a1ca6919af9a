"""Long-IFEval: verifiable instructions in the system prompt, with a long conversation before the question.

The paper's benchmark, section "Long-IFEval", is not public. This one puts conversations of some 1,000 to 32,000 tokens
of plain questions and answers between RealGuardrails' system prompts for IFEval and their user turns; the same
prompts at each length. The conversation breaks no rule on purpose and keeps none either.
"""

import random
from collections.abc import Sequence
from itertools import islice

from calyrex.benchmarks.benchmark import Benchmark, Case, Scored, Verdict
from calyrex.benchmarks.ifeval import MAX_NEW_TOKENS, SYS_IFEVAL, load_sys_ifeval, score_ifeval, summarise_ifeval
from calyrex.benchmarks.metric import Metric, share
from calyrex.benchmarks.source import Source
from calyrex.data.rules import generate_corpus
from calyrex.masking import Message

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
"""Tokens between the system prompt and the question, about; the exact number depends on the tokenizer."""

_NUM_PROMPTS = 50
_CHARACTERS_PER_TOKEN = 4
_TURN_TOKENS = 6
"""What a chat template adds to a turn."""


def load_long_ifeval(source: Source) -> list[Case]:
    """Make a case of each of fifty prompts at each length.

    Raises:
        CalyrexError: There are no data, or a row lacks a field.
    """
    cases = load_sys_ifeval(source)
    chosen = random.Random(source.seed).sample(cases, min(_NUM_PROMPTS, len(cases)))
    turns = _draw_turns(source.seed)
    return [_lengthen(case, turns, length, number) for length in LENGTHS for number, case in enumerate(chosen)]


def score_long_ifeval(case: Case, answers: Sequence[str]) -> Verdict:
    """Check every instruction of a case, and say how long its conversation is."""
    return {**score_ifeval(case, answers), "length": float(case.reference["length"])}


def summarise_long_ifeval(scored: Sequence[Scored]) -> dict[str, Metric]:
    """Return IFEval's figures over all lengths, and the strict share of prompts at each."""
    at_lengths = {
        f"prompt_strict_{length}": share(one.verdict["strict"] for one in scored if one.verdict["length"] == length)
        for length in LENGTHS
    }
    return {**summarise_ifeval(scored), **at_lengths}


def _draw_turns(seed: int) -> list[tuple[Message, Message]]:
    """Draw plain questions and answers, more than the longest conversation needs."""
    num_turns = LENGTHS[-1] // (2 * _TURN_TOKENS)
    examples = islice(generate_corpus(num_turns, seed=seed, split="test", attacked=False), num_turns)
    return [
        ({"role": "user", "content": example.question}, {"role": "assistant", "content": example.natural})
        for example in examples
    ]


def _lengthen(case: Case, turns: Sequence[tuple[Message, Message]], length: int, number: int) -> Case:
    """Put turns before the last message, starting at another one for each prompt, until the length is reached."""
    filling: list[Message] = []
    num_tokens, position = 0, 31 * number
    while num_tokens < length:
        turn = turns[position % len(turns)]
        filling += turn
        num_tokens += sum(len(message["content"]) // _CHARACTERS_PER_TOKEN + _TURN_TOKENS for message in turn)
        position += 1
    messages = [*case.messages[:-1], *filling, case.messages[-1]]
    return Case(f"{case.id}/{length}", messages, {**case.reference, "length": length}, shares=case.id)


LONG_IFEVAL = Benchmark(
    name="long_ifeval",
    measures="the same after 1k to 32k tokens of conversation",
    origin=f"built here from {SYS_IFEVAL.origin}",
    licence=SYS_IFEVAL.licence,
    max_new_tokens=MAX_NEW_TOKENS,
    load=load_long_ifeval,
    score=score_long_ifeval,
    summarise=summarise_long_ifeval,
)
