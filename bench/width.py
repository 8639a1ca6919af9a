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
from pathlib import Path

import numpy as np
from peft import PeftModel
from transformers import PreTrainedModel

from calyrex.data.rules import TRAINED_FAMILIES, RuleExample, generate_corpus
from calyrex.demo import MAX_NEW_TOKENS, TEST_SEED_OFFSET, train_options, training_rows
from calyrex.generation import answer_chats
from calyrex.models import BUILTIN, load_base, load_tokenizer
from calyrex.options import DemoOptions
from calyrex.training.progress import make_progress
from calyrex.training.sft import attach_blocks, train_blocks

WIDTHS = (64, 128, 256, 512, 1024, 1536)
"""``F``; the last is the base's own."""
SEEDS = (0, 1)
NUM_QUESTIONS = 400
ENOUGH = 0.95
"""A width is wide enough when it keeps this share of the widest one's gain in obedience."""

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing of the study and write ``width.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/width"), help="folder of the study")
    output = parser.parse_args(arguments).output
    output.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    questions = list(generate_corpus(NUM_QUESTIONS, seed=TEST_SEED_OFFSET, split="test", families=TRAINED_FAMILIES))
    base = once(output / "base.json", lambda: judge(load_base(BUILTIN), questions))
    kept: dict[int, list[list[bool]]] = {width: [] for width in WIDTHS}
    for seed in SEEDS:
        for width in WIDTHS:
            folder = output / f"{width}-{seed}"
            verdicts = once(folder.with_suffix(".json"), lambda: train_and_judge(folder, width, seed, questions))  # noqa: B023
            kept[width].append(verdicts)
            logger.info("width %d, seed %d: %.1f %% obeyed", width, seed, 100 * np.mean(verdicts))
    curve = make_curve(base, kept)
    result = {"base_obeyed": float(np.mean(base)), "curve": curve, "narrowest_enough": narrowest_enough(curve)}
    (output / "width.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def once(path: Path, run: Callable[[], list[bool]]) -> list[bool]:
    """Return the verdicts in a file, made by ``run`` if it is not there."""
    if not path.exists():
        path.write_text(json.dumps({"kept": run()}), encoding="utf-8")
    verdicts: list[bool] = json.loads(path.read_text(encoding="utf-8"))["kept"]
    return verdicts


def train_and_judge(folder: Path, width: int, seed: int, questions: Sequence[RuleExample]) -> list[bool]:
    """Train as the demo does, with another width and from stored activations, and judge the answers."""
    demo = DemoOptions(output_dir=folder, intermediate_size=width, seed=seed)
    recipe = dataclasses.replace(train_options(demo), cache_activations=True)
    recipe.output_dir.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(BUILTIN)
    with make_progress() as progress:
        model = attach_blocks(recipe, tokenizer)
        rows = training_rows(demo.num_train, dataclasses.replace(recipe, seed=0), tokenizer)  # the same for each seed
        train_blocks(model, rows, recipe, progress)
    return judge(model.eval(), questions)


def judge(model: PeftModel | PreTrainedModel, questions: Sequence[RuleExample]) -> list[bool]:
    """Say of each answer whether it kept its rules."""
    chats = [question.messages for question in questions]
    answers = answer_chats(model, load_tokenizer(BUILTIN), chats, max_new_tokens=MAX_NEW_TOKENS)
    return [question.obeyed(answer) for question, answer in zip(questions, answers, strict=True)]


def make_curve(base: Sequence[bool], kept: dict[int, list[list[bool]]]) -> list[dict[str, float]]:
    """Work out obedience and the share of the widest one's gain, with 95 % bootstrap intervals over the questions.

    Args:
        base: the base's verdicts, one for each question.
        kept: verdicts by width, one list for each seed.
    """
    draws = np.random.default_rng(0).integers(0, len(base), size=(2000, len(base)))
    base_draws = np.asarray(base, dtype=float)[draws].mean(axis=1)  # [2000]
    means = {width: np.asarray(seeds, dtype=float).mean(axis=0) for width, seeds in kept.items()}  # [questions]
    widest = means[max(means)]
    curve = []
    for width, mean in sorted(means.items()):
        obeyed = mean[draws].mean(axis=1)
        shares = (obeyed - base_draws) / (widest[draws].mean(axis=1) - base_draws)
        low, high = np.quantile(obeyed, [0.025, 0.975])
        share_low, share_high = np.quantile(shares, [0.025, 0.975])
        curve.append(
            {
                "width": width,
                "obeyed": float(mean.mean()),
                "obeyed_low": float(low),
                "obeyed_high": float(high),
                "gain_share": float((mean.mean() - np.mean(base)) / (widest.mean() - np.mean(base))),
                "gain_share_low": float(share_low),
                "gain_share_high": float(share_high),
            }
        )
    return curve


def narrowest_enough(curve: Sequence[dict[str, float]]) -> int:
    """Return the smallest width that keeps enough of the gain, and so does every wider one."""
    chosen = max(point["width"] for point in curve)
    for point in sorted(curve, key=lambda point: -point["width"]):
        if point["gain_share"] < ENOUGH:
            break
        chosen = point["width"]
    return int(chosen)


if __name__ == "__main__":
    main()
