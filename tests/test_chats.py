import gzip
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet  # type: ignore[import-untyped]
import pytest

from calyrex.data import files
from calyrex.data.chats import Chat, read_chats
from calyrex.errors import CalyrexError

QUESTION = {"role": "user", "content": "Why?"}
ANSWER = {"role": "assistant", "content": "So."}
RULE = {"role": "system", "content": "Be brief."}
CHAT = {"messages": [RULE, QUESTION, ANSWER]}
WEATHER = {"type": "function", "function": {"name": "weather"}}


def write_lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_row(tmp_path: Path, row: object) -> Chat:
    (chat,) = read_chats(write_lines(tmp_path / "train.jsonl", row))
    return chat


def complaint_about(tmp_path: Path, row: object) -> str:
    """What is said about a row, the origin cut off."""
    path = write_lines(tmp_path / "train.jsonl", CHAT, row)
    with pytest.raises(CalyrexError) as error:
        list(read_chats(path))
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{path} line 2: ")
    return message.removeprefix(f"{path} line 2: ")


def complaint_of(source: str | Path) -> str:
    with pytest.raises(CalyrexError) as error:
        list(read_chats(source))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "row",
    [
        CHAT,
        {"messages": [QUESTION, ANSWER], "system": "Be brief."},
        {"messages": [{"role": "developer", "content": "Be brief."}, QUESTION, ANSWER]},
        {
            "conversations": [
                {"from": "system", "value": "Be brief."},
                {"from": "human", "value": "Why?"},
                {"from": "gpt", "value": "So."},
            ]
        },
        {
            "conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}],
            "system": "Be brief.",
        },
        {"instruction": "Why?", "input": "", "output": "So.", "system": "Be brief."},
    ],
    ids=["openai", "system column", "developer", "sharegpt", "sharegpt with system column", "alpaca"],
)
def test_every_layout_becomes_the_same_conversation(tmp_path: Path, row: object) -> None:
    chat = read_row(tmp_path, row)

    assert chat == Chat([RULE, QUESTION, ANSWER], None, f"{tmp_path / 'train.jsonl'} line 1")


def test_alpaca_joins_its_input_and_puts_its_history_before(tmp_path: Path) -> None:
    row = {"instruction": "Add.", "input": "1, 2", "output": "3", "history": [["Hi", "Hello"]]}

    contents = [message["content"] for message in read_row(tmp_path, row).messages]

    assert contents == ["Hi", "Hello", "Add.\n\n1, 2", "3"]


def test_sharegpt_tool_turns_get_their_roles(tmp_path: Path) -> None:
    names = ["human", "function_call", "observation", "gpt"]
    row = {"conversations": [{"from": name, "value": "x"} for name in names]}

    roles = [message["role"] for message in read_row(tmp_path, row).messages]

    assert roles == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("tools", [[WEATHER], json.dumps([WEATHER]), WEATHER])
def test_tools_are_kept_as_a_list(tmp_path: Path, tools: object) -> None:
    assert read_row(tmp_path, {**CHAT, "tools": tools}).tools == [WEATHER]


@pytest.mark.parametrize("tools", [None, [], "", " "])
def test_no_tools_are_none(tmp_path: Path, tools: object) -> None:
    assert read_row(tmp_path, {**CHAT, "tools": tools}).tools is None


def test_tool_calls_stay_and_need_no_content(tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call], "name": None}

    (_, message) = read_row(tmp_path, {"messages": [QUESTION, turn]}).messages

    assert message == {"role": "assistant", "content": "", "tool_calls": [call]}


