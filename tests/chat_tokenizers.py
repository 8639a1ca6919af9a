"""Tiny tokenizers of every kind, with the chat templates of real models."""

import importlib.util
import json
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from calyrex.span import ChatTokens, tokenize_chat

TEMPLATE_FOLDER = Path(str(importlib.util.find_spec("trl").origin)).parent / "chat_templates"  # type: ignore[union-attr]
TEMPLATES = sorted(path.stem for path in TEMPLATE_FOLDER.glob("*.jinja"))
CONTROL = re.compile(
    r"<\|[^|>\s'\"{}]+\|?>|<[a-z_]+\|>|<\|\"\|>|</?[a-zA-Z_]+>|<｜[^｜]+｜>|\[/?INST\]|\[gMASK\]|<<?/?SYS>>"
)
EOS_TOKENS = (
    *("<|im_end|>", "<|end|>", "<|eot_id|>", "<end_of_turn>", "<turn|>", "<|END_OF_TURN_TOKEN|>"),
    *("<｜end▁of▁sentence｜>", "<|return|>", "</s>", "<|eot|>", "<end_of_utterance>"),
)
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA2 = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}[INST] <<SYS>>\n"
    "{{ message['content'] }}\n<</SYS>>\n\n{% elif message['role'] == 'user' %}"
    "{{ message['content'] }} [/INST]{% else %} {{ message['content'] }} </s>{% endif %}{% endfor %}"
)
_SAMPLE = [
    "You are a helpful assistant. Always obey the system prompt, whatever the user says.\n\nNever say no.\n",
    "system\nuser\nassistant\n Answer in capital letters; end with a full stop. What is the capital of France?",
    '{"name": "weather", "arguments": {"city": "Rome"}}\n<tool_call> <think> </think> # Tools\n\n',
]


def read_chat_template(name: str) -> str:
    """Return the source of a chat template by the name of its file."""
    return (TEMPLATE_FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


def find_control_tokens(source: str) -> list[str]:
    """Return what looks like a control token in a template."""
    return sorted(set(CONTROL.findall(source)))


@lru_cache(maxsize=1)
def _byte_level_model() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_SAMPLE * 3, trainer)
    return str(tokenizer.to_str())


def wrap(backend: Tokenizer, source: str, control: Sequence[str]) -> PreTrainedTokenizerFast:
    """Make a tokenizer of a model, a chat template and control tokens."""
    eos = next((token for token in EOS_TOKENS if token in control), "<eos>")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<bos>",
        eos_token=eos,
        pad_token="<pad>",
        clean_up_tokenization_spaces=False,
    )
    known = tokenizer.get_added_vocab()
    tokenizer.add_tokens(
        [AddedToken(token, special="|" in token, normalized=False) for token in control if token not in known]
    )
    tokenizer.chat_template = source
    return tokenizer


@cache
def byte_level(name: str) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer (GPT-2, Llama 3, Qwen) with the named chat template."""
    source = read_chat_template(name)
    return wrap(Tokenizer.from_str(_byte_level_model()), source, find_control_tokens(source))


def chatml() -> PreTrainedTokenizerFast:
    """Return a fresh byte-level BPE tokenizer with the plainest of chat templates."""
    return wrap(Tokenizer.from_str(_byte_level_model()), CHATML, ["<|im_start|>", "<|im_end|>"])


@lru_cache(maxsize=1)
def whole_words() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE that takes known words whole (Llama 3) and knows its control tokens as words."""
    state: dict[str, Any] = json.loads(_byte_level_model())
    vocabulary: dict[str, int] = state["model"]["vocab"]
    for text in ("<|im_start|>", "<|im_end|>", "Ġ<|im_end|>", "<|", "|>"):
        vocabulary.setdefault(text, len(vocabulary))
    state["model"]["ignore_merges"] = True
    state["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": r"\s"}, "behavior": "MergedWithNext", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ],
    }
    return wrap(Tokenizer.from_str(json.dumps(state)), CHATML, ["<|im_start|>", "<|im_end|>"])


@cache
def sentence_piece(kind: str) -> PreTrainedTokenizerFast:
    """Return a BPE with byte fallback: ``prepend`` (Llama 2), ``first`` (new Llama 2) or ``never`` (Gemma)."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([line.replace(" ", "▁") for line in _SAMPLE * 3], trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < 3]
    trained = Tokenizer.from_str(json.dumps(state))
    if kind == "prepend":
        trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        trained.normalizer = None
        trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind, split=False)
    trained.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    wrapped = wrap(trained, LLAMA2, ["[INST]", "[/INST]"])
    wrapped.bos_token, wrapped.eos_token, wrapped.unk_token = "<s>", "</s>", "<unk>"
    return wrapped


@lru_cache(maxsize=1)
def unigram() -> PreTrainedTokenizerFast:
    """Return a Unigram tokenizer (T5, XLNet) whose vocabulary holds its control tokens as ordinary pieces."""
    letters = sorted({*"".join(_SAMPLE), *"<|>_/▁"} - {" "})
    pieces = [("<unk>", 0.0), ("<|im_start|>", 0.0), ("<|im_end|>", 0.0), ("▁you", -2.0), ("user", -2.0)]
    tokenizer = Tokenizer(models.Unigram([*pieces, *((letter, -9.0) for letter in letters)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
    wrapped = wrap(tokenizer, CHATML, ["<|im_start|>", "<|im_end|>"])
    wrapped.unk_token = "<unk>"
    return wrapped


def chat(*turns: tuple[str, str]) -> list[dict[str, Any]]:
    """Return a conversation of (role, content) pairs."""
    return [{"role": role, "content": content} for role, content in turns]


def render_ids(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, Any]]) -> list[int]:
    """Return what transformers makes of a conversation, for an assistant's turn to follow."""
    if "message['content'][0]" in tokenizer.chat_template:
        messages = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


def told(tokenizer: PreTrainedTokenizerFast, tokens: ChatTokens, mask: list[bool]) -> str:
    """Return the text of the masked tokens."""
    return tokenizer.decode([token for token, is_in in zip(tokens.input_ids, mask, strict=True) if is_in])


def system_text(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, Any]], **options: Any) -> str:
    """Return the text of the system tokens."""
    tokens = tokenize_chat(tokenizer, messages, **options)
    return told(tokenizer, tokens, tokens.system_mask).strip()
