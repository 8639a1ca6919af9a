import json
import os
from pathlib import Path
from typing import Any

import pytest

from calyrex.benchmarks.benchmark import Case
from calyrex.benchmarks.glaive import FILE, GLAIVE, find_call, is_equal
from calyrex.benchmarks.source import Source
from calyrex.errors import CalyrexError
from scored import ODD_ANSWERS, score_all

FUNCTION = {"name": "boil", "description": "Boil water", "parameters": {"type": "object", "properties": {}}}
CALL = {"name": "boil", "arguments": {"litres": 2, "pot": "big"}}
ROW = {
    "conversations": [
        {"from": "human", "value": "Hello"},
        {"from": "gpt", "value": "Hi, what now?"},
        {"from": "human", "value": "Boil 2 litres"},
        {"from": "function_call", "value": json.dumps(CALL)},
        {"from": "observation", "value": "{}"},
        {"from": "gpt", "value": "Done"},
    ],
    "tools": json.dumps([FUNCTION]),
}
TALK = {"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}], "tools": "[]"}
CHAT_ROW = {
    "system": f"SYSTEM: You may call functions -\n{json.dumps(FUNCTION, indent=4)}\n\n{json.dumps(FUNCTION)}\n\n",
    "chat": "USER: Hello\n\n\nASSISTANT: Hi, what now? <|endoftext|>\n\n\nUSER: Boil 2 litres\n\n\n"
    'ASSISTANT: <functioncall> {"name": "boil", "arguments": \'{"litres": 2, "pot": "big"}\'} <|endoftext|>\n\n\n'
    'FUNCTION RESPONSE: {"ok": true}\n\n\nASSISTANT: Done <|endoftext|>\n\n\n',
}
TURNS = [("user", "Hello"), ("assistant", "Hi, what now?"), ("user", "Boil 2 litres")]


def write(folder: Path, *rows: object) -> Source:
    path = folder / FILE
    path.parent.mkdir()
    path.write_text(json.dumps(rows), encoding="utf-8")
    return Source(folder)


def score(answer: str, reference: dict[str, Any] | None = None) -> dict[str, bool]:
    return dict(GLAIVE.score(Case("c", [], reference or CALL), [answer]))


@pytest.mark.parametrize("row", [ROW, CHAT_ROW], ids=["local", "hub"])
def test_a_case_is_the_conversation_up_to_the_first_call_with_the_functions_in_the_system_prompt(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    (case,) = GLAIVE.load(write(tmp_path, row))

    system, *turns = case.messages
    assert system["role"] == "system"
    assert json.loads(system["content"].partition("Functions:\n")[2])[0] == FUNCTION
    assert '{"name": <name' in system["content"]
    assert [(turn["role"], turn["content"]) for turn in turns] == TURNS
    assert case.reference == CALL


def test_conversations_without_a_call_are_no_cases(tmp_path: Path) -> None:
    silent = {"system": "SYSTEM: none", "chat": "USER: Hello\n\n\nASSISTANT: Hi <|endoftext|>"}
    broken = {**CHAT_ROW, "chat": CHAT_ROW["chat"].replace("'{", "{")}

    cases = GLAIVE.load(write(tmp_path, TALK, ROW, silent, broken))

    assert [case.id for case in cases] == ["1"]


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"conversations": 3},
        {"conversations": [3]},
        {"conversations": [{"from": "robot", "value": "x"}]},
        {"conversations": [{"from": "human"}]},
        {**ROW, "tools": None},
        {**ROW, "tools": "{"},
        {**ROW, "tools": "{}"},
        {"conversations": [{"from": "human", "value": "x"}, {"from": "function_call", "value": "boil"}], "tools": "[]"},
        {"conversations": [{"from": "function_call", "value": json.dumps(CALL)}], "tools": "[]"},
        {"system": 3, "chat": CHAT_ROW["chat"]},
        {"system": "", "chat": 3},
    ],
)
def test_a_row_of_the_wrong_shape_is_one_line_with_file_and_row(tmp_path: Path, row: object) -> None:
    with pytest.raises(CalyrexError, match=r"^\S+/glaive/glaive_toolcall_en_demo\.json row 2: .+, got .+$"):
        GLAIVE.load(write(tmp_path, ROW, row))


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps(CALL),
        json.dumps(CALL, indent=2),
        f"```json\n{json.dumps(CALL)}\n```",
        f"<functioncall> {json.dumps(CALL)} <|endoftext|>",
        f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>",
        f"Sure {{gladly}}: {json.dumps(CALL)} Anything else?",
        f"{json.dumps(CALL)}\n{json.dumps({**CALL, 'name': 'other'})}",
        json.dumps({**CALL, "arguments": json.dumps(CALL["arguments"])}),
        json.dumps({"tool_calls": [{"function": CALL}]}),
        '{"name": "boil", "arguments": \'{"litres": 2, "pot": "big"}\'}',
        '{"arguments": {"pot": "big", "litres": 2.0}, "name": "boil"}',
    ],
)
def test_the_right_call_counts_however_it_is_wrapped(answer: str) -> None:
    assert score(answer) == {"parsed": True, "name": True, "arguments": True, "call": True}


