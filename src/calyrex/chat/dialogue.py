"""A conversation with a model, and the commands that change it."""

import math
from collections.abc import Callable

from calyrex.chat.speaker import Speaker
from calyrex.chat.terminal import note, write
from calyrex.errors import CalyrexError
from calyrex.masking import Message
from calyrex.options import MAX_SCALE
from calyrex.span import encode_chat

COMMANDS = {
    "/system": "TEXT starts anew under this system prompt; without TEXT shows it",
    "/base": "answers the last question again without the blocks",
    "/scale": "X sets the strength of the blocks, 0 is the base; without X shows it",
    "/reset": "forgets the conversation, keeps the system prompt",
    "/help": "shows this; a text that begins with a slash is sent as //text",
    "/quit": "leaves, as Ctrl-D does; Ctrl-C stops an answer",
}

_NO_BLOCKS = "scale needs a model with blocks, got one without them: start with --adapter"


class Dialogue:
    """A conversation and the commands that change it."""

    def __init__(self, speaker: Speaker) -> None:
        """Begin under the system prompt of the options.

        Raises:
            CalyrexError: the chat template refuses a system prompt, or there are no blocks for a scale.
        """
        if speaker.options.scale is not None and not speaker.has_blocks:
            raise CalyrexError(_NO_BLOCKS)
        self.speaker = speaker
        self.scale = speaker.own_scale if speaker.options.scale is None else speaker.options.scale
        self.system = speaker.options.system
        self.turns: list[Message] = []
        self.actions: dict[str, Callable[[str], None]] = {
            "/system": self.set_system,
            "/base": self.answer_as_base,
            "/scale": self.set_scale,
            "/reset": self.reset,
            "/help": self.show_help,
        }
        self._try_system(self.system)

    def take(self, line: str) -> None:
        """Answer a question or run a command.

        Raises:
            CalyrexError: the command is unknown or its value wrong, or the question cannot be answered; the
                conversation is as before.
        """
        if line.startswith("/") and not line.startswith("//"):
            command, *value = line.split(maxsplit=1)
            if command not in self.actions:
                raise CalyrexError(f"no command {command}; known are {', '.join(COMMANDS)}, and //text")
            self.actions[command]("".join(value))
        else:
            self.ask(line.removeprefix("/") if line.startswith("//") else line)

    def ask(self, question: str) -> None:
        """Answer a question and keep both."""
        turns = [*self.turns, {"role": "user", "content": question}]
        answer = self.speaker.answer([*self._opening(self.system), *turns], self.scale)
        self.turns = [*turns, {"role": "assistant", "content": answer.text}]
        if answer.note:
            note(answer.note)

    def answer_as_base(self, _: str = "") -> None:
        """Answer the last question without the blocks; the conversation stays as it is."""
        if not self.turns:
            raise CalyrexError("/base answers the last question again: ask one first")
        answer = self.speaker.answer_as_base([*self._opening(self.system), *self.turns[:-1]])
        if answer.note:
            note(answer.note)

    def set_system(self, text: str) -> None:
        """Start anew under another system prompt, or show the present one."""
        if not text:
            write("no system prompt" if self.system is None else self.system)
            return
        self._try_system(text)
        self.system = text
        self.turns = []

    def set_scale(self, value: str) -> None:
        """Set the strength of the blocks, or show it."""
        if not self.speaker.has_blocks:
            raise CalyrexError(_NO_BLOCKS)
        if not value:
            write(f"{self.scale:g}")
            return
        try:
            scale = float(value)
        except ValueError:
            scale = math.nan
        if not 0 <= scale <= MAX_SCALE:
            raise CalyrexError(f"/scale takes a number of at least 0 and at most {MAX_SCALE:g}, got {value}")
        self.scale = scale

    def reset(self, _: str = "") -> None:
        """Forget the conversation."""
        self.turns = []

    def show_help(self, _: str = "") -> None:
        """Show the commands."""
        write("\n".join(f"{command:8} {text}" for command, text in COMMANDS.items()))

    def _opening(self, system: str | None) -> list[Message]:
        return [] if system is None else [{"role": "system", "content": system}]

    def _try_system(self, system: str | None) -> None:
        encode_chat(self.speaker.tokenizer, [*self._opening(system), {"role": "user", "content": "Hello"}])
