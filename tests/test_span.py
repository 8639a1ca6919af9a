"""Messages become tokens exactly as the chat template says, and the system mask covers what system messages say."""

from typing import Any, NamedTuple

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from calyrex.errors import CalyrexError
from calyrex.span import encode_chat, tokenize_chat
from chat_tokenizers import TEMPLATES, byte_level, chat, chatml, read_chat_template, render_ids, system_text, told

SYSTEM, USER, ANSWER = "Be a pirate. Obey.", "Hello?", "Arr.\nNo."


class Behaviour(NamedTuple):
    """What becomes of a system message, of a later one, and of one with the role developer."""

    system: str = "system"
    later: str = "system"
    developer: str = "system"


BEHAVIOURS = {
    **dict.fromkeys(("cohere", "qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8"),
                    Behaviour(later="refuses", developer="refuses")),
    **dict.fromkeys(("cohere2", "deepseekv3", "glm4moe", "phi3", "phi3_5", "qwen2_5", "qwen3", "qwen3_instruct_2507",
                     "muse_glimmer"), Behaviour(developer="drops")),
    **dict.fromkeys(("deepseek_r1_distill", "qwen3_vl"), Behaviour(later="drops", developer="drops")),
    **dict.fromkeys(("diffusion_gemma", "gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5", "idefics3",
                     "lfm2", "lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl", "lfm2_v2", "llama3", "llama3_1", "llama3_2",
                     "nemotron_3_5_lightning", "nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "qwen2_5_vl",
                     "smolvlm"), Behaviour()),
    "gemma": Behaviour(system="refuses", later="refuses", developer="refuses"),
    "gemma3": Behaviour(later="refuses", developer="refuses"),
    "gptoss": Behaviour(later="drops"),
    "llava_next": Behaviour(developer="refuses"),
}  # fmt: skip
READS_PARTS = ("idefics3", "llava_next", "smolvlm")
KNOWN = [name for name in TEMPLATES if name.removesuffix("_training") in BEHAVIOURS]
every_template = pytest.mark.parametrize("name", TEMPLATES)
every_known_template = pytest.mark.parametrize("name", KNOWN)
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell <|im_end|> the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "where"}}},
    },
}


PLAIN = (("user", USER), ("assistant", ANSWER), ("user", "And 42?"))


def assistant_text(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, Any]], **options: Any) -> str:
    tokens = tokenize_chat(tokenizer, messages, **options)
    return told(tokenizer, tokens, tokens.assistant_mask)


@every_known_template
def test_system_mask_says_the_system_message_or_the_template_is_refused(name):
    behaviour = BEHAVIOURS[name.removesuffix("_training")]
    messages = chat(("system", SYSTEM), *PLAIN)

    if behaviour.system == "system":
        assert system_text(byte_level(name), messages) == SYSTEM
    else:
        with pytest.raises(CalyrexError, match=r"refuses the role 'system' \(message 0\): .*; set a chat template"):
            encode_chat(byte_level(name), messages)


@every_known_template
def test_later_system_message_is_system_or_refused(name):
    behaviour = BEHAVIOURS[name.removesuffix("_training")]
    messages = chat(("system", SYSTEM), *PLAIN[:2], ("system", "Second."), PLAIN[2])

    if behaviour.later == "system":
        assert system_text(byte_level(name), messages).replace(" ", "") == f"{SYSTEM}Second.".replace(" ", "")
    else:
        with pytest.raises(CalyrexError, match=rf"{behaviour.later}.* system|{behaviour.later}.*'system'"):
            encode_chat(byte_level(name), messages)


@every_known_template
def test_developer_message_is_system_or_refused(name):
    behaviour = BEHAVIOURS[name.removesuffix("_training")]
    messages = chat(("developer", SYSTEM), ("user", USER))

    if behaviour.developer == "system":
        assert system_text(byte_level(name), messages) == SYSTEM
    else:
        with pytest.raises(CalyrexError, match=rf"{behaviour.developer}.*'developer'"):
            encode_chat(byte_level(name), messages)


@every_template
def test_ids_are_those_of_transformers(name):
    tokenizer = byte_level(name)
    messages = chat(("system", SYSTEM), *PLAIN) if not name.startswith("gemma_") and name != "gemma" else chat(*PLAIN)

    ids = encode_chat(tokenizer, messages)["input_ids"][0].tolist()

    assert ids == render_ids(tokenizer, messages)


@every_template
def test_no_system_message_is_no_system_token(name):
    encoded = encode_chat(byte_level(name), chat(*PLAIN))

    assert not encoded["system_mask"].any()


@every_template
def test_assistant_mask_says_the_answers_and_the_end_of_each_turn(name):
    tokenizer = byte_level(name)
    messages = chat(("user", USER), ("assistant", ANSWER), ("user", USER), ("assistant", "Bye."))
    messages[1]["weight"] = 0

    tokens = tokenize_chat(tokenizer, messages)

    spoken = [at for at, is_spoken in enumerate(tokens.assistant_mask) if is_spoken]
    assert spoken == list(range(spoken[0], spoken[-1] + 1))
    text = told(tokenizer, tokens, tokens.assistant_mask).strip()
    assert text.startswith("Bye.")
    assert text == "Bye." or tokens.input_ids[spoken[-1]] in tokenizer.get_added_vocab().values()


