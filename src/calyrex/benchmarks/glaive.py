"""Glaive function calling: does a model call the right function with the right arguments.

A case is a conversation up to the first function call in it. The functions stand in the system prompt as JSON, with the
rule to answer only with a call. Conversations without a call are no cases: the rule would contradict them.

Metrics, each the share of cases; there is no published evaluation of this data set to compare with:

- ``call``: everything is right, the three below together;
- ``parsed``: a call could be read: a JSON object with a text ``name`` and an object ``arguments`` (or the JSON text of
  one), wherever it stands in the answer: bare, in a code fence, in ``<functioncall>`` or ``<tool_call>`` tags, with
  words around it. The first call counts;
- ``name``: the function is the right one;
- ``arguments``: the arguments are equal to the recorded ones: the same names, in any order, and for each the same
  JSON value. Numbers are equal by value (5 is 5.0); a text is never a number ("5" is not 5) and true is not 1; texts
  are equal character by character, lists item by item.

Source: Glaive AI, ``glaiveai/glaive-function-calling-v2`` on the hub; the data folder holds the 300 of its rows that
``hiyouga/LLaMA-Factory`` ships in its own format.
"""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from calyrex.benchmarks.benchmark import Benchmark, Case, Scored, Verdict
from calyrex.benchmarks.metric import Metric, share
from calyrex.benchmarks.row import read_list, read_text
from calyrex.benchmarks.source import Hub, Source
from calyrex.errors import CalyrexError
from calyrex.masking import Message

FILE = "glaive/glaive_toolcall_en_demo.json"
HUB = Hub("glaiveai/glaive-function-calling-v2", "train")
SYSTEM_PROMPT = (
    "You act by calling functions. Answer only with one JSON object, "
    '{{"name": <name of the function>, "arguments": {{<name of the parameter>: <value>, ...}}}}, '
    "that calls the function which does what the user asks.\n\nFunctions:\n{functions}"
)
METRICS = ("call", "parsed", "name", "arguments")

_SPEAKER = re.compile(r"^(USER|ASSISTANT|FUNCTION RESPONSE):", re.MULTILINE)
_ROLES = {"human": "user", "gpt": "assistant", "USER": "user", "ASSISTANT": "assistant"}
_CALL_MARK = "<functioncall>"
_END_MARK = "<|endoftext|>"
# The original data set writes the arguments as JSON in single quotes, which is no JSON.
_QUOTED_ARGUMENTS = re.compile(r'\{\s*"name"\s*:\s*"([^"]*)"\s*,\s*"arguments"\s*:\s*\'\s*')
_DECODER = json.JSONDecoder()
_MAX_PLACES = 1000


class Call(NamedTuple):
    """A function call.

    Attributes:
        name: Name of the function.
        arguments: Its arguments, as JSON values.
    """

    name: str
    arguments: dict[str, Any]


def find_call(text: str) -> Call | None:
    """Return the first function call in a text, None where its first thousand braces open none."""
    places = itertools.islice(_braces(text), _MAX_PLACES)
    return next(filter(None, (_read_call(text, at) for at in places)), None)


