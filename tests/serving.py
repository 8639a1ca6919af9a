"""Tiny served models, and what tests of the server share."""

import queue
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from calyrex.models import load_anchored, load_base, load_tokenizer
from calyrex.serve.engine import Engine
from calyrex.serve.request import Delta, End, Event, Failure, Generation, Sampling
from calyrex.serve.served import Served, put_together
from calyrex.span import encode_chat
from chat_tokenizers import chatml
from saved import save_adapter
from tiny import tiny_base

WORDS = ("now", "then", "here", "obey", "capital letters", "stop", "rule", "never", "always", "France", "answer")


def save_models(folder: Path, architecture: str = "llama", *, num_adapters: int = 2, **generation: Any) -> Path:
    """Save a tiny base with a chat tokenizer, and adapters ``adapter0`` .. beside it."""
    tokenizer = chatml()
    base = tiny_base(architecture, vocab_size=len(tokenizer))
    for module in base.modules():  # or the next token would depend on the last one alone
        if isinstance(module, torch.nn.Linear | Conv1D):
            torch.nn.init.normal_(module.weight, std=0.4)
    weight = torch.nn.init.normal_(base.get_output_embeddings().weight)
    # Answers of printable characters: other tokens all look alike in a text.
    texts = {token_id: tokenizer.decode([token_id]) for token_id in range(len(tokenizer))}
    unsaid = [token_id for token_id, text in texts.items() if not (text.isascii() and text.isprintable())]
    weight.data[[token_id for token_id in unsaid if token_id != tokenizer.eos_token_id]] = 0.0
    base.config.eos_token_id = base.generation_config.eos_token_id = tokenizer.eos_token_id
    base.generation_config.update(**generation)
    if architecture == "llama":
        base.config.max_position_embeddings = 8192
    base.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    for number, placement in zip(range(num_adapters), ([2, 3, 4], [1, 4]), strict=False):
        save_adapter(folder / f"adapter{number}", load_base(folder / "base"), placement=placement)
    return folder


def load_models(folder: Path, num_adapters: int = 2, context: int | None = None) -> Served:
    adapters = {f"mine{number}": str(folder / f"adapter{number}") for number in range(num_adapters)}
    return put_together(load_base(folder / "base"), load_tokenizer(folder / "base"), "base", adapters, context)


def load_alone(folder: Path, name: str) -> PreTrainedModel:
    """Load one model by itself, as the library does."""
    if name == "base":
        return load_base(folder / "base")
    return load_anchored(folder / "base", folder / f"adapter{name.removeprefix('mine')}")


@contextmanager
def running(served: Served, **options: Any) -> Iterator[Engine]:
    engine = Engine(served, **options)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def random_chat(rng: random.Random, *, system: str | None = None) -> list[dict[str, str]]:
    """Make a conversation of random words; every fourth has no system prompt."""

    def text(most: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))

    turns = [{"role": "user", "content": text(12)}]
    if rng.random() < 0.3:
        turns += [{"role": "assistant", "content": text(5)}, {"role": "user", "content": text(5)}]
    if system is None and rng.random() < 0.25:
        return turns
    return [{"role": "system", "content": system or text(15)}, *turns]


class Asked:
    """A request and all that the engine said to it."""

    def __init__(
        self,
        served: Served,
        name: str,
        chat: Sequence[dict[str, Any]],
        *,
        scale: float | None = None,
        num_answers: int = 1,
        **sampling: Any,
    ) -> None:
        encoded = encode_chat(served.tokenizer, list(chat))
        self.events: queue.Queue[Event] = queue.Queue()
        model = served.models[name]
        self.generation = Generation(
            model,
            encoded["input_ids"][0].tolist(),
            encoded["system_mask"][0].tolist(),
            self.events.put,
            scale=model.scale if scale is None else scale,
            sampling=Sampling(**{"max_new_tokens": 8, **sampling}),
            num_answers=num_answers,
        )

    def wait(self, timeout_s: float = 30) -> list[str]:
        """Return the answers."""
        texts = [""] * self.generation.num_answers
        self.ends: dict[int, End] = {}
        self.deltas: list[Delta] = []
        while len(self.ends) < len(texts):
            event = self.events.get(timeout=timeout_s)
            assert not isinstance(event, Failure), event.message
            if isinstance(event, Delta):
                texts[event.answer] += event.text
                self.deltas.append(event)
            else:
                self.ends[event.answer] = event
        return texts


def ask(engine: Engine, name: str, chat: Sequence[dict[str, Any]], **options: Any) -> Asked:
    asked = Asked(engine.served, name, chat, **options)
    engine.submit(asked.generation)
    return asked
