"""What a comparison needs before its first job: sizes that fit the budget, tokenised rows, held-out chats."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset

from calyrex.benchmarks.repetition import check_repetition
from calyrex.data.chats import Chat, read_chats
from calyrex.data.rules import TEST_SEED_OFFSET, generate_corpus
from calyrex.errors import CalyrexError
from calyrex.masking import Message
from calyrex.studies.contenders import describe
from calyrex.studies.data import add_system_prompt, draw_chats, mix_chats, shuffle_systems
from calyrex.studies.measures import HELD_OUT
from calyrex.studies.study import (
    DATA,
    HELD_OUT_CHATS,
    NUM_HELD_OUT,
    ROWS,
    SHUFFLED_ROWS,
    SIZES,
    Study,
    read_json,
    write_json,
)
from calyrex.training.rows import write_rows

_BUILT_IN, _HELD_OUT = "built-in rules", "held-out chats"


def prepare(study: Study) -> None:
    """Make what is missing of sizes, rows and held-out chats.

    Raises:
        CalyrexError: options do not fit the base, data are missing or too few, or the disk is full.
    """
    if any(contender.method == "repetition" for contender in study.contenders):
        check_repetition(study.tokenizer)
    _write_sizes(study)
    is_whole = (study.folder / ROWS).exists() and (study.folder / DATA).exists()
    chats = _draw_chats(study) if not is_whole else None
    if chats is not None:
        rows = _write_rows(study, chats, ROWS)
        write_json(study.folder / DATA, _describe_data(study, chats, rows["length"][:]))
    if any(contender.is_shuffled for contender in study.contenders) and not (study.folder / SHUFFLED_ROWS).exists():
        drawn = chats or _draw_chats(study)
        num_train = len(drawn) - study.options.num_validation
        shuffled = shuffle_systems(drawn[:num_train], study.options.seed)
        _write_rows(study, [*shuffled, *drawn[num_train:]], SHUFFLED_ROWS)
    if HELD_OUT in study.num_cases and not (study.folder / HELD_OUT_CHATS).exists():
        _write_held_out(study)


def forget_preparation(study: Study) -> None:
    """Remove what ``prepare`` has made."""
    for name in (SIZES, ROWS, SHUFFLED_ROWS, DATA, HELD_OUT_CHATS):
        (study.folder / name).unlink(missing_ok=True)


def _write_sizes(study: Study) -> None:
    """Choose the sizes of contenders that have none yet."""
    path = study.folder / SIZES
    earlier: dict[str, Any] = read_json(path, "contenders")["contenders"] if path.exists() else {}
    wanted = {one.name: one for one in (*study.contenders, *map(study.searched, study.contenders))}
    missing = [contender for name, contender in wanted.items() if name not in earlier]
    if not missing:
        return
    budget, sized = study.choose_sizes(missing)
    contenders: dict[str, Any] = {}
    for contender in missing:
        own = sized.get(contender.name)
        contenders[contender.name] = {
            "description": describe(contender, own.config if own else None),
            "trainable_parameters": own.trainable_parameters if own else 0,
            "budget_difference": own.budget_difference if own else None,
            "last_frozen_layer": own.last_frozen_layer if own else None,
            "layers": own.layers if own else [],
        }
        if own is not None:
            own.config.save_pretrained(str(study.file_of(contender)))
    write_json(path, {"budget": budget, "contenders": earlier | contenders})


def _draw_chats(study: Study) -> list[Chat]:
    """Draw the training chats and, at the end, those for validation, of each source in the same proportion."""
    options = study.options
    num_chats = options.num_chats if options.data else 0
    total = options.num_rules + num_chats
    more_chats = round(options.num_validation * num_chats / total)
    chats = mix_chats(
        num_rules=options.num_rules + options.num_validation - more_chats,
        data=options.data,
        num_chats=num_chats + more_chats,
        max_tokens=options.max_length,
        tokenizer=study.tokenizer,
        seed=options.seed,
    )
    ours = [place for place, chat in enumerate(chats) if is_built_in(chat)]
    others = [place for place, chat in enumerate(chats) if not is_built_in(chat)]
    held_out = {*ours[options.num_rules :], *others[num_chats:]}
    training = [chat for place, chat in enumerate(chats) if place not in held_out]
    return [*training, *(chats[place] for place in sorted(held_out))]


def _write_rows(study: Study, chats: list[Chat], name: str) -> Dataset:
    rows = write_rows(chats, study.tokenizer, study.folder / name, max_length=max(study.options.max_length, 1024))
    if len(rows) != len(chats):
        raise CalyrexError(f"{len(chats) - len(rows)} of {len(chats)} chats cannot be trained on; see the line above")
    return rows


def _describe_data(study: Study, chats: list[Chat], lengths: list[int]) -> list[dict[str, Any]]:
    """Count rows and tokens of each source among the training rows."""
    num_train = len(chats) - study.options.num_validation
    sources: dict[str, list[int]] = {}
    for chat, length in zip(chats[:num_train], lengths, strict=False):
        sources.setdefault(_BUILT_IN if is_built_in(chat) else str(study.options.data), []).append(length)
    return [
        {
            "name": Path(name).name,
            "rows": len(own),
            "tokens": sum(own),
            "licence": "Apache-2.0" if name == _BUILT_IN else "that of its source",
        }
        for name, own in sources.items()
    ]


def is_built_in(chat: Chat) -> bool:
    """Tell whether a chat is one of the built-in rules."""
    return chat.origin.startswith("built-in")


def _write_held_out(study: Study) -> None:
    options, wanted = study.options, study.num_cases[HELD_OUT] or NUM_HELD_OUT
    chats = draw_chats(_ordinary_chats(study, wanted), wanted, options.max_length, study.tokenizer, options.seed)
    lines = [json.dumps(chat.messages, ensure_ascii=False) + "\n" for chat in chats]
    if not lines:
        raise CalyrexError(f"{study.options.data} holds no chat for {HELD_OUT}: leave that task out")
    partial = study.folder / f"{HELD_OUT_CHATS}.partial"
    partial.write_text("".join(lines), encoding="utf-8")
    partial.replace(study.folder / HELD_OUT_CHATS)


def _ordinary_chats(study: Study, count: int) -> Iterator[Chat]:
    """Yield chats without a system prompt that no contender trains on, from the data or else of our own facts."""
    if study.options.data is None:
        seed = study.options.seed + TEST_SEED_OFFSET
        for example in generate_corpus(2 * count, seed=seed, split="test"):
            yield _ask(example.question, example.natural)
        return
    for chat in read_chats(study.options.data):
        roles = [message["role"] for message in chat.messages]
        if roles == ["user", "assistant"] and add_system_prompt(chat) is None:
            yield _ask(chat.messages[0]["content"], chat.messages[1]["content"])


def _ask(question: str, answer: str) -> Chat:
    messages: list[Message] = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return Chat(messages, tools=None, origin=_HELD_OUT)
