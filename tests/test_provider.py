from pathlib import Path

import anyio
import pytest
from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser, GenerateConfig, ModelOutput
from inspect_ai.tool import ToolInfo

from calyrex.benchmarks.provider import LocalModel
from calyrex.errors import CalyrexError
from calyrex.generation import answer_chats
from calyrex.models import load_anchored
from chat_tokenizers import chatml
from saved import save_adapter
from tiny import tiny_base

TEXTS = ["a", "tell me", "tell me more about it", "why", "a b c d e f g h"]


def chat(text: str) -> list[ChatMessage]:
    return [ChatMessageSystem(content="Always obey."), ChatMessageUser(content=text)]


def ask_all(model: LocalModel, chats: list[list[ChatMessage]], max_tokens: int = 12) -> list[ModelOutput]:
    outputs: dict[int, ModelOutput] = {}

    async def ask(number: int) -> None:
        outputs[number] = await model.generate(chats[number], [], "auto", GenerateConfig(max_tokens=max_tokens))

    async def ask_together() -> None:
        async with anyio.create_task_group() as group:
            for number in range(len(chats)):
                group.start_soon(ask, number)

    anyio.run(ask_together)
    return [outputs[number] for number in range(len(chats))]


@pytest.fixture
def adapter(tmp_path: Path, base_folder: Path) -> Path:
    base = tiny_base(vocab_size=len(chatml()))
    base.name_or_path = str(base_folder)
    return save_adapter(tmp_path / "adapter", base)


def test_concurrent_questions_get_the_answers_of_answer_chats(base_folder: Path, adapter: Path) -> None:
    model = LocalModel(str(base_folder), adapter=str(adapter))

    outputs = ask_all(model, [chat(text) for text in TEXTS])

    plain = [[{"role": "system", "content": "Always obey."}, {"role": "user", "content": text}] for text in TEXTS]
    anchored = load_anchored(str(base_folder), adapter)
    assert [output.completion for output in outputs] == answer_chats(
        anchored, model.tokenizer, plain, max_new_tokens=12
    )


def test_concurrent_questions_share_one_batch(base_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LocalModel(str(base_folder))
    sizes: list[int] = []
    answer = model._answer
    monkeypatch.setattr(model, "_answer", lambda group, stop: sizes.append(len(group)) or answer(group, stop))

    ask_all(model, [chat(text) for text in TEXTS])

    assert sizes == [len(TEXTS)]


def test_short_questions_are_not_padded_to_more_than_twice_their_length(
    base_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LocalModel(str(base_folder))
    groups: list[list[int]] = []
    answer = model._answer
    monkeypatch.setattr(
        model,
        "_answer",
        lambda group, stop: groups.append([one.num_tokens for one in group]) or answer(group, stop),
    )

    ask_all(model, [chat("word " * length) for length in (1, 2, 24, 25)])

    assert [len(group) for group in groups] == [2, 2]
    assert all(2 * min(group) >= max(group) for group in groups)


def test_answers_are_handed_out_before_the_next_batch_begins(
    base_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calyrex.benchmarks.provider._CACHE_BYTES", 1)  # every prompt is a batch of its own
    model = LocalModel(str(base_folder))
    handed_out: list[int] = []
    seen: list[int] = []
    answer = model._answer
    monkeypatch.setattr(model, "_answer", lambda *arguments: seen.append(len(handed_out)) or answer(*arguments))

    async def ask(number: int) -> None:
        await model.generate(chat(TEXTS[number]), [], "auto", GenerateConfig(max_tokens=4))
        handed_out.append(number)

    async def ask_together() -> None:
        async with anyio.create_task_group() as group:
            for number in range(len(TEXTS)):
                group.start_soon(ask, number)

    anyio.run(ask_together)
    assert seen == [0, 1, 2, 3, 4]


def test_a_model_answers_again_after_a_batch_that_failed(base_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LocalModel(str(base_folder))
    with monkeypatch.context() as patch:
        patch.setattr(model, "_answer", lambda *_: 1 / 0)
        with pytest.raises(ExceptionGroup):
            ask_all(model, [chat(text) for text in TEXTS])

    outputs = ask_all(model, [chat(text) for text in TEXTS])

    assert all(output.usage is not None for output in outputs)


def test_scale_zero_answers_as_the_base(base_folder: Path, adapter: Path) -> None:
    chats = [chat(text) for text in TEXTS]

    silenced = ask_all(LocalModel(str(base_folder), adapter=str(adapter), scale=0.0), chats)
    anchored = ask_all(LocalModel(str(base_folder), adapter=str(adapter)), chats)

    base = ask_all(LocalModel(str(base_folder)), chats)
    assert [output.completion for output in silenced] == [output.completion for output in base]
    assert [output.completion for output in anchored] != [output.completion for output in base]


def test_usage_counts_the_tokens_of_prompt_and_answer(base_folder: Path) -> None:
    model = LocalModel(str(base_folder))

    short, long = ask_all(model, [chat("a"), chat("a" * 40)])

    assert short.usage is not None and long.usage is not None
    assert long.usage.input_tokens == short.usage.input_tokens + 39
    assert short.usage.output_tokens <= 12
    assert short.stop_reason == ("max_tokens" if short.usage.output_tokens == 12 else "stop")


def test_an_answer_ends_where_the_context_does(base_folder: Path) -> None:
    model = LocalModel(str(base_folder))

    (output,) = ask_all(model, [chat("a" * 180)], max_tokens=500)

    assert output.usage is not None
    assert output.usage.total_tokens <= 256


def test_a_prompt_longer_than_the_context_is_said_to_be(base_folder: Path) -> None:
    (output,) = ask_all(LocalModel(str(base_folder)), [chat("a" * 400)])

    assert (output.stop_reason, output.completion) == ("model_length", "")


@pytest.mark.parametrize(
    ("tools", "config"),
    [
        ([], GenerateConfig(temperature=0.7)),
        ([], GenerateConfig(stop_seqs=["x"])),
        ([ToolInfo(name="f", description="f")], GenerateConfig()),
    ],
    ids=["sampling", "stop texts", "tools"],
)
def test_what_the_provider_cannot_do_is_refused(
    base_folder: Path, tools: list[ToolInfo], config: GenerateConfig
) -> None:
    model = LocalModel(str(base_folder))

    with pytest.raises(CalyrexError, match="answer greedily and call no tools"):
        anyio.run(model.generate, chat("a"), tools, "auto", config)
