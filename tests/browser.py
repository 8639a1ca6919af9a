"""A real Chromium driven over a pipe, as a person would: pointer, keys and what is then on the page."""

import base64
import fcntl
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

from pages import CHROMIUM

# Chromium reads its commands from descriptor 3 and answers on 4.
LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), " ": (32, " ")}
KEYS |= {"ArrowLeft": (37, ""), "ArrowRight": (39, ""), "Home": (36, ""), "End": (35, "")}
PATIENCE_S = 20.0
CONTROL = 2


class Browser:
    """The process and its pipe; messages are JSON that ends with a zero byte."""

    def __init__(self, profile: Path) -> None:
        (read_command, self.commands), (self.answers, write_answer) = os.pipe(), os.pipe()
        given = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read_command, write_answer)]
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *map(str, given), str(CHROMIUM), *options, "--no-first-run", "about:blank"],
            pass_fds=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (read_command, write_answer, *given):
            os.close(end)
        self.number, self.rest = 0, b""
        self.events: deque[dict[str, Any]] = deque()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        os.write(self.commands, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while (answer := self.read()).get("id") != self.number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            ready, _, _ = select([self.answers], [], [], PATIENCE_S)
            piece = os.read(self.answers, 1 << 20) if ready else b""
            if not piece:
                raise TimeoutError("Chromium does not answer")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def close(self) -> None:
        os.close(self.commands)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.answers)


class Tab:
    """One page with a profile of its own."""

    def __init__(self, browser: Browser, width: int, height: int, features: dict[str, str]) -> None:
        self.browser = browser
        self.clicks = 0
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Page.enable")
        given = [{"name": name, "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=given)
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Return what a script's expression, or its promise, is."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"].get("exception", {}).get("description"))
        return done["result"].get("value")

    def becomes(self, script: str, patience_s: float = PATIENCE_S) -> bool:
        """Wait until an expression is true; return whether it was in time."""
        end = time.monotonic() + patience_s
        while not self.run(f"Boolean({script})"):
            if time.monotonic() > end:
                return False
            time.sleep(0.03)
        return True

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        if not self.becomes(script):
            raise TimeoutError(f"never true: {script}\n{self.run('document.body.innerText')}")

    def text(self, selector: str) -> str:
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def texts(self, selector: str) -> list[str]:
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((found) => found.textContent)")

    def place(self, selector: str) -> tuple[float, float]:
        box = "const { x, y, width, height } = found.getBoundingClientRect(); return [x + width / 2, y + height / 2];"
        found = f"document.querySelector({json.dumps(selector)})"
        x, y = self.run(f"((found) => {{ found.scrollIntoView({{ block: 'center' }}); {box} }})({found})")
        return x, y

    def point(self, selector: str) -> None:
        x, y = self.place(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Click on an element; again if it moved away, as happens while a page still grows."""
        self.clicks += 1
        found = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{found}.addEventListener('click', () => {{ window.hit = {self.clicks}; }}, {{ once: true }})")
        for _ in range(5):
            x, y = self.place(selector)
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            if self.becomes(f"window.hit === {self.clicks}", patience_s=1.0):
                return
        raise TimeoutError(f"cannot be clicked: {selector}")

    def tap(self, selector: str) -> None:
        x, y = self.place(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key: str, modifiers: int = 0) -> None:
        code, text = KEYS[key]
        given = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": code,
            "modifiers": modifiers,
        }
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text and not modifiers else {})
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def write(self, selector: str, text: str) -> None:
        """Replace what stands in a field."""
        self.run(f"((field) => {{ field.focus(); field.select(); }})(document.querySelector({json.dumps(selector)}))")
        self.call("Input.insertText", text=text)

    def shoot(self, path: Path, whole: bool = False) -> None:
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))

    def complaints(self) -> list[str]:
        """What the page's console has said since: exceptions, and what the policy or the network refused."""
        self.run("0")
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        events = [event for event in self.browser.events if event.get("sessionId") == self.session]
        return [json.dumps(event["params"]) for event in events if event["method"] in kinds]

    def close(self) -> None:
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)


@contextmanager
def start_browser(profile: Path) -> Iterator[Browser]:
    browser = Browser(profile)
    try:
        yield browser
    finally:
        browser.close()


@contextmanager
def open_tab(browser: Browser, address: str, *, width: int = 1280, height: int = 900, **features: str) -> Iterator[Tab]:
    """Open an address; features are ``prefers_color_scheme`` and the like."""
    tab = Tab(browser, width, height, {name.replace("_", "-"): value for name, value in features.items()})
    try:
        tab.open(address)
        yield tab
    finally:
        tab.close()
