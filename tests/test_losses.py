"""Losses of a fixed answer are those of a plain rewrite, and blocks that do nothing change none."""

import dataclasses

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.nn import functional
from transformers import PreTrainedTokenizerBase

from calyrex.benchmarks.benchmark import Case
from calyrex.benchmarks.losses import measure_losses
from calyrex.benchmarks.repetition import repeat_system
from calyrex.config import CalyrexConfig
from calyrex.span import tokenize_chat
from chat_tokenizers import chatml
from tiny import tiny_base, train_blocks


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return chatml()


@pytest.fixture
def anchored(tokenizer: PreTrainedTokenizerBase) -> PeftModel:
    base = tiny_base(vocab_size=len(tokenizer))
    return get_peft_model(base, CalyrexConfig(placement=[2, 3, 4])).eval()


@pytest.fixture
def cases() -> list[Case]:
    texts = [
        ("Be kind.", "Who?", "Me."),
        ("Be a very kind guide.", "Who is it? Say it now.", "It is me."),
        ("Hm.", "A", "B C D"),
    ]
    return [
        Case(str(n), [{"role": "system", "content": s}, {"role": "user", "content": u}], {"answer": a})
        for n, (s, u, a) in enumerate(texts)
    ]


def plain_loss(model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, case: Case, **masks: bool) -> float:
    """Measure one case alone, token by token."""
    chat = tokenize_chat(tokenizer, [*case.messages, {"role": "assistant", "content": case.reference["answer"]}])
    ids = torch.tensor([chat.input_ids])
    mask = {"system_mask": torch.tensor([chat.system_mask])} if masks.get("with_system_mask") else {}
    with torch.no_grad():
        log_probabilities = functional.log_softmax(model(ids, **mask).logits[0].float(), dim=-1)
    said = [at for at, is_said in enumerate(chat.assistant_mask) if is_said]
    return -sum(float(log_probabilities[at - 1, chat.input_ids[at]]) for at in said) / len(said)


def test_losses_are_those_of_each_case_alone(
    anchored: PeftModel, tokenizer: PreTrainedTokenizerBase, cases: list[Case]
) -> None:
    train_blocks(anchored)

    measured = measure_losses(anchored, tokenizer, cases)

    with_blocks = [plain_loss(anchored, tokenizer, case, with_system_mask=True) for case in cases]
    with anchored.disable_adapter():
        without = [plain_loss(anchored, tokenizer, case) for case in cases]
    assert [item.loss for item in measured] == pytest.approx(with_blocks, abs=1e-5)  # batches round differently
    assert [item.base_loss for item in measured] == pytest.approx(without, abs=1e-5)
    assert max(abs(item.loss - item.base_loss) for item in measured) > 1e-3


def test_fresh_blocks_lose_nothing_to_the_base(
    anchored: PeftModel, tokenizer: PreTrainedTokenizerBase, cases: list[Case]
) -> None:
    assert all(item.loss == item.base_loss for item in measure_losses(anchored, tokenizer, cases))


def test_a_base_is_its_own_base(tokenizer: PreTrainedTokenizerBase, cases: list[Case]) -> None:
    base = tiny_base(vocab_size=len(tokenizer))

    measured = measure_losses(base, tokenizer, cases)

    assert [item.loss for item in measured] == [item.base_loss for item in measured]
    assert [item.loss for item in measured] == pytest.approx(
        [plain_loss(base, tokenizer, case) for case in cases], abs=1e-5
    )


def test_an_adapter_of_another_method_needs_no_system_mask(
    tokenizer: PreTrainedTokenizerBase, cases: list[Case]
) -> None:
    lora = get_peft_model(tiny_base(vocab_size=len(tokenizer)), LoraConfig(target_modules=["q_proj"])).eval()

    assert all(item.loss == item.base_loss for item in measure_losses(lora, tokenizer, cases))


def test_earlier_answers_are_not_measured(
    anchored: PeftModel, tokenizer: PreTrainedTokenizerBase, cases: list[Case]
) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    case = Case("long", [cases[0].messages[0], *turns, cases[0].messages[1]], {"answer": "Me."})
    quiet = [{**message, "weight": 0} if message["role"] == "assistant" else message for message in case.messages]

    (measured,) = measure_losses(anchored, tokenizer, [case])

    expected = plain_loss(anchored, tokenizer, Case("quiet", quiet, case.reference), with_system_mask=True)
    assert measured.loss == pytest.approx(expected, abs=1e-5)


def test_progress_counts_every_case(anchored: PeftModel, tokenizer: PreTrainedTokenizerBase, cases: list[Case]) -> None:
    counts: list[int] = []

    measure_losses(anchored, tokenizer, cases, counts.append)

    assert sum(counts) == len(cases)


def test_a_system_prompt_that_is_said_again_is_heard_twice(
    anchored: PeftModel, tokenizer: PreTrainedTokenizerBase, cases: list[Case]
) -> None:
    train_blocks(anchored)
    again = [dataclasses.replace(case, messages=repeat_system(case.messages)) for case in cases]

    measured = measure_losses(anchored, tokenizer, [dataclasses.replace(case, repeats_system=True) for case in cases])

    assert measured == measure_losses(anchored, tokenizer, again)
    assert measured != measure_losses(anchored, tokenizer, cases)
