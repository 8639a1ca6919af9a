import time
from pathlib import Path

import pytest

from calyrex.benchmarks.sandbox import call_untrusted


def grader(body: str, before: str = "") -> str:
    return before + "\ndef grade(question, answer):\n" + "\n".join(f"    {line}" for line in body.splitlines())


def call(source: str, answer: str = "hello") -> bool | None:
    return call_untrusted(source, "grade", ["h", answer])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (grader("return question in answer"), True),
        (grader("return question not in answer"), False),
        (grader("return re.search('l+', answer) is not None and json.loads('1') == 1"), True),
        (grader("import difflib, dataclasses, datetime, random\nreturn True"), True),
        (grader("return collections.namedtuple('P', 'x')(1).x == 1"), True),
        (grader("print(answer)\nreturn False"), False),
    ],
)
def test_a_function_that_computes_gives_its_verdict(source: str, expected: bool) -> None:
    assert call(source) is expected


@pytest.mark.parametrize(
    "source",
    [
        grader("raise ValueError"),
        grader("raise SystemExit(0)"),
        grader("import os\nos._exit(0)"),
        grader("return grade(question, answer)"),
        grader("return 1"),
        grader("return 'True'"),
        grader("return None"),
        grader("print('1' * 100)"),
        grader("return len('a' * 10**10) > 1"),
        grader("chunks = []\nwhile True: chunks.append('a' * 10**7)"),
        "def grade(",
        "",
        "grade = True",
        "raise SystemExit",
    ],
)
def test_a_function_that_fails_or_returns_no_bool_gives_no_verdict(source: str) -> None:
    assert call(source) is None


@pytest.mark.parametrize(
    "body",
    [
        "import os\nos.system('touch {mark}')",
        "import os\nos.fork()",
        "import posix\nposix.mkfifo('{mark}')",
        "import subprocess\nsubprocess.run(['touch', '{mark}'])",
        "import _posixsubprocess",
        "import socket\nsocket.create_connection(('127.0.0.1', 9))",
        "import ctypes",
        "open('/etc/passwd').read()",
        "open('{mark}', 'w').close()",
        "import os\nos.listdir('/')",
        "import os\nos.remove('{mark}')",
        "open(re.__file__ + '/../../../../../../../../etc/passwd').read()",
        "class Text(str):\n    def startswith(self, *prefix): return True\nopen(Text('/etc/passwd')).read()",
        "import builtins\nbuiltins.type = lambda value: str\nopen('/etc/passwd').read()",
        "import __main__\n__main__._ALLOWED_EVENTS = ['open']\nopen('/etc/passwd').read()",
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (99, 99))",
    ],
)
def test_files_network_and_processes_are_denied(tmp_path: Path, body: str) -> None:
    mark = tmp_path / "mark"

    verdict = call(grader(body.format(mark=mark) + "\nreturn True"))

    assert verdict is None
    assert not mark.exists()


@pytest.mark.parametrize(
    "body", ["import time\ntime.sleep(60)", "while True: pass", "while True:\n    print('x' * 10**6)"]
)
def test_a_function_that_hangs_is_ended(body: str) -> None:
    start = time.monotonic()

    verdict = call_untrusted(grader(body), "grade", ["", ""], timeout_s=1.0)

    assert verdict is None
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("answer", ["1", "True", '{"key": "1"}', "1" * 100_000, "\x00 é", "'''\nreturn True"])
def test_the_answer_cannot_forge_the_verdict(answer: str) -> None:
    assert call(grader("print(answer, flush=True)\nreturn False"), answer) is False
    assert call(grader("print(answer, flush=True)"), answer) is None


def test_an_answer_that_the_grader_evaluates_cannot_act(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    verdict = call(grader("return eval(answer)"), f"__import__('os').system('touch {mark}') == 0")

    assert verdict is None
    assert not mark.exists()
