import dataclasses
import errno
import importlib
import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from calyrex import cli
from calyrex.cli import VERBS, Verb, main, parse
from calyrex.errors import CalyrexError
from calyrex.flags import read_options, save_options
from calyrex.options import ChatOptions, DemoOptions, TrainOptions


def raise_user_error(options: ChatOptions) -> None:
    raise CalyrexError(f"no adapter at {options.adapter}:\nadapter_config.json is missing")


def raise_interrupt(options: ChatOptions) -> None:
    raise KeyboardInterrupt


def raise_disk_full(options: ChatOptions) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/mine/checkpoint-10")


def raise_bug(options: ChatOptions) -> None:
    raise RuntimeError("a bug")


def run_chat_as(function: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setitem(cli.VERBS, "chat", Verb(ChatOptions, f"{__name__}:{function}"))
    return main(["chat", "--adapter", "runs/mine"])


@pytest.mark.parametrize("arguments", [["--help"], *([verb, "--help"] for verb in VERBS)])
def test_help_imports_neither_torch_nor_transformers(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom calyrex.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    sys.exit(sorted({'torch', 'transformers', 'peft', 'numpy'} & set(sys.modules)) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: calyrex")


def test_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "calyrex", "train"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("calyrex: error: --data must be given")


def test_flag_beats_file_beats_default(tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text("data: chats.jsonl\nseed: 1\nbatch_size: 2\n")

    verb, options = parse(["train", "--config", str(config), "--batch-size", "3"])

    assert verb == "train"
    assert options == TrainOptions(data="chats.jsonl", seed=1, batch_size=3)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("learning_rate: 1e-5", "learning_rate", 1e-5),
        ("learning_rate: 3", "learning_rate", 3.0),
        ("placement: [24, 26]", "placement", [24, 26]),
        ("placement: every2", "placement", "every2"),
        ("placement: 24", "placement", [24]),
        ("intermediate_size: null", "intermediate_size", None),
        ("intermediate_size:", "intermediate_size", None),
        ("intermediate_size: 64", "intermediate_size", 64),
        ("report_to: [tensorboard]", "report_to", ["tensorboard"]),
        ("report_to: []", "report_to", []),
        ("cache_activations: yes", "cache_activations", True),
        ("output_dir: runs/a b", "output_dir", Path("runs/a b")),
        ("base: 'no'", "base", "no"),
    ],
)
def test_file_value_arrives_with_the_declared_type(line: str, field: str, value: object, tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(f"data: x\n{line}\n")

    options = parse(["train", "--config", str(config)])[1]

    assert getattr(options, field) == value
    assert type(getattr(options, field)) is type(value)


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--placement", "24,26, 28"], "placement", [24, 26, 28]),
        (["--placement=[24, 26]"], "placement", [24, 26]),
        (["--placement", "late8th"], "placement", "late8th"),
        (["--learning-rate", "1e-5"], "learning_rate", 1e-5),
        (["--report-to", "tensorboard,wandb"], "report_to", ["tensorboard", "wandb"]),
        (["--report-to", "none"], "report_to", None),
        (["--cache-activations"], "cache_activations", True),
        (["--no-cache-activations"], "cache_activations", False),
        (["--init", "random"], "init", "random"),
    ],
)
def test_flag_value_arrives_with_the_declared_type(arguments: list[str], field: str, value: object) -> None:
    options = parse(["train", "--data", "x", *arguments])[1]

    assert getattr(options, field) == value


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], ["expected a verb", "demo, train, eval, compare, ablate, analyze, chat"]),
        (["tain"], ["tain", "demo", "train", "chat"]),
        (["train"], ["--data must be given"]),
        (["train", "--data"], ["--data", "expected one argument"]),
        (
            ["train", "--data", "x", "--sede", "1"],
            ["no option --sede", "did you mean --seed", "--learning-rate"],
        ),
        (["train", "--data", "x", "--learning_rate=1"], ["did you mean --learning-rate"]),
        (["train", "x"], ["no option x", "--data"]),
        (["train", "--data", "x", "--seed", "one"], ["--seed", "expected integer, got one"]),
        (["train", "--data", "x", "--init", "zero"], ["--init", "expected random|base, got zero"]),
        (["train", "--data", "x", "--batch-size", "0"], ["batch_size", "at least 1, got 0"]),
        (["train", "--data", "x", "--learning-rate", "nan"], ["learning_rate", "got nan"]),
        (["train", "--data", "x", "--warmup-ratio", "2"], ["warmup_ratio", "at most 0.99, got 2.0"]),
        (["chat", "--scale", "-1"], ["scale", "at least 0, got -1.0"]),
        (["demo", "--config", "missing.yaml"], ["missing.yaml", "No such file"]),
    ],
)
def test_bad_flag_is_one_line_and_exit_code_2(
    arguments: list[str], named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(arguments)

    output = capsys.readouterr()
    assert (code, output.out, output.err.count("\n")) == (2, "", 1)
    assert [text for text in named if text not in output.err] == []


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"lerning_rate: 1", ["unknown key lerning_rate", "did you mean learning_rate", "num_epochs"]),
        (b"learning_rate: fast", ["learning_rate", "expected number, got fast"]),
        (b"seed: [1, 2]", ["seed", "expected integer", "['1', '2']"]),
        (b"placement: {a: 1}", ["placement", "expected text or integer list"]),
        (b"cache_activations: maybe", ["cache_activations", "true|false", "maybe"]),
        (b"seed: [1", ["not valid YAML", "line"]),
        (b"just words", ["expected lines such as", "just words"]),
        (b"\xff\xfe\x00", ["UTF-8"]),
    ],
)
def test_bad_file_is_one_line_and_exit_code_2(
    content: bytes, named: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "train.yaml"
    config.write_bytes(content)

    code = main(["train", "--data", "x", "--config", str(config)])

    output = capsys.readouterr()
    assert (code, output.out, output.err.count("\n")) == (2, "", 1)
    assert [text for text in [*named, "train.yaml"] if text not in output.err] == []


@pytest.mark.parametrize(
    "options",
    [
        TrainOptions(data="a: b", placement=[1, 2], learning_rate=1e-5, report_to=["tensorboard"]),
        TrainOptions(data="x", cache_activations=True, intermediate_size=64, output_dir=Path("é")),
        ChatOptions(system="Two\nlines: yes", temperature=0.5),
        DemoOptions(),
    ],
)
def test_saved_options_read_back_the_same(options: object, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    verb = next(name for name, verb in VERBS.items() if verb.options_class is type(options))

    save_options(options, config)

    assert parse([verb, "--config", str(config)]) == (verb, options)


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_has_a_help_text(verb: str) -> None:
    options_class = VERBS[verb].options_class

    unexplained = [option.name for option in read_options(options_class) if not option.help]

    assert unexplained == []
    assert dataclasses.is_dataclass(options_class)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_function_to_run(verb: str) -> None:
    module, _, function = VERBS[verb].target.partition(":")

    assert callable(getattr(importlib.import_module(module), function))


def test_mistake_found_by_a_verb_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_chat_as("raise_user_error", monkeypatch)

    expected = "calyrex: error: no adapter at runs/mine: adapter_config.json is missing\n"
    assert (code, capsys.readouterr().err) == (2, expected)


def test_full_disk_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_chat_as("raise_disk_full", monkeypatch)

    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1)
    assert "cannot write runs/mine/checkpoint-10: No space left on device" in error


def test_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_chat_as("raise_interrupt", monkeypatch) == 130


def test_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        run_chat_as("raise_bug", monkeypatch)


def test_an_empty_text_is_no_missing_adapter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--adapter", ""]) == 2

    assert "adapter must name a folder" in capsys.readouterr().err


def test_a_log_line_goes_through_the_progress_bars_that_hold_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = cli._StderrHandler()
    bars = io.StringIO()
    monkeypatch.setattr(sys, "stderr", bars)

    handler.emit(logging.makeLogRecord({"msg": "7 MB in %s", "args": ("runs",)}))

    assert bars.getvalue() == "7 MB in runs\n"


def test_a_study_takes_its_file_as_a_word_and_a_flag_beats_it(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("num_rules: 7\nseeds: [3, 4]\nlearning_rates: [1e-4]\n", encoding="utf-8")

    verb, options = parse(["compare", str(file), "--seeds", "5"])

    assert verb == "compare"
    assert (options.num_rules, options.seeds, options.learning_rates) == (7, [5], [1e-4])
    assert parse(["compare", "--config", str(file)])[1].seeds == [3, 4]
    with pytest.raises(CalyrexError, match="two files of options were given"):
        parse(["compare", str(file), "--config", str(file)])


def test_other_verbs_take_no_file_as_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "options.yaml"]) == 2
    assert "options.yaml" in capsys.readouterr().err


def test_a_flag_of_a_list_may_be_given_several_times() -> None:
    _, options = parse(["serve", "--adapter", "a=runs/a,b=runs/b", "--adapter", "c=runs/c"])

    assert options.adapters() == {"a": "runs/a", "b": "runs/b", "c": "runs/c"}
