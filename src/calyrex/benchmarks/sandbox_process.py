"""The process in which one function of a data set runs; started by ``sandbox.py`` as a script, never imported.

It reads one JSON object from standard input, bounds what the process may use, and denies from then on every action
that Python reports to audit hooks and that plain computation does not need. The verdict leaves through a pipe of its
own, behind a key that was drawn for this call: what the function prints goes nowhere.
"""

import json
import os
import posix
import resource
import sys
from types import BuiltinFunctionType
from typing import Any

_CPU_S = 2
_MEMORY_BYTES = 512 * 2**20
_PRELOADED = ("base64", "collections", "json", "math", "re", "string", "textwrap", "unicodedata")
# Needed to compile, import and compute; everything else is denied, also what later versions of Python report.
_ALLOWED_EVENTS = frozenset(
    (
        *("compile", "exec", "import", "marshal.loads", "builtins.id", "sys._getframe", "sys._getframemodulename"),
        *("object.__getattr__", "object.__setattr__", "object.__delattr__"),
    )
)
# Modules whose functions are not all reported.
_DENIED_MODULES = frozenset(
    (
        *("_ctypes", "_multiprocessing", "_posixshmem", "_posixsubprocess", "_signal", "_socket", "_ssl"),
        *("ctypes", "fcntl", "gc", "mmap", "multiprocessing", "pty", "resource", "select", "signal", "socket"),
        *("ssl", "subprocess", "syslog", "termios"),
    )
)
# What importing needs of the functions of the operating system; the others are taken away.
_KEPT_FUNCTIONS = frozenset(("fspath", "fstat", "getcwd", "getpid", "listdir", "lstat", "stat", "strerror", "urandom"))


def _limit() -> None:
    """Set hard limits, as far as the system knows them: they hold without any help of Python."""
    limits = {
        resource.RLIMIT_CPU: _CPU_S,
        resource.RLIMIT_AS: _MEMORY_BYTES,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 16,
    }
    for limit, value in limits.items():
        try:
            resource.setrlimit(limit, (value, value))
        except (OSError, ValueError):  # macOS bounds no address space
            continue


def _strip() -> None:
    """Take away modules and functions of the operating system that audit hooks hear nothing of."""
    for name in _DENIED_MODULES:
        sys.modules.pop(name, None)
    for module in (posix, os):
        for name, value in list(vars(module).items()):
            is_kept = name in _KEPT_FUNCTIONS or name.startswith("_path")
            if isinstance(value, BuiltinFunctionType) and not is_kept:
                delattr(module, name)


def _deny(library: str) -> None:
    """Refuse reported actions for good: an audit hook cannot be taken away.

    All that it uses is bound here, since the program can put other things under the names of the builtins.
    """
    allowed, denied, exact, text = _ALLOWED_EVENTS, _DENIED_MODULES, type, str
    refused, missing = PermissionError, ImportError

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "os.listdir"):
            path, mode = arguments[0], arguments[1] if event == "open" else "r"
            is_read = exact(path) is text and exact(mode) is text and mode in ("r", "rb")
            place = text(path) + "/"
            if is_read and ".." not in place and place.startswith(library):
                return
        elif event == "import":
            if exact(arguments[0]) is text and arguments[0] not in denied:
                return
            raise missing  # what a module can do without it does without
        elif event in allowed and (event, *arguments[1:2]) != ("object.__setattr__", "__code__"):
            return
        raise refused

    sys.addaudithook(refuse)


def main() -> None:
    """Run the function and write the verdict: ``1`` or ``0`` after the key."""
    request = json.loads(sys.stdin.buffer.read())
    verdict_file = int(sys.argv[1])
    library = os.path.dirname(os.path.abspath(os.__file__)) + "/"
    namespace: dict[str, Any] = {"__name__": "grader", **{name: __import__(name) for name in _PRELOADED}}
    program = compile(request["source"], "<grader>", "exec")
    write, leave = posix.write, posix._exit
    _limit()
    _strip()
    _deny(library)
    exec(program, namespace)
    result = namespace[request["function"]](*request["arguments"])
    if result is True or result is False:
        write(verdict_file, (request["key"] + str(int(result))).encode())
    leave(0)


if __name__ == "__main__":
    main()
