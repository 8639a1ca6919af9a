"""A comparison on disk: its contenders on equal terms, its data, and where each run lies."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import PeftConfig
from transformers import PreTrainedTokenizerBase

from calyrex.config import CalyrexConfig
from calyrex.errors import CalyrexError
from calyrex.models import load_base, load_tokenizer
from calyrex.options import TrainOptions
from calyrex.studies.budget import Sized, count_trainable, size_contender
from calyrex.studies.contenders import METHODS, Contender, parse_contender
from calyrex.studies.measures import HELD_OUT, TASKS
from calyrex.studies.options import CompareOptions
from calyrex.template import read_template
from calyrex.training.rows import open_rows

CONTENDERS = (*METHODS, "calyrex:init=random", "calyrex:without_system=mlp", "calyrex:shuffled")
LEARNING_RATES = (1e-3, 2e-3, 4e-3, 8e-3)
SEEDS = (0, 1, 2)
NUM_HELD_OUT = 200
CASES = {"rules": 400, "long_rules": 240, "fidelity": 200, HELD_OUT: NUM_HELD_OUT}
"""Tasks and their number of cases where the user names none."""

ROWS, SHUFFLED_ROWS, HELD_OUT_CHATS = "rows.arrow", "rows-shuffled.arrow", "held-out.jsonl"
SIZES = "sizes.json"
"""The budget, and what each contender trains."""
DATA = "data.json"
"""Where the training rows come from."""
PROMPTS = "prompts"
"""Folder of the frozen part of the test prompts, which goes when the study ends."""


@dataclass(frozen=True)
class Study:
    """A comparison.

    Attributes:
        options: what the user has said.
    """

    options: CompareOptions

    @property
    def folder(self) -> Path:
        """Where everything lies."""
        return Path(self.options.output_dir)

    @cached_property
    def contenders(self) -> list[Contender]:
        """The contenders, in the order given.

        Raises:
            CalyrexError: one is unknown or named twice.
        """
        contenders = [parse_contender(name) for name in self.options.contenders or CONTENDERS]
        meant = [(one.method, sorted(one.settings.items(), key=str), one.is_shuffled) for one in contenders]
        twice = [one.name for place, one in enumerate(contenders) if meant[place] in meant[:place]]
        if twice:
            raise CalyrexError(f"contender {twice[0]!r} is the same as one before it")
        return contenders

    @property
    def learning_rates(self) -> list[float]:
        """The grid of the search."""
        return list(self.options.learning_rates or LEARNING_RATES)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs."""
        return list(self.options.seeds if self.options.seeds is not None else SEEDS)

    def seeds_of(self, contender: Contender) -> list[int]:
        """Return the seeds with which a contender is run: one for a control, and for what is the same for all."""
        return self.seeds if contender.is_trained and not contender.is_shuffled else self.seeds[:1]

    @cached_property
    def num_cases(self) -> dict[str, int | None]:
        """Number of cases by task, None for all.

        Raises:
            CalyrexError: a task is unknown or its number is none.
        """
        if self.options.tasks is None:
            return dict(CASES)
        tasks = list(map(_parse_task, self.options.tasks))
        if len(dict(tasks)) < len(tasks):
            raise CalyrexError(f"tasks must name each task once, got {', '.join(self.options.tasks)}")
        return dict(tasks)

    def file_of(self, contender: Contender, *parts: str) -> Path:
        """Return a file or folder of a contender."""
        return self.folder.joinpath("contenders", contender.folder, *parts)

    def run_folder(self, contender: Contender, seed: int) -> Path:
        """Return the folder of a run: adapter, log of the training and evaluations."""
        return self.file_of(contender, f"seed-{seed}")

    def trial_file(self, contender: Contender, learning_rate: float) -> Path:
        """Return where the validation loss of a trial is kept."""
        return self.file_of(contender, "search", f"{learning_rate:g}.json")

    def trial_folder(self, contender: Contender, learning_rate: float) -> Path:
        """Return where a trial trains; what it has trained stays there if it saw all rows."""
        return self.file_of(contender, "search", f"{learning_rate:g}")

    def learning_rate_of(self, contender: Contender) -> float:
        """Return the learning rate with the lowest validation loss; a control takes that of its method.

        Raises:
            CalyrexError: every rate diverged, or none was tried yet.
        """
        if len(self.learning_rates) == 1:
            return self.learning_rates[0]
        losses = {trial["learning_rate"]: trial["loss"] for trial in self.trials_of(contender)}
        finite = {rate: loss for rate, loss in losses.items() if loss is not None}
        if not finite:
            raise CalyrexError(f"{contender.name}: no learning rate of {sorted(losses)} converged; give lower ones")
        return float(min(finite, key=lambda rate: finite[rate]))

    def trials_of(self, contender: Contender) -> list[dict[str, Any]]:
        """Return the trials of a contender that are done: learning rate and validation loss in nats."""
        searched = self.searched(contender)
        files = [self.trial_file(searched, rate) for rate in self.learning_rates]
        return [read_json(path, "learning_rate", "loss") for path in files if path.exists()]

    def searched(self, contender: Contender) -> Contender:
        """Return the contender whose search counts: a control takes that of its method."""
        if not contender.is_shuffled:
            return contender
        name = contender.name.replace(":shuffled", "")
        return next((other for other in self.contenders if other.name == name), parse_contender(name))

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The base's tokenizer."""
        return load_tokenizer(self.options.base)

    @cached_property
    def blocks(self) -> CalyrexConfig:
        """The blocks of the reference, which set the budget."""
        options = self.options
        return CalyrexConfig(
            placement=options.placement,
            num_blocks=options.num_blocks,
            intermediate_size=options.intermediate_size,
            init=options.init,
            system_template=read_template(self.tokenizer).to_dict(),
        )

    def config_of(self, contender: Contender) -> PeftConfig:
        """Return the configuration of a contender's adapter, which ``prepare`` has kept.

        Raises:
            CalyrexError: it is not there any more.
        """
        try:
            config: PeftConfig = PeftConfig.from_pretrained(str(self.file_of(contender)))
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise CalyrexError(
                f"the configuration in {self.file_of(contender)} is missing or damaged: delete "
                f"{self.folder / SIZES} and give the same command again"
            ) from error
        return config

    def last_frozen_layer(self, contender: Contender) -> int | None:
        """Return the number of the last decoder layer that a trained contender leaves alone, from 0; None for none."""
        sizes = read_json(self.folder / SIZES, "contenders")["contenders"]
        layer: int | None = sizes[contender.name]["last_frozen_layer"]
        return layer

    def choose_sizes(self, contenders: Sequence[Contender]) -> tuple[int, dict[str, Sized]]:
        """Choose sizes that fit the budget.

        Returns:
            The budget, and the adapter of each of these contenders that is trained, by name.

        Raises:
            CalyrexError: the options do not fit the base.
        """
        base = load_base(self.options.base, dtype=self.options.dtype)
        try:
            budget = count_trainable(base, self.blocks)
        except ValueError as error:
            raise CalyrexError(str(error)) from error
        is_equal = self.options.equal_parameters
        trained = [contender for contender in contenders if contender.is_trained]
        return budget, {one.name: size_contender(one, base, self.blocks, budget, is_equal) for one in trained}

    def open_rows(self, contender: Contender) -> tuple[Dataset, Dataset, Dataset]:
        """Return all rows that a contender may meet, and of those the training and the validation rows."""
        rows = open_rows(self.folder / (SHUFFLED_ROWS if contender.is_shuffled else ROWS))
        num_train = len(rows) - self.options.num_validation
        return rows, rows.select(range(num_train)), rows.select(range(num_train, len(rows)))

    def train_options(self, output_dir: Path, *, learning_rate: float, seed: int) -> TrainOptions:
        """Return the options of ``calyrex train`` that all contenders are trained with."""
        options = self.options
        return TrainOptions(
            data="the rows of the study",
            base=options.base,
            output_dir=output_dir,
            learning_rate=learning_rate,
            num_epochs=options.num_epochs,
            batch_size=options.batch_size,
            max_length=options.max_length,
            save_steps=1_000_000,
            dtype=options.dtype,
            seed=seed,
        )


def _parse_task(text: str) -> tuple[str, int | None]:
    name, _, number = text.partition(":")
    if name not in TASKS:
        raise CalyrexError(f"no task {name!r} in a comparison: expected one of {', '.join(TASKS)}")
    if number and (not number.isdecimal() or int(number) < 1):
        raise CalyrexError(f"task {text!r}: expected a number of cases after the colon, such as {name}:200")
    return name, int(number) if number else None


def read_json(path: Path, *keys: str) -> Any:
    """Read a JSON file of a study.

    Args:
        path: the file.
        keys: what it must hold, if anything.

    Raises:
        CalyrexError: it is damaged.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        missing = [key for key in keys if key not in value]
        if missing:
            raise ValueError(f"no {missing[0]}")
        return value
    except (ValueError, TypeError) as error:
        raise CalyrexError(f"{path} is damaged ({error}): delete it and give the same command again") from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    partial.replace(path)