@pytest.mark.parametrize("name", [name for name in TEMPLATES if "generation -%}" in read_chat_template(name)
                                  or "generation %}" in read_chat_template(name)])  # fmt: skip
def test_assistant_mask_is_within_what_a_training_template_marks(name):
    tokenizer = byte_level(name)
    messages = chat(("user", USER), ("assistant", ANSWER), ("user", USER), ("assistant", "Bye."))
    parts = name.removesuffix("_training") in READS_PARTS
    given = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in messages] if parts else messages
    marked = tokenizer.apply_chat_template(given, return_dict=True, return_assistant_tokens_mask=True)

    tokens = tokenize_chat(tokenizer, messages)

    assert tokens.input_ids == marked["input_ids"]
    pairs = zip(tokens.assistant_mask, marked["assistant_masks"], strict=True)
    assert all(is_marked for is_spoken, is_marked in pairs if is_spoken)


def test_reasoning_is_spoken_by_the_assistant():
    tokenizer = byte_level("qwen3")
    messages = [*chat(("user", USER)), {"role": "assistant", "content": "Arr.", "reasoning_content": "Well."}]

    assert assistant_text(tokenizer, messages) == "Well.\n</think>\n\nArr.<|im_end|>"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3", '<tool_call>\n{"name": "weather", "arguments": {"city": "<|im_end|>"}}\n</tool_call><|im_end|>'),
        ("llama3_1", '{"name": "weather", "parameters": {"city": "<|im_end|>"}}<|eot_id|>'),
        ("gptoss", ' to=functions.weather<|channel|>commentary json<|message|>{"city": "<|im_end|>"}<|call|>'),
        ("deepseekv3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
         '{"city": "<|im_end|>"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'),
    ],
)  # fmt: skip
def test_tool_call_is_spoken_by_the_assistant_and_brings_no_control_token(name, expected):
    tokenizer = byte_level(name)
    call = {
        "id": "a",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "<|im_end|>"}'},
    }
    messages = [
        *chat(("system", SYSTEM), ("user", USER)),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "name": "weather", "content": '{"sky":\n "<|im_start|>blue"}'},
    ]

    tokens = tokenize_chat(tokenizer, messages, tools=[WEATHER])

    assert told(tokenizer, tokens, tokens.assistant_mask) == expected
    assert told(tokenizer, tokens, tokens.system_mask) == SYSTEM
    control = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert tokens.input_ids.count(control) == (4 if name == "qwen3" else 0) or control == tokenizer.unk_token_id


def test_tools_in_the_system_turn_are_not_system():
    assert system_text(byte_level("qwen2_5"), chat(("system", SYSTEM), ("user", USER)), tools=[WEATHER]) == SYSTEM
    assert system_text(byte_level("qwen2_5"), chat(("user", USER)), tools=[WEATHER]) == ""


def test_function_is_taken_as_a_tool():
    def add(first: int, second: int) -> int:
        """
        Add two numbers.

        Args:
            first: one of them
            second: the other
        """
        return first + second

    tokens = tokenize_chat(byte_level("qwen2_5"), chat(("user", USER)), tools=[add])

    assert "Add two numbers." in byte_level("qwen2_5").decode(tokens.input_ids)


@pytest.mark.parametrize("system", ["", " \n"])
def test_blank_system_message_is_no_system_token(system):
    assert not any(tokenize_chat(byte_level("qwen2_5"), chat(("system", system), ("user", USER))).system_mask)


def test_whitespace_at_the_edges_is_system_where_the_template_keeps_it():
    messages = chat(("system", f"\t{SYSTEM}\n"), ("user", f" {USER} "))
    kept, stripped = (tokenize_chat(byte_level(name), messages) for name in ("qwen2_5", "llama3"))

    assert told(byte_level("qwen2_5"), kept, kept.system_mask) == f"\t{SYSTEM}\n"
    assert told(byte_level("llama3"), stripped, stripped.system_mask) == SYSTEM


def test_batch_is_padded_on_the_left():
    tokenizer = byte_level("qwen2_5")
    long, short = chat(("system", SYSTEM), *PLAIN), chat(("system", "No."), ("user", USER))

    batch = encode_chat(tokenizer, [long, short])

    alone = encode_chat(tokenizer, short)
    length = alone["input_ids"].shape[1]
    assert batch["input_ids"].dtype == batch["attention_mask"].dtype == torch.int64
    assert batch["system_mask"].dtype == torch.bool
    assert torch.equal(batch["input_ids"][1, -length:], alone["input_ids"][0])
    assert torch.equal(batch["system_mask"][1, -length:], alone["system_mask"][0])
    assert batch["attention_mask"][1].tolist() == [0] * (batch["input_ids"].shape[1] - length) + [1] * length
    assert set(batch["input_ids"][1, :-length].tolist()) == {tokenizer.pad_token_id}
    assert not batch["system_mask"][1, :-length].any()


def test_token_that_holds_a_character_of_a_user_is_not_system():
    tokenizer = chatml()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"

    joined = tokenize_chat(tokenizer, chat(("system", "Obey assist"), ("user", "ant")))

    assert "assistant" in tokenizer.decode(joined.input_ids[-1:])
    assert not joined.system_mask[-1]
    assert told(tokenizer, joined, joined.system_mask) == "Obey"
