"""How narrow a block may be: obedience after the demo's training, for several widths of its feed-forward.

    python -m bench.width --output runs/width

Every width and seed is trained on the demo's dialogues from the same stored activations and answers the same held-out
questions. A finished training is kept, so that the study goes on where it was stopped; it takes hours on two cores.
"""

import argparse
import dataclasses
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from peft import PeftModel
from transformers import PreTrainedModel

from bench.__main__ import FOLDER, PAGE
from bench.plots import plot_width
from bench.report import read_results, render_obedience, update_page, write_results
from calyrex.data.rules import TEST_SEED_OFFSET, TRAINED_FAMILIES, RuleExample, generate_corpus
from calyrex.demo import MAX_NEW_TOKENS, train_options, training_rows
from calyrex.generation import answer_chats
from calyrex.models import BUILTIN, load_base, load_tokenizer
from calyrex.options import DemoOptions
from calyrex.training.progress import make_progress
from calyrex.training.sft import attach_blocks, fill_store, train_blocks

RESULTS = FOLDER / "results.json"
WIDTHS = (64, 128, 256, 512, 1536)
"""``F``; the last is the base's own."""
SEEDS = (0,)
RUNS = [(width, seed) for seed in SEEDS for width in WIDTHS]
NUM_QUESTIONS = 400
NUM_DRAWS = 2000
ENOUGH_PERCENT = 95
"""A width is wide enough when it keeps this part of the widest one's gain in obedience."""

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing of the study, write ``width.json`` and bring docs/performance.md up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/width"), help="folder of the study")
    output = parser.parse_args(arguments).output
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(str(error))
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    questions = list(generate_corpus(NUM_QUESTIONS, seed=TEST_SEED_OFFSET, split="test", families=TRAINED_FAMILIES))
    base = once(output / "base.json", lambda: judge(load_base(BUILTIN), questions))
    kept: dict[int, list[list[bool]]] = {}
    for width, seed in RUNS:
        folder = output / f"{width}-{seed}"
        verdicts = once(folder.with_suffix(".json"), partial(train_and_judge, folder, width, seed, questions))
        kept.setdefault(width, []).append(verdicts)
        logger.info("width %d, seed %d: %.1f %% obeyed", width, seed, 100 * np.mean(verdicts))
    curve = make_curve(base, kept)
    study = {"base_obeyed": float(np.mean(base)), "curve": curve, "narrowest_enough": narrowest_enough(curve)}
    (output / "width.json").write_text(json.dumps(study, indent=2) + "\n", encoding="utf-8")
    update_page(PAGE, "width", render_obedience(study))
    costs = read_results(RESULTS).get("width_cost")
    if costs is None:
        logger.warning("the figure needs what a width costs: python -m bench --only width_cost, then this again")
        return
    by_width = {entry["intermediate_size"]: entry for entry in costs["details"]["curve"]}
    plot_width([point | by_width[point["intermediate_size"]] for point in curve], PAGE.parent / "width.png")


def once(path: Path, run: Callable[[], list[bool]]) -> list[bool]:
    """Return the verdicts in a file, made by ``run`` if it is not there."""
    if not path.exists():
        write_results(path, {"kept": run()})
    verdicts: list[bool] = json.loads(path.read_text(encoding="utf-8"))["kept"]
    return verdicts


def train_and_judge(folder: Path, width: int, seed: int, questions: Sequence[RuleExample]) -> list[bool]:
    """Train as the demo does, with another width and from stored activations, and judge the answers."""
    demo = DemoOptions(output_dir=folder, intermediate_size=width, seed=seed)
    recipe = train_options(demo)
    recipe.output_dir.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(BUILTIN)
    with make_progress() as progress:
        model = attach_blocks(recipe, tokenizer)
        rows = training_rows(demo.num_train, dataclasses.replace(recipe, seed=0), tokenizer)  # the same for each seed
        train_blocks(model, rows, recipe, progress, store=fill_store(model, rows, progress))
    return judge(model.eval(), questions)


def judge(model: PeftModel | PreTrainedModel, questions: Sequence[RuleExample]) -> list[bool]:
    """Say of each answer whether it kept its rules."""
    chats = [question.messages for question in questions]
    answers = answer_chats(model, load_tokenizer(BUILTIN), chats, max_new_tokens=MAX_NEW_TOKENS)
    return [question.obeyed(answer) for question, answer in zip(questions, answers, strict=True)]


def make_curve(base: Sequence[bool], kept: dict[int, list[list[bool]]]) -> list[dict[str, float]]:
    """Work out obedience and the part of the widest one's gain, with 95 % bootstrap intervals over the questions.

    Args:
        base: the base's verdicts, one for each question.
        kept: verdicts by width, one list for each seed.

    Returns:
        For each width ``obeyed`` (0 .. 1), ``gain_kept`` with ``_low`` and ``_high`` (percent) and ``num_seeds``.
    """
    draws = np.random.default_rng(0).integers(0, len(base), size=(NUM_DRAWS, len(base)))
    before = np.asarray(base, dtype=float)
    means = {width: np.asarray(seeds, dtype=float).mean(axis=0) for width, seeds in kept.items()}  # [questions]
    widest = means[max(means)]
    curve = []
    for width, mean in sorted(means.items()):
        gain = 100 * (mean.mean() - before.mean()) / (widest.mean() - before.mean())
        gains = 100 * (mean - before)[draws].mean(axis=1) / (widest - before)[draws].mean(axis=1)
        low, high = np.quantile(gains, [0.025, 0.975])
        curve.append(
            {
                "intermediate_size": width,
                "obeyed": float(mean.mean()),
                "gain_kept": float(gain),
                "gain_kept_low": float(low),
                "gain_kept_high": float(high),
                "num_seeds": len(kept[width]),
            }
        )
    return curve


def narrowest_enough(curve: Sequence[dict[str, float]]) -> int:
    """Return the smallest width that keeps enough of the gain, and so does every wider one."""
    chosen = max(point["intermediate_size"] for point in curve)
    for point in sorted(curve, key=lambda point: -point["intermediate_size"]):
        if point["gain_kept"] < ENOUGH_PERCENT:
            break
        chosen = point["intermediate_size"]
    return int(chosen)


if __name__ == "__main__":
    main()
