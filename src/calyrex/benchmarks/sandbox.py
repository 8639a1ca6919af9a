"""Runs functions that come with a data set, each call in a process of its own that may only compute.

A process without environment, packages, files, network and children, bounded in time and memory by the system
(``sandbox_process.py``). This keeps mistakes and common mischief away; it is no wall against an attacker who knows how
to break out of Python itself.
"""

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_PROCESS = Path(__file__).with_name("sandbox_process.py")


def call_untrusted(source: str, function: str, arguments: Sequence[str], *, timeout_s: float = 10.0) -> bool | None:
    """Call a function of a program that is not trusted.

    Args:
        source: The program, as Python source.
        function: Name of the function in it.
        arguments: Its arguments in order.
        timeout_s: Longest time that the call may take, by the clock.

    Returns:
        What it returned, or None where it returned no bool: it raised, hung, exited, used too much memory, or
        tried what is denied.
    """
    key = secrets.token_hex(16)
    request = {"source": source, "function": function, "arguments": list(arguments), "key": key}
    reading, writing = os.pipe()
    try:
        _run(json.dumps(request).encode(), writing, timeout_s)
        os.set_blocking(reading, False)
        verdict = _read(reading)
    finally:
        os.close(reading)
        os.close(writing)
    return {f"{key}1": True, f"{key}0": False}.get(verdict)


def _run(request: bytes, writing: int, timeout_s: float) -> None:
    """Run the process until it ends or its time is over."""
    command = [sys.executable, "-I", "-S", "-B", str(_PROCESS), str(writing)]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={},
            pass_fds=(writing,),
        )
        try:
            process.communicate(request, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _read(reading: int) -> str:
    """Read what the process wrote, at most a little more than a verdict."""
    try:
        return os.read(reading, 64).decode("ascii", errors="replace")
    except BlockingIOError:  # it wrote nothing
        return ""