def test_content_parts_become_one_text(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Wh"}, {"type": "text", "text": "y?"}]

    chat = read_row(tmp_path, {"messages": [{"role": "user", "content": parts}, ANSWER]})

    assert chat.messages == [QUESTION, ANSWER]


def test_weight_is_kept_on_answers_only(tmp_path: Path) -> None:
    turns = [{**QUESTION, "weight": 1}, {**ANSWER, "weight": 0}, {**ANSWER, "weight": 1.0}, ANSWER]

    chat = read_row(tmp_path, {"messages": turns})

    assert [message.get("weight") for message in chat.messages] == [None, 0, 1, None]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"id": 1, "text": "x"}, "; found the keys id, text"),
        ({}, "; found no keys"),
        ([1], "a row must be an object, got a list"),
        ({"messages": "x"}, "messages must be a list, got text"),
        ({"messages": []}, "a conversation needs at least one user turn"),
        ({"messages": [RULE, ANSWER]}, "a conversation needs at least one user turn"),
        ({"messages": [QUESTION]}, "at least one assistant turn to learn (weight not 0)"),
        ({"messages": [QUESTION, {**ANSWER, "weight": 0}]}, "at least one assistant turn to learn"),
        ({"messages": [QUESTION, {**ANSWER, "weight": 2}]}, "messages[1].weight must be 0 or 1, got 2"),
        ({"messages": [QUESTION, {**ANSWER, "weight": "0"}]}, "messages[1].weight must be 0 or 1, got '0'"),
        ({"messages": [QUESTION, "So."]}, "messages[1] must be an object with role and content, got text"),
        ({"messages": [{"role": "bard", "content": "x"}]}, "messages[0].role must be one of system, "),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "got ['user']"),
        ({"messages": [{"role": "user"}]}, "messages[0].content must be text, got nothing"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content must be text, got a number"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "a part that is none"),
        ({"conversations": [{"from": "human", "value": None}]}, "conversations[0].value must be text"),
        ({"instruction": 1, "output": "x"}, "instruction must be text, got a number"),
        ({"instruction": "x", "output": ["y"]}, "output or history answer must be text"),
        (
            {"instruction": "x", "output": "y", "history": [["a"]]},
            "history must be a list of [question, answer]",
        ),
        ({**CHAT, "system": "Be long."}, "two different system prompts"),
        ({**CHAT, "tools": "[{"}, "tools must be a list or a list written as JSON"),
        ({**CHAT, "tools": [1]}, "tools must be a list of objects, got a list"),
    ],
    ids=str,
)
def test_bad_row_is_refused_with_its_place_and_what_was_given(tmp_path: Path, row: object, complaint: str) -> None:
    assert complaint in complaint_about(tmp_path, row)


def test_broken_line_is_quoted_shortly_with_its_number(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "train.jsonl", CHAT)
    with path.open("a") as file:
        file.write('\n{"messages": [{"role": "user" "content": "' + "x" * 1000 + '"}]}\n')

    complaint = complaint_of(path)

    assert complaint.startswith(f"{path} line 3: broken JSON at character 31 (Expecting ',' delimiter), near ")
    assert '"user" "content"' in complaint
    assert len(complaint) < len(str(path)) + 160


def test_rows_before_a_broken_line_are_read(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "train.jsonl", CHAT, CHAT)
    path.write_text(path.read_text() + "{")
    chats = read_chats(path)

    assert [next(chats).messages, next(chats).messages] == [CHAT["messages"]] * 2
    with pytest.raises(CalyrexError, match="line 3"):
        next(chats)


def test_undecodable_bytes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(b'{"messages": "\xff"}\n')

    assert complaint_of(path) == f"{path} line 1: byte 15 is no UTF-8 (0xff); save the file as UTF-8"


def test_byte_order_mark_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text("\n" + json.dumps(CHAT) + "\r\n\n", encoding="utf-8-sig")

    assert [chat.origin for chat in read_chats(path)] == [f"{path} line 2"]


def test_json_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text("[" * 100_000)

    assert "line 1" in complaint_of(path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json"])
def test_empty_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")

    assert complaint_of(path) == f"{path} is empty: expected at least one conversation"


def test_packed_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(CHAT).encode()))

    assert [chat.messages for chat in read_chats(str(path))] == [CHAT["messages"]]


@pytest.mark.parametrize("damage", [slice(0, -6), slice(3, None)], ids=["cut", "no header"])
def test_damaged_packed_file_is_refused_by_name(tmp_path: Path, damage: slice) -> None:
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(CHAT).encode() * 50)[damage])

    assert str(path) in complaint_of(path)


