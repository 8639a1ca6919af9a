"""Pages of reports as tests read them: parsed, filled with text that means harm, and run in a browser."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&amp;{{ 7 * 7 }}$x^2$|*a*\x1b[31m\u202e"
SHOWN = HOSTILE.replace("\x1b", "␛").replace("\u202e", "\ufffd")
VOID = {"meta", "input", "br", "img", "link", "hr", "col"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(HTMLParser):
    """A page as elements and texts; elements must be closed in the order in which they were opened."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.source = (folder / "report.html").read_text(encoding="utf-8")
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.mistakes: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.mistakes.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def text(self, *tags: str) -> str:
        return " ".join(" ".join(data for tag, data in self.texts if not tags or tag in tags).split())

    def data(self) -> dict[str, Any]:
        return json.loads(re.findall(r'id="data">(.*?)</script>', self.source, flags=re.DOTALL)[0])


def read_in_chromium(path: Path, profile: Path) -> str:
    """Return the page's elements after its script and what was put behind it have run."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={profile}",
        "--virtual-time-budget=3000",
    ]
    done = subprocess.run(
        [str(CHROMIUM), *options, "--dump-dom", path.as_uri()], capture_output=True, timeout=90, check=True
    )
    return done.stdout.decode()
