"""The jobs of a comparison: a trial of a learning rate, or a whole run of a contender with a seed."""

import resource
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from rich.progress import Progress

from calyrex.errors import CalyrexError
from calyrex.models import load_base
from calyrex.studies.budget import added_flops_per_token
from calyrex.studies.contenders import Contender, attach
from calyrex.studies.evaluating import PLAIN, WITH_SYSTEM, evaluate_run
from calyrex.studies.study import Study, read_json, write_json
from calyrex.training.activations import ActivationStore, fill_activations, last_frozen_layer, open_activations
from calyrex.training.folder import checkpoints
from calyrex.training.sft import train_blocks
from calyrex.training.trainer import DivergedError

TRAINING = "training.json"
"""What a run's training has cost, and its losses; it is there when the adapter is."""
DONE = "done.json"
"""How long a run took; it is there when training and evaluation are."""


@dataclass(frozen=True)
class Fill:
    """Compute what the frozen layers make of the training rows, for each depth at which a contender begins."""

    study: Study

    def __str__(self) -> str:
        return "frozen layers"

    @property
    def is_done(self) -> bool:
        """Whether nothing needs it any more: what is missing of the store only the store itself can tell."""
        contenders = [contender for contender in self.study.contenders if contender.is_trained]
        return all(Run(self.study, one, seed).is_done for one in contenders for seed in self.study.seeds_of(one))

    @property
    def needs(self) -> list["Fill | Trial"]:
        """What must be done before: nothing."""
        return []


@dataclass(frozen=True)
class Trial:
    """Train at one learning rate and measure the validation loss."""

    study: Study
    contender: Contender
    learning_rate: float

    def __str__(self) -> str:
        return f"{self.contender.name}: trial of learning rate {self.learning_rate:g}"

    @property
    def is_done(self) -> bool:
        """Whether its result is on disk."""
        return self.study.trial_file(self.contender, self.learning_rate).exists()

    @property
    def needs(self) -> list["Fill | Trial"]:
        """What must be done before: the frozen layers, where it leaves any alone."""
        return _needs_frozen(self.study, self.contender)


@dataclass(frozen=True)
class Run:
    """Train with one seed, if there is anything to train, and evaluate."""

    study: Study
    contender: Contender
    seed: int

    def __str__(self) -> str:
        return f"{self.contender.name}: seed {self.seed}" if self.contender.is_trained else self.contender.name

    @property
    def is_done(self) -> bool:
        """Whether its results are on disk."""
        folder = self.study.run_folder(self.contender, self.seed)
        if not self.is_trained_as_chosen:
            return False
        samples = [folder / PLAIN / "samples" / f"{task}.jsonl" for task in self.study.num_cases]
        return (folder / DONE).exists() and all(path.exists() for path in samples)

    @property
    def needs(self) -> list["Fill | Trial"]:
        """What must be done before: the search of its learning rate, and what that needs."""
        if not self.contender.is_trained:
            return []
        return [*_needs_frozen(self.study, self.contender), *list_trials(self.study, self.contender)]

    @property
    def is_trained_as_chosen(self) -> bool:
        """Whether its training is done, if it needs any, with the learning rate that the search has chosen."""
        if not self.contender.is_trained:
            return True
        path = self.study.run_folder(self.contender, self.seed) / TRAINING
        if not path.exists() or not all(trial.is_done for trial in list_trials(self.study, self.contender)):
            return False
        return bool(read_json(path)["learning_rate"] == self.study.learning_rate_of(self.contender))


def list_trials(study: Study, contender: Contender) -> list[Trial]:
    """Return the trials that choose a trained contender's learning rate; none where there is only one rate."""
    rates = study.learning_rates if len(study.learning_rates) > 1 else []
    return [Trial(study, study.searched(contender), rate) for rate in rates]


def _needs_frozen(study: Study, contender: Contender) -> list[Fill | Trial]:
    return [] if study.last_frozen_layer(contender) is None else [Fill(study)]


def work(job: Fill | Trial | Run) -> None:
    """Do a job, in a process of its own.

    Raises:
        CalyrexError: a task cannot be evaluated, the adapter does not fit, or the disk is full.
    """
    if isinstance(job, Fill):
        _fill(job.study)
        return
    if isinstance(job, Trial):
        _try(job)
        return
    started = time.monotonic()
    folder = job.study.run_folder(job.contender, job.seed)
    folder.mkdir(parents=True, exist_ok=True)
    if not job.is_trained_as_chosen:
        for part in (PLAIN, WITH_SYSTEM):
            shutil.rmtree(folder / part, ignore_errors=True)  # of a training at another rate
        _train(job, folder)
    evaluate_run(job.study, job.contender, folder)
    write_json(folder / DONE, {"seconds": round(time.monotonic() - started, 1)})


