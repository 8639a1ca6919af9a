"""Training moves only the blocks, learns, resumes exactly, and loses nothing when it is killed."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from peft import PeftModel
from transformers import TrainingArguments

from calyrex.cli import main
from calyrex.data.chats import Chat
from calyrex.errors import CalyrexError
from calyrex.models import load_tokenizer
from calyrex.options import TrainOptions
from calyrex.training.batches import collate
from calyrex.training.folder import open_folder
from calyrex.training.progress import make_progress
from calyrex.training.rows import write_rows
from calyrex.training.sft import attach_blocks, load_rows, train_blocks
from calyrex.training.trainer import BlockTrainer, LengthGroupedSampler, last_complete_checkpoint
from chat_tokenizers import chatml
from runs import train_command, weights
from tiny import batch, tiny_anchored, tiny_base

LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
{limit}
from calyrex.cli import main
sys.exit(main({arguments!r}))
"""
"""Runs the command line under a limit: no file may grow past a size, as on a disk that is full, or no memory."""


def folder_hash(folder: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.safetensors")))).hexdigest()


def test_training_learns_and_leaves_the_base_as_it_was(base_folder: Path, data_file: Path, tmp_path: Path) -> None:
    before = folder_hash(base_folder)

    assert main(train_command(base_folder, data_file, tmp_path / "run")) == 0

    state = json.loads((last_complete_checkpoint(tmp_path / "run") / "trainer_state.json").read_text())
    losses = [entry["loss"] for entry in state["log_history"] if "loss" in entry]
    assert losses[-1] < losses[0]
    assert folder_hash(base_folder) == before
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["options"]["learning_rate"] == 1e-2
    assert set(record["versions"]) == {"calyrex", "torch", "transformers", "peft"}
    loaded = PeftModel.from_pretrained(tiny_base(vocab_size=len(chatml())), tmp_path / "run")
    assert loaded.peft_config["default"].system_template["opening"]


def test_training_moves_no_weight_of_the_base(base_folder: Path, data_file: Path, tmp_path: Path) -> None:
    options = TrainOptions(data=str(data_file), base=str(base_folder), output_dir=tmp_path / "run", placement=[3, 4])
    tokenizer = load_tokenizer(options.base)
    model = attach_blocks(options, tokenizer)
    with open_folder(options):
        pass
    before = {name: p.detach().clone() for name, p in model.named_parameters()}

    with make_progress() as progress:
        train_blocks(model, load_rows(options, tokenizer), options, progress)

    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name in before if "calyrex_" in name}


