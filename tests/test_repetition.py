import pytest

from calyrex.benchmarks.repetition import check_repetition, repeat_system
from calyrex.errors import CalyrexError
from calyrex.span import encode_chat
from chat_tokenizers import byte_level, chat, chatml

SYSTEM, FIRST, ANSWER, LAST = ("system", "Be kind."), ("user", "Who?"), ("assistant", "Me."), ("user", "Why?")


def test_the_system_prompt_comes_again_right_before_the_last_user_turn() -> None:
    assert repeat_system(chat(SYSTEM, FIRST, ANSWER, LAST)) == chat(SYSTEM, FIRST, ANSWER, SYSTEM, LAST)
    assert repeat_system(chat(SYSTEM, FIRST)) == chat(SYSTEM, SYSTEM, FIRST)


def test_several_system_messages_come_again_as_one() -> None:
    later = ("system", "Be brief.")

    repeated = repeat_system(chat(SYSTEM, FIRST, ANSWER, later, LAST))

    assert repeated == chat(SYSTEM, FIRST, ANSWER, later, ("system", "Be kind.\n\nBe brief."), LAST)


def test_a_conversation_without_a_system_prompt_stays_as_it_is() -> None:
    assert repeat_system(chat(FIRST, ANSWER, LAST)) == chat(FIRST, ANSWER, LAST)


def test_blocks_hear_both_copies() -> None:
    once, twice = chat(SYSTEM, FIRST), repeat_system(chat(SYSTEM, FIRST))

    num_once, num_twice = (int(encode_chat(chatml(), messages)["system_mask"].sum()) for messages in (once, twice))

    assert num_twice == 2 * num_once > 0


@pytest.mark.parametrize("name", ["llama3_1", "qwen2_5", "qwen3", "phi3", "smolvlm", "gemma4"])
def test_templates_that_say_a_later_system_message_are_accepted(name: str) -> None:
    check_repetition(byte_level(name))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gemma", "refuses the role 'system'"),
        ("gemma3", "refuses a later system message"),
        ("qwen3_6", "refuses a later system message"),
        ("deepseek_r1_distill", "drops message 0"),
        ("qwen3_vl", "drops message 1"),
        ("cohere2", "rewrites the text of message 0"),
        ("deepseekv3", "says a later one at the beginning"),
    ],
)
def test_templates_that_cannot_hold_the_repetition_are_refused_in_one_line(name: str, reason: str) -> None:
    with pytest.raises(CalyrexError, match=rf"^repeat_system needs.*{reason}.*use another base$"):
        check_repetition(byte_level(name))
