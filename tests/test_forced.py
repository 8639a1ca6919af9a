from dataclasses import replace

import pytest
import torch

from calyrex.analysis.chats import Conversation
from calyrex.analysis.forced import MAX_ANSWER_TOKENS, ForcedRuns, force_answer
from calyrex.errors import CalyrexError
from chat_tokenizers import chat, chatml

CONVERSATION = Conversation(
    id="rule-1",
    messages=chat(("system", "Say yes."), ("user", "Why?"), ("assistant", "No."), ("user", "Is it?")),
    answer="Yes!",
    rule="Say yes.",
    other_system="Never say yes to anyone.",
)


def force(conversation: Conversation = CONVERSATION) -> ForcedRuns:
    return force_answer(chatml(), conversation, "Be nice.", torch.device("cpu"))


def test_runs_differ_in_the_system_prompt_only() -> None:
    tokenizer = chatml()

    texts = [tokenizer.decode([*run.prompt[0], *run.tail[0], run.targets[-1]]) for run in force()]

    rest = (
        "<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\nNo.<|im_end|>\n"
        "<|im_start|>user\nIs it?<|im_end|>\n<|im_start|>assistant\nYes!<|im_end|>"
    )
    systems = ("Say yes.", "Never say yes to anyone.", "Be nice.")
    assert texts == [f"<|im_start|>system\n{system}{rest}" for system in systems]


def test_tail_predicts_the_answer_and_its_end() -> None:
    tokenizer, run = chatml(), force().with_rule

    assert tokenizer.decode(run.targets) == "Yes!<|im_end|>"
    assert run.tail[0, 1:].tolist() == run.targets[:-1].tolist()
    assert tokenizer.decode(run.tail[0, :1]) == "\n"


def test_tokens_are_classed_by_who_wrote_them() -> None:
    tokenizer, run = chatml(), force().with_rule
    ids = [*run.prompt[0].tolist(), *run.tail[0].tolist()]

    texts = {
        name: tokenizer.decode([token for token, own in zip(ids, run.classes, strict=True) if own == name])
        for name in ("system", "user", "assistant", "answer")
    }

    assert texts == {"system": "Say yes.", "user": "Why?Is it?", "assistant": "No.", "answer": "Yes!"}
    masked = run.prompt[0][run.system_mask[0]]
    assert tokenizer.decode(masked) == "Say yes."


def test_only_the_beginning_of_a_long_answer_is_measured() -> None:
    run = force(replace(CONVERSATION, answer="Yes! " * 100)).with_rule

    assert len(run.targets) == run.tail.shape[1] == MAX_ANSWER_TOKENS
    assert len(run.classes) == run.num_tokens


def test_conversation_that_the_template_refuses_is_named() -> None:
    broken = replace(CONVERSATION, messages=chat(("user", "")), answer="")

    with pytest.raises(CalyrexError, match=r"^rule-1: "):
        force(broken)
