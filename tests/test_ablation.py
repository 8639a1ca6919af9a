"""A placement study trains the same blocks in several places and says where they do most."""

import json
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
from saved import message_of
from test_comparison_run import save_tiny_base

pytestmark = pytest.mark.slow


def options(folder: Path, **more: Any) -> AblateOptions:
    chosen: dict[str, Any] = {
        "output_dir": folder / "study",
        "base": str(folder / "base"),
        "placements": ["all", "early8th", "late8th", "1+4"],
        "num_rules": 8,
        "num_validation": 4,
        "batch_size": 4,
        "intermediate_size": 24,
        "seeds": [0, 1],
        "tasks": ["rules:8", "held_out:4"],
        "dtype": "float32",
    }
    return AblateOptions(**(chosen | more))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny base; jobs run in this process."""
    save_tiny_base(tmp_path / "base")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))

    def run_here(_work: object, jobs: list[Any], _workers: int, _needs: object) -> Iterator[Any]:
        for job in jobs:
            work(job)
            yield job

    monkeypatch.setattr(running, "run_jobs", run_here)
    return tmp_path


def read(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "ablation.json").read_text(encoding="utf-8"))
    return document


def test_every_placement_is_trained_with_every_seed_and_compared_with_every_other(folder: Path) -> None:
    study = ablation.ablate(options(folder))

    document = read(study)
    contenders = {one["label"]: one for one in document["contenders"]}
    obeyed = next(one for one in document["measures"] if one["name"] == "rules/obeyed")
    assert list(contenders) == ["Base", "all", "early8th", "late8th", "1+4"]
    assert {label: one["layers"] for label, one in contenders.items()} == {
        "Base": [],
        "all": [1, 2, 3, 4],
        "early8th": [1, 2],
        "late8th": [3, 4],
        "1+4": [1, 4],
    }
    assert all(len(obeyed["values"][one["name"]]["by_seed"]) == 2 for one in contenders.values() if one["is_trained"])
    assert len(obeyed["differences"]) == 5 * 4 / 2
    assert document["verdict"][0].startswith("Best is ")
    page = (study / "report.html").read_text(encoding="utf-8")
    assert "Obedience against depth" in page
    assert "Gain against size" in page


def test_a_finished_study_runs_nothing_again_and_a_placement_may_join(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few: dict[str, Any] = {"placements": ["last", "late8th"], "seeds": [0]}
    ablation.ablate(options(folder, **few))
    begun: list[str] = []

    def note(_work: object, jobs: list[Any], _workers: int, _needs: object) -> Iterator[Any]:
        begun.extend(map(str, jobs))
        return iter(())

    monkeypatch.setattr(running, "run_jobs", note)
    ablation.ablate(options(folder, **few))
    assert begun == []

    ablation.ablate(options(folder, placements=["last", "late8th", "1"], seeds=[0]))

    assert begun == ["frozen layers", "calyrex:placement=1: seed 0"]


def test_blocks_of_equal_parameters_agree_as_nearly_as_whole_widths_allow(folder: Path) -> None:
    study = ablation.ablate(options(folder, equal_parameters=True, seeds=[0], placements=["all", "late8th", "last"]))

    trained = [one for one in read(study)["contenders"] if one["is_trained"]]
    budget = trained[1]["trainable_parameters"]
    assert [one["label"] for one in trained] == ["all", "late8th", "last"]
    assert all(abs(one["trainable_parameters"] - budget) <= 3 * 32 * len(one["layers"]) / 2 for one in trained)


def test_a_screening_sends_the_three_best_on(folder: Path) -> None:
    study = ablation.ablate(options(folder, coarse_to_fine=True, seeds=[0, 1]))

    document, screening = read(study), read(study / "screening")
    assert len(document["screening"]) == 4
    best = list(document["screening"])[:3]
    assert [one["label"] for one in document["contenders"][1:]] == [
        name for name in ("all", "early8th", "late8th", "1+4") if name in best
    ]
    assert sum(source["rows"] for source in screening["run"]["data"]) == 2
    assert {len(one["seeds"]) for one in screening["contenders"]} == {1}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"placements": ["late9th"]}, "no placement 'late9th': expected one of all, every2,"),
        ({"placements": ["1+5"]}, "between 1 and 4, got 5"),
        ({"tasks": ["held_out:4"]}, "tasks must hold rules"),
    ],
)
def test_a_mistake_is_one_line(folder: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(CalyrexError) as error:
        ablation.ablate(options(folder, **more))

    assert said in message_of(error)


def test_the_command_line_prints_the_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--placements",
        "last,3+4",
        "--num-rules",
        "4",
        "--num-validation",
        "2",
        "--tasks",
        "rules:4",
        "--seeds",
        "0",
    ]
    words += ["--intermediate-size", "24", "--dtype", "float32"]

    code = main(["ablate", "--output-dir", str(folder / "study"), "--base", str(folder / "base"), *words])

    out = capsys.readouterr().out
    assert code == 0
    assert out.startswith("Best is ")
    assert str(folder / "study" / "report.html") in out
