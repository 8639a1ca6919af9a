"""One answer as it grows: its tokens, its text, and what ends it."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from calyrex.serve.request import Chosen, Delta, End, Generation

_WINDOW = 8
"""Tokens that are decoded with what follows them, so that every token is decoded beside its neighbours."""

_HALF = "\N{REPLACEMENT CHARACTER}"


class TextStream:
    """Turns tokens into text, one at a time, such that the parts together are the text of all tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._ids: list[int] = []
        self._shown = ""

    def add(self, token_id: int) -> str:
        """Return the text that a token adds; empty while it ends within a character."""
        self._ids.append(token_id)
        text = self._decode()
        if text.endswith(_HALF):
            return ""
        new = text[len(self._shown) :]
        self._shown = text
        if len(self._ids) > 2 * _WINDOW:
            self._ids = self._ids[-_WINDOW:]
            self._shown = self._decode()
        return new

    def finish(self) -> str:
        """Return what is left, a broken character included."""
        return self._decode()[len(self._shown) :]

    def _decode(self) -> str:
        return str(self.tokenizer.decode(self._ids, skip_special_tokens=True))


class StopText:
    """Lets text through up to a stop text, and holds back what could be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = stops
        self.is_stopped = False
        self._held = ""

    def add(self, text: str) -> str:
        """Return what may be shown now."""
        text = self._held + text
        places = [place for place in (text.find(stop) for stop in self.stops) if place >= 0]
        if places:
            self.is_stopped = True
            self._held = ""
            return text[: min(places)]
        num_held = max((_count_begun(text, stop) for stop in self.stops), default=0)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def finish(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return held


def _count_begun(text: str, stop: str) -> int:
    """Return how many characters at the end of a text begin a stop text."""
    longest = min(len(stop) - 1, len(text))
    return next((length for length in range(longest, 0, -1) if text.endswith(stop[:length])), 0)


class Answer:
    """One answer of a request.

    Attributes:
        generation: the request.
        index: which of its answers.
        ids: tokens so far, the one that ends it included.
        is_ended: whether it is complete.
    """

    def __init__(
        self, generation: Generation, index: int, tokenizer: PreTrainedTokenizerBase, end_ids: Sequence[int]
    ) -> None:
        self.generation = generation
        self.index = index
        self.ids: list[int] = []
        self.is_ended = False
        self._end_ids = end_ids
        self._text = TextStream(tokenizer)
        self._stop = StopText(generation.sampling.stop)
        self._chosen: list[Chosen] = []

    def take(self, token_id: int, chosen: Chosen | None) -> None:
        """Take the next token, and say what it adds to the answer."""
        self.ids.append(token_id)
        is_end = token_id in self._end_ids
        if chosen is not None and not is_end:
            self._chosen.append(chosen)
        is_cut = len(self.ids) >= self.generation.sampling.max_new_tokens
        text = "" if is_end else self._stop.add(self._text.add(token_id))
        if (is_end or is_cut) and not self._stop.is_stopped:
            text += self._stop.add(self._text.finish())
        is_stopped = self._stop.is_stopped
        self.is_ended = is_end or is_cut or is_stopped
        if self.is_ended and not is_stopped:
            text += self._stop.finish()
        if text or (self.is_ended and self._chosen):
            self.generation.emit(Delta(self.index, text, tuple(self._chosen)))
            self._chosen = []
        if self.is_ended:
            self.generation.emit(End(self.index, "stop" if is_end or is_stopped else "length", len(self.ids)))