def _fill(study: Study) -> None:
    contenders = [contender for contender in study.contenders if not contender.is_shuffled]
    trained = [contender for contender in contenders if contender.is_trained]
    layers = {depth: one for one in trained if (depth := study.last_frozen_layer(one)) is not None}
    if layers:
        latest = layers[max(layers)]  # it leaves alone whatever any of the others does
        model = attach(latest, _load_base(study), study.config_of(latest), study.seeds[0])
        for _ in fill_activations(model, study.open_rows(latest)[0], sorted(layers)):
            pass


def _try(trial: Trial) -> None:
    study, rate = trial.study, trial.learning_rate
    folder = study.trial_folder(trial.contender, rate)
    _, rows, validation = study.open_rows(trial.contender)
    num_rows = min(study.options.num_search or len(rows), len(rows))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    loss: float | None
    try:
        run = Run(study, trial.contender, study.seeds[0])
        record, loss = _fit(run, folder, rate, rows.select(range(num_rows)), validation)
    except DivergedError:
        loss = None
    if loss is not None and num_rows == len(rows):
        write_json(folder / TRAINING, record)  # the run of the first seed, if this rate is chosen
    else:
        shutil.rmtree(folder)
    write_json(study.trial_file(trial.contender, rate), {"learning_rate": rate, "loss": loss})


def _train(run: Run, folder: Path) -> None:
    study = run.study
    _, rows, _ = study.open_rows(run.contender)
    rate = study.learning_rate_of(run.contender)
    trained = study.trial_folder(run.contender, rate)
    if run.seed == study.seeds[0] and (trained / TRAINING).exists():
        shutil.rmtree(folder)
        trained.rename(folder)
        return
    try:
        record, _ = _fit(run, folder, rate, rows)
    except DivergedError as error:
        if not list_trials(study, run.contender):
            raise CalyrexError(f"{run}: learning rate {rate:g} diverges: give a lower one") from error
        trial = study.trial_file(study.searched(run.contender), rate)
        write_json(trial, {"learning_rate": rate, "loss": None})
        raise CalyrexError(
            f"{run}: learning rate {rate:g} diverges, though its trial did not, and is out of the search now; "
            "give the same command again"
        ) from error
    write_json(folder / TRAINING, record)


def _fit(
    run: Run, folder: Path, rate: float, rows: Dataset, validation: Dataset | None = None
) -> tuple[dict[str, Any], float | None]:
    """Train a run's adapter into a folder.

    Returns:
        What it has cost and its losses; and the validation loss in nats, where there are rows for it.

    Raises:
        DivergedError: the rate is too high.
    """
    study = run.study
    model = attach(run.contender, _load_base(study), study.config_of(run.contender), run.seed)
    options = study.train_options(folder, learning_rate=rate, seed=run.seed)
    store = _open_store(model, study.open_rows(run.contender)[0])
    _remove_checkpoints(folder)  # of a start that was killed: the cost is that of a whole training
    started, cpu_started = time.monotonic(), time.process_time()
    log = train_blocks(model, rows, options, Progress(disable=True), held_out=validation, store=store)
    _remove_checkpoints(folder)
    record = {
        "learning_rate": rate,
        "cpu_seconds": round(time.process_time() - cpu_started, 1),
        "wall_seconds": round(time.monotonic() - started, 1),
        "peak_memory_bytes": _peak_memory(),
        "tokens": round(sum(rows["length"][:]) * study.options.num_epochs),
        "added_flops_per_token": added_flops_per_token(model, rows[0]),
        "losses": [{"step": entry["step"], "loss": entry["loss"]} for entry in log if "loss" in entry],
    }
    return record, next((entry["eval_loss"] for entry in reversed(log) if "eval_loss" in entry), None)


def _remove_checkpoints(folder: Path) -> None:
    for checkpoint in checkpoints(folder):
        shutil.rmtree(checkpoint)


def _load_base(study: Study) -> Any:
    return load_base(study.options.base, dtype=study.options.dtype)


def _open_store(model: PeftModel, rows: Dataset) -> ActivationStore | None:
    """Open the frozen part of the forward, and compute what is missing; None where a contender has none."""
    if last_frozen_layer(model) is None:
        return None
    store, steps = open_activations(model, rows)
    for _ in steps:
        pass
    return store


def _peak_memory() -> int:
    """Return the most memory that this process has held, in bytes: on the GPU where there is one."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
