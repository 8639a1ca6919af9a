"""A comparison trains its contenders alike, asks them the same cases, and goes on where it was stopped."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from calyrex import comparison
from calyrex.cli import main
from calyrex.errors import CalyrexError
from calyrex.studies import jobs, running
from calyrex.studies.comparing import Runs, build_document, collect_samples, read_runs
from calyrex.studies.evaluating import held_out_cases
from calyrex.studies.jobs import Fill, Run, Trial, work
from calyrex.studies.options import CompareOptions
from calyrex.studies.preparing import prepare
from calyrex.studies.study import Study
from calyrex.training.trainer import DivergedError
from calyrex.user_cache import CACHE_VARIABLE
from saved import message_of, save_chat_base

pytestmark = pytest.mark.slow
SEVERAL = ("lora", "parallel_mlp", "calyrex")
CONTENDERS = ["base", "repetition", "lora", "parallel_mlp", "calyrex", "calyrex:shuffled"]


def write_chats(path: Path) -> Path:
    """Chats with a system prompt, with an instruction that can become one, and with neither."""
    rows: list[dict[str, Any]] = []
    for number, letter in enumerate("abcdefgh" * 4):
        answer = {"role": "assistant", "content": letter * 3}
        rows += [
            {"messages": [{"role": "system", "content": f"Say {letter}."}, {"role": "user", "content": "Now"}, answer]},
            {"messages": [{"role": "user", "content": f"Say {letter}.\n\nIt is {number}."}, answer]},
            {"messages": [{"role": "user", "content": f"Is it {letter}?"}, answer]},
        ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def options(folder: Path, **more: Any) -> CompareOptions:
    chosen: dict[str, Any] = {
        "output_dir": folder / "study",
        "base": str(folder / "base"),
        "data": str(folder / "chats.jsonl"),
        "contenders": CONTENDERS,
        "num_rules": 6,
        "num_chats": 10,
        "num_search": 12,
        "batch_size": 4,
        "num_validation": 4,
        "placement": [3, 4],
        "intermediate_size": 24,
        "learning_rates": [1e-3, 1e-2],
        "seeds": [0, 1],
        "tasks": ["rules:8", "long_rules:4", "held_out:6"],
        "dtype": "float32",
    }
    return CompareOptions(**(chosen | more))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A study that has run to its end, its jobs in this process."""
    folder = tmp_path_factory.mktemp("comparison")
    save_chat_base(folder / "base")
    write_chats(folder / "chats.jsonl")
    earlier = os.environ.get(CACHE_VARIABLE)
    os.environ[CACHE_VARIABLE] = str(folder / "cache")
    study = Study(options(folder))
    study.folder.mkdir()
    prepare(study)
    for job in running.list_jobs(study):
        work(job)
    yield folder
    if earlier is None:
        del os.environ[CACHE_VARIABLE]
    else:
        os.environ[CACHE_VARIABLE] = earlier


@pytest.fixture
def study(folder: Path) -> Study:
    return Study(options(folder))


@pytest.fixture(scope="module")
def document(folder: Path) -> dict[str, Any]:
    return build_document(*read(Study(options(folder))), command="calyrex compare study.yaml", seconds=1.0)


def read(study: Study) -> tuple[Study, Runs]:
    return study, read_runs(study)


def by_name(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in entries}


def test_every_contender_and_seed_is_measured(document: dict[str, Any]) -> None:
    measures = by_name(document["measures"])

    assert list(by_name(document["contenders"])) == CONTENDERS
    for name in ("rules/clean", "rules/attacked", "held_out/loss", "held_out+system/loss"):
        values = measures[name]["values"]
        assert set(values) == set(CONTENDERS), name
        assert {who: len(value["by_seed"]) for who, value in values.items()} == {
            who: 2 if who in SEVERAL else 1 for who in CONTENDERS
        }


def test_what_may_be_forgotten_is_asked_with_and_without_a_system_prompt(document: dict[str, Any]) -> None:
    measures = by_name(document["measures"])
    plain, with_system = measures["held_out/loss"], measures["held_out+system/loss"]

    assert plain["values"]["calyrex"]["value"] == pytest.approx(plain["values"]["base"]["value"], abs=1e-4)
    assert plain["values"]["lora"]["value"] != pytest.approx(plain["values"]["base"]["value"], abs=1e-4)
    assert with_system["values"]["calyrex"]["value"] != pytest.approx(with_system["values"]["base"]["value"], abs=1e-4)
    assert {(one["first"], one["second"]) for one in plain["differences"]} == {
        (name, "base") for name in CONTENDERS if name != "base"
    }