@pytest.mark.parametrize(
    ("call", "has_name", "has_arguments"),
    [
        ({**CALL, "name": "fry"}, False, True),
        ({**CALL, "name": "Boil"}, False, True),
        ({**CALL, "arguments": {}}, True, False),
        ({**CALL, "arguments": {"litres": "2", "pot": "big"}}, True, False),
        ({**CALL, "arguments": {"litres": 2, "pot": "Big"}}, True, False),
        ({**CALL, "arguments": {"litres": 2, "pot": "big", "lid": True}}, True, False),
        ({"name": "fry", "arguments": {}}, False, False),
    ],
)
def test_a_wrong_name_or_argument_is_no_right_call(call: object, has_name: bool, has_arguments: bool) -> None:
    expected = {"parsed": True, "name": has_name, "arguments": has_arguments, "call": False}

    assert score(json.dumps(call)) == expected


@pytest.mark.parametrize(
    "answer",
    ["I cannot.", json.dumps(FUNCTION), '{"name": "boil"}', "boil(litres=2)", '{"name": "boil", "arguments": 3}'],
)
def test_an_answer_that_calls_nothing_is_not_parsed(answer: str) -> None:
    assert score(answer) == {"parsed": False, "name": False, "arguments": False, "call": False}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (5, 5.0, True),
        (5, "5", False),
        (1, True, False),
        (True, True, True),
        (None, None, True),
        ([1, [2.0]], [1.0, [2]], True),
        ([1, 2], [2, 1], False),
        ({"a": 1, "b": {"c": None}}, {"b": {"c": None}, "a": 1.0}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ("x", "x ", False),
        ({}, [], False),
    ],
)
def test_arguments_are_equal_by_kind_and_value(one: object, other: object, expected: bool) -> None:
    assert is_equal(one, other) is expected
    assert is_equal(other, one) is expected


@pytest.mark.parametrize("answer", [*ODD_ANSWERS, '{"a":' * 20_000, '{"name": ' + "1" * 9_000 + "}"])
def test_any_text_gets_a_verdict(answer: str) -> None:
    assert find_call(answer) is None
    assert not any(score(answer).values())


def test_the_headline_is_the_share_of_calls_that_are_right_in_all() -> None:
    case = Case("c", [], CALL)
    answers = [json.dumps(CALL), json.dumps({**CALL, "name": "fry"}), "no", ""]

    metrics = GLAIVE.summarise(score_all(GLAIVE, [(case, answer) for answer in answers]))

    assert [(name, metric.value) for name, metric in metrics.items()] == [
        ("call", 0.25), ("parsed", 0.5), ("name", 0.25), ("arguments", 0.5),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif("CALYREX_EVAL_DATA" not in os.environ, reason="CALYREX_EVAL_DATA names no folder with the data")
def test_every_recorded_call_of_the_real_file_is_right() -> None:
    cases = GLAIVE.load(Source(Path(os.environ["CALYREX_EVAL_DATA"])))

    assert len(cases) == 153
    assert all(GLAIVE.score(case, [json.dumps(case.reference)])["call"] for case in cases)