def test_chats_without_a_system_prompt_are_left_out_with_a_warning(
    base_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {"instruction": "Now", "output": "abc"}
    (tmp_path / "plain.jsonl").write_text(f"{json.dumps(plain)}\n{json.dumps({**plain, 'system': 'Say abc.'})}\n")
    (tmp_path / "none.jsonl").write_text(json.dumps(plain))

    assert main(train_command(base_folder, tmp_path / "plain.jsonl", tmp_path / "run")) == 0
    assert main(train_command(base_folder, tmp_path / "none.jsonl", tmp_path / "none")) == 2

    assert "1 chats left out" in caplog.text
    assert "no chat to train on among 1 read" in capsys.readouterr().err.splitlines()[-1]
    literal = train_command(base_folder, tmp_path / "none.jsonl", tmp_path / "mlp", "--without-system", "mlp")
    assert main(literal) == 0


def test_a_run_without_a_terminal_says_what_begins(
    base_folder: Path, data_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(train_command(base_folder, data_file, tmp_path / "run", "--cache-activations")) == 0

    lines = capsys.readouterr().err.splitlines()
    assert lines.index("frozen layers ...") < lines.index("training ...")


def test_a_mistake_does_not_burn_the_folder_and_changed_data_are_read_again(
    base_folder: Path, data_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert main(train_command(base_folder, data_file, run, "--placement", "9")) == 2
    short = data_file.read_text().splitlines()[:8]
    data_file.write_text("\n".join([*short, "{"]))
    assert main(train_command(base_folder, data_file, run)) == 2
    data_file.write_text("\n".join(short))

    assert main(train_command(base_folder, data_file, run)) == 0

    assert len(Dataset.from_file(str(run / "rows.arrow"))) == 8


def test_files_of_the_user_are_left_as_they_are(
    base_folder: Path, data_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rows.arrow").write_text("mine")

    assert main(train_command(base_folder, data_file, tmp_path / "mine")) == 2
    assert main(train_command(base_folder, tmp_path / "nope.jsonl", tmp_path / "new")) == 2

    assert "another program or run" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["rows.arrow"]
    assert not (tmp_path / "new").exists()


def test_a_folder_in_which_another_process_trains_is_refused(
    base_folder: Path, data_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    options = TrainOptions(data=str(data_file), output_dir=tmp_path / "run", seed=5)
    with open_folder(options):
        (tmp_path / "run" / "rows.arrow").write_text("of the first")
        before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
        assert main(train_command(base_folder, data_file, tmp_path / "run")) == 2

    assert "another process works in" in capsys.readouterr().err.splitlines()[-1]
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_folder_of_another_program_is_refused_and_left_as_it_is(
    base_folder: Path, data_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("checkpoint-9", "checkpoint-12"):
        (tmp_path / "run" / name).mkdir(parents=True)

    assert main(train_command(base_folder, data_file, tmp_path / "run")) == 2

    assert "holds another run" in capsys.readouterr().err.splitlines()[-1]
    assert (tmp_path / "run" / "checkpoint-12").exists()


def test_the_written_options_do_the_run_again(base_folder: Path, data_file: Path, tmp_path: Path) -> None:
    assert main(train_command(base_folder, data_file, tmp_path / "run")) == 0

    again = ["train", "--config", str(tmp_path / "run" / "options.yaml"), "--output-dir", str(tmp_path / "again")]
    assert main(again) == 0

    first, second = weights(tmp_path / "run"), weights(tmp_path / "again")
    assert all(torch.equal(second[name], weight) for name, weight in first.items())


def test_a_diverged_run_stops_in_one_line(
    base_folder: Path, data_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(train_command(base_folder, data_file, tmp_path / "run", "--learning-rate", "1e12")) == 2

    assert "lower learning_rate" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True])
def test_a_killed_run_resumes_and_ends_with_the_same_weights(
    base_folder: Path, data_file: Path, tmp_path: Path, stored: bool
) -> None:
    more = ["--cache-activations"] if stored else []
    assert main(train_command(base_folder, data_file, tmp_path / "whole", *more)) == 0
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "calyrex", *train_command(base_folder, data_file, killed, *more)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None and last_complete_checkpoint(killed) is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert main(train_command(base_folder, data_file, killed, *more)) == 0

    whole, resumed = weights(tmp_path / "whole"), weights(killed)
    assert all(torch.equal(resumed[name], weight) for name, weight in whole.items())


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def blank(content: bytes) -> bytes:
    """What a crash can leave: zeros in the middle of a file of the right size."""
    return content[: len(content) // 3] + b"\0" * (len(content) // 3) + content[2 * (len(content) // 3) :]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("trainer_state.json", cut),
        ("trainer_state.json", lambda _content: b"{}"),
        ("trainer_state.json", lambda _content: b'{"bogus": 1}'),
        ("adapter_model.safetensors", cut),
        ("optimizer.pt", cut),
        ("optimizer.pt", blank),
    ],
)
def test_a_damaged_checkpoint_is_set_aside_and_training_goes_on_before_it(
    base_folder: Path, data_file: Path, tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    command = train_command(base_folder, data_file, tmp_path / "run")
    assert main(command) == 0
    before = weights(tmp_path / "run")
    newest, older = sorted(tmp_path.glob("run/checkpoint-*"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    file = newest / name
    file.write_bytes(damage(file.read_bytes()))

    assert last_complete_checkpoint(tmp_path / "run") == older
    assert main(command) == 0
    assert (tmp_path / "run" / f"damaged-1-{newest.name}" / name).exists()
    assert all(torch.equal(weight, before[name]) for name, weight in weights(tmp_path / "run").items())


def test_a_folder_with_another_run_is_refused_by_the_options_that_differ(
    base_folder: Path, data_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(train_command(base_folder, data_file, tmp_path / "run")) == 0
    before = weights(tmp_path / "run")

    assert main(train_command(base_folder, data_file, tmp_path / "run", "--seed", "4")) == 2

    assert "seed 0 -> 4" in capsys.readouterr().err.splitlines()[-1]
    assert all(torch.equal(weight, before[name]) for name, weight in weights(tmp_path / "run").items())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--placement", "9"], "layers between 1 and 4, got 9"),
        (["--placement", "centre"], "got 'centre'"),
        (["--max-length", "3"], "no chat to train on among 40 read"),
        (["--validation-fraction", "0.99"], "leaves one side empty"),
        (["--report-to", "nowhere"], "report_to"),
        (["--num-epochs", "0"], "num_epochs must be above 0"),
        (["--seed", "99999999999999999999"], "seed must be at most"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    base_folder: Path,
    data_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    message: str,
) -> None:
    assert main(train_command(base_folder, data_file, tmp_path / "run", *more)) == 2

    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_broken_line_is_named(
    base_folder: Path, data_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_file.write_text(data_file.read_text() + '\n{"messages": [')

    assert main(train_command(base_folder, data_file, tmp_path / "run")) == 2

    assert "line 41" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
def test_a_full_disk_during_a_checkpoint_is_one_line_and_loses_nothing(
    base_folder: Path, data_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "calyrex", *train_command(base_folder, data_file, run)]
    assert main(train_command(base_folder, data_file, tmp_path / "whole")) == 0
    size = (tmp_path / "whole" / "checkpoint-20" / "optimizer.pt").stat().st_size

    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size - 1},) * 2)"
    on_full_disk = [sys.executable, "-c", LIMITED.format(limit=limit, arguments=command[3:])]
    full = subprocess.run(on_full_disk, stderr=subprocess.PIPE, check=False)

    assert full.returncode == 2
    assert b"cannot write the checkpoint of step 3" in full.stderr.splitlines()[-1]
    assert b"Traceback" not in full.stderr
    assert subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0
    assert all(torch.equal(weights(run)[name], weight) for name, weight in weights(tmp_path / "whole").items())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc and limited as Linux does")
def test_a_corpus_larger_than_memory_trains(base_folder: Path, data_file: Path, tmp_path: Path) -> None:
    """Train on 256 MB in a process that may hold 64 MB more than one that trains on 4 kB."""
    large = tmp_path / "large.jsonl"
    row = {**json.loads(data_file.read_text().splitlines()[0]), "note": "x" * 2**20}
    with large.open("w") as file:
        file.writelines([json.dumps(row) + "\n"] * 256)

    def run(data: Path, limit: str) -> tuple[int, int]:
        arguments = train_command(base_folder, data, tmp_path / data.stem)
        program = LIMITED.format(limit=limit, arguments=arguments).replace("sys.exit(", "code = (")
        program += "print(code, next(int(line.split()[1]) for line in open('/proc/self/status') if 'VmData' in line))"
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        code, held = map(int, result.stdout.split())
        return code, held * 1024

    code, held = run(data_file, "")
    limit = held + 64 * 2**20

    assert large.stat().st_size > 4 * (limit - held)
    assert code == 0
    assert run(large, f"resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))")[0] == 0


def test_batches_hold_rows_of_similar_length_and_depend_on_seed_and_epoch_alone() -> None:
    lengths = [1 + 7 * i % 50 for i in range(64)]
    sampler = LengthGroupedSampler(lengths, batch_size=8, seed=0)
    first = list(sampler)
    sampler.set_epoch(1)
    second = list(sampler)
    sampler.set_epoch(0)

    assert list(sampler) == first
    assert first != second
    assert sorted(first) == list(range(64))
    spreads = [max(group) - min(group) for group in ([lengths[i] for i in first[b : b + 8]] for b in range(0, 64, 8))]
    assert sum(spreads) / len(spreads) < 30


def chat(system: str, *turns: tuple[str, str]) -> Chat:
    messages = [{"role": "system", "content": system}, *({"role": r, "content": c} for r, c in turns)]
    return Chat(messages=messages, tools=None, origin="chats.jsonl line 1")


def test_a_long_chat_loses_its_last_turns_and_never_its_system_prompt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = chat("Be kind.", ("user", "Hi"), ("assistant", "Yes"), ("user", "So?"), ("assistant", "word " * 50))
    cut_system = chat("rule " * 60, ("user", "Hi"), ("assistant", "Yes"))

    rows = write_rows([long, cut_system], chatml(), tmp_path / "rows.arrow", max_length=60)

    assert isinstance(rows, Dataset)
    assert rows["length"][:] == [60]
    assert any(rows[0]["system_mask"])
    assert "1 chats left out; the first: chats.jsonl line 1: its system prompt ends at token" in caplog.text
    with pytest.raises(CalyrexError, match=r"no chat to train on among 1 read; the first: chats\.jsonl line 1"):
        write_rows([cut_system], chatml(), tmp_path / "none.arrow", max_length=60)
    assert not list(tmp_path.glob("*.partial"))


def test_the_base_drops_nothing_out_while_its_blocks_train(tmp_path: Path) -> None:
    input_ids, system_mask = batch()
    model = tiny_anchored("gpt2")
    rows = Dataset.from_list(
        [{"input_ids": input_ids[0].tolist(), "system_mask": system_mask[0].tolist(), "assistant_mask": [True] * 12,
          "length": 12, "row": 0}]
    )  # fmt: skip
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, remove_unused_columns=False, report_to="none")
    trainer = BlockTrainer(model, arguments, train_dataset=rows)

    losses = [trainer.compute_loss(model.train(), collate(rows, pad_token_id=0)) for _ in range(2)]

    assert model.get_base_model().config.resid_pdrop > 0
    assert torch.equal(*losses)