def test_a_value_is_the_mean_of_the_verdicts_of_its_seeds(study: Study, document: dict[str, Any]) -> None:
    measure = by_name(document["measures"])["held_out/loss"]
    contender = next(one for one in study.contenders if one.name == "lora")
    verdicts = []
    for seed in (0, 1):
        text = (study.run_folder(contender, seed) / "eval" / "samples" / "held_out.jsonl").read_text(encoding="utf-8")
        verdicts.append([json.loads(line)["verdict"]["loss"] for line in text.splitlines()])

    assert measure["values"]["lora"]["value"] == pytest.approx(np.mean(verdicts))
    assert measure["num_cases"] == len(verdicts[0]) == 6


def test_all_contenders_train_on_the_same_tokens_and_pay_their_own_price(document: dict[str, Any]) -> None:
    contenders = by_name(document["contenders"])
    trained = {name: one for name, one in contenders.items() if one["is_trained"] and not one["is_control"]}

    assert len({one["tokens"] for one in trained.values()}) == 1
    assert sum(source["rows"] for source in document["run"]["data"]) == 16
    assert sum(source["tokens"] for source in document["run"]["data"]) == contenders["calyrex"]["tokens"]
    for one in trained.values():
        assert one["train_seconds"] > 0
        assert one["peak_memory_bytes"] > 2**20
        assert one["added_flops_per_token"] > 0
        assert abs(one["budget_difference"]) < 0.2
        assert set(one["losses"]) == {"0", "1"}


def test_each_contender_takes_the_rate_with_the_lowest_validation_loss(document: dict[str, Any]) -> None:
    for contender in document["contenders"]:
        if contender["is_trained"]:
            best = min(contender["search"], key=lambda trial: trial["loss"])
            assert len(contender["search"]) == 2
            assert contender["learning_rate"] == best["learning_rate"]


def test_the_control_trains_on_the_system_prompts_of_others(study: Study) -> None:
    reference, control = (one for one in study.contenders if one.method == "calyrex")
    plain, shuffled = study.open_rows(reference)[1], study.open_rows(control)[1]

    def systems(rows: Any) -> list[list[int]]:
        return [[i for i, flag in zip(row["input_ids"], row["system_mask"], strict=True) if flag] for row in rows]

    def answers(rows: Any) -> list[list[int]]:
        return [[i for i, flag in zip(row["input_ids"], row["assistant_mask"], strict=True) if flag] for row in rows]

    assert answers(plain) == answers(shuffled)
    assert sorted(systems(plain)) == sorted(systems(shuffled))
    assert all(one != other for one, other in zip(systems(plain), systems(shuffled), strict=True))


def test_differences_are_corrected_for_their_number(document: dict[str, Any]) -> None:
    differences = [one for measure in document["measures"] for one in measure["differences"]]
    tested = [one for one in differences if one["p_value"] is not None]

    assert tested
    assert all(one["adjusted_p_value"] >= one["p_value"] for one in tested)
    smallest = min(tested, key=lambda one: one["p_value"])
    assert smallest["adjusted_p_value"] == pytest.approx(min(1.0, smallest["p_value"] * len(tested)))
    assert all(one["is_significant"] == (one["adjusted_p_value"] < 0.05) for one in tested)


def test_samples_hold_all_answers_and_whether_they_passed(study: Study) -> None:
    samples = list(collect_samples(read_runs(study)))

    rules = [sample for sample in samples if sample["task"] == "rules"]
    assert len(rules) == 8
    assert {"rules", "long_rules", "held_out", "held_out+system"} == {sample["task"] for sample in samples}
    for sample in rules:
        assert {name: len(own) for name, own in sample["answers"].items()} == {
            name: 2 if name in SEVERAL else 1 for name in CONTENDERS
        }
        assert all(isinstance(flag, bool) for flags in sample["passed"].values() for flag in flags)
        assert {"attack", "family"} <= sample["shows"].keys()


def test_done_jobs_are_known_and_the_prompts_of_all_are_shared(study: Study) -> None:
    found = running.list_jobs(study)

    assert all(job.is_done for job in found)
    assert isinstance(found[0], Fill)
    assert sum(isinstance(job, Trial) for job in found) == 3 * 2
    assert sum(isinstance(job, Run) for job in found) == 2 + 3 * 2 + 1
    assert any((study.folder / "prompts").iterdir())


def test_contenders_join_a_study_that_is_done(folder: Path) -> None:
    grown = Study(options(folder, contenders=[*CONTENDERS, "lora_late", "parallel_mlp:shuffled"]))
    prepare(grown)
    missing = [job for job in running.list_jobs(grown) if not job.is_done]

    for job in missing:
        work(job)

    assert {job.contender.name for job in missing if not isinstance(job, Fill)} == {
        "lora_late",
        "parallel_mlp:shuffled",
    }
    document = build_document(*read(grown), command="calyrex compare study.yaml", seconds=1.0)
    assert set(by_name(document["measures"])["rules/attacked"]["values"]) == {
        *CONTENDERS,
        "lora_late",
        "parallel_mlp:shuffled",
    }


