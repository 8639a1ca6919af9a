import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from peft import LoraConfig, get_peft_model

from calyrex import CalyrexConfig
from calyrex.analysis.blocks import SCALES
from calyrex.cli import main
from calyrex.models import load_base
from chat_tokenizers import chatml
from tiny import tiny_base, train_blocks

NUM_LAYERS, NUM_CHATS = 4, 4


class Place(NamedTuple):
    """A tiny base, an adapter for it, and finished analyses without and with it."""

    base: Path
    adapter: Path
    plain: Path
    anchored: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("analyzed")
    place = Place(*(folder / name for name in Place._fields))
    tokenizer = chatml()
    base = tiny_base(vocab_size=len(tokenizer))
    base.config.eos_token_id = base.generation_config.eos_token_id = tokenizer.eos_token_id
    base.save_pretrained(place.base)
    tokenizer.save_pretrained(place.base)
    model = get_peft_model(load_base(place.base, dtype="float32"), CalyrexConfig(placement=[2, 4]))
    train_blocks(model)
    model.save_pretrained(str(place.adapter))
    assert main(command(place.base, place.plain)) == 0
    assert main(command(place.base, place.anchored, "--adapter", place.adapter)) == 0
    return place


def command(base: Path, output_dir: Path, *more: object) -> list[str]:
    words = ["analyze", "--model", base, "--num-chats", NUM_CHATS, "--output-dir", output_dir, "--dtype", "float32"]
    return [str(word) for word in (*words, *more)]


def read(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / "analysis.json").read_text(encoding="utf-8"))
    del document["run"]["seconds"], document["run"]["command"], document["run"]["options"]["output_dir"]
    return document


def test_document_of_a_base_holds_every_measure_at_every_layer(place: Place) -> None:
    document = read(place.plain)

    shifts = [f"shift/{run}/{kind}" for run in ("other_rule", "neutral") for kind in ("cosine", "norm")]
    names = [measure["name"] for measure in document["measures"]]
    assert names == [*shifts, "probe/rule", "probe/obeys", "patching", "knock_out"]
    for measure in document["measures"]:
        first = 1 if measure["name"] == "knock_out" else 0
        assert [level["layer"] for level in measure["layers"]] == list(range(first, NUM_LAYERS + 1))
        assert (measure["control"] is None) == measure["name"].startswith("shift")
    run = document["run"]
    assert (run["num_layers"], run["late_layers"], run["blocks"], run["num_chats"]) == (4, [4], [], NUM_CHATS)
    assert (run["data"], run["licence"], run["adapter"]) == ("built-in rules", "Apache-2.0", None)
    assert set(run["log_probability"]) == {"with_rule", "other_rule", "neutral"}
    assert document["blocks"] is None
    assert all(document["verdict"])
    assert (place.plain / "analysis.md").exists()


def test_document_of_an_anchored_model_holds_its_blocks(place: Place) -> None:
    document = read(place.anchored)

    blocks = document["blocks"]
    assert document["run"]["blocks"] == [2, 4]
    assert {norm["block"] for norm in blocks["norms"]} == {2, 4}
    assert {norm["class"] for norm in blocks["norms"]} >= {"system", "user", "answer", "template"}
    assert [level["scale"] for level in blocks["scale"]] == list(SCALES)
    assert [level["block"] for level in blocks["off"]] == ["none", 2, 4, "all"]
    assert len(blocks["maps"]) == NUM_CHATS
    for shown in blocks["maps"]:
        for weights in shown["weights"].values():
            assert len(weights) == len(shown["answer_tokens"])
            assert all(len(row) == len(shown["system_tokens"]) for row in weights)
            assert all(sum(row) == pytest.approx(1.0, abs=1e-2) for row in weights)


