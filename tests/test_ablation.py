"""A placement study trains the same blocks in several places and says where they do most."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calyrex import ablation
from calyrex.cli import main
from calyrex.errors import CalyrexError
from calyrex.studies import running
from calyrex.studies.jobs import work
from calyrex.studies.options import AblateOptions
from calyrex.user_cache import CACHE_VARIABLE
from saved import message_of, save_chat_base

pytestmark = pytest.mark.slow


def options(folder: Path, **more: Any) -> AblateOptions:
    chosen: dict[str, Any] = {
        "output_dir": folder / "study",
        "base": str(folder / "base"),
        "placements": ["all", "late8th", "1+4"],
        "num_rules": 8,
        "num_validation": 4,
        "batch_size": 4,
        "intermediate_size": 24,
        "learning_rates": [1e-3],
        "seeds": [0, 1],
        "tasks": ["rules:6", "held_out:4"],
        "dtype": "float32",
    }
    return AblateOptions(**(chosen | more))


def run_here(_work: object, jobs: list[Any], _workers: int, _needs: object) -> Iterator[Any]:
    for job in jobs:
        work(job)
        yield job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a tiny base and a study that is done; jobs run in this process."""
    folder = tmp_path_factory.mktemp("ablation")
    save_chat_base(folder / "base")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder / "cache"))
        patch.setattr(running, "run_jobs", run_here)
        ablation.ablate(options(folder))
        yield folder


def read(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "ablation.json").read_text(encoding="utf-8"))
    return document


def test_every_placement_is_trained_with_every_seed_and_compared_with_every_other(folder: Path) -> None:
    document = read(folder / "study")

    contenders = {one["label"]: one for one in document["contenders"]}
    obeyed = next(one for one in document["measures"] if one["name"] == "rules/obeyed")
    assert {label: one["layers"] for label, one in contenders.items()} == {
        "Base": [],
        "all": [1, 2, 3, 4],
        "late8th": [3, 4],
        "1+4": [1, 4],
    }
    assert all(len(obeyed["values"][one["name"]]["by_seed"]) == 2 for one in contenders.values() if one["is_trained"])
    assert len(obeyed["differences"]) == 4 * 3 / 2
    assert re.match("Best is |.+ share the first place", document["verdict"][0])
    page = (folder / "study" / "report.html").read_text(encoding="utf-8")
    assert "3 placements of the blocks" in page
    assert "Obedience against depth" in page
    assert "Gain against size" in page


