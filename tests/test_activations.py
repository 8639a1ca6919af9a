"""The frozen layers are computed once on a machine, and what is on disk is whole, of the right base, and shared."""

import copy
import json
import logging
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open

from calyrex.cli import main
from calyrex.config import CalyrexConfig
from calyrex.errors import CalyrexError
from calyrex.training import shards
from calyrex.training.activations import ActivationStore, fill_activations, open_activations, prefix_skipped
from calyrex.training.batches import Row, collate
from calyrex.training.trainer import last_complete_checkpoint
from runs import train_command, weights
from tiny import batch, tiny_anchored, tiny_base

BATCH_TOKENS = 10


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six rows of 4 to 9 tokens fill three shards."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 2048)


@pytest.fixture
def rows() -> list[Row]:
    ids = [[3 + (7 * row + place) % 90 for place in range(4 + row)] for row in range(6)]
    return [{"input_ids": row, "system_mask": [True] * len(row), "assistant_mask": [True] * len(row)} for row in ids]


def with_blocks(*placement: int) -> PeftModel:
    return get_peft_model(tiny_base(), CalyrexConfig(placement=list(placement))).eval()


def run(model: PeftModel, rows: list[Row], folder: Path | None = None) -> tuple[ActivationStore, list[int]]:
    store, steps = open_activations(model, rows, folder=folder, batch_tokens=BATCH_TOKENS)
    return store, list(steps)


def load_all(store: ActivationStore) -> torch.Tensor:
    return store.load([[row] for row in range(6)], 9)


def read(path: Path) -> tuple[dict[str, str], list[list[float]]]:
    """Return what a shard says and holds; its bytes differ, as safetensors writes a header in any order."""
    with safe_open(path, framework="pt") as file:
        return file.metadata(), file.get_tensor("states").tolist()


def read_all(folder: Path) -> dict[str, tuple[dict[str, str], list[list[float]]]]:
    return {str(path.relative_to(folder)): read(path) for path in folder.rglob("*.safetensors")}


def losses(folder: Path) -> list[float]:
    state = json.loads((last_complete_checkpoint(folder) / "trainer_state.json").read_text())
    return [entry["loss"] for entry in state["log_history"] if "loss" in entry]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma2", "gemma3_text", "gpt2", "mixtral"])