def test_interrupted_analysis_goes_on_to_the_same_document(place: Place, tmp_path: Path) -> None:
    whole, stopped = place.anchored, tmp_path / "stopped"
    stopped.mkdir()
    shutil.copy(whole / "run.json", stopped)
    lines = (whole / "measured.jsonl").read_bytes().splitlines(keepends=True)
    (stopped / "measured.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:100])  # a line that the stop has cut short

    assert main(command(place.base, stopped, "--adapter", place.adapter)) == 0

    assert (stopped / "measured.jsonl").read_bytes() == (whole / "measured.jsonl").read_bytes()
    assert read(stopped) == read(whole)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (["--seed", "1"], "seed 0 -> 1"),
        (["--num-chats", "5"], "num_chats 4 -> 5"),
        (["--neutral-system", "Be kind."], "neutral_system You are a helpful assistant. -> Be kind."),
    ],
)
def test_folder_of_an_analysis_with_other_options_is_refused(
    place: Place, capsys: pytest.CaptureFixture[str], changed: list[str], told: str
) -> None:
    assert main(command(place.base, place.plain, *changed)) == 2

    assert f"holds another analysis ({told}); choose another output_dir" in capsys.readouterr().err


def test_folder_of_an_analysis_of_another_model_is_refused(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(place.base, tmp_path / "other")
    tiny_base(vocab_size=len(chatml()), seed=1).save_pretrained(other)
    folder = shutil.copytree(place.plain, tmp_path / "run")
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    record["options"]["model"] = str(other)
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")

    assert main(command(other, folder)) == 2

    assert "the weights have changed" in capsys.readouterr().err


def test_folder_whose_data_have_changed_is_refused(
    place: Place, data_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(command(place.base, tmp_path / "run", "--data", data_file))
    data_file.write_text(data_file.read_text(encoding="utf-8") + "\n", encoding="utf-8")

    assert main(command(place.base, tmp_path / "run", "--data", data_file)) == 2

    assert "the data have changed" in capsys.readouterr().err


def test_users_chats_have_no_probes_and_no_share_of_obedience(place: Place, data_file: Path, tmp_path: Path) -> None:
    assert main(command(place.base, tmp_path / "run", "--data", data_file)) == 0

    document = read(tmp_path / "run")
    assert not [measure for measure in document["measures"] if measure["name"].startswith("probe")]
    assert document["run"]["obeyed_share"] is None
    assert document["run"]["licence"] == "that of its source"
    assert document["run"]["data"] == str(data_file)


def test_other_adapters_are_analyzed_without_blocks(place: Place, tmp_path: Path) -> None:
    model = get_peft_model(load_base(place.base, dtype="float32"), LoraConfig(r=2, target_modules=["q_proj"]))
    model.save_pretrained(str(tmp_path / "lora"))

    assert main(command(place.base, tmp_path / "run", "--adapter", tmp_path / "lora")) == 0

    assert read(tmp_path / "run")["blocks"] is None


@pytest.mark.parametrize("text", ["no JSON\n", '{"id": "rule-1"}\n'])
def test_damaged_measurements_are_named(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    folder = shutil.copytree(place.plain, tmp_path / "run")
    (folder / "measured.jsonl").write_text(text, encoding="utf-8")

    assert main(command(place.base, folder)) == 2

    assert "measured.jsonl is damaged" in capsys.readouterr().err


def test_folder_of_another_program_is_refused(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text('{"options": {"data": "chats.jsonl"}}', encoding="utf-8")

    assert main(command(place.base, tmp_path)) == 2

    assert "run.json is of another program; choose another output_dir" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["study.json", "results.json", "report.html"])
def test_nothing_of_another_program_is_overwritten(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).write_text("{}", encoding="utf-8")

    assert main(command(place.base, tmp_path)) == 2

    assert "holds files of another program or run; choose another output_dir" in capsys.readouterr().err
    assert (tmp_path / name).read_text(encoding="utf-8") == "{}"


def test_model_with_damaged_weights_is_refused(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = load_base(place.base, dtype="float32")
    broken.get_output_embeddings().weight[3, 3] = float("nan")
    broken.save_pretrained(tmp_path / "base")
    chatml().save_pretrained(tmp_path / "base")

    assert main(command(tmp_path / "base", tmp_path / "run")) == 2

    assert "no finite probability: its weights are damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [(["--num-chats", "1"], "num_chats must be a number of at least 2, got 1"), (["--data", " "], "data must not be")],
)
def test_options_out_of_range_are_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", *words]) == 2

    assert told in capsys.readouterr().err
