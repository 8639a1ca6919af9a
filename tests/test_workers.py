"""Jobs run side by side in processes of their own, and end with the study, however that ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from calyrex.errors import CalyrexError
from calyrex.studies.workers import default_workers, run_jobs


def note_process(folder: Path) -> None:
    (folder / f"{os.getpid()}").write_text(f"{torch.get_num_threads()}")


def fail(_folder: Path) -> None:
    raise CalyrexError("the disk is full")


def die(_folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(folder: Path) -> None:
    (folder / "begun").write_text(str(os.getpid()))
    time.sleep(600)


def sleep_or_fail(folder: Path) -> None:
    if folder.exists():
        sleep(folder)
    while not (begun := folder.parent / "begun").exists() or not begun.read_text():
        time.sleep(0.1)
    fail(folder)


def note_time(folder: Path) -> None:
    folder.mkdir()
    (folder / "begun").write_text(f"{time.time()}")
    time.sleep(3)
    (folder / "ended").write_text(f"{time.time()}")


def run_and_wait(folder: Path) -> None:
    list(run_jobs(sleep, [folder], 1))


@pytest.mark.slow
def test_each_job_has_a_process_of_its_own_and_its_share_of_the_cores(tmp_path: Path) -> None:
    done = list(run_jobs(note_process, [tmp_path] * 3, 2))

    assert done == [tmp_path] * 3
    notes = {path.name: int(path.read_text()) for path in tmp_path.iterdir()}
    assert len(notes) == 3
    assert str(os.getpid()) not in notes
    assert set(notes.values()) == {max(1, len(os.sched_getaffinity(0)) // 2)}


@pytest.mark.slow
def test_what_a_job_says_is_wrong_ends_the_study_and_the_other_jobs(tmp_path: Path) -> None:
    with pytest.raises(CalyrexError, match="the disk is full") as caught:
        list(run_jobs(sleep_or_fail, [tmp_path, tmp_path / "absent"], 2))

    assert "in sleep_or_fail" in caught.value.__notes__[0]
    assert not (Path("/proc") / (tmp_path / "begun").read_text()).exists()


@pytest.mark.slow
def test_a_job_that_is_killed_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(CalyrexError, match=r"a job was killed, perhaps for want of memory; .* fewer workers"):
        list(run_jobs(die, [tmp_path], 1))


@pytest.mark.slow
def test_jobs_end_when_the_study_is_killed(tmp_path: Path) -> None:
    code = f"import test_workers, pathlib; test_workers.run_and_wait(pathlib.Path({str(tmp_path)!r}))"
    program = f"if __name__ == '__main__':\n    {code}\n"
    study = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parent)
    begun = tmp_path / "begun"
    while not begun.exists() or not begun.read_text():
        time.sleep(0.1)

    study.kill()
    study.wait()

    job = Path("/proc") / begun.read_text()
    for _ in range(100):
        if not job.exists() or "State:\tZ" in (job / "status").read_text():
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the job goes on without its study")


@pytest.mark.slow
def test_a_job_waits_for_those_that_it_needs_and_for_no_other(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    needs = {first: [second], second: [], third: []}

    done = list(run_jobs(note_time, [first, second, third], 2, needs.__getitem__))

    begun, ended = ({job: float((job / name).read_text()) for job in done} for name in ("begun", "ended"))
    assert set(done) == {first, second, third}
    assert begun[first] > ended[second]
    assert begun[third] < ended[second]


def test_jobs_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        list(run_jobs(fail, [tmp_path], 2, lambda job: [job]))


def test_without_a_gpu_there_is_a_job_for_each_of_a_few_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1, 2})

    assert default_workers() == 3


def test_no_jobs_start_no_process() -> None:
    assert list(run_jobs(fail, [], 2)) == []
