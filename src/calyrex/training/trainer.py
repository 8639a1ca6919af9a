"""The transformers Trainer, with the loss on answers only and batches of rows of similar length."""

import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import Trainer, TrainerState, TrainingArguments
from transformers.trainer_pt_utils import get_length_grouped_indices

from calyrex.adapters import read_adapter
from calyrex.errors import CalyrexError
from calyrex.training.activations import ActivationStore, prefix_skipped
from calyrex.training.batches import collate, keeps_documents_apart
from calyrex.training.folder import checkpoints, step_of
from calyrex.training.loss import answer_loss, has_plain_logits
from calyrex.tuner import hears_system


class DivergedError(CalyrexError):
    """The loss is no finite number any more."""


class LengthGroupedSampler(Sampler[int]):
    """Shuffled rows in batches of similar length; an epoch's order depends on seed and epoch alone, so runs resume."""

    def __init__(self, lengths: list[int], batch_size: int, seed: int) -> None:
        """Create the sampler.

        Args:
            lengths: tokens of each row.
            batch_size: rows of a batch.
            seed: seed of the order.
        """
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + self.epoch)
        indices = get_length_grouped_indices(self.lengths, self.batch_size, generator=generator)
        batches = [indices[i : i + self.batch_size] for i in range(0, len(indices), self.batch_size)]
        for place in torch.randperm(len(batches), generator=generator).tolist():
            yield from batches[place]


class BlockTrainer(Trainer):
    """Train the blocks of a model, or another adapter; the base stays in evaluation mode, or a store spares its run."""

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: PeftModel,
        args: TrainingArguments,
        *,
        train_dataset: Dataset,
        eval_dataset: Dataset | None = None,
        store: ActivationStore | None = None,
        **kwargs: Any,
    ) -> None:
        """Create the trainer.

        Args:
            model: the model with blocks.
            args: arguments of transformers' Trainer.
            train_dataset: rows as in ``calyrex.training.batches.Row``.
            eval_dataset: held-out rows, or None.
            store: the frozen part of the forward of each row, or None to compute it in every step.
            **kwargs: handed to ``Trainer``.
        """
        pad_token_id = model.config.get_text_config().pad_token_id or 0
        collator = partial(collate, pad_token_id=pad_token_id, is_packed=keeps_documents_apart(model))
        super().__init__(
            model,
            args,
            data_collator=collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            **kwargs,
        )
        self.is_chunked = has_plain_logits(model)
        self.hears_system = hears_system(model)
        self.rows = train_dataset
        self.store = store
        self.model_accepts_loss_kwargs = True  # so that the number of labels in a whole step is passed on

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler[int]:
        return LengthGroupedSampler(self.rows["length"][:], self.args.train_batch_size, self.args.seed)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Return the mean cross-entropy of the assistant's tokens, a scalar."""
        inputs = dict(inputs)
        if not self.hears_system:
            del inputs["system_mask"]
        labels, rows = inputs.pop("labels"), inputs.pop("rows")
        plain_model = self.accelerator.unwrap_model(model)
        plain_model.get_base_model().eval()  # the Trainer turns dropout of the base on in every step
        head = plain_model.get_base_model().get_output_embeddings()
        skipped: AbstractContextManager[None] = nullcontext()
        if self.store is not None:
            states = self.store.load(rows.tolist(), labels.shape[1]).to(labels.device)
            skipped = prefix_skipped(plain_model, self.store.layer, lambda: states)
        with skipped:
            loss = answer_loss(model, head, labels, num_items_in_batch, is_chunked=self.is_chunked, **inputs)
        if not bool(torch.isfinite(loss)):
            step, rate = self.state.global_step, self.args.learning_rate
            raise DivergedError(f"the loss is {loss.item()} after step {step}; lower learning_rate, now {rate}")
        return loss

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        with written_or_refused(f"the checkpoint of step {self.state.global_step} in {self.args.output_dir}"):
            super()._save_checkpoint(model, trial)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor, None, None]:
        """Return the loss of held-out rows."""
        with torch.no_grad():
            return self.compute_loss(model, self._prepare_inputs(inputs)).detach(), None, None


def last_complete_checkpoint(output_dir: Path) -> Path | None:
    """Return the newest checkpoint that was written to its end, or None.

    The Trainer writes ``trainer_state.json`` last; a folder where it is missing was interrupted, and one with a damaged
    file was on a machine that crashed or a disk that failed.
    """
    return next((path for path in reversed(checkpoints(output_dir)) if _is_complete(path)), None)


@contextmanager
def written_or_refused(what: str) -> Iterator[None]:
    """Turn a failed write into one line; torch and safetensors hide the reason in errors of their own.

    Raises:
        CalyrexError: what is inside the ``with`` could not be written.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise CalyrexError(
            f"cannot write {what} ({reason}); make room and give the same command again: "
            f"it goes on from the checkpoint before"
        ) from error


def _is_complete(checkpoint: Path) -> bool:
    try:
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        read_adapter(checkpoint)
        archives = [checkpoint / "optimizer.pt", checkpoint / "scheduler.pt", *checkpoint.glob("rng_state*.pth")]
        is_sound = all(zipfile.ZipFile(path).testzip() is None for path in archives)
    except (OSError, ValueError, TypeError, zipfile.BadZipFile, CalyrexError):
        return False
    return is_sound and state.global_step == step_of(checkpoint)