@pytest.mark.parametrize("content", [[CHAT, CHAT], {"data": [CHAT, CHAT]}])
def test_json_file_holds_a_list_of_rows(tmp_path: Path, content: object) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps(content))

    assert [chat.origin for chat in read_chats(path)] == [f"{path} row 1", f"{path} row 2"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"rows": []}', 'must hold a list of conversations, or {"data": [...]}'),
        ("{}\n{}", "name it .jsonl if each line is a conversation"),
        ("[", "broken JSON at character 2"),
        ("[]", "is empty"),
    ],
)
def test_bad_json_file_is_refused_with_the_way_out(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "train.json"
    path.write_text(text)

    assert complaint in complaint_of(path)


def test_json_file_beyond_the_limit_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "JSON_LIMIT_BYTES", 10)
    path = tmp_path / "train.json"
    path.write_text(json.dumps([CHAT]))

    assert "write one conversation a line (.jsonl)" in complaint_of(path)


def test_parquet_rows_keep_only_the_values_they_have(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    conversations = [[RULE, QUESTION, ANSWER], [QUESTION, {**ANSWER, "weight": 0}, ANSWER]]
    table = pyarrow.Table.from_pylist([{"messages": messages} for messages in conversations])
    pyarrow.parquet.write_table(table, path, row_group_size=1)

    chats = list(read_chats(path))

    assert [chat.messages for chat in chats] == conversations
    assert chats[1].origin == f"{path} row 2"


def test_damaged_parquet_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    path.write_bytes(b"PAR1 and nothing else")

    assert complaint_of(path).startswith(f"cannot read {path}")


def test_folder_is_read_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "README.md").touch()
    write_lines(tmp_path / "b.jsonl", CHAT)
    write_lines(tmp_path / "a.jsonl", CHAT)
    (tmp_path / "more" / "c.json").write_text(json.dumps([CHAT]))

    origins = [chat.origin.removeprefix(f"{tmp_path}/") for chat in read_chats(tmp_path)]

    assert origins == ["a.jsonl line 1", "b.jsonl line 1", "more/c.json row 1"]


def test_folder_without_data_is_refused(tmp_path: Path) -> None:
    expected = "expected files that end in .jsonl, .jsonl.gz, .json or .parquet"

    assert complaint_of(tmp_path) == f"no data in {tmp_path}: {expected}"


def test_file_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.touch()

    assert complaint_of(path).startswith(f"cannot read {path}: expected a file that ends in .jsonl")


@pytest.mark.parametrize("source", ["missing.jsonl", "./missing", "/no/such/file", Path("missing")])
def test_missing_source_is_refused_before_the_first_row_is_asked_for(source: str | Path) -> None:
    with pytest.raises(CalyrexError) as error:
        read_chats(source)

    assert str(error.value) == f"no data at {source}: expected a file, a folder or a hub data set"


@pytest.mark.parametrize("source", ["someone/chats", "someone/chats:test"])
def test_hub_that_cannot_be_reached_is_named(source: str) -> None:
    with pytest.raises(CalyrexError, match="no folder or file someone/chats, and the hub cannot be reached"):
        read_chats(source)


@pytest.mark.skipif(sys.platform == "win32", reason="no memory limits on Windows")
def test_corpus_larger_than_memory_is_streamed(tmp_path: Path) -> None:
    """Read 256 MB in a process that may hold 96 MB."""
    path = tmp_path / "train.jsonl"
    row = json.dumps({"messages": [QUESTION, {"role": "assistant", "content": "x" * 65_000}]}) + "\n"
    with path.open("w") as file:
        for _ in range(256):
            file.write(row * 16)
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (96 * 2**20, 96 * 2**20))\n"
        "from calyrex.data.chats import read_chats\n"
        "sys.stdout.write(str(sum(1 for _ in read_chats(sys.argv[1]))))\n"
    )

    result = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)

    assert path.stat().st_size > 256 * 10**6
    assert (result.stdout, result.stderr) == (str(256 * 16), "")
