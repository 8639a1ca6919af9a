"""What the server asks of the engine, and what the engine says while it answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from calyrex.serve.served import ServedModel


class Sampling(NamedTuple):
    """How tokens are chosen.

    Attributes:
        temperature: 0 takes the likeliest token.
        top_p: share of the probability that is drawn from, above 0 to 1.
        seed: what the draws depend on; None draws a seed.
        stop: texts that end an answer and do not belong to it.
        max_new_tokens: longest answer in tokens.
        num_likely: how many of the likeliest tokens are reported for each place; None reports no probabilities.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: Sequence[str] = ()
    max_new_tokens: int = 16
    num_likely: int | None = None


class Likely(NamedTuple):
    """A token and its log-probability in nats."""

    token_id: int
    log_probability: float


class Chosen(NamedTuple):
    """A chosen token, and the likeliest ones in its place, the likeliest first."""

    token: Likely
    likeliest: tuple[Likely, ...]


class Delta(NamedTuple):
    """A new part of an answer.

    Attributes:
        answer: which answer of the request, from 0.
        text: what is added to it; may be empty.
        chosen: tokens since the last part, where they were asked for.
    """

    answer: int
    text: str
    chosen: tuple[Chosen, ...] = ()


class End(NamedTuple):
    """The end of an answer.

    Attributes:
        answer: which answer of the request, from 0.
        reason: ``stop`` or ``length``.
        num_tokens: its length, the token that ends it included.
    """

    answer: int
    reason: str
    num_tokens: int


class Failure(NamedTuple):
    """The end of a request that cannot be answered.

    Attributes:
        message: why.
        is_stopping: whether it is because the engine stops.
    """

    message: str
    is_stopping: bool = False


Event = Delta | End | Failure


@dataclass(eq=False)
class Generation:
    """One or more answers to one prompt.

    Attributes:
        model: who answers.
        input_ids: token ids of the prompt, at least one.
        system_mask: True at system tokens, one for each id.
        emit: called from the engine's thread with all that happens.
        scale: strength of the blocks.
        sampling: how tokens are chosen.
        num_answers: answers wanted.
        is_cancelled: whether nobody wants them any more; set from any thread.
    """

    model: ServedModel
    input_ids: list[int]
    system_mask: list[bool]
    emit: Callable[[Event], None]
    scale: float = 1.0
    sampling: Sampling = field(default_factory=Sampling)
    num_answers: int = 1
    is_cancelled: bool = False

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and of the longest answer."""
        return len(self.input_ids) + self.sampling.max_new_tokens

    @property
    def num_prefix(self) -> int:
        """Tokens up to the end of the system prompt; 0 where there is none."""
        if True not in self.system_mask:
            return 0
        start = self.system_mask.index(True)
        rest = self.system_mask[start:]
        return start + (rest.index(False) if False in rest else len(rest))
