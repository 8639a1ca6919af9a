"""The demo shows the same real model before and after, with figures that follow from its answers."""

import json
from pathlib import Path

import pytest
import torch

from calyrex.cli import main
from calyrex.demo import require_ours
from calyrex.demo import test_examples as draw_tests
from calyrex.errors import CalyrexError
from calyrex.models import BUILTIN, load_base, load_tokenizer
from calyrex.options import DemoOptions
from calyrex.report.obedience import Answer, choose_examples, summarise, wilson_interval
from calyrex.span import encode_chat
from calyrex.user_cache import CACHE_VARIABLE, cache_folder


def answer(*, trained: bool = True, attack: str | None = None, base: bool = False, anchored: bool = True) -> Answer:
    family = "quotes" if trained else "tags"
    messages = [{"role": "system", "content": "Quote."}, {"role": "user", "content": "Hi"}]
    return Answer(family, trained, attack, messages, '"Hi."', "Hi.", '"Hi."', base, anchored)


def test_families_never_trained_stand_apart() -> None:
    answers = [answer(), answer(attack="direct", anchored=False), answer(trained=False, anchored=False)]

    summary = summarise(answers)["anchored"]

    assert (summary["obeyed"], summary["n"]) == (0.5, 2)
    assert (summary["obeyed_clean"], summary["obeyed_under_attack"]) == (1.0, 0.0)
    assert (summary["never_trained"]["obeyed"], summary["never_trained"]["n"]) == (0.0, 1)
    assert {
        name: (family["obeyed"], family["n"], family["trained"]) for name, family in summary["families"].items()
    } == {
        "quotes": (0.5, 2, True),
        "tags": (0.0, 1, False),
    }


@pytest.mark.parametrize(("successes", "n", "low", "high"), [(0, 10, 0.0, 0.2775), (8, 10, 0.4902, 0.9433)])
def test_intervals_are_wilsons(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=1e-4)


def test_examples_show_a_failure_where_there_is_one() -> None:
    answers = [answer(), answer(trained=False, anchored=False)]

    assert [example.anchored_obeyed for example in choose_examples(answers)] == [True, False]


def test_the_held_out_questions_cover_every_family_clean_and_attacked() -> None:
    tests = draw_tests(DemoOptions())

    trained = [example for example in tests if example.trained]
    assert len(trained) >= 400
    assert len(tests) > len(trained)
    assert len({example.family for example in tests}) == 15
    for family in {example.family for example in trained}:
        assert {bool(example.attack) for example in trained if example.family == family} == {True, False}


@pytest.mark.parametrize("files", [["run.json", "rows.arrow"], ["notes.txt"]])
def test_the_demo_replaces_no_adapter_but_its_own(tmp_path: Path, files: list[str]) -> None:
    for name in files:
        (tmp_path / name).touch()

    with pytest.raises(CalyrexError, match="not a demo's"):
        require_ours(tmp_path)


@pytest.fixture
def own_activations(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the converted model from the user's cache, and keep activations out of it."""
    models = cache_folder() / "models"
    models.mkdir(parents=True, exist_ok=True)
    cache.mkdir()
    (cache / "models").symlink_to(models)
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))


@pytest.mark.real_model
@pytest.mark.usefixtures("own_activations")
def test_the_demo_runs_from_end_to_end_on_the_real_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["demo", "--output-dir", str(tmp_path), "--num-train", "64", "--num-test", "26", "--num-epochs", "3"]
    assert main(command) == 0

    results = json.loads((tmp_path / "results.json").read_text())
    assert results["train_seconds"] < results["total_seconds"]
    assert set(results["versions"]) >= {"calyrex", "torch"}
    for model in ("base", "anchored"):
        assert results[model]["n"] == 26
        assert 0 <= results[model]["obeyed"] <= 1
        assert 0 <= results[model]["obeyed_under_attack"] <= 1
        assert len(results[model]["families"]) == 15
    assert results["training"][-1]["loss"] < results["training"][0]["loss"]
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert sum(line["anchored_obeyed"] for line in lines if line["trained"]) == round(
        26 * results["anchored"]["obeyed"]
    )
    assert "<html" in (tmp_path / "report.html").read_text()
    output = capsys.readouterr().out
    assert "calyrex chat --adapter" in output
    assert "calyrex train --data" in output


@pytest.mark.real_model
@torch.inference_mode()
def test_fresh_blocks_on_the_real_model_are_the_base_bit_for_bit() -> None:
    from peft import get_peft_model

    from calyrex.config import CalyrexConfig

    messages = [{"role": "system", "content": "Answer in French."}, {"role": "user", "content": "Who are you?"}]
    chat = encode_chat(load_tokenizer(BUILTIN), messages)
    for dtype in ("float32", "bfloat16"):
        base = load_base(BUILTIN, dtype=dtype, device="cpu")
        expected = base(chat["input_ids"]).logits

        anchored = get_peft_model(base, CalyrexConfig(init="base"))

        assert chat["system_mask"].any()
        assert torch.equal(anchored(chat["input_ids"], system_mask=chat["system_mask"]).logits, expected)
