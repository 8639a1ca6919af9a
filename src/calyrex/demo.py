"""``calyrex demo``: train the built-in model on the built-in rules, and show it before and after."""

import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import PeftModel
from rich.console import Console
from rich.progress import (
    Progress,
)
from transformers import PreTrainedTokenizerBase

from calyrex.data.rules import HELD_OUT_FAMILIES, TEST_SEED_OFFSET, TRAINED_FAMILIES, RuleExample, generate_corpus
from calyrex.data.rules.chats import rule_chats
from calyrex.errors import CalyrexError
from calyrex.generation import answer_chats
from calyrex.models import BUILTIN, load_tokenizer
from calyrex.options import DemoOptions, TrainOptions
from calyrex.report.demo import write_demo_page
from calyrex.report.obedience import Answer, print_demo, summarise
from calyrex.training.folder import RECORD, ROWS, versions
from calyrex.training.progress import make_progress
from calyrex.training.rows import write_rows
from calyrex.training.sft import attach_blocks, fill_store, train_blocks

MAX_NEW_TOKENS = 28  # the longest expected answer has 26
BATCH_SIZE = 8


def run(options: DemoOptions) -> Path:
    """Run the demo and write adapter, ``results.json``, ``answers.jsonl`` and ``report.html``.

    Returns:
        The output folder.

    Raises:
        CalyrexError: the built-in model is not installed, or the folder cannot be used.
    """
    started = time.monotonic()
    output_dir = Path(options.output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(BUILTIN)
    tests = test_examples(options)
    recipe = train_options(options)
    adapter_dir = output_dir / "adapter"
    require_ours(adapter_dir)
    _make_empty(recipe.output_dir)
    with make_progress() as progress:
        model = attach_blocks(recipe, tokenizer)
        with model.disable_adapter():
            base = _answer(model, tokenizer, tests, progress, "base answers")
        training_started = time.monotonic()
        rows = training_rows(options.num_train, recipe, tokenizer)
        store = fill_store(model, rows, progress) if recipe.cache_activations else None
        log = train_blocks(model, rows, recipe, progress, store=store)
        train_seconds = time.monotonic() - training_started
        _swap(recipe.output_dir, adapter_dir)
        anchored = _answer(model.eval(), tokenizer, tests, progress, "anchored answers")
    answers = [
        Answer.from_example(example, before, after)
        for example, before, after in zip(tests, base, anchored, strict=True)
    ]
    results = {
        **summarise(answers),
        "train_seconds": round(train_seconds, 1),
        "total_seconds": round(time.monotonic() - started, 1),
        "options": json.loads(json.dumps({**vars(options), "max_new_tokens": MAX_NEW_TOKENS}, default=str)),
        "training": [entry for entry in log if "loss" in entry],
        "versions": versions(),
    }
    _write(output_dir, results, answers)
    print_demo(Console(), results, answers, output_dir, adapter_dir)
    return output_dir


def test_examples(options: DemoOptions) -> list[RuleExample]:
    """Draw the held-out questions: ``num_test`` of the trained families and a twentieth more of the others."""
    seed = options.seed + TEST_SEED_OFFSET
    num_apart = max(2, options.num_test // 20)
    return [
        *generate_corpus(options.num_test, seed=seed, split="test", families=TRAINED_FAMILIES),
        *generate_corpus(num_apart, seed=seed, split="test", families=HELD_OUT_FAMILIES),
    ]


def train_options(options: DemoOptions) -> TrainOptions:
    """Return the options of ``calyrex train`` that the demo trains with."""
    return TrainOptions(
        data="built-in rules",
        base=BUILTIN,
        output_dir=Path(options.output_dir) / "adapter.partial",
        intermediate_size=options.intermediate_size,
        batch_size=BATCH_SIZE,
        learning_rate=options.learning_rate,
        num_epochs=options.num_epochs,
        cache_activations=options.num_epochs > 1,
        save_steps=1_000_000,
        seed=options.seed,
    )


def training_rows(num_train: int, recipe: TrainOptions, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Tokenise the training dialogues."""
    chats = rule_chats(num_train, seed=recipe.seed)
    return write_rows(chats, tokenizer, recipe.output_dir / ROWS, max_length=recipe.max_length)


def require_ours(adapter_dir: Path) -> None:
    """Refuse to replace anything but the adapter of an earlier demo."""
    is_ours = adapter_dir.is_dir() and (adapter_dir / ROWS).exists() and not (adapter_dir / RECORD).exists()
    if adapter_dir.is_symlink() or (adapter_dir.exists() and not is_ours):
        raise CalyrexError(f"{adapter_dir} exists and is not a demo's; choose another --output-dir")


def _make_empty(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _swap(new: Path, old: Path) -> None:
    """Put a finished adapter in the place of an earlier one."""
    if old.exists():
        shutil.rmtree(old)
    new.rename(old)


def _answer(
    model: PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    tests: list[RuleExample],
    progress: Progress,
    title: str,
) -> list[str]:
    task = progress.add_task(title, total=len(tests))
    return answer_chats(
        model,
        tokenizer,
        [example.messages for example in tests],
        max_new_tokens=MAX_NEW_TOKENS,
        on_batch=lambda count: progress.advance(task, count),
    )


def _write(output_dir: Path, results: dict[str, Any], answers: list[Answer]) -> None:
    (output_dir / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    lines = (json.dumps(dataclasses.asdict(answer), ensure_ascii=False) for answer in answers)
    (output_dir / "answers.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_demo_page(output_dir / "report.html", results, answers)