def is_equal(one: object, other: object) -> bool:
    """Tell whether two JSON values are the same: numbers by value, everything else by kind and content."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def _braces(text: str) -> Iterator[int]:
    return (match.start() for match in re.finditer(r"\{", text))


def _read_call(text: str, at: int) -> Call | None:
    value = _decode(text, at)
    if value is not None:
        name, arguments = value.get("name"), value.get("arguments")
        if isinstance(arguments, str):
            arguments = _decode(arguments.strip(), 0)
    elif quoted := _QUOTED_ARGUMENTS.match(text, at):
        name, arguments = quoted[1], _decode(text, quoted.end())
    else:
        return None
    return Call(name, arguments) if isinstance(name, str) and isinstance(arguments, dict) else None


def _decode(text: str, at: int) -> dict[str, Any] | None:
    """Return the JSON object that begins at a place of a text, None where there is none."""
    try:
        value, _ = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):  # no JSON, a number with too many digits, nested too deeply
        return None
    return value if isinstance(value, dict) else None


def _load(source: Source) -> list[Case]:
    read = (_read_row(row, str(number), origin) for number, (row, origin) in enumerate(source.rows(FILE, HUB)))
    return [case for case in read if case is not None]


def _read_row(row: dict[str, Any], case_id: str, origin: str) -> Case | None:
    """Return the case of a row of either format, None where nothing is called."""
    if "conversations" in row:
        functions, turns, call = _read_conversation(row, origin)
    else:
        functions, turns, call = _read_chat(row, origin)
    if call is None:
        return None
    if not turns or turns[-1]["role"] != "user":
        raise CalyrexError(f"{origin}: expected a user's turn before the function call, got none")
    system = SYSTEM_PROMPT.format(functions=json.dumps(functions, ensure_ascii=False))
    return Case(case_id, [{"role": "system", "content": system}, *turns], call._asdict())


def _read_conversation(row: dict[str, Any], origin: str) -> tuple[list[Any], list[Message], Call | None]:
    """Read a row of LLaMA-Factory: ``conversations`` of ``from`` and ``value``, ``tools`` as JSON text."""
    turns: list[Message] = []
    for turn in read_list(row, "conversations", origin):
        speaker, text = read_text(turn, "from", origin), read_text(turn, "value", origin)
        if speaker == "function_call":
            call = find_call(text)
            if call is None:
                raise CalyrexError(f"{origin}: expected a function call as JSON, got {text[:60]!r}")
            return _read_tools(row, origin), turns, call
        if speaker not in _ROLES:
            raise CalyrexError(f"{origin}: expected a turn from human, gpt or function_call, got {speaker!r}")
        turns.append({"role": _ROLES[speaker], "content": text})
    return [], turns, None


def _read_tools(row: dict[str, Any], origin: str) -> list[Any]:
    text = read_text(row, "tools", origin)
    try:
        tools = json.loads(text)
    except ValueError as error:
        raise CalyrexError(f"{origin}: 'tools' must be a list as JSON, got {text[:60]!r}") from error
    return read_list({"tools": tools}, "tools", origin)


def _read_chat(row: dict[str, Any], origin: str) -> tuple[list[Any], list[Message], Call | None]:
    """Read a row of the original: functions as JSON in the text ``system``, the turns in the text ``chat``.

    Some calls of the original are broken beyond reading; a row with such a first call has no case.
    """
    turns: list[Message] = []
    _, *parts = _SPEAKER.split(read_text(row, "chat", origin))
    for speaker, text in zip(parts[::2], parts[1::2], strict=True):
        if speaker == "ASSISTANT" and _CALL_MARK in text:
            return _read_functions(read_text(row, "system", origin)), turns, find_call(text.partition(_CALL_MARK)[2])
        if speaker in _ROLES:
            turns.append({"role": _ROLES[speaker], "content": text.replace(_END_MARK, "").strip()})
    return [], turns, None


def _read_functions(text: str) -> list[dict[str, Any]]:
    """Return the function descriptions that stand one after the other in a text."""
    functions, end = [], 0
    for at in _braces(text):
        if at >= end and (function := _decode(text, at)) is not None:
            functions.append(function)
            end = _DECODER.raw_decode(text, at)[1]
    return functions


def _score(case: Case, answers: Sequence[str]) -> Verdict:
    call = find_call(answers[0])
    has_name = call is not None and call.name == case.reference["name"]
    has_arguments = call is not None and is_equal(call.arguments, case.reference["arguments"])
    return {
        "parsed": call is not None,
        "name": has_name,
        "arguments": has_arguments,
        "call": has_name and has_arguments,
    }


def _summarise(scored: Sequence[Scored]) -> dict[str, Metric]:
    return {name: share(one.verdict[name] for one in scored) for name in METRICS}


GLAIVE = Benchmark(
    name="glaive",
    measures="function calling: the right function with the right arguments",
    origin="glaiveai/glaive-function-calling-v2; local file from hiyouga/LLaMA-Factory",
    licence="Apache-2.0",
    max_new_tokens=256,
    load=_load,
    score=_score,
    summarise=_summarise,
)
