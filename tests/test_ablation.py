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
    assert document["verdict"][0].startswith("Best is ")
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
    assert out.startswith("Best is ")
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


def test_a_screening_sends_the_three_best_on(folder: Path) -> None:
    placements = ["all", "early8th", "late8th", "1+4"]
    more: dict[str, Any] = {"placements": placements, "tasks": ["rules:4"], "seeds": [0]}

    study = ablation.ablate(options(folder, output_dir=folder / "fine", coarse_to_fine=True, **more))

    document, screening = read(study), read(study / "screening")
    best = list(document["screening"])[:3]
    assert set(document["screening"]) == set(placements)
    assert [one["label"] for one in document["contenders"][1:]] == [name for name in placements if name in best]
    assert sum(source["rows"] for source in screening["run"]["data"]) == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"placements": ["late9th"]}, "no placement 'late9th': expected one of all, every2,"),
        ({"placements": ["1+5"]}, "between 1 and 4, got 5"),
        ({"tasks": ["held_out:4"]}, "tasks must hold rules"),
    ],
)
def test_a_mistake_is_one_line(folder: Path, tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(CalyrexError) as error:
        ablation.ablate(options(folder, output_dir=tmp_path / "study", **more))

    assert said in message_of(error)
