import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from calyrex.data.chats import Chat, read_chats
from calyrex.data.rules import generate_corpus
from calyrex.errors import CalyrexError
from calyrex.span import tokenize_chat
from calyrex.studies.data import add_system_prompt, mix_chats, shuffle_systems
from chat_tokenizers import chatml

TOKENIZER = chatml()


def make_chat(*contents: str, tools: list[dict[str, Any]] | None = None) -> Chat:
    """Make a chat in which user and assistant take turns."""
    roles = ("user", "assistant") * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return Chat(messages, tools, "made up")


def with_system(system: str, number: int = 0) -> Chat:
    turns = (("system", system), ("user", f"Question {number}?"), ("assistant", "Yes."))
    return Chat([{"role": role, "content": content} for role, content in turns], None, f"chat {number}")


def systems_of(chats: list[Chat]) -> list[str]:
    return [chat.messages[0]["content"] for chat in chats]


@pytest.fixture
def chat_file(tmp_path: Path) -> Path:
    """Chats with a system prompt, short and long, and with an instruction or without."""
    path = tmp_path / "chats.jsonl"
    rows = [{"messages": with_system(f"Obey rule {n}.", n).messages} for n in range(30)]
    rows += [{"messages": with_system("Obey this. " * 40, n).messages} for n in range(30)]
    rows += [{"instruction": f"Add {n}.", "input": "To two.", "output": "Three."} for n in range(5)]
    rows += [{"instruction": f"What is {n}?", "output": "A number."} for n in range(30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def mix(path: Path | None, **options: int) -> list[Chat]:
    settings = {"num_rules": 6, "num_chats": 20, "max_tokens": 60, "seed": 0, **options}
    return mix_chats(data=None if path is None else str(path), tokenizer=TOKENIZER, **settings)


def test_an_instruction_with_an_input_becomes_the_system_prompt() -> None:
    given = add_system_prompt(make_chat("Sum up the text.\n\nIt rained.\n\nThen it did not.", "Rain, then none."))

    assert given is not None
    assert given.messages == [
        {"role": "system", "content": "Sum up the text."},
        {"role": "user", "content": "It rained.\n\nThen it did not."},
        {"role": "assistant", "content": "Rain, then none."},
    ]
    assert given.origin == "made up"


def test_the_indentation_of_an_input_stays() -> None:
    given = add_system_prompt(make_chat("Mend the code.\n\n    return 1", "Done."))

    assert given is not None
    assert given.messages[1]["content"] == "    return 1"


def test_alpacas_instruction_and_input_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "alpaca.jsonl"
    row = {"instruction": "Translate.", "input": "Good day", "output": "Bonjour"}
    path.write_text(json.dumps(row), encoding="utf-8")

    (given,) = map(add_system_prompt, read_chats(path))

    assert given is not None
    assert [message["content"] for message in given.messages] == ["Translate.", "Good day", "Bonjour"]


def test_a_chat_with_a_system_prompt_is_returned_as_it_is() -> None:
    chat = with_system("Be kind.")

    assert add_system_prompt(chat) is chat


@pytest.mark.parametrize(
    "chat",
    [
        make_chat("What is a cat?", "An animal."),
        make_chat("What is a cat?\nAnd a dog?", "Animals."),
        make_chat("Mend this:\ndef one():\n    return 2\n\nprint(one())", "def one(): return 1"),
        make_chat("Sum up.\n\n  \n", "Nothing."),
        make_chat("\n\nIt rained.", "Yes."),
        make_chat("Sum up.\n\nIt rained.", "Rain.", "And now?", "Sun."),
        make_chat("Sum up.\n\nIt rained.", "Rain.", tools=[{"type": "function"}]),
    ],
    ids=["no input", "two lines", "a torn program", "an empty input", "no instruction", "two turns", "tools"],
)
def test_a_chat_without_instruction_and_input_has_nothing_to_move(chat: Chat) -> None:
    assert add_system_prompt(chat) is None


def test_rules_and_chats_of_a_file_are_mixed(chat_file: Path) -> None:
    chats = mix(chat_file)

    rules = [chat.messages for chat in chats if chat.origin.startswith("built-in rule dialogue")]
    drawn = [chat for chat in chats if str(chat_file) in chat.origin]
    expected = [example.chat()["messages"] for example in generate_corpus(6, seed=0)]
    assert (len(rules), len(drawn)) == (6, 20)
    assert sorted(rules, key=str) == sorted(expected, key=str)
    assert [chat.messages for chat in chats[:6]] != expected
    assert all(chat.messages[0]["role"] == "system" for chat in chats)


def test_drawn_chats_are_no_longer_than_asked_and_none_comes_twice(chat_file: Path) -> None:
    chats = mix(chat_file, num_rules=0, num_chats=35)

    assert all(len(tokenize_chat(TOKENIZER, chat.messages).input_ids) <= 60 for chat in chats)
    assert len({chat.origin for chat in chats}) == 35
    assert Counter(system.split()[0] for system in systems_of(chats)) == {"Obey": 30, "Add": 5}


def test_the_seed_fixes_what_is_drawn_and_its_order(chat_file: Path) -> None:
    assert mix(chat_file) == mix(chat_file)
    assert {chat.origin for chat in mix(chat_file)} != {chat.origin for chat in mix(chat_file, seed=1)}


def test_every_chat_is_drawn_equally_often(chat_file: Path) -> None:
    counts = Counter(chat.origin for seed in range(60) for chat in mix(chat_file, num_rules=0, num_chats=7, seed=seed))

    assert len(counts) == 35
    assert all(3 <= count <= 24 for count in counts.values())  # 12 expected, with a standard deviation of 3.1


def test_too_few_chats_are_one_line_with_both_numbers(chat_file: Path) -> None:
    with pytest.raises(
        CalyrexError, match="holds 35 chats with a system prompt and at most 60 tokens, and 36 are needed"
    ):
        mix(chat_file, num_chats=36)


def test_rules_alone_need_no_file_and_chats_do() -> None:
    assert len(mix(None, num_chats=0)) == 6
    with pytest.raises(CalyrexError, match="no data to draw them from"):
        mix(None)


def test_every_chat_gets_the_system_prompt_of_another_one() -> None:
    chats = [with_system(f"Rule {number % 20}.", number) for number in range(60)]

    shuffled = shuffle_systems(chats, seed=0)

    assert Counter(systems_of(shuffled)) == Counter(systems_of(chats))
    assert all(new != old for new, old in zip(systems_of(shuffled), systems_of(chats), strict=True))
    assert [chat.messages[1:] for chat in shuffled] == [chat.messages[1:] for chat in chats]


def test_chats_with_one_prompt_get_different_ones() -> None:
    chats = [with_system(f"Rule {number % 4}.", number) for number in range(400)]

    given = Counter(zip(systems_of(chats), systems_of(shuffle_systems(chats, seed=0)), strict=True))

    assert len(given) == 12
    assert all(15 <= count <= 52 for count in given.values())  # a third of a hundred each


@pytest.mark.parametrize(("num_common", "num_other", "num_unchanged"), [(5, 5, 0), (7, 3, 4), (4, 0, 4)])
@pytest.mark.parametrize("seed", range(5))
def test_as_few_prompts_as_possible_stay_where_one_is_too_common(
    num_common: int, num_other: int, num_unchanged: int, seed: int
) -> None:
    chats = [with_system("Common.", n) for n in range(num_common)]
    chats += [with_system(f"Rare {n}.", n) for n in range(num_other)]

    shuffled = shuffle_systems(chats, seed)

    unchanged = [new for new, old in zip(systems_of(shuffled), systems_of(chats), strict=True) if new == old]
    assert unchanged == ["Common."] * num_unchanged


def test_chats_without_a_system_prompt_stay_and_several_messages_move_as_one() -> None:
    plain = make_chat("Who?", "Me.")
    turns = (("system", "First."), ("user", "Who?"), ("system", "Second."), ("assistant", "Me."))
    several = Chat([{"role": role, "content": content} for role, content in turns], None, "several")

    shuffled = shuffle_systems([plain, several, with_system("Third.")], seed=0)

    assert shuffled[0] is plain
    assert systems_of(shuffled[1:]) == ["Third.", "First.\n\nSecond."]
    assert [message["role"] for message in shuffled[1].messages] == ["system", "user", "assistant"]
    assert shuffle_systems([], seed=0) == []
