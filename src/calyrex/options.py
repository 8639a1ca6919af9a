"""What each verb of the command line can be told: one dataclass per verb, the only place of its options.

Flags, YAML keys, defaults, help texts and the reference page all come from here (see ``flags.py``).
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from calyrex.errors import CalyrexError

Init = Literal["random", "base"]
WithoutSystem = Literal["identity", "mlp"]
MAX_SEED = 2**32 - 1
MAX_SCALE = 100.0
MAX_SIZE = 2**20
_MIN_TEMPERATURE = 1e-3
Dtype = Literal["auto", "bfloat16", "float16", "float32"]


@dataclass(frozen=True)
class DemoOptions:
    """Train the built-in model on the built-in rules and show it before and after.

    Attributes:
        output_dir: Folder for the adapter, the answers, results.json and the HTML report.
        num_train: Number of rule dialogues to train on; the more, the better the rules are kept.
        num_test: Number of held-out questions that both models answer.
        num_epochs: How often the training dialogues are seen.
        intermediate_size: Feed-forward size of a block.
        learning_rate: Peak learning rate.
        seed: Seed of the rules, the blocks and the order of training.
    """

    output_dir: Path = Path("runs/demo")
    num_train: int = 1800
    num_test: int = 400
    num_epochs: int = 1
    intermediate_size: int = 256
    learning_rate: float = 2e-3
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require_at_least(self, 1, "num_train", "num_test", "num_epochs")
        require_at_least(self, 0, "learning_rate", "seed")
        require_at_most(self, MAX_SEED, "seed")


@dataclass(frozen=True)
class TrainOptions:
    """Train blocks on chat data while the base model stays frozen.

    Attributes:
        data: Chats to train on: a JSONL, JSON or Parquet file, or the name of a hub data set.
        base: Base model: smollm2-135m (built in), a hub name, a folder or a GGUF file.
        output_dir: Folder for checkpoints, the adapter and the full configuration; a run in it is resumed.
        placement: After which layers: all, every2, every4, early8th, mid8th, middle, late4th, late8th, last, or
            layer numbers such as 24,26,28.
        num_blocks: Number of blocks a named placement spreads over its layers.
        intermediate_size: Feed-forward size of a block; null takes the base's.
        init: Start of a block's projections: random, or copied from the base layer.
        without_system: What a position that sees no system prompt gets: identity leaves it to the base,
            mlp still applies the feed-forward.
        learning_rate: Peak learning rate.
        num_epochs: How often the data is seen.
        batch_size: Chats per optimiser step.
        warmup_ratio: Fraction of the steps in which the learning rate rises, 0 to 1.
        max_length: Longest chat in tokens; a longer one is cut at its end, never in its system prompt.
        validation_fraction: Fraction of the chats held out to report a validation loss, 0 to 1.
        save_steps: Steps between two checkpoints.
        logging_steps: Steps between two reported losses.
        report_to: Trackers to log to, such as tensorboard,wandb.
        cache_activations: Keep the frozen layers' activations on disk, so that later epochs and runs skip them.
        dtype: Number format of the frozen base.
        seed: Seed of the blocks and of the order of training.
    """

    data: str
    base: str = "smollm2-135m"
    output_dir: Path = Path("runs/train")
    placement: str | list[int] = "late8th"
    num_blocks: int = 5
    intermediate_size: int | None = None
    init: Init = "base"
    without_system: WithoutSystem = "identity"
    learning_rate: float = 1e-3
    num_epochs: float = 1.0
    batch_size: int = 16
    warmup_ratio: float = 0.05
    max_length: int = 1024
    validation_fraction: float = 0.0
    save_steps: int = 100
    logging_steps: int = 10
    report_to: list[str] | None = None
    cache_activations: bool = False
    dtype: Dtype = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require_at_least(self, 1, "num_blocks", "intermediate_size", "batch_size", "max_length")
        require_at_least(self, 1, "save_steps", "logging_steps")
        require_at_least(self, 0, "learning_rate", "num_epochs", "warmup_ratio", "validation_fraction", "seed")
        require_at_most(self, 0.99, "warmup_ratio", "validation_fraction")
        require_at_most(self, MAX_SEED, "seed")
        require_at_most(self, MAX_SIZE, "num_blocks", "intermediate_size", "batch_size", "max_length", "num_epochs")
        if not self.num_epochs > 0:
            raise CalyrexError(f"num_epochs must be above 0, got {self.num_epochs}")
        if not self.data.strip():
            raise CalyrexError("data must name a file, a folder or a hub data set, got an empty text")


@dataclass(frozen=True)
class ChatOptions:
    """Talk to a model with or without its blocks, in the terminal.

    Attributes:
        adapter: Folder or hub name of a trained adapter; null talks to the base alone.
        base: Base model: smollm2-135m (built in), a hub name, a folder or a GGUF file; null takes the
            adapter's own, or the built-in one where there is no adapter.
        system: System prompt to start with; /system changes it.
        scale: Strength of the blocks, 0 is the base model; null takes the adapter's own; /scale changes it.
        max_new_tokens: Longest answer in tokens.
        temperature: Sampling temperature; 0 always takes the likeliest token.
        dtype: Number format of the base.
        seed: Seed of the sampling.
    """

    adapter: str | None = None
    base: str | None = None
    system: str | None = None
    scale: float | None = None
    max_new_tokens: int = 512
    temperature: float = 0.0
    dtype: Dtype = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require_at_least(self, 1, "max_new_tokens")
        require_at_least(self, 0, "scale", "temperature", "seed")
        require_at_most(self, MAX_SEED, "seed")
        require_at_most(self, MAX_SCALE, "scale", "temperature")
        if 0 < self.temperature < _MIN_TEMPERATURE:
            raise CalyrexError(f"temperature must be 0 or at least {_MIN_TEMPERATURE}, got {self.temperature}")
        if self.adapter is not None and not self.adapter.strip():
            raise CalyrexError("adapter must name a folder or a hub adapter, got an empty text")


@dataclass(frozen=True)
class EvalOptions:
    """Run benchmarks on a base, an adapter or a served model, and write one table.

    Attributes:
        tasks: Benchmarks such as ifeval,injecagent, or suites: paper, adherence, security, capability, all.
        model: Base model: smollm2-135m (built in), a hub name, a folder or a GGUF file; with --url the name there;
            null takes the adapter's own, or the built-in one where there is no adapter.
        adapter: Folder or hub name of a trained adapter; null evaluates the base alone.
        url: Address of an OpenAI-compatible server that has the model, such as http://localhost:8000/v1; its key
            is read from CALYREX_API_KEY.
        output_dir: Folder for the table, results.json, all samples and Inspect's logs; a run in it is gone on with.
        data_dir: Folder with the benchmarks' original files; null takes the public hub data sets.
        limit: Number of cases of each benchmark, a fixed random subset; null takes all.
        system: System prompt for the benchmarks that bring none, such as mmlu; null leaves them without.
        repeat_system: Say the system prompt again right before the last user turn (prompt repetition).
        scale: Strength of the blocks, 0 is the base model; null takes the adapter's own.
        judge: Name of the model that judges answers where no program can, at --judge-url.
        judge_url: Address of an OpenAI-compatible server that has the judge; its key is read from
            CALYREX_JUDGE_API_KEY.
        dtype: Number format of the base.
        seed: Seed of the subset and of what benchmarks draw.
    """

    tasks: list[str]
    model: str | None = None
    adapter: str | None = None
    url: str | None = None
    output_dir: Path = Path("runs/eval")
    data_dir: Path | None = None
    limit: int | None = None
    system: str | None = None
    repeat_system: bool = False
    scale: float | None = None
    judge: str | None = None
    judge_url: str | None = None
    dtype: Dtype = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range and options that contradict each other."""
        require_at_least(self, 1, "limit")
        require_at_least(self, 0, "scale", "seed")
        require_at_most(self, MAX_SEED, "seed")
        require_at_most(self, MAX_SCALE, "scale")
        for name in ("model", "adapter", "url", "system", "judge", "judge_url"):
            value = getattr(self, name)
            if value is not None and not value.strip():
                raise CalyrexError(f"{name} must not be an empty text")
        if self.url is not None and self.model is None:
            raise CalyrexError("url needs the model's name there: give --model")
        if self.url is not None and (self.adapter is not None or self.scale is not None):
            raise CalyrexError("adapter and scale are for models in this process, and url names a served one")
        if self.scale is not None and self.adapter is None:
            raise CalyrexError("scale is the strength of an adapter's blocks: give --adapter")
        if (self.judge is None) != (self.judge_url is None):
            raise CalyrexError("a judge needs both its name and its address: give --judge and --judge-url")


def require_at_least(options: object, minimum: float, *names: str) -> None:
    """Refuse options that are below a minimum or no finite numbers; null is fine.

    Raises:
        CalyrexError: One is.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and not (value >= minimum and math.isfinite(value)):
            raise CalyrexError(f"{name} must be a number of at least {minimum}, got {value}")


def require_at_most(options: object, maximum: float, *names: str) -> None:
    """Refuse options that are above a maximum.

    Raises:
        CalyrexError: One is.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and value > maximum:
            raise CalyrexError(f"{name} must be at most {maximum}, got {value}")
