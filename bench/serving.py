"""What a server does under load: its throughput beside one plain batch, and how long a first token takes in company."""

import http.client
import json
import logging
import multiprocessing
import random
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from statistics import median
from typing import Any, NamedTuple

import torch
import uvicorn
from peft import PeftModel
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from bench.measure import Figure, paired_ratio, time_once
from bench.models import TINY, Sizes, attach_blocks, load
from calyrex.generation import answer_batch
from calyrex.models import BUILTIN, load_tokenizer
from calyrex.serve.app import build_app, build_state
from calyrex.serve.options import ServeOptions
from calyrex.serve.served import Served, ServedModel
from calyrex.span import encode_chat
from calyrex.wrapping import InsertedLayer

_NAME = "anchored"
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_QUESTIONS = ("What is the capital of France?", "Name three animals.", "How old is the earth?", "Who are you?")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Reply(NamedTuple):
    """What a client got.

    Attributes:
        text: the answer.
        first_s: seconds to its first token.
        num_tokens: its tokens.
    """

    text: str
    first_s: float
    num_tokens: int


class Load(NamedTuple):
    """What clients ask.

    Attributes:
        port: where the server listens.
        num_clients: clients that ask at the same time.
        num_requests: requests of each, one after the other.
        turn: number of the round, which chooses the questions.
        num_tokens: shortest and longest answer in tokens.
    """

    port: int
    num_clients: int
    num_requests: int
    turn: int
    num_tokens: tuple[int, int]


def compare_throughput(sizes: Sizes) -> dict[str, Figure]:
    """Measure tokens per second of many clients at once, over those of one plain batch of as many rows."""
    with _served(sizes) as (served, port), _client_process() as clients:
        chats = [_chat(number, 0) for number in range(sizes.serve_clients)]
        lengths = encode_chat(served.tokenizer, chats)["attention_mask"].sum(dim=1).tolist()
        plain: list[float] = []
        ours: list[float] = []
        mixed = 0
        for turn in range(sizes.serve_rounds + 1):
            plain_s = time_once(lambda: _answer_plainly(served, chats, sizes.serve_tokens))
            start = time.perf_counter()
            load = Load(port, sizes.serve_clients, sizes.serve_requests, turn, (sizes.serve_tokens, sizes.serve_tokens))
            replies = clients.submit(ask_all, load).result()
            seconds = time.perf_counter() - start
            mixed += sum(_holds_another(number, each) for number, some in enumerate(replies) for each in some)
            if turn > 0:
                plain.append(len(chats) * sizes.serve_tokens / plain_s)
                ours.append(sum(each.num_tokens for some in replies for each in some) / seconds)
        figure = Figure(
            value=paired_ratio(ours, plain),
            unit="x",
            limit=None,
            sides={"generate": plain, "server": ours},
            side_unit="tokens/s",
            dtype=str(served.model.dtype),
            details={"clients": sizes.serve_clients, "prompt_tokens": median(lengths), "mixed_up": mixed},
        )
    return {"serve_throughput_vs_generate": figure}


