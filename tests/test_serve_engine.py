"""The engine: the same answers as the library's, whatever else runs."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from calyrex.generation import answer_batch
from calyrex.serve import batch
from calyrex.serve.engine import Engine, QueueFullError, StoppingError
from calyrex.serve.request import Delta, Failure
from serving import Asked, ask, load_alone, load_models, random_chat, running, save_models

NAMES = ("base", "mine0", "mine1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_models(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with running(load_models(folder)) as engine:
        yield engine


def expected_texts(folder: Path, engine: Engine, asked: list[tuple[str, list[dict[str, str]]]], most: int) -> list[str]:
    alone = {name: load_alone(folder, name) for name in {name for name, _ in asked}}
    return [
        answer_batch(alone[name], engine.served.tokenizer, [chat], max_new_tokens=most)[0].text for name, chat in asked
    ]


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_the_librarys_with_joins_and_leaves_at_random(folder: Path, engine: Engine, seed: int) -> None:
    rng = random.Random(seed)
    chats = [(rng.choice(NAMES), random_chat(rng, system=rng.choice([None, "Obey now."]))) for _ in range(17)]

    asked = []
    for name, chat in chats:
        asked.append(ask(engine, name, chat, max_new_tokens=20))
        time.sleep(rng.random() * 0.02)

    assert [one.wait()[0] for one in asked] == expected_texts(folder, engine, chats, 20)


@pytest.mark.parametrize("is_first", [True, False])
def test_rows_with_and_without_a_system_prompt_run_together(folder: Path, engine: Engine, is_first: bool) -> None:
    chats = [
        ("mine0", random_chat(random.Random(0), system="Obey now.")),
        ("mine0", [{"role": "user", "content": "What is this?"}]),
    ]
    if is_first:
        chats.reverse()

    first = ask(engine, *chats[0], max_new_tokens=60)
    begun = first.events.get(timeout=30)  # it runs
    assert isinstance(begun, Delta)
    second = ask(engine, *chats[1], max_new_tokens=60)

    expected = expected_texts(folder, engine, chats, 60)
    assert [begun.text + first.wait()[0], second.wait()[0]] == expected


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3_text", "gpt2", "qwen3", "mixtral"])
def test_other_architectures_answer_as_the_library(tmp_path: Path, architecture: str) -> None:
    folder = save_models(tmp_path, architecture, num_adapters=1)
    rng = random.Random(1)
    chats = [(rng.choice(NAMES[:2]), random_chat(rng)) for _ in range(6)]

    with running(load_models(folder, 1)) as engine:
        asked = [ask(engine, name, chat, max_new_tokens=12) for name, chat in chats]

        assert [one.wait()[0] for one in asked] == expected_texts(folder, engine, chats, 12)


def test_what_the_base_says_of_logits_holds_for_the_server(tmp_path: Path) -> None:
    folder = save_models(tmp_path, repetition_penalty=1.7, suppress_tokens=[40, 41], num_adapters=1)
    chats = [("mine0", random_chat(random.Random(seed))) for seed in range(4)]

    with running(load_models(folder, 1)) as engine:
        asked = [ask(engine, name, chat, max_new_tokens=12) for name, chat in chats]

        assert [one.wait()[0] for one in asked] == expected_texts(folder, engine, chats, 12)


def test_a_long_prompt_is_read_in_parts_while_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calyrex.serve.prefill.PART_TOKENS", 7)
    folder = save_models(tmp_path)
    rng = random.Random(5)
    chats = [(rng.choice(NAMES), random_chat(rng)) for _ in range(9)]

    with running(load_models(folder), max_batch=4) as engine:
        asked = [ask(engine, name, chat, max_new_tokens=15) for name, chat in chats]

        assert [one.wait()[0] for one in asked] == expected_texts(folder, engine, chats, 15)


def test_the_dial_is_the_requests_own(folder: Path, engine: Engine) -> None:
    chat = [{"role": "system", "content": "Obey."}, {"role": "user", "content": "What is this?"}]
    scales = (0.0, 0.5, 1.0, 1.7)

    asked = [ask(engine, "mine0", chat, scale=scale, max_new_tokens=12) for scale in scales]
    texts = [one.wait()[0] for one in asked]

    alone = load_alone(folder, "mine0")
    for scale, text in zip(scales, texts, strict=True):
        alone.base_model.set_scale(scale)
        assert text == answer_batch(alone, engine.served.tokenizer, [chat], max_new_tokens=12)[0].text
    assert texts[0] == ask(engine, "base", chat, max_new_tokens=12).wait()[0]


def test_a_seeded_answer_does_not_depend_on_its_neighbours(engine: Engine) -> None:
    chat = [{"role": "user", "content": "What is this?"}]
    sampling = {"temperature": 0.9, "top_p": 0.9, "seed": 7, "max_new_tokens": 20}

    alone = ask(engine, "mine0", chat, **sampling).wait()
    others = [ask(engine, "mine0", random_chat(random.Random(n)), temperature=1.3) for n in range(7)]
    among = ask(engine, "mine0", chat, **sampling).wait()
    for other in others:
        other.wait()

    assert among == alone
    assert ask(engine, "mine0", chat, **{**sampling, "seed": 8}).wait() != alone


def test_several_answers_to_one_request_draw_on_their_own(engine: Engine) -> None:
    chat = [{"role": "user", "content": "What is this?"}]

    several = ask(engine, "base", chat, temperature=1.0, seed=3, num_answers=3, max_new_tokens=20).wait()

    assert len(set(several)) == 3
    assert several[0] == ask(engine, "base", chat, temperature=1.0, seed=3, max_new_tokens=20).wait()[0]


def test_probabilities_are_those_of_the_model(folder: Path, engine: Engine) -> None:
    chat = [{"role": "system", "content": "Obey."}, {"role": "user", "content": "What?"}]

    asked = ask(engine, "mine1", chat, num_likely=3, max_new_tokens=5)
    asked.wait()

    chosen = [token for delta in asked.deltas for token in delta.chosen]
    ids = torch.tensor([asked.generation.input_ids + [one.token.token_id for one in chosen]])
    mask = torch.tensor([asked.generation.system_mask + [False] * len(chosen)])
    with torch.no_grad():
        logits = load_alone(folder, "mine1")(input_ids=ids, system_mask=mask).logits[0, -len(chosen) - 1 : -1]
    expected = logits.log_softmax(-1)
    for one, row in zip(chosen, expected, strict=True):
        assert one.token.log_probability == pytest.approx(float(row[one.token.token_id]), abs=1e-4)
        assert [likely.token_id for likely in one.likeliest] == row.topk(3).indices.tolist()


def test_a_stop_text_ends_the_answer_and_is_no_part_of_it(engine: Engine) -> None:
    chat = [{"role": "user", "content": "What is this?"}]
    whole = ask(engine, "base", chat, max_new_tokens=20).wait()[0]
    stop = whole[5:8]

    asked = ask(engine, "base", chat, max_new_tokens=20, stop=(stop, "no such thing"))

    assert asked.wait() == [whole[: whole.index(stop)]]
    assert asked.ends[0].reason == "stop"


def test_a_cancelled_request_gives_its_place_to_others(engine: Engine) -> None:
    chat = [{"role": "user", "content": "What is this?"}]
    endless = ask(engine, "base", chat, max_new_tokens=100_000)
    endless.events.get(timeout=10)

    engine.cancel(endless.generation)

    ask(engine, "base", chat, max_new_tokens=3).wait()
    deadline = time.monotonic() + 10
    while engine.num_running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.num_running == 0


def test_a_full_queue_is_said_at_once(folder: Path) -> None:
    chat = [{"role": "user", "content": "What is this?"}]

    with running(load_models(folder), max_batch=1, max_waiting=2) as engine:
        first = ask(engine, "base", chat, max_new_tokens=100_000)
        first.events.get(timeout=10)
        second = ask(engine, "base", chat)
        ask(engine, "base", chat)
        with pytest.raises(QueueFullError):
            ask(engine, "base", chat)
        engine.cancel(first.generation)

        assert second.wait()


def test_what_is_not_answered_when_it_stops_is_told_so(folder: Path) -> None:
    chat = [{"role": "user", "content": "What is this?"}]
    served = load_models(folder)
    asked = Asked(served, "base", chat, max_new_tokens=100_000)

    with running(served) as engine:
        engine.submit(asked.generation)
        asked.events.get(timeout=10)
    events = list(asked.events.queue)

    assert isinstance(events[-1], Failure)
    with pytest.raises(StoppingError):
        engine.submit(asked.generation)


def test_a_task_takes_its_turn(engine: Engine) -> None:
    asked = ask(engine, "base", [{"role": "user", "content": "What?"}], max_new_tokens=30)

    assert engine.run(lambda: engine.served.base.name).result(timeout=10) == "base"
    assert asked.wait()


@pytest.mark.parametrize("company", [0, 3])
def test_a_prompt_of_one_token_is_continued(folder: Path, engine: Engine, company: int) -> None:
    others = [ask(engine, "mine0", random_chat(random.Random(n))) for n in range(company)]
    asked = Asked(engine.served, "mine0", [{"role": "user", "content": "What?"}])
    asked.generation.input_ids, asked.generation.system_mask = [300], [False]

    engine.submit(asked.generation)

    expected = load_alone(folder, "base").generate(torch.tensor([[300]]), max_new_tokens=8, do_sample=False)
    assert asked.wait()[0] == engine.served.tokenizer.decode(expected[0, 1:], skip_special_tokens=True)
    assert all(other.wait() for other in others)


def test_a_failure_of_torch_ends_what_runs_and_nothing_more(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = [{"role": "user", "content": "What is this?"}]
    forward = engine.served.forward

    def fail(*_args: Any, **_options: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(engine.served, "forward", fail)
    asked = ask(engine, "base", chat)

    assert isinstance(asked.events.get(timeout=30), Failure)
    monkeypatch.setattr(engine.served, "forward", forward)
    assert ask(engine, "base", chat).wait()


def test_a_row_that_fails_to_join_is_told_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = [{"role": "user", "content": "What is this?"}]
    others = [ask(engine, "base", chat, max_new_tokens=200) for _ in range(5)]
    for one in others:
        one.events.get(timeout=10)

    def fail(*_given: Any) -> bool:
        raise RuntimeError("no memory left")

    monkeypatch.setattr(batch, "replace_row", fail)
    engine.cancel(others[0].generation)
    asked = ask(engine, "base", chat, max_new_tokens=200)

    assert isinstance(asked.events.get(timeout=10), Failure)
    monkeypatch.undo()
    assert ask(engine, "base", chat, max_new_tokens=3).wait()
