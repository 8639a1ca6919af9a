"""``calyrex chat``: talk to a model in the terminal, with its blocks and without them."""

import torch

from calyrex.chat.dialogue import Dialogue
from calyrex.chat.speaker import Speaker
from calyrex.chat.terminal import note, read_lines
from calyrex.errors import CalyrexError
from calyrex.options import ChatOptions


def run(options: ChatOptions) -> None:
    """Talk until standard input ends, ``/quit`` or Ctrl-C at the prompt.

    Raises:
        CalyrexError: base or adapter cannot be loaded, the options do not fit them, or standard input is not
            text.
    """
    torch.manual_seed(options.seed)
    speaker = Speaker(options)
    dialogue = Dialogue(speaker)
    for line in read_lines(f"{speaker.name}; /help shows the commands"):
        if line == "/quit":
            return
        try:
            dialogue.take(line)
        except CalyrexError as error:
            note(str(error))