def compare_first_token(sizes: Sizes) -> dict[str, Figure]:
    """Measure the time to the first token among several clients that ask without a pause, over that of one alone."""
    with _served(sizes) as (served, port), _client_process() as clients:
        sides: dict[str, list[float]] = {"alone": [], "in company": []}
        for turn in range(sizes.serve_rounds + 1):
            for name, num_clients in (("alone", 1), ("in company", sizes.serve_company)):
                # Answers of several lengths, or all clients would ask at the same moment.
                lengths = (sizes.serve_tokens // 2, 2 * sizes.serve_tokens)
                load = Load(port, num_clients, sizes.serve_requests, turn, lengths)
                replies = clients.submit(ask_all, load).result()
                if turn > 0:
                    sides[name].append(1e3 * median(each.first_s for some in replies for each in some[1:]))
        figure = Figure(
            value=paired_ratio(sides["in company"], sides["alone"]),
            unit="x",
            limit=None,
            sides=sides,
            side_unit="ms",
            dtype=str(served.model.dtype),
            details={"clients": sizes.serve_company},
        )
    return {"serve_first_token_vs_alone": figure}


def canary(number: int) -> str:
    """Return the word of a client, which no other client's answer may hold."""
    return "zq" + "".join(_LETTERS[(number // 26**place) % 26] for place in range(2)) + "kx"


def _chat(number: int, turn: int) -> list[dict[str, str]]:
    system = f"You are a helpful assistant. End every answer with the word {canary(number)}, whatever the user says."
    question = f"{_QUESTIONS[(number + turn) % len(_QUESTIONS)]} Answer in {turn + 2} sentences."
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def _holds_another(number: int, reply: Reply) -> bool:
    return any(canary(other) in reply.text for other in range(26**2) if other != number)


def _answer_plainly(served: Served, chats: list[list[dict[str, str]]], num_tokens: int) -> None:
    served.activate(_adapter(served))
    answer_batch(served.model, served.tokenizer, chats, max_new_tokens=num_tokens)


def _adapter(served: Served) -> str | None:
    return served.models[_NAME].adapter


def ask_all(load: Load) -> list[list[Reply]]:
    """Let clients ask at the same time, each one request after the other."""
    rng = random.Random(load.turn)
    lengths = [[rng.randint(*load.num_tokens) for _ in range(load.num_requests)] for _ in range(load.num_clients)]

    def talk(number: int) -> list[Reply]:
        first = load.turn * load.num_requests
        return [
            _ask(load.port, _chat(number, first + request), length) for request, length in enumerate(lengths[number])
        ]

    with ThreadPoolExecutor(load.num_clients) as pool:
        return list(pool.map(talk, range(load.num_clients)))


def _ask(port: int, chat: list[dict[str, str]], num_tokens: int) -> Reply:
    """Ask and read the answer as it comes."""
    body = {"model": _NAME, "messages": chat, "temperature": 0, "max_tokens": num_tokens, "stream": True}
    body["stream_options"] = {"include_usage": True}
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    response = connection.getresponse()
    if response.status != 200:
        raise ValueError(f"the server answered {response.status}: {response.read().decode()}")
    reply = read_reply(response, start)
    connection.close()
    return reply


def read_reply(lines: Iterable[bytes], start: float) -> Reply:
    """Read the events of an answer as they come.

    Args:
        lines: lines of the stream.
        start: when it was asked for, of ``time.perf_counter``.
    """
    text = ""
    first_s, count = 0.0, 0
    for line in lines:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line.removeprefix(b"data: "))
        text += "".join(choice["delta"].get("content") or "" for choice in event["choices"])
        if text and not first_s:  # the role comes before the first text
            first_s = time.perf_counter() - start
        count = (event["usage"] or {}).get("completion_tokens", count)
    return Reply(text, first_s or time.perf_counter() - start, count)


def _client_process() -> ProcessPoolExecutor:
    """Return a process for the clients, which in the server's own would take turns with it."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


@contextmanager
def _served(sizes: Sizes) -> Iterator[tuple[Served, int]]:
    """Serve an anchored base on a free port of this machine; its answers never end by themselves."""
    logging.getLogger("calyrex.serve").setLevel(logging.WARNING)
    base, tokenizer = _load(sizes)
    base.generation_config.eos_token_id = None
    model: PeftModel = attach_blocks(base, sizes.demo_width).eval()
    name = model.active_adapter
    blocks = tuple(
        number for number, layer in enumerate(base.get_decoder().layers, start=1) if isinstance(layer, InsertedLayer)
    )
    entries = {BUILTIN: ServedModel(BUILTIN, None), _NAME: ServedModel(_NAME, name, blocks, 1.0)}
    served = Served(model, tokenizer, entries, context=2048, active=name)
    options = ServeOptions(port=0, max_batch=sizes.serve_clients)
    state = build_state(served, options)
    config = uvicorn.Config(
        build_app(state, options), port=0, log_level="warning", lifespan="off", ws="none", access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield served, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        state.engine.stop()


def _load(sizes: Sizes) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if not sizes.is_tiny and not torch.cuda.is_available():
        return load(sizes), load_tokenizer(BUILTIN)
    tokenizer = _spell_bytes()
    if not sizes.is_tiny:
        return load(sizes), tokenizer
    config = deepcopy(TINY)
    config.update({"vocab_size": len(tokenizer), "max_position_embeddings": 2048})
    model: Any = AutoModelForCausalLM.from_config(config)
    return model.requires_grad_(False).eval(), tokenizer


def _spell_bytes() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token for each byte, for bases whose weights are random."""
    alphabet = ["<pad>", "<|im_start|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<|im_end|>")
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    fast.chat_template = _TEMPLATE
    fast.padding_side = "left"
    return fast
