"""Progress bars on stderr, the same for every verb that trains."""

import sys
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from transformers import TrainerCallback
from transformers.utils import logging


class _Bars(Progress):
    """Progress bars; where there is no terminal to draw them in, a line says what begins."""

    def add_task(self, description: str, *args: Any, **kwargs: Any) -> TaskID:
        if not self.console.is_terminal:
            self.console.print(f"{description} ...")
        return super().add_task(description, *args, **kwargs)


def make_progress() -> Progress:
    """Return progress bars that show count, time taken and time left, and silence those of transformers."""
    logging.disable_progress_bar()
    return _Bars(
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
    )


class ProgressCallback(TrainerCallback):
    """Moves a bar with the Trainer's steps and shows the last loss beside it."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("training", total=None)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the length of the bar."""
        self.progress.update(self.task, total=state.max_steps, completed=state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Show the loss."""
        if logs and "loss" in logs:
            self.progress.update(self.task, description=f"training, loss {float(logs['loss']):.3f}")
