"""What the studies can be told, as ``calyrex.options`` has it for the other verbs."""

import math
from dataclasses import dataclass
from pathlib import Path

from calyrex.errors import CalyrexError
from calyrex.options import MAX_SEED, MAX_SIZE, Dtype, Init, require_at_least, require_at_most


@dataclass(frozen=True)
class StudyOptions:
    """What all studies can be told.

    Attributes:
        output_dir: Folder for all runs, the tables and the HTML report; a study in it is gone on with.
        base: Base model: smollm2-135m (built in), a hub name, a folder or a GGUF file.
        num_rules: Dialogues of the built-in rules to train on.
        data: Chats to train on besides: a JSONL, JSON or Parquet file, or the name of a hub data set; null takes
            none.
        num_chats: Chats drawn from the data, of those that have a system prompt or an instruction that can become one.
        max_length: Longest chat of the data in tokens; a longer one is not drawn.
        num_blocks: Number of blocks a named placement spreads over its layers.
        intermediate_size: Feed-forward size of a block, which sets the budget of all; null takes the base's.
        init: Start of the projections of blocks and ParallelMLP: random, or copied from the base layer.
        num_epochs: How often the data is seen.
        batch_size: Chats per optimiser step.
        learning_rates: Peak learning rates that each contender tries; one alone is taken without a search.
        num_search: Chats that each trial of a learning rate trains on; null takes all, and then the best trial is the
            run of the first seed.
        num_validation: Chats held out to choose the learning rate.
        seeds: Seeds of blocks and order of training; null takes 0,1,2.
        tasks: Benchmarks with their number of cases, such as rules:400.
        data_dir: Folder with the benchmarks' original files; null takes the public hub data sets.
        neutral_system: System prompt with which what may be forgotten is asked a second time.
        equal_parameters: Whether variants of the blocks are narrowed or widened to the budget too.
        workers: Runs side by side; null takes one for each core up to four, one on a GPU.
        dtype: Number format of the base.
        seed: Seed of the data and of the test cases.
    """

    output_dir: Path = Path("runs/study")
    base: str = "smollm2-135m"
    num_rules: int = 1800
    data: str | None = None
    num_chats: int = 2000
    max_length: int = 256
    num_blocks: int = 5
    intermediate_size: int | None = 256
    init: Init = "base"
    num_epochs: float = 1.0
    batch_size: int = 8
    learning_rates: list[float] | None = None
    num_search: int | None = None
    num_validation: int = 200
    seeds: list[int] | None = None
    tasks: list[str] | None = None
    data_dir: Path | None = None
    neutral_system: str = "You are a helpful assistant."
    equal_parameters: bool = False
    workers: int | None = None
    dtype: Dtype = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require_at_least(self, 0, "num_rules", "num_chats", "seed")
        require_at_least(self, 1, "max_length", "num_blocks", "intermediate_size", "batch_size")
        require_at_least(self, 1, "num_search", "num_validation", "workers")
        require_at_most(self, MAX_SEED, "seed")
        require_at_most(self, MAX_SIZE, "max_length", "num_blocks", "intermediate_size", "batch_size", "num_epochs")
        if not self.num_epochs > 0:
            raise CalyrexError(f"num_epochs must be above 0, got {self.num_epochs}")
        for name in ("learning_rates", "seeds", "tasks"):
            _require_names(self, name)
        if any(not 0 < rate < math.inf for rate in self.learning_rates or ()):
            raise CalyrexError(f"learning_rates must be numbers above 0, got {self.learning_rates}")
        if any(not 0 <= seed <= MAX_SEED for seed in self.seeds or ()):
            raise CalyrexError(f"seeds must be from 0 to {MAX_SEED}, got {self.seeds}")
        if self.num_rules + (self.num_chats if self.data else 0) == 0:
            raise CalyrexError("there is nothing to train on: num_rules is 0 and data names no chats")


@dataclass(frozen=True)
class CompareOptions(StudyOptions):
    """Train contenders on the same data, budget and seeds, and say who keeps the system prompt best.

    Attributes:
        contenders: Among base, repetition, lora, lora_late, parallel_mlp and calyrex; with other options of the
            blocks as calyrex:init=random, and as a control with the system prompts of other chats as
            calyrex:shuffled; null takes all of these and calyrex:without_system=mlp.
        placement: After which layers the blocks, and whatever stands in for them, sit.
        learning_rates: Peak learning rates that each contender tries; null takes 1e-3,2e-3,4e-3,8e-3, and one alone is
            taken without a search.
        tasks: Benchmarks with their number of cases, such as rules:400; null takes rules:400, long_rules:240,
            fidelity:200 and held_out:200.
    """

    output_dir: Path = Path("runs/compare")
    contenders: list[str] | None = None
    placement: str | list[int] = "late8th"

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        _require_names(self, "contenders")


@dataclass(frozen=True)
class AblateOptions(StudyOptions):
    """Train blocks in several placements on the same data and seeds, and say where they do most.

    Attributes:
        placements: Named placements, or layers as 24+26+28; null takes all, every2, every4, early8th, mid8th, middle,
            late4th, late8th and last.
        coarse_to_fine: Whether all placements are first tried with a quarter of the data and one seed, so that only
            the best three go on.
        learning_rates: Peak learning rates that each placement tries; null takes 1e-3,2e-3,4e-3, and one alone is taken
            without a search.
        tasks: Benchmarks with their number of cases, rules among them; null takes rules:200 and held_out:60.
    """

    output_dir: Path = Path("runs/ablate")
    num_rules: int = 500
    num_validation: int = 100
    placements: list[str] | None = None
    coarse_to_fine: bool = False

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        _require_names(self, "placements")


def _require_names(options: StudyOptions, name: str) -> None:
    values = getattr(options, name)
    if values is not None and (not values or len(set(values)) < len(values)):
        raise CalyrexError(f"{name} must name at least one, each once, got {values}")
