"""The data that every contender of a study trains on, and the control whose system prompts say nothing."""

import dataclasses
import heapq
import random
from collections.abc import Iterable, Sequence

from transformers import PreTrainedTokenizerBase

from calyrex.data.chats import Chat, read_chats
from calyrex.data.rules.chats import rule_chats
from calyrex.errors import CalyrexError
from calyrex.masking import SYSTEM_ROLES, Message
from calyrex.span import tokenize_chat


def add_system_prompt(chat: Chat) -> Chat | None:
    """Move the instruction of a chat without a system prompt into one; None where that cannot be done.

    It is done for one question and one answer, without tools, where the question is an instruction and the input that
    it is about, with a blank line between them, which is how Alpaca's ``instruction`` and ``input`` are read and how
    chat files keep them. What stands before the first blank line is the instruction, and becomes the system prompt;
    all that follows stays with the user. It must be one line: several lines before a blank line are more often the
    beginning of a text or of a program, which would be torn apart.

    Args:
        chat: A conversation; one with a system prompt is returned as it is.
    """
    if _read_system(chat):
        return chat
    if [message["role"] for message in chat.messages] != ["user", "assistant"] or chat.tools:
        return None
    instruction, _, given = chat.messages[0]["content"].strip().partition("\n\n")
    instruction, given = instruction.strip(), given.strip("\n")
    if not instruction or "\n" in instruction or not given.strip():
        return None
    user = {**chat.messages[0], "content": given}
    return dataclasses.replace(chat, messages=[_system(instruction), user, chat.messages[1]])


def mix_chats(
    *, num_rules: int, data: str | None, num_chats: int, max_tokens: int, tokenizer: PreTrainedTokenizerBase, seed: int
) -> list[Chat]:
    """Return dialogues of the built-in rules and chats of a file, shuffled together.

    Args:
        num_rules: Dialogues of the rules' training split.
        data: File, folder or hub data set as for ``read_chats``; read as a stream, so that it may be of any size.
        num_chats: Chats drawn at random from ``data``, among those with a system prompt (after
            ``add_system_prompt``); 0 where ``data`` is None.
        max_tokens: Longest such chat in tokens, the template's included.
        tokenizer: Tokenizer of the base.
        seed: The same seed gives the same chats in the same order.

    Raises:
        CalyrexError: ``data`` is missing, cannot be read, or holds fewer such chats.
    """
    chats = list(rule_chats(num_rules, seed=seed))
    if num_chats:
        if data is None:
            raise CalyrexError(f"{num_chats} chats were asked for, and no data to draw them from: name a file")
        drawn = draw_chats(map(add_system_prompt, read_chats(data)), num_chats, max_tokens, tokenizer, seed)
        if len(drawn) < num_chats:
            raise CalyrexError(
                f"{data} holds {len(drawn)} chats with a system prompt and at most {max_tokens} tokens, and "
                f"{num_chats} are needed, those for validation among them: allow longer ones or ask for fewer"
            )
        chats += drawn
    random.Random(f"{seed} mixed chats").shuffle(chats)
    return chats


def draw_chats(
    chats: Iterable[Chat | None], count: int, max_tokens: int, tokenizer: PreTrainedTokenizerBase, seed: int
) -> list[Chat]:
    """Draw chats at random, all if there are no more than ``count``.

    Each has a random number, and those with the smallest stay; what cannot stay is not tokenised.

    Args:
        chats: Conversations, read as a stream; None is passed over.
        count: Most chats drawn.
        max_tokens: Longest chat in tokens, the template's included.
        tokenizer: Tokenizer of the base.
        seed: The same seed draws the same chats.

    Raises:
        CalyrexError: the template refuses a chat.
    """
    rng = random.Random(f"{seed} drawn chats")
    kept: list[tuple[float, int, Chat]] = []
    for place, chat in enumerate(chats):
        lot = -rng.random()
        if chat is None or (len(kept) == count and lot < kept[0][0]):
            continue
        if _count_tokens(chat, tokenizer) <= max_tokens:
            push = heapq.heappushpop if len(kept) == count else heapq.heappush
            push(kept, (lot, place, chat))
    return [chat for _, _, chat in sorted(kept, reverse=True)]


def shuffle_systems(chats: Sequence[Chat], seed: int) -> list[Chat]:
    """Give every chat the system prompt of another one, so that no prompt tells anything about its chat.

    Prompts are dealt out at random, each as often as before, and no chat gets a text that it had, except where one
    text belongs to more than half of the chats. Different texts may still ask for the same thing.

    Args:
        chats: Conversations; those without a system prompt stay as they are.
        seed: The same seed deals them out in the same way.
    """
    rng = random.Random(f"{seed} shuffled systems")
    texts = [_read_system(chat) for chat in chats]
    places = [place for place, text in enumerate(texts) if text]
    owners = dict(zip(places, rng.sample(places, len(places)), strict=True))
    for place in places:
        if texts[owners[place]] != texts[place]:
            continue
        # Where any dealing without own texts exists, so does such a partner: see how many places can hold the text.
        for other in rng.sample(places, len(places)):
            if texts[other] != texts[place] and texts[owners[other]] != texts[place]:
                owners[place], owners[other] = owners[other], owners[place]
                break
    return [_replace_system(chat, texts[owners[place]]) if texts[place] else chat for place, chat in enumerate(chats)]


def _count_tokens(chat: Chat, tokenizer: PreTrainedTokenizerBase) -> int:
    try:
        return len(tokenize_chat(tokenizer, chat.messages, chat.tools).input_ids)
    except CalyrexError as error:
        raise CalyrexError(f"{chat.origin}: {error}") from error


def _read_system(chat: Chat) -> str:
    """Return all system messages of a chat as one text, empty where it has none."""
    texts = [message["content"] for message in chat.messages if message["role"] in SYSTEM_ROLES]
    return "\n\n".join(text for text in texts if text.strip())


def _replace_system(chat: Chat, text: str) -> Chat:
    others = [message for message in chat.messages if message["role"] not in SYSTEM_ROLES]
    return dataclasses.replace(chat, messages=[_system(text), *others])


def _system(text: str) -> Message:
    return {"role": "system", "content": text}
