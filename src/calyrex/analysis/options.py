"""What ``calyrex analyze`` can be told."""

from dataclasses import dataclass
from pathlib import Path

from calyrex.errors import CalyrexError
from calyrex.options import MAX_SEED, MAX_SIZE, Dtype, require_at_least, require_at_most


@dataclass(frozen=True)
class AnalyzeOptions:
    """Find out in which layers a model holds the rules of its system prompt, and what its blocks attend to.

    Attributes:
        model: Base model: smollm2-135m (built in), a hub name, a folder or a GGUF file; null takes the adapter's own,
            or the built-in one where there is no adapter.
        adapter: Folder or hub name of a trained adapter; null analyzes the base alone.
        data: Chats with a system prompt, whose last answer obeys it: a file or a hub data set; null takes the built-in
            rules, with which probes can be trained too.
        num_chats: Number of conversations.
        output_dir: Folder for the report, analysis.json and what was measured; an analysis in it is gone on with.
        neutral_system: System prompt that takes the rule's place where the model is to know no rule.
        dtype: Number format of the base.
        seed: Seed of the conversations, of the tokens that the control knocks out and of random labels.
    """

    model: str | None = None
    adapter: str | None = None
    data: str | None = None
    num_chats: int = 200
    output_dir: Path = Path("runs/analyze")
    neutral_system: str = "You are a helpful assistant."
    dtype: Dtype = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require_at_least(self, 2, "num_chats")
        require_at_least(self, 0, "seed")
        require_at_most(self, MAX_SEED, "seed")
        require_at_most(self, MAX_SIZE, "num_chats")
        for name in ("model", "adapter", "data", "neutral_system"):
            value = getattr(self, name)
            if value is not None and not value.strip():
                raise CalyrexError(f"{name} must not be an empty text")
