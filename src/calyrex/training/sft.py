"""``calyrex train``: supervised fine-tuning of the blocks on chats, over a frozen base."""

import itertools
import logging
from pathlib import Path

import torch
from datasets import Dataset
from peft import PeftModel, get_peft_model
from rich.filesize import decimal
from rich.progress import Progress
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainingArguments, set_seed

from calyrex.config import CalyrexConfig
from calyrex.data.chats import read_chats
from calyrex.errors import CalyrexError
from calyrex.models import load_base, load_tokenizer
from calyrex.options import TrainOptions
from calyrex.template import read_template
from calyrex.training.activations import ActivationStore, open_activations
from calyrex.training.folder import ROWS, checkpoints, open_folder, step_of
from calyrex.training.progress import ProgressCallback, make_progress
from calyrex.training.rows import open_rows, write_rows
from calyrex.training.trainer import BlockTrainer, last_complete_checkpoint, written_or_refused

logger = logging.getLogger(__name__)


def train(options: TrainOptions) -> Path:
    """Train blocks as the options say and save the adapter; an interrupted run in the same folder goes on.

    Returns:
        The folder of the adapter.

    Raises:
        CalyrexError: data, base or options do not fit, or the folder holds a run with other options.
    """
    tokenizer = load_tokenizer(options.base)
    read_template(tokenizer)
    model = attach_blocks(options, tokenizer)
    with open_folder(options), make_progress() as progress:
        rows = load_rows(options, tokenizer)
        store = fill_store(model, rows, progress) if options.cache_activations else None
        held_out = None
        if options.validation_fraction > 0:
            rows, held_out = hold_out(rows, options)
        train_blocks(model, rows, options, progress, held_out=held_out, store=store)
    logger.info("adapter saved; talk to it: calyrex chat --adapter %s", options.output_dir)
    return Path(options.output_dir)


def load_rows(options: TrainOptions, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Return the tokenised chats, from disk where an interrupted run has left them."""
    path = Path(options.output_dir) / ROWS
    if path.exists():
        return open_rows(path)
    chats = read_chats(options.data)
    needs_system = options.without_system == "identity"
    return write_rows(chats, tokenizer, path, max_length=options.max_length, needs_system=needs_system)


def attach_blocks(options: TrainOptions, tokenizer: PreTrainedTokenizerBase) -> PeftModel:
    """Load the base and put fresh blocks on it; the blocks are the same for the same seed."""
    base = load_base(options.base, dtype=options.dtype)
    config = CalyrexConfig(
        placement=options.placement,
        num_blocks=options.num_blocks,
        intermediate_size=options.intermediate_size,
        init=options.init,
        without_system=options.without_system,
        system_template=read_template(tokenizer).to_dict(),
    )
    set_seed(options.seed)
    try:
        return get_peft_model(base, config)
    except (ValueError, RuntimeError) as error:  # options that do not fit the base, or no memory for such sizes
        raise CalyrexError(str(error).splitlines()[0]) from error


def train_blocks(
    model: PeftModel,
    rows: Dataset,
    options: TrainOptions,
    progress: Progress,
    *,
    held_out: Dataset | None = None,
    store: ActivationStore | None = None,
) -> list[dict[str, float]]:
    """Train the blocks of a model, or another adapter, and save them in the output folder.

    Args:
        model: the model with blocks.
        rows: tokenised chats (``calyrex.training.rows``).
        options: how to train.
        progress: where bars are shown.
        held_out: rows for a validation loss after each epoch, or None.
        store: the frozen part of the forward of all these rows, or None to compute it in every step.

    Returns:
        The Trainer's log: losses in nats, by step.
    """
    output_dir = Path(options.output_dir)
    try:
        trainer = BlockTrainer(
            model,
            _training_arguments(options, has_validation=held_out is not None),
            train_dataset=rows,
            eval_dataset=held_out,
            store=store,
            callbacks=[ProgressCallback(progress)],
        )
    except (ValueError, RuntimeError) as error:  # a tracker that is unknown or not installed
        raise CalyrexError(f"report_to {options.report_to}: {str(error).splitlines()[0]}") from error
    trainer.remove_callback(PrinterCallback)
    checkpoint = last_complete_checkpoint(output_dir)
    for path in checkpoints(output_dir):
        if checkpoint is None or step_of(path) > step_of(checkpoint):
            set_aside(path)
            logger.warning("%s is damaged or not complete; it was set aside, and training goes on before it", path)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    with written_or_refused(f"the adapter in {output_dir}"):
        trainer.save_model(str(output_dir))
    if store is not None:
        size = decimal(store.size_bytes)
        logger.info("%s of activations stay in %s for other runs; they may be deleted", size, store.folder)
    return trainer.state.log_history


def set_aside(checkpoint: Path) -> None:
    """Rename a checkpoint, so that the run can write its own; nothing in it is lost."""
    numbers = itertools.count(1)
    aside = next(
        path for number in numbers if not (path := checkpoint.with_name(f"damaged-{number}-{checkpoint.name}")).exists()
    )
    checkpoint.rename(aside)


def hold_out(rows: Dataset, options: TrainOptions) -> tuple[Dataset, Dataset]:
    """Split off rows for validation.

    Raises:
        CalyrexError: the fraction leaves no row on one side.
    """
    size = round(len(rows) * options.validation_fraction)
    if not 0 < size < len(rows):
        raise CalyrexError(
            f"validation_fraction {options.validation_fraction} of {len(rows)} chats leaves one side empty"
        )
    split = rows.train_test_split(size, seed=options.seed)
    return split["train"], split["test"]


def fill_store(model: PeftModel, rows: Dataset, progress: Progress) -> ActivationStore:
    """Compute the frozen part of the forward for the rows that no earlier run has computed it for."""
    task = progress.add_task("frozen layers", total=len(rows))
    store, steps = open_activations(model, rows)
    for done in steps:
        progress.update(task, completed=done)
    progress.update(task, completed=len(rows))
    return store


def _training_arguments(options: TrainOptions, *, has_validation: bool) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(options.output_dir),
        num_train_epochs=options.num_epochs,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=options.warmup_ratio,
        weight_decay=0.0,
        max_grad_norm=1.0,
        logging_steps=options.logging_steps,
        save_steps=options.save_steps,
        save_total_limit=2,
        eval_strategy="epoch" if has_validation else "no",
        report_to=options.report_to or "none",
        remove_unused_columns=False,
        label_names=["labels"],
        disable_tqdm=True,
        logging_nan_inf_filter=False,
        seed=options.seed,
        use_cpu=not torch.cuda.is_available(),
    )
