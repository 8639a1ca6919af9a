"""The configuration of a CALYREX adapter, kept in its ``adapter_config.json``."""

from dataclasses import dataclass, field
from typing import Any, get_args

from peft import PeftConfig
from peft.utils import PeftType, TaskType

from calyrex.block import BlockShape
from calyrex.options import MAX_SCALE, Init, WithoutSystem
from calyrex.placement import DEFAULT_PLACEMENT
from calyrex.registration import register


@dataclass
class CalyrexConfig(PeftConfig):
    """Where the blocks of an adapter sit and what they look like.

    Attributes:
        placement: a named placement or a list of layers, 1 .. L; a block sits after each (see ``calyrex.placement``).
        num_blocks: how many blocks a placement that is a window of layers holds at most.
        num_heads: query heads of a block; None takes the base's.
        num_key_value_heads: key-value heads of a block; None takes the base's.
        head_dim: size of a head; None takes the base's.
        intermediate_size: width of the feed-forward of a block; None takes the base's.
        init: ``"random"``, or ``"base"`` to copy W_Q, W_K, W_V, gate, up and the norms from the layer before the block.
            The output projections are zero either way.
        without_system: what a block does to a token that sees no system token: ``"identity"`` (the base, bit for
            bit) or ``"mlp"`` (the feed-forward still acts, the paper's literal formula).
        scale: strength of the blocks at run time; 1.0 as trained, 0.0 the base.
        system_template: how the base's chat template marks the system prompt (``calyrex.read_template``), used where a
            caller passes no ``system_mask``; found from the base's tokenizer on first use when it is None.
        target_modules: names of the decoder layers; worked out from ``placement``, not for the user.
    """

    placement: str | list[int] = field(default=DEFAULT_PLACEMENT)
    num_blocks: int = field(default=5)
    num_heads: int | None = field(default=None)
    num_key_value_heads: int | None = field(default=None)
    head_dim: int | None = field(default=None)
    intermediate_size: int | None = field(default=None)
    init: Init = field(default="random")
    without_system: WithoutSystem = field(default="identity")
    scale: float = field(default=1.0)
    system_template: dict[str, Any] | None = field(default=None)
    target_modules: list[str] | None = field(default=None)

    def __post_init__(self) -> None:
        """Set the PEFT type and check the choices.

        Raises:
            ValueError: ``init`` or ``without_system`` is none of its choices, or a size is below 1.
        """
        super().__post_init__()  # type: ignore[no-untyped-call]
        self.peft_type = PeftType("CALYREX")  # a member that ``calyrex.registration`` adds
        self.task_type = self.task_type or TaskType.CAUSAL_LM  # without it PEFT bypasses forward and generate
        check_choice(self, "init", Init)
        check_choice(self, "without_system", WithoutSystem)
        check_sizes(self, "num_blocks", "num_heads", "num_key_value_heads", "head_dim", "intermediate_size")
        if not isinstance(self.scale, int | float) or not 0 <= self.scale <= MAX_SCALE:
            raise ValueError(f"scale must be a number from 0 to {MAX_SCALE}, got {self.scale!r}")

    def block_shape(self, base_config: dict[str, Any]) -> BlockShape:
        """Fill what is None from the base's own sizes.

        Args:
            base_config: sizes of the base by transformers' names, as made by ``calyrex.base.base_sizes``.
        """
        num_heads = self.num_heads or base_config["num_attention_heads"]
        num_key_value_heads = self.num_key_value_heads or min(base_config["num_key_value_heads"], num_heads)
        return BlockShape(
            hidden_size=base_config["hidden_size"],
            num_heads=num_heads,
            num_key_value_heads=num_key_value_heads,
            head_dim=self.head_dim or base_config["head_dim"],
            intermediate_size=self.intermediate_size or base_config["intermediate_size"],
            norm_eps=base_config["norm_eps"],
        )


def check_choice(config: PeftConfig, name: str, choices: Any) -> None:
    """Refuse a field that is none of the values of a ``Literal`` type.

    Raises:
        ValueError: it is none of them.
    """
    if getattr(config, name) not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {getattr(config, name)!r}")


def check_sizes(config: PeftConfig, *names: str) -> None:
    """Refuse fields that are no whole numbers of at least 1; None, the base's own size, is fine but for ``num_blocks``.

    Raises:
        ValueError: one is none.
    """
    for name in names:
        size = getattr(config, name)
        if size is None and name != "num_blocks":
            continue
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {size!r}")


register()
