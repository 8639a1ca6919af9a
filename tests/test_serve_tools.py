"""Tools from the official client's side, with a real chat template and a tiny model that has learnt to call."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from openai import OpenAI
from starlette.testclient import TestClient

from calyrex.serve.app import build_app, build_state
from calyrex.serve.options import ServeOptions
from calyrex.serve.served import load_served
from calyrex.span import encode_chat
from chat_tokenizers import byte_level
from tiny import tiny_base

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks up the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CHAT: list[Any] = [{"role": "system", "content": "Obey."}, {"role": "user", "content": "How warm is it in Rome?"}]
ARGUMENTS = {"city": "Rome"}
CALL = f"<tool_call>\n{json.dumps({'name': 'look_up', 'arguments': ARGUMENTS})}\n</tool_call>"
RESULT = "20 degrees"
ANSWER = "It is 20 degrees."


def with_result(call_id: str) -> list[Any]:
    function = {"name": "look_up", "arguments": json.dumps(ARGUMENTS)}
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    return [*CHAT, called, {"role": "tool", "tool_call_id": call_id, "content": RESULT}]


def teach(folder: Path) -> Path:
    """Save a tiny model that answers the question with a call, and the call's result with a sentence."""
    tokenizer = byte_level("qwen3")
    model = tiny_base(vocab_size=len(tokenizer)).train()
    model.config.max_position_embeddings = 1024
    rows: list[tuple[torch.Tensor, int]] = []
    for chat, answer in ((CHAT, CALL), (with_result("any"), ANSWER)):
        prompt = encode_chat(tokenizer, chat, [TOOL])["input_ids"]
        said = tokenizer(answer + "<|im_end|>", add_special_tokens=False, return_tensors="pt")["input_ids"]
        rows.append((torch.cat([prompt, said], dim=1), prompt.shape[1]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        for ids, start in rows:
            labels = ids.clone()
            labels[:, :start] = -100
            model(ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    return folder / "base"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    options = ServeOptions(model=str(teach(tmp_path_factory.mktemp("tools"))), max_new_tokens=200)
    state = build_state(load_served(options), options)
    web = TestClient(build_app(state, options), base_url="http://127.0.0.1")
    yield OpenAI(base_url="http://127.0.0.1/v1", api_key="any", http_client=web, max_retries=0)
    state.engine.stop()


def test_a_client_gets_a_call_and_the_answer_to_its_result(client: OpenAI) -> None:
    first = client.chat.completions.create(model="base", messages=CHAT, tools=[TOOL], temperature=0).choices[0]

    assert first.finish_reason == "tool_calls" and first.message.tool_calls
    (call,) = first.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("look_up", ARGUMENTS)

    messages = [*CHAT, first.message, {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
    second = client.chat.completions.create(model="base", messages=messages, tools=[TOOL], temperature=0).choices[0]

    assert (second.finish_reason, second.message.content) == ("stop", ANSWER)


def test_a_streamed_call_is_whole(client: OpenAI) -> None:
    with client.chat.completions.stream(model="base", messages=CHAT, tools=[TOOL], temperature=0) as stream:
        choice = stream.get_final_completion().choices[0]

    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    assert json.loads(choice.message.tool_calls[0].function.arguments) == ARGUMENTS


def test_tools_that_may_not_be_called_are_not_offered(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="base", messages=CHAT, tools=[TOOL], tool_choice="none", temperature=0, max_tokens=8
    )

    assert answer.choices[0].message.tool_calls is None
    expected = encode_chat(byte_level("qwen3"), CHAT)["input_ids"].shape[1]
    assert answer.usage and answer.usage.prompt_tokens == expected


def test_responses_give_calls_too(client: OpenAI) -> None:
    function = {"type": "function", "strict": False, **TOOL["function"]}
    answer = client.responses.create(
        model="base", instructions="Obey.", input=CHAT[1]["content"], tools=[function], temperature=0
    )

    (call,) = answer.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("look_up", ARGUMENTS)
