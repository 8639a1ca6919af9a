import json
from pathlib import Path

import pytest

from calyrex.analysis.chats import draw_conversations
from calyrex.analysis.options import AnalyzeOptions
from calyrex.errors import CalyrexError
from chat_tokenizers import chatml


def draw(data: Path | None = None, *, num_chats: int = 30, seed: int = 0, context_length: int | None = None) -> list:
    options = AnalyzeOptions(data=str(data) if data else None, num_chats=num_chats, seed=seed)
    return draw_conversations(options, chatml(), context_length)


def write(path: Path, *chats: list[tuple[str, str]]) -> Path:
    rows = [{"messages": [{"role": role, "content": text} for role, text in chat]} for chat in chats]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_built_in_questions_are_unattacked_and_under_one_rule_that_a_natural_answer_breaks() -> None:
    drawn = draw()

    assert len(drawn) == 30
    for conversation in drawn:
        example = conversation.example
        assert example.attack is None
        assert len(example.rules) == 1
        assert example.obeyed(conversation.answer)
        assert not example.obeyed(example.natural)


def test_other_rule_is_of_another_family() -> None:
    drawn = draw()
    families = {one.messages[0]["content"]: one.family for one in drawn}

    assert all(families[one.other_system] != one.family for one in drawn)


def test_same_seed_draws_the_same_and_another_seed_others() -> None:
    assert draw() == draw()
    assert [one.messages for one in draw()] != [one.messages for one in draw(seed=1)]


def test_users_chats_end_with_their_last_answer_and_keep_earlier_turns(tmp_path: Path) -> None:
    first = [("system", "Say a."), ("user", "1"), ("assistant", "a"), ("user", "2"), ("assistant", "aa"), ("user", "3")]
    data = write(tmp_path / "chats.jsonl", first, [("system", "Say b."), ("user", "4"), ("assistant", "b")])

    drawn = {one.rule: one for one in draw(data)}

    assert drawn["Say a."].answer == "aa"
    assert [message["content"] for message in drawn["Say a."].messages] == ["Say a.", "1", "a", "2"]
    assert drawn["Say a."].question == "2"
    assert drawn["Say a."].other_system == "Say b."
    assert drawn["Say a."].example is None


def test_chats_without_a_system_prompt_are_left_out(tmp_path: Path) -> None:
    answered = [[("system", text), ("user", "1"), ("assistant", "a")] for text in ("Say a.", "Say b.")]
    data = write(tmp_path / "chats.jsonl", *answered, [("user", "1"), ("assistant", "a")])

    assert len(draw(data)) == 2


def test_chats_that_would_fill_more_than_half_of_the_context_are_left_out(tmp_path: Path) -> None:
    answered = [[("system", text), ("user", "1"), ("assistant", "a")] for text in ("Say a.", "Say b.", "c" * 200)]
    data = write(tmp_path / "chats.jsonl", *answered)

    assert len(draw(data, context_length=100)) == 2


def test_built_in_conversations_that_do_not_fit_the_context_are_left_out() -> None:
    tokenizer, options = chatml(), AnalyzeOptions(num_chats=8)
    anywhere, short = (draw_conversations(options, tokenizer, length) for length in (None, 500))

    assert len(anywhere) == len(short) == 8
    with pytest.raises(CalyrexError, match="of 8 built-in conversations have at most 5 tokens, half of what the model"):
        draw_conversations(options, tokenizer, 10)


def test_data_with_one_system_prompt_are_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "chats.jsonl", *[[("system", "Say a."), ("user", "1"), ("assistant", "a")]] * 3)

    with pytest.raises(CalyrexError, match=r"holds 1 different system prompts.*at least 2 are needed"):
        draw(data)


def test_other_system_prompt_takes_the_place_of_all_of_them(tmp_path: Path) -> None:
    twice = [("system", "Say a."), ("system", "Now."), ("user", "1"), ("assistant", "a")]
    data = write(tmp_path / "chats.jsonl", twice, [("system", "Say b."), ("user", "1"), ("assistant", "b")])
    conversation = next(one for one in draw(data) if one.rule != "Say b.")

    messages = conversation.under(conversation.other_system)

    assert [(message["role"], message["content"]) for message in messages] == [("system", "Say b."), ("user", "1")]