def test_repetition_repeats_a_neutral_system_prompt_too(document: dict[str, Any]) -> None:
    values = by_name(document["measures"])["held_out+system/loss"]["values"]

    assert values["repetition"]["value"] != pytest.approx(values["base"]["value"], abs=1e-4)


def test_each_source_gives_the_rows_that_were_asked_for(study: Study, document: dict[str, Any]) -> None:
    assert {source["name"]: source["rows"] for source in document["run"]["data"]} == {
        "built-in rules": 6,
        "chats.jsonl": 10,
    }


def test_a_damaged_file_of_a_study_is_named(study: Study) -> None:
    contender = next(one for one in study.contenders if one.name == "calyrex")
    path = study.run_folder(contender, 0) / "training.json"
    whole = path.read_text(encoding="utf-8")
    path.write_text("", encoding="utf-8")

    with pytest.raises(CalyrexError) as error:
        build_document(*read(study), command="", seconds=0.0)

    path.write_text(whole, encoding="utf-8")
    assert "training.json is damaged" in message_of(error)


def test_a_run_without_its_samples_is_not_done(study: Study) -> None:
    contender = next(one for one in study.contenders if one.name == "base")
    path = study.run_folder(contender, 0) / "eval" / "samples" / "rules.jsonl"
    text = path.read_text(encoding="utf-8")
    path.unlink()

    is_done = Run(study, contender, 0).is_done

    path.write_text(text, encoding="utf-8")
    assert not is_done


def test_the_same_seed_trains_the_same_adapter(study: Study, tmp_path: Path) -> None:
    contender = next(one for one in study.contenders if one.name == "parallel_mlp")
    folder = study.run_folder(contender, 1)
    before = load_file(folder / "adapter_model.safetensors")
    for name in ("adapter_model.safetensors", "training.json", "done.json"):
        (folder / name).unlink()

    work(Run(study, contender, 1))

    after = load_file(folder / "adapter_model.safetensors")
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_rate_that_diverges_is_not_chosen(study: Study) -> None:
    contender = next(one for one in study.contenders if one.name == "calyrex")
    wild = Study(options(study.folder.parent, learning_rates=[1e-3, 1e38]))

    work(Trial(wild, contender, 1e38))

    assert json.loads(wild.trial_file(contender, 1e38).read_text()) == {"learning_rate": 1e38, "loss": None}
    assert wild.learning_rate_of(contender) == 1e-3


def test_a_rate_that_diverges_in_a_run_leaves_the_search_and_its_runs_are_trained_again(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    contender = next(one for one in study.contenders if one.name == "parallel_mlp")
    chosen = study.learning_rate_of(contender)
    path = study.trial_file(contender, chosen)
    whole = path.read_text(encoding="utf-8")
    (study.run_folder(contender, 1) / "training.json").unlink()

    def diverge(*_args: object, **_more: object) -> None:
        raise DivergedError("the loss is no number")

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "train_blocks", diverge)
        with pytest.raises(CalyrexError) as error:
            work(Run(study, contender, 1))

    rest = study.learning_rate_of(contender)
    is_done = Run(study, contender, 0).is_done
    path.write_text(whole, encoding="utf-8")
    work(Run(study, contender, 1))
    assert message_of(error).startswith(f"parallel_mlp: seed 1: learning rate {chosen:g} diverges")
    assert rest != chosen
    assert not is_done
    assert Run(study, contender, 0).is_done


