import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from calyrex.cli import parse
from cli_reference import render_reference

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = [
    line.removeprefix("$ ")
    for page in PAGES
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for line in block.splitlines()
]


def test_command_line_reference_is_current() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")

    assert page == render_reference(), "run: make docs"


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("calyrex ")])
def test_documented_command_is_accepted(command: str) -> None:
    verb, _ = parse(shlex.split(command)[1:])

    assert verb == command.split()[1]


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("make ")])
def test_documented_make_target_exists(command: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    assert re.search(rf"^{command.split()[1]}:", makefile, flags=re.MULTILINE)


def test_readme_names_the_set_up_and_the_test_command() -> None:
    assert {"make demo", "make test"} <= set(COMMANDS)


@pytest.mark.real_model
def test_python_of_the_readme_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)[0]
    output = io.StringIO()

    with contextlib.redirect_stdout(output):
        exec(compile(code, "README.md", "exec"), {})

    assert output.getvalue().strip()
