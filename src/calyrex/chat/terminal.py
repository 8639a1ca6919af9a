"""Lines in and text out: standard input and output, a terminal or a pipe."""

import contextlib
import sys
from collections.abc import Iterator

from calyrex.errors import CalyrexError
from calyrex.report.plain import make_visible

_PROMPT = "> "


def read_lines(greeting: str) -> Iterator[str]:
    """Read what the user says, in a terminal with a prompt and a history; empty lines are left out."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal:
        write(greeting)
        with contextlib.suppress(ImportError):  # Windows has none
            import readline  # noqa: F401
    try:
        while line := f"{input(_PROMPT)}\n" if is_terminal else sys.stdin.readline():
            if line.strip():
                yield line.strip()
    except UnicodeDecodeError as error:
        given = error.object[error.start : error.end]
        raise CalyrexError(f"standard input must be {error.encoding} text, got {given!r}") from error
    except (EOFError, KeyboardInterrupt):
        write("")


def write(text: str, end: str = "\n") -> None:
    """Write to standard output at once, control characters as pictures."""
    sys.stdout.write(make_visible(text) + end)
    sys.stdout.flush()


def note(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"calyrex: {make_visible(' '.join(text.split()))}\n")