def test_the_store_stands_in_for_the_frozen_layers(architecture: str) -> None:
    input_ids, system_mask = batch()
    model = tiny_anchored(architecture)
    rows = [
        {"input_ids": ids[:length].tolist(), "system_mask": mask[:length].tolist(), "assistant_mask": [True] * length}
        for ids, mask, length in zip(input_ids, system_mask, (12, 9), strict=True)
    ]
    inputs = collate(rows, pad_token_id=0)
    labels = inputs.pop("labels")
    expected = model(**inputs).logits

    store, steps = open_activations(model, rows, batch_tokens=12)
    assert list(steps) == [1, 2]
    states = store.load([[0], [1]], labels.shape[1])
    with prefix_skipped(model, store.layer, lambda: states):
        logits = model(**inputs, use_cache=False).logits

    torch.testing.assert_close(logits[0], expected[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(logits[1, :9], expected[1, :9], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model(**inputs).logits, expected)


def test_the_store_stands_in_for_the_layers_below_late_lora(rows: list[Row]) -> None:
    config = LoraConfig(target_modules=["layers.2.mlp.up_proj", "layers.3.self_attn.q_proj"], init_lora_weights=False)
    model = get_peft_model(tiny_base(), config).eval()
    inputs = {"input_ids": collate(rows[-1:], pad_token_id=0)["input_ids"]}
    expected = model(**inputs).logits

    store, _ = run(model, rows)
    states = store.load([[5]], 9)
    with prefix_skipped(model, store.layer, lambda: states):
        logits = model(**inputs, use_cache=False).logits

    assert store.folder.name == "layer-001"
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)


def test_an_adapter_on_the_first_layer_leaves_nothing_to_compute_once(rows: list[Row]) -> None:
    model = get_peft_model(tiny_base(), LoraConfig(target_modules="all-linear"))

    with pytest.raises(ValueError, match="the adapter changes the first decoder layer"):
        open_activations(model, rows)


@pytest.mark.parametrize("more", [[], ["--validation-fraction", "0.5"]])
def test_training_from_the_store_gives_the_same_losses_and_weights(
    base_folder: Path, data_file: Path, tmp_path: Path, more: list[str]
) -> None:
    more = ["--logging-steps", "1", *more]

    assert main(train_command(base_folder, data_file, tmp_path / "plain", *more)) == 0
    assert main(train_command(base_folder, data_file, tmp_path / "stored", *more, "--cache-activations")) == 0

    # Batches of another shape round differently in the frozen layers, and the optimiser enlarges that step by step.
    assert losses(tmp_path / "stored") == pytest.approx(losses(tmp_path / "plain"), abs=1e-4)
    plain, stored = weights(tmp_path / "plain"), weights(tmp_path / "stored")
    for name, weight in plain.items():
        torch.testing.assert_close(stored[name], weight, atol=2e-3, rtol=1e-2)


def test_lines_hold_their_rows_one_after_the_other(rows: list[Row]) -> None:
    store, _ = run(with_blocks(3, 4), rows)
    single = load_all(store)

    packed = store.load([[5, -1], [0, 1]], 12)

    assert packed.shape == (2, 12, 32)
    assert torch.equal(packed[0, :9], single[5])
    assert torch.equal(packed[1, :9], torch.cat([single[0, :4], single[1, :5]]))
    assert not packed[:, 9:].any()
    assert store.size_bytes == sum(len(row["input_ids"]) for row in rows) * 32 * 4


def test_a_second_run_and_a_second_seed_compute_nothing(
    base_folder: Path, data_file: Path, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(train_command(base_folder, data_file, tmp_path / "first", "--cache-activations")) == 0
    first = caplog.text
    caplog.clear()
    written = {path: path.stat().st_mtime_ns for path in cache.rglob("*.safetensors")}
    assert main(train_command(base_folder, data_file, tmp_path / "second", "--cache-activations", "--seed", "1")) == 0
    second = caplog.text

    assert written
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.safetensors")} == written
    folder = next(iter(written)).parent
    assert f"in {folder.parent}; computed once" in first
    assert "computed once" not in second
    assert f"activations stay in {folder} for other runs; they may be deleted" in second


@pytest.mark.parametrize("layers", [[1], [0, 2], [3, 0, 1, 3]])
def test_depths_of_one_pass_are_those_of_separate_runs(rows: list[Row], tmp_path: Path, layers: list[int]) -> None:
    model = tiny_anchored()

    done = list(fill_activations(model, rows, layers, folder=tmp_path / "one", batch_tokens=BATCH_TOKENS))

    assert done == [1, 2, 3, 4, 6]
    for layer in set(layers):
        separate, steps = run(with_blocks(layer + 1), rows, tmp_path / "apart")
        shared, nothing = run(with_blocks(layer + 1), rows, tmp_path / "one")
        assert (steps, nothing) == (done, [])
        assert torch.equal(load_all(shared), load_all(separate))
    assert read_all(tmp_path / "one") == read_all(tmp_path / "apart")


def test_blocks_below_and_dropout_leave_no_trace_in_a_deeper_store(rows: list[Row]) -> None:
    expected = load_all(run(tiny_anchored("gpt2", trained=False), rows)[0])
    model = tiny_anchored("gpt2").train()

    assert list(fill_activations(model, rows, [1], batch_tokens=BATCH_TOKENS)) == []
    list(fill_activations(model, rows, [3], batch_tokens=BATCH_TOKENS))

    assert model.training
    deeper = get_peft_model(tiny_base("gpt2"), CalyrexConfig(placement=[4]))
    store, steps = run(deeper, rows)
    assert steps == []
    with deeper.disable_adapter():
        hidden = deeper.eval()(torch.tensor([rows[5]["input_ids"]]), output_hidden_states=True).hidden_states
    torch.testing.assert_close(expected[5], hidden[2][0], atol=1e-5, rtol=1e-4)
    norm = deeper.get_base_model().transformer.ln_f
    torch.testing.assert_close(norm(load_all(store)[5]), hidden[4][0], atol=1e-5, rtol=1e-4)


def test_another_first_block_has_its_own_depth_beside_the_other(rows: list[Row]) -> None:
    shallow, _ = run(with_blocks(2, 4), rows)

    deep, steps = run(with_blocks(3, 4), rows)
    same, nothing = run(with_blocks(2), rows)

    assert (shallow.folder.name, deep.folder.name) == ("layer-001", "layer-002")
    assert shallow.folder.parent == deep.folder.parent
    assert (steps[-1], nothing) == (6, [])
    assert same.folder == shallow.folder
    assert not torch.equal(load_all(shallow), load_all(deep))


def test_a_layer_that_the_base_does_not_have_is_refused(rows: list[Row]) -> None:
    with pytest.raises(ValueError, match="layers must be between 0 and 3, got 4"):
        fill_activations(tiny_anchored(), rows, [1, 4])


def change_token(model: PeftModel, rows: list[Row]) -> None:
    rows[0]["input_ids"][0] += 1


def change_weight(model: PeftModel, rows: list[Row]) -> None:
    model.get_input_embeddings().weight.data[50, 3] += 1


def change_dtype(model: PeftModel, rows: list[Row]) -> None:
    model.to(torch.bfloat16)


def change_setting(model: PeftModel, rows: list[Row]) -> None:
    model.get_base_model().config.rms_norm_eps *= 2


@pytest.mark.parametrize("change", [change_token, change_weight, change_dtype, change_setting])
def test_other_tokens_weights_dtypes_and_settings_have_a_folder_of_their_own(
    rows: list[Row], change: Callable[[PeftModel, list[Row]], None]
) -> None:
    model = tiny_anchored()
    before, _ = run(model, copy.deepcopy(rows))

    change(model, rows)
    after, steps = run(model, rows)

    assert after.folder.parent != before.folder.parent
    assert steps[-1] == 6


def test_states_keep_the_dtype_of_the_base(rows: list[Row]) -> None:
    stores = [run(tiny_anchored(dtype=dtype), rows)[0] for dtype in (torch.float32, torch.bfloat16)]

    assert [load_all(store).dtype for store in stores] == [torch.float32, torch.bfloat16]
    assert stores[0].size_bytes == 2 * stores[1].size_bytes


def test_a_moved_base_and_other_blocks_take_the_same_states(rows: list[Row]) -> None:
    first, _ = run(tiny_anchored(), rows)
    moved = tiny_anchored(init="base", intermediate_size=8)
    moved.get_base_model().config._name_or_path = "/elsewhere"

    second, steps = run(moved, rows)

    assert (second.folder, steps) == (first.folder, [])


def test_a_stopped_fill_goes_on_at_the_shard_that_is_not_whole(rows: list[Row], tmp_path: Path) -> None:
    model = tiny_anchored()
    whole, _ = run(model, rows, tmp_path / "whole")
    store, steps = open_activations(model, rows, folder=tmp_path / "cut", batch_tokens=BATCH_TOKENS)
    assert [next(steps) for _ in range(4)] == [1, 2, 3, 4]
    steps.close()
    (store.folder / "00002.partial").write_bytes(b"killed while it was written")

    resumed, rest = run(model, rows, tmp_path / "cut")

    assert rest == [4, 6]
    assert torch.equal(load_all(resumed), load_all(whole))
    assert read_all(tmp_path / "cut") == read_all(tmp_path / "whole")
    assert not list(tmp_path.rglob("*.partial"))


KILLED = """
import os, signal, sys
from calyrex.training import shards
shards.SHARD_BYTES = 2048
write = shards.Shard.write
def write_or_die(shard, states):
    if shard.path.stem == "00002":
        os.kill(os.getpid(), signal.SIGKILL)
    write(shard, states)
shards.Shard.write = write_or_die
from calyrex.cli import main
main({arguments!r})
"""


@pytest.mark.slow
def test_a_run_killed_while_it_fills_goes_on_and_ends_with_the_same_weights(
    base_folder: Path, data_file: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = train_command(base_folder, data_file, tmp_path / "run", "--cache-activations")
    program = [sys.executable, "-c", KILLED.format(arguments=command)]
    killed = subprocess.run(program, stderr=subprocess.PIPE, check=False)
    assert b"; computed once\n" in killed.stderr
    kept = {path: path.stat().st_mtime_ns for path in cache.rglob("*.safetensors")}
    assert [path.stem for path in sorted(kept)] == ["00000", "00001"]

    assert main(command) == 0

    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in kept.items())
    monkeypatch.setenv("CALYREX_CACHE", str(tmp_path / "other"))
    assert main(train_command(base_folder, data_file, tmp_path / "whole", "--cache-activations")) == 0
    resumed = weights(tmp_path / "run")
    assert all(torch.equal(resumed[name], weight) for name, weight in weights(tmp_path / "whole").items())


def blank(content: bytes) -> bytes:
    """What a crash can leave: zeros in the middle of a file of the right size."""
    return content[:1000] + b"\0" * 100 + content[1100:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:100],
        lambda _content: b"",
        lambda content: content + b"x",
        blank,
        lambda content: content.replace(b"layer 1", b"layer 2"),
        lambda content: content.replace(b'"rows":"4 3"', b'"rows":"3 4"'),
        lambda content: content.replace(b"checksum", b"checkers"),
        lambda content: content.replace(b"[15,32]", b"[32,15]"),
    ],
)
def test_a_damaged_or_foreign_shard_is_computed_again(rows: list[Row], damage: Callable[[bytes], bytes]) -> None:
    model = tiny_anchored()
    store, _ = run(model, rows)
    expected = load_all(store)
    path = store.folder / "00001.safetensors"
    sound, content = read(path), path.read_bytes()
    path.write_bytes(damage(content))
    assert path.read_bytes() != content

    again, steps = run(model, rows)

    assert steps == [5, 6]
    assert read(path) == sound
    assert torch.equal(load_all(again), expected)