def test_a_finished_study_runs_nothing_again_and_prints_its_verdict(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def note(_work: object, jobs: list[Any], _workers: int, _needs: object) -> Iterator[Any]:
        begun.extend(map(str, jobs))
        return iter(())

    monkeypatch.setattr(running, "run_jobs", note)

    code = main(["ablate", str(folder / "study" / "options.yaml")])

    out = capsys.readouterr().out
    assert (code, begun) == (0, [])
    assert out.startswith(read(folder / "study")["verdict"][0])
    assert str(folder / "study" / "report.html") in out
    more = ["all", "late8th", "1+4", "last"]
    ablation.ablate(options(folder, placements=more))
    assert begun == ["frozen layers", *(f"calyrex:placement=last: seed {seed}" for seed in (0, 1))]


def test_blocks_of_equal_parameters_agree_as_nearly_as_whole_widths_allow(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "run_jobs", lambda *_more: iter(()))
    more: dict[str, Any] = {"output_dir": folder / "equal", "equal_parameters": True}

    study = ablation.ablate(options(folder, placements=["all", "late8th", "last"], **more))

    trained = [one for one in read(study)["contenders"] if one["is_trained"]]
    budget = trained[1]["trainable_parameters"]
    assert [one["label"] for one in trained] == ["all", "late8th", "last"]
    assert all(abs(one["trainable_parameters"] - budget) <= 3 * 32 * len(one["layers"]) / 2 for one in trained)


@pytest.mark.parametrize("placements", [["all", "last"], ["last", "all"], ["late8th"]])
def test_the_budget_is_that_of_the_default_placement_whatever_is_compared(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placements: list[str]
) -> None:
    monkeypatch.setattr(running, "run_jobs", lambda *_more: iter(()))

    study = ablation.ablate(options(folder, output_dir=tmp_path, placements=placements, equal_parameters=True))

    sizes = {one["label"]: one["trainable_parameters"] for one in read(folder / "study")["contenders"]}
    assert read(study)["run"]["budget"] == sizes["late8th"]


def test_placements_of_their_own_size_aim_at_no_budget(folder: Path) -> None:
    assert "all aim at" not in (folder / "study" / "report.html").read_text(encoding="utf-8")
    table = (folder / "study" / "table.md").read_text(encoding="utf-8")
    assert table.startswith("## Placements")
    assert "| contender | obeyed, n = 6 |" in table
    assert "| loss on held-out chats (lower is better), n = 4 |" in table


def test_named_placements_that_are_the_same_layers_are_trained_once(folder: Path) -> None:
    chosen = ablation._choose_placements(options(folder, placements=None))

    assert chosen == ["all", "every2", "every4", "early8th", "mid8th", "late8th"]


def test_placements_join_in_any_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(running, "run_jobs", lambda _work, jobs, *_more: begun.extend(jobs) or iter(()))

    ablation.ablate(options(folder, placements=["1+4", "all"]))

    assert begun == []


def test_a_study_that_was_moved_goes_on_with_what_it_has(folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(folder / "study", tmp_path / "moved")
    run = copied / "contenders" / "calyrex" / "seed-0"
    before = (run / "eval" / "results.json").read_text(encoding="utf-8")
    (run / "done.json").unlink()

    ablation.ablate(options(folder, output_dir=copied))

    assert (run / "done.json").exists()
    assert (run / "eval" / "results.json").read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data.json", "[{"),
        ("sizes.json", "{}"),
        ("contenders/calyrex/adapter_config.json", None),
        ("contenders/calyrex/seed-0/eval/samples/rules.jsonl", '{"id'),
    ],
)
def test_what_is_damaged_is_named_and_the_way_out_leads_out(
    folder: Path, tmp_path: Path, name: str, text: str | None
) -> None:
    copied = shutil.copytree(folder / "study", tmp_path / "damaged")
    ablation.ablate(options(folder, output_dir=copied))
    before = read(copied)["measures"]
    shutil.rmtree(copied / "contenders" / "calyrex" / "seed-1")  # so that something has to be trained
    if text is None:
        (copied / name).unlink()
    else:
        (copied / name).write_text(text, encoding="utf-8")

    with pytest.raises(CalyrexError) as error:
        ablation.ablate(options(folder, output_dir=copied))

    assert re.search(f"{copied}.* delete .+ and give the same command again", message_of(error))
    (copied / ("sizes.json" if text is None else name)).unlink()
    ablation.ablate(options(folder, output_dir=copied))
    assert read(copied)["measures"] == before


@pytest.mark.parametrize("name", ["run.json", "results.json"])
def test_nothing_of_another_program_is_overwritten(folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}", encoding="utf-8")

    with pytest.raises(CalyrexError) as error:
        ablation.ablate(options(folder, output_dir=tmp_path))

    assert "holds files of another program or run" in message_of(error)


def test_a_screening_sends_the_three_best_on(folder: Path) -> None:
    placements = ["all", "early8th", "late8th", "1+4"]
    more: dict[str, Any] = {"placements": placements, "tasks": ["rules:4"], "seeds": [0]}

    study = ablation.ablate(options(folder, output_dir=folder / "fine", coarse_to_fine=True, **more))

    document, screening = read(study), read(study / "screening")
    assert set(document["screening"]) == set(placements)
    best = ablation._choose_leaders(document["screening"])
    assert [one["label"] for one in document["contenders"][1:]] == [name for name in placements if name in best]
    assert screening["run"]["options"]["seed"] == document["run"]["options"]["seed"] + 1
    assert sum(source["rows"] for source in screening["run"]["data"]) == 2


@pytest.mark.parametrize(
    ("screening", "leaders"),
    [
        ({"all": 0.5, "last": 0.4, "mid8th": 0.3, "late8th": 0.2}, ["all", "last", "mid8th", "late8th"]),
        ({"all": 0.5, "late8th": 0.4, "mid8th": 0.3, "last": 0.3, "middle": 0.1}, ["all", "late8th", "mid8th", "last"]),
    ],
)
def test_a_tie_drops_no_placement_and_the_default_always_goes_on(
    screening: dict[str, float], leaders: list[str]
) -> None:
    assert ablation._choose_leaders(screening) == leaders


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"placements": ["late9th"]}, "no placement 'late9th': expected one of all, every2,"),
        ({"placements": ["1+5"]}, "between 1 and 4, got 5"),
        ({"placements": ["9" * 5000]}, "no placement '9999"),
        ({"placements": ["late8th", "4+3"]}, "late8th and 4+3 are the same layers"),
        ({"tasks": ["held_out:4"]}, "tasks must hold rules"),
    ],
)
def test_a_mistake_is_one_line(folder: Path, tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(CalyrexError) as error:
        ablation.ablate(options(folder, output_dir=tmp_path / "study", **more))

    assert said in message_of(error)
