"""A study from its start to its last job: its folder, its record, its jobs side by side."""

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from rich.progress import Progress

from calyrex.benchmarks.evaluating import require_data
from calyrex.benchmarks.source import Source
from calyrex.errors import CalyrexError
from calyrex.flags import save_options
from calyrex.studies.clock import Clock
from calyrex.studies.jobs import Fill, Run, Trial, list_trials, work
from calyrex.studies.measures import HELD_OUT
from calyrex.studies.options import StudyOptions
from calyrex.studies.preparing import forget_preparation, prepare
from calyrex.studies.study import PROMPTS, Study, read_json
from calyrex.studies.workers import default_workers, run_jobs
from calyrex.training.folder import fingerprint_files, locked, versions
from calyrex.training.progress import make_progress

logger = logging.getLogger(__name__)
Job = Fill | Trial | Run

OPTIONS = "options.yaml"
"""The options of a study, as ``--config`` reads them."""

_RECORD = "study.json"
_FOREIGN = ("run.json", "results.json")
"""Records of trainings, analyses and evaluations, whose files a study would overwrite."""
_FREE = ("output_dir", "contenders", "seeds", "workers")
"""Options that may change between two starts: more contenders and seeds join those that are done."""
_GROWING = ("tasks", "learning_rates")
"""Options whose lists may grow; a contender that a new learning rate suits better is trained again."""


def run_study(study: Study, options: StudyOptions, write: Callable[[float], None]) -> None:
    """Run what is missing of a study, one start at a time.

    Args:
        study: the study.
        options: what the user has said, kept as a file that starts the study again.
        write: brings its tables and its report up to date, with the wall time in seconds of all starts so far; called
            after every run and at the end.

    Raises:
        CalyrexError: options do not fit, data are missing, the folder holds another study, or a job failed.
    """
    jobs = list_jobs(study)
    tasks = [task for task in study.num_cases if task != HELD_OUT]
    if not all(job.is_done for job in jobs):
        require_data(tasks, Source(study.options.data_dir, study.options.seed))
    study.folder.mkdir(parents=True, exist_ok=True)
    with locked(study.folder), make_progress() as progress:
        clock = Clock(study.folder / _RECORD, _read_record(study))
        if not clock.path.exists():
            forget_preparation(study)  # of a start that was refused; the options may be others now
        prepare(study)
        save_options(options, study.folder / OPTIONS)
        clock.save()
        _run(study, jobs, progress, clock, write)
        write(clock.seconds)
        shutil.rmtree(study.folder / PROMPTS, ignore_errors=True)


def _read_record(study: Study) -> dict[str, Any]:
    """Return the record of this study, its earlier starts counted.

    Raises:
        CalyrexError: the folder holds another study.
    """
    options = json.loads(json.dumps(vars(study.options), default=str))
    files = fingerprint_files(study.options.data) if study.options.data else []
    record = {"options": options, "data": files, "versions": versions(), "seconds": 0.0}
    path = study.folder / _RECORD
    if not path.exists():
        if any((study.folder / name).exists() for name in _FOREIGN):
            raise CalyrexError(f"{study.folder} holds files of another program or run; choose another output_dir")
        return record
    try:
        earlier = read_json(path)
        before, seconds = earlier["options"], float(earlier["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise CalyrexError(f"{path} is damaged: delete it to go on with the runs beside it") from error
    changed = [f"{name} {before.get(name)} -> {options[name]}" for name in options if before.get(name) != options[name]]
    grown = [name for name in _GROWING if before.get(name) and set(before[name]) <= set(options[name] or ())]
    changed = [text for text in changed if text.split()[0] not in (*_FREE, *grown)]
    if changed:
        raise CalyrexError(f"{study.folder} holds another study ({', '.join(changed)}); choose another output_dir")
    if earlier.get("data") != files:
        raise CalyrexError(f"{study.options.data} has changed since the study began; choose another output_dir")
    return {**record, "seconds": seconds}


def list_jobs(study: Study) -> list[Job]:
    """Return the jobs of a study, longest first: LoRA on all layers has no frozen part to take from the store."""
    contenders = sorted(study.contenders, key=lambda contender: contender.method != "lora")
    searched = {one.name: one for one in map(study.searched, contenders) if one.is_trained}.values()
    trials = [trial for contender in searched for trial in list_trials(study, contender)]
    runs = [Run(study, contender, seed) for contender in contenders for seed in study.seeds_of(contender)]
    return [Fill(study), *trials, *runs]


def _run(study: Study, jobs: Sequence[Job], progress: Progress, clock: Clock, write: Callable[[float], None]) -> None:
    """Run the jobs that are not done yet, and bring the tables up to date after each run."""
    missing = [job for job in jobs if not job.is_done]
    bar = progress.add_task("frozen layers, learning rates, runs", total=len(jobs), completed=len(jobs) - len(missing))
    for job in run_jobs(work, missing, study.options.workers or default_workers(), lambda job: job.needs):
        progress.advance(bar)
        logger.info("%s is done", job)
        clock.save()
        if isinstance(job, Run):
            write(clock.seconds)