def test_a_deleted_store_is_computed_again(rows: list[Row]) -> None:
    model = tiny_anchored()
    store, _ = run(model, rows)
    shutil.rmtree(store.folder.parent)

    with pytest.raises(CalyrexError, match="give the same command again"):
        load_all(store)
    assert run(model, rows)[1] == [1, 2, 3, 4, 6]


def test_a_disk_without_room_is_refused_before_anything_is_changed(
    base_folder: Path,
    data_file: Path,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=2100))

    assert main(train_command(base_folder, data_file, tmp_path / "run", "--cache-activations")) == 2

    line = capsys.readouterr().err.splitlines()[-1]
    assert f"in {cache / 'activations'}" in line
    assert "kB" in line
    assert "2.1 kB are free; make room there, set CALYREX_CACHE to another folder, or leave cache_activations" in line
    assert not cache.exists()


def test_only_what_is_missing_needs_room(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_anchored()
    store, _ = run(model, rows)
    (store.folder / "00000.safetensors").unlink()

    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=9 * 32 * 4))

    assert run(model, rows)[1] == [6]


def test_a_folder_that_cannot_be_written_is_one_line_with_the_way_out(rows: list[Row], cache: Path) -> None:
    cache.write_text("a file stands in the way")

    with pytest.raises(
        CalyrexError, match=r"cannot write the activations .* \(Not a directory\); make room there, set"
    ):
        run(tiny_anchored(), rows)


def test_a_full_disk_leaves_the_shards_that_are_whole(rows: list[Row], tmp_path: Path) -> None:
    model = tiny_anchored()
    store, steps = open_activations(model, rows, folder=tmp_path, batch_tokens=BATCH_TOKENS)
    (store.folder / "00001.partial").mkdir(parents=True)  # stands in for a write that fails

    with pytest.raises(CalyrexError, match="make room there"):
        list(steps)

    assert [path.name for path in store.folder.glob("*.safetensors")] == ["00000.safetensors"]


def test_of_two_that_want_the_same_states_one_computes_and_the_other_waits(
    rows: list[Row], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    _, steps = open_activations(tiny_anchored(), rows, folder=tmp_path, batch_tokens=BATCH_TOKENS)
    first, second = [next(steps)], []
    other = threading.Thread(target=lambda: second.append(run(tiny_anchored(), rows, tmp_path)))
    other.start()
    while other.is_alive() and "waiting for it" not in caplog.text:
        time.sleep(0.01)
    assert other.is_alive()

    first += steps
    other.join()

    assert first == [1, 2, 3, 4, 6]
    store, computed = second[0]
    assert computed == []
    assert torch.equal(load_all(store), load_all(run(tiny_anchored(), rows, tmp_path)[0]))
