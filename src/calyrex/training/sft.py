"""``calyrex train``: supervised fine-tuning of the blocks on chats, over a frozen base."""

import importlib.metadata
import json
import logging
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel, get_peft_model
from rich.progress import Progress
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainingArguments, set_seed

from calyrex import __version__
from calyrex.config import CalyrexConfig
from calyrex.data.chats import read_chats
from calyrex.errors import CalyrexError
from calyrex.models import load_base, load_tokenizer
from calyrex.options import TrainOptions
from calyrex.template import read_template
from calyrex.training.prefix import PrefixStore, compute_prefix
from calyrex.training.progress import ProgressCallback, make_progress
from calyrex.training.rows import write_rows
from calyrex.training.trainer import BlockTrainer, last_complete_checkpoint, step_of

logger = logging.getLogger(__name__)

RECORD = "run.json"
"""Beside the results: the full options and the versions of a run."""


def train(options: TrainOptions) -> Path:
    """Train blocks as the options say and save the adapter; an interrupted run in the same folder goes on.

    Returns:
        The folder of the adapter.

    Raises:
        CalyrexError: data, base or options do not fit, or the folder holds a run with other options.
    """
    record = {"options": json.loads(json.dumps(asdict(options), default=str)), "versions": versions()}
    output_dir = Path(options.output_dir)
    check_record(output_dir, record)
    tokenizer = load_tokenizer(options.base)
    read_template(tokenizer)
    rows = load_rows(options, tokenizer)
    output_dir.mkdir(parents=True, exist_ok=True)
    (output_dir / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    model = attach_blocks(options, tokenizer)
    with make_progress() as progress:
        train_blocks(model, rows, options, progress)
    logger.info("adapter saved; talk to it: calyrex chat --adapter %s --base %s", output_dir, options.base)
    return output_dir


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    libraries = ("torch", "transformers", "peft")
    return {"calyrex": __version__, **{name: importlib.metadata.version(name) for name in libraries}}


def check_record(output_dir: Path, record: dict[str, Any]) -> None:
    """Refuse to go on with a run that was started with other options.

    Raises:
        CalyrexError: the folder holds the record of another run; the differing options are named.
    """
    try:
        earlier = json.loads((output_dir / RECORD).read_text())["options"]
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError) as error:
        raise CalyrexError(
            f"{output_dir / RECORD} is not the record of a run ({error}); choose another output_dir"
        ) from error
    changed = [
        f"{key} {earlier.get(key)} -> {value}" for key, value in record["options"].items() if earlier.get(key) != value
    ]
    if changed:
        raise CalyrexError(
            f"{output_dir} holds a run with other options ({', '.join(changed)}); choose another output_dir"
        )


def load_rows(options: TrainOptions, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Return the tokenised chats, from disk where an interrupted run has left them."""
    path = Path(options.output_dir) / "rows.arrow"
    if path.exists():
        return Dataset.from_file(str(path))
    chats = read_chats(options.data)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_rows(chats, tokenizer, path, max_length=options.max_length)


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
        base_model_name_or_path=options.base,
    )
    set_seed(options.seed)
    try:
        return get_peft_model(base, config)
    except ValueError as error:
        raise CalyrexError(str(error)) from error


def train_blocks(model: PeftModel, rows: Dataset, options: TrainOptions, progress: Progress) -> list[dict[str, float]]:
    """Train the blocks of a model and save them in the output folder.

    Args:
        model: the model with blocks.
        rows: tokenised chats (``calyrex.training.rows``).
        options: how to train.
        progress: where bars are shown.

    Returns:
        The Trainer's log: losses in nats, by step.
    """
    output_dir = Path(options.output_dir)
    held_out = None
    if options.validation_fraction > 0:
        split = rows.train_test_split(options.validation_fraction, seed=options.seed)
        rows, held_out = split["train"], split["test"]
    store = fill_store(model, rows, output_dir / "prefix.bin", progress) if options.cache_activations else None
    trainer = BlockTrainer(
        model,
        _training_arguments(options, has_validation=held_out is not None),
        train_dataset=rows,
        eval_dataset=held_out,
        store=store,
        callbacks=[ProgressCallback(progress)],
    )
    trainer.remove_callback(PrinterCallback)
    checkpoint = last_complete_checkpoint(output_dir)
    for path in output_dir.glob("checkpoint-*"):
        if checkpoint is None or step_of(path) > step_of(checkpoint):
            shutil.rmtree(path)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    trainer.save_model(str(output_dir))
    return trainer.state.log_history


def fill_store(model: PeftModel, rows: Dataset, path: Path, progress: Progress) -> PrefixStore:
    """Compute the frozen part of the forward for all rows."""
    task = progress.add_task("frozen layers", total=len(rows))
    store, steps = compute_prefix(model, rows, path)
    for done in steps:
        progress.update(task, completed=done)
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
        seed=options.seed,
        use_cpu=not torch.cuda.is_available(),
    )