def test_data_that_have_changed_are_refused(folder: Path) -> None:
    comparison.compare(options(folder))
    chats = folder / "chats.jsonl"
    stat = chats.stat()
    os.utime(chats, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))

    with pytest.raises(CalyrexError) as error:
        comparison.compare(options(folder))

    os.utime(chats, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "chats.jsonl has changed since the study began" in message_of(error)


def test_held_out_chats_are_drawn_from_the_whole_file(folder: Path) -> None:
    drawn = {
        seed: [case.messages[0]["content"] for case in held_out_cases(prepared(folder, seed), 6)] for seed in (0, 1)
    }

    assert drawn[0] != drawn[1]
    assert all(question.startswith("Is it ") for question in drawn[0] + drawn[1])


def prepared(folder: Path, seed: int) -> Study:
    study = Study(options(folder, output_dir=folder / f"seed-{seed}", contenders=["calyrex"], seed=seed))
    study.folder.mkdir()
    prepare(study)
    return study


def test_the_command_line_shows_a_finished_study_without_running_anything(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_work: object, jobs: list[Any], _workers: int, _needs: object) -> Iterator[object]:
        assert jobs == []
        return iter(())

    config = folder / "study.yaml"
    values = {name: value for name, value in vars(options(folder)).items() if value is not None}
    config.write_text(yaml.safe_dump({k: str(v) if isinstance(v, Path) else v for k, v in values.items()}))
    monkeypatch.setattr(running, "run_jobs", refuse)

    code = main(["compare", str(config)])

    assert code == 0
    study = folder / "study"
    assert {"report.html", "table.md", "comparison.json", "samples.jsonl"} <= {path.name for path in study.iterdir()}
    assert str(study / "report.html") in capsys.readouterr().out
    again = json.loads((study / "comparison.json").read_text(encoding="utf-8"))
    assert again["run"]["command"] == f"calyrex compare {study / 'options.yaml'}"


def test_a_folder_of_another_study_is_refused(folder: Path) -> None:
    main_options = options(folder)
    comparison.compare(main_options)

    with pytest.raises(CalyrexError) as error:
        comparison.compare(options(folder, num_rules=7))

    assert "num_rules 6 -> 7" in message_of(error)


def test_learning_rates_may_join_a_study_but_not_leave_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    def note(_work: object, found: list[Any], _workers: int, _needs: object) -> Iterator[object]:
        begun.extend(found)
        return iter(())

    comparison.compare(options(folder))
    copied = shutil.copytree(folder / "study", tmp_path / "study")
    monkeypatch.setattr(running, "run_jobs", note)

    comparison.compare(options(folder, output_dir=copied, learning_rates=[1e-3, 1e-2, 3e-3]))

    assert {job.learning_rate for job in begun if isinstance(job, Trial)} == {3e-3}
    assert {job.contender.name for job in begun if isinstance(job, Run)} == {*SEVERAL, "calyrex:shuffled"}
    with pytest.raises(CalyrexError) as error:
        comparison.compare(options(folder, output_dir=copied, learning_rates=[1e-3]))
    assert "learning_rates" in message_of(error)


def test_a_search_over_all_rows_has_trained_the_first_seed_already(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more: dict[str, Any] = {"output_dir": tmp_path / "whole", "contenders": ["calyrex"], "tasks": ["rules:2"]}
    study = Study(options(folder, **more, num_search=None))
    study.folder.mkdir()
    prepare(study)
    trained: list[Path] = []
    train = jobs.train_blocks
    monkeypatch.setattr(
        jobs, "train_blocks", lambda *args, **more: trained.append(args[2].output_dir) or train(*args, **more)
    )

    for job in running.list_jobs(study):
        work(job)

    contender = study.contenders[0]
    chosen = study.learning_rate_of(contender)
    again = Study(options(folder, **more | {"output_dir": tmp_path / "alone"}, learning_rates=[chosen], seeds=[0]))
    again.folder.mkdir()
    prepare(again)
    for job in running.list_jobs(again):
        work(job)
    first, alone = (load_file(one.run_folder(contender, 0) / "adapter_model.safetensors") for one in (study, again))
    assert [path.name for path in trained[:3]] == ["0.001", "0.01", "seed-1"]
    assert all(torch.equal(first[name], alone[name]) for name in first)
    assert not study.trial_folder(contender, chosen).exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"contenders": ["base", "lora"]}, "contenders must hold calyrex"),
        ({"contenders": ["calyrex", "lorra"]}, "no contender 'lorra'"),
        (
            {"contenders": ["calyrex", "calyrex:num_blocks=3:init=random", "calyrex:init=random:num_blocks=3"]},
            "is the same as one before it",
        ),
        ({"tasks": ["rules:2", "rules:3"]}, "tasks must name each task once"),
        ({"tasks": ["rulez"]}, "no task 'rulez' in a comparison"),
        ({"tasks": ["rules:none"]}, "task 'rules:none': expected a number of cases"),
        ({"tasks": ["injecagent:2"]}, "task injecagent cannot be evaluated: no data: get "),
    ],
)
def test_a_mistake_is_refused_before_anything_is_written(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(CalyrexError) as error:
        comparison.compare(options(tmp_path, **more))

    assert said in message_of(error)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"seeds": []}, "seeds must name at least one, each once, got []"),
        ({"seeds": [1, 1]}, "seeds must name at least one, each once"),
        ({"learning_rates": [0.0]}, "learning_rates must be numbers above 0"),
        ({"num_rules": 0, "data": None}, "there is nothing to train on"),
        ({"num_epochs": 0.0}, "num_epochs must be above 0"),
        ({"workers": 0}, "workers must be a number of at least 1"),
    ],
)
def test_an_option_out_of_range_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(CalyrexError) as error:
        options(tmp_path, **more)

    assert said in message_of(error)
