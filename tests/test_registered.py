from pathlib import Path

import inspect_ai
import pytest

from calyrex.benchmarks.registered import TASKS
from calyrex.benchmarks.registry import BENCHMARKS, SUITES, choose_tasks
from calyrex.errors import CalyrexError
from eval_data import write_ifeval


def test_every_generated_benchmark_is_an_inspect_task() -> None:
    assert set(TASKS) == set(BENCHMARKS)


def test_inspect_runs_our_task_on_our_provider_by_their_names(base_folder: Path, tmp_path: Path) -> None:
    write_ifeval(tmp_path / "data")

    (log,) = inspect_ai.eval(
        "calyrex/ifeval",
        model="calyrex/tiny",
        model_args={"base": str(base_folder)},
        task_args={"data_dir": str(tmp_path / "data")},
        log_dir=str(tmp_path / "logs"),
        display="none",
        max_tokens=4,
    )

    assert log.status == "success"
    assert [set(sample.scores or {}) for sample in log.samples or []] == [{"verdict"}] * 3


def test_suites_hold_known_tasks_and_all_of_them() -> None:
    known = {*BENCHMARKS, "mmlu"}

    assert set(SUITES["all"]) == known
    assert all(set(tasks) <= known for tasks in SUITES.values())
    assert len(SUITES["paper"]) == 11


def test_tasks_are_chosen_once_in_the_order_given() -> None:
    assert choose_tasks(["rules", "security", "msj", "rules"]) == ["rules", *SUITES["security"]]


@pytest.mark.parametrize("names", [[], ["nothing"], [""]])
def test_an_unknown_task_is_refused_with_the_known_ones(names: list[str]) -> None:
    with pytest.raises(CalyrexError, match="ifeval"):
        choose_tasks(names)
