"""Training speed beside LoRA, in real steps of the trainer."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from peft import PeftModel
from torch import Tensor, nn
from transformers import PrinterCallback, TrainingArguments

from bench.limits import Batch, lora_flops, read_shape, train_flops
from bench.measure import Figure, Side, alternate, at_both_widths, paired_ratio
from bench.models import Sizes, attach_blocks, attach_lora, count_trainable, load, make_rows, matching_rank
from bench.store import fill_store
from calyrex.placement import DEFAULT_PLACEMENT, resolve_placement
from calyrex.training.trainer import BlockTrainer


def make_trainer(
    model: PeftModel, rows: Dataset, folder: Path, *, batch_size: int, num_epochs: int = 1, store: Any = None
) -> BlockTrainer:
    """Make the trainer of a model with blocks or with LoRA, as ``calyrex train`` sets it up."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=num_epochs,
        per_device_train_batch_size=batch_size,
        learning_rate=1e-3,
        weight_decay=0.0,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        remove_unused_columns=False,
        label_names=["labels"],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = BlockTrainer(model, arguments, train_dataset=rows, store=store)
    trainer.remove_callback(PrinterCallback)
    return trainer


def make_step(trainer: BlockTrainer) -> Callable[[], None]:
    """Return what runs one whole optimiser step: batch, forward, backward, clipping, AdamW."""
    model, optimizer, batches = cast(PeftModel, trainer.model), trainer.create_optimizer(), _endless(trainer)

    def step() -> None:
        (inputs,), num_items = trainer.get_batch_samples(batches, 1, trainer.args.device)
        trainer.training_step(model, inputs, num_items)
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], trainer.args.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _endless(trainer: BlockTrainer) -> Iterator[dict[str, Tensor]]:
    batches = trainer.get_train_dataloader()
    while True:
        yield from batches


def training_rows(vocab_size: int, sizes: Sizes) -> Dataset:
    """Make two batches of rows."""
    return make_rows(
        vocab_size,
        2 * sizes.batch_size,
        sizes.tokens,
        system_tokens=sizes.system_tokens,
        answer_tokens=sizes.answer_tokens,
    )


def training_batch(sizes: Sizes) -> Batch:
    """Return what the arithmetic needs to know of a batch."""
    return Batch.causal(sizes.batch_size, sizes.tokens, sizes.system_tokens, sizes.answer_tokens)


def compare_whole_forward(sizes: Sizes) -> dict[str, Figure]:
    """Measure tokens per second over LoRA's, with the whole base run in every step, as in a first epoch."""
    key = "train_first_epoch_vs_lora"
    return at_both_widths(key, sizes.demo_width, lambda width: _compare(sizes, width, is_stored=False))


def compare_from_store(sizes: Sizes) -> dict[str, Figure]:
    """Measure tokens per second over LoRA's, with the frozen layers' activations from the store."""
    key = "train_from_store_vs_lora"
    return at_both_widths(key, sizes.demo_width, lambda width: _compare(sizes, width, is_stored=True))


def _compare(sizes: Sizes, width: int | None, *, is_stored: bool) -> Figure:
    base = load(sizes)
    shape = read_shape(base)
    width = width or shape.intermediate_size
    layers = resolve_placement(DEFAULT_PLACEMENT, shape.num_layers)
    rank = matching_rank(shape, len(layers), width)
    blocks, lora = attach_blocks(base, width), attach_lora(load(sizes), rank)
    rows = training_rows(shape.vocab_size, sizes)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store = fill_store(blocks, rows, folder) if is_stored else None
        trainers = {
            "lora": make_trainer(lora, rows, folder, batch_size=sizes.batch_size),
            "calyrex": make_trainer(blocks, rows, folder, batch_size=sizes.batch_size, store=store),
        }
        seconds = alternate({name: Side(make_step(each)) for name, each in trainers.items()}, sizes.train_rounds)
    num_tokens, batch = sizes.batch_size * sizes.tokens, training_batch(sizes)
    flops = {"lora": lora_flops(shape, batch, rank)}
    flops["calyrex"] = train_flops(shape, batch, layers, width, is_stored=is_stored)
    return Figure(
        value=paired_ratio(seconds["lora"], seconds["calyrex"]),
        unit="x",
        limit=flops["lora"] / flops["calyrex"],
        sides={name: [num_tokens / taken for taken in values] for name, values in seconds.items()},
        side_unit="tokens/s",
        dtype=str(blocks.dtype),
        details={
            "intermediate_size": width,
            "lora_rank": rank,
            "trainable": {"lora": count_trainable(lora), "calyrex": count_trainable(blocks)},
            "flops": flops,
        },
    )
