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


def assert_well_formed(page: Page) -> None:
    """Every element is closed in its order, and no two have the same id."""
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]

    assert page.mistakes == []
    assert page.open == []
    assert len(ids) == len(set(ids))


def assert_self_contained(page: Page) -> None:
    """Nothing is loaded, no element has a style or a handler of its own, and links stay inside the page."""
    attributes = [name for _, given in page.elements for name in given]
    links = [given["href"] for _, given in page.elements if given.get("href")]

    assert {"src", "srcset", "style", "xlink:href"} & set(attributes) == set()
    assert [name for name in attributes if name.startswith("on")] == []
    assert [link for link in links if not str(link).startswith("#")] == []
    assert not re.search(r"https?:|@import|url\((?!#)|fetch\(|<link|<image", page.source)
    assert 'content="default-src &#39;none&#39;;' in page.source


def assert_references_inside(page: Page) -> None:
    """What figures, links and labels refer to is in the page."""
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    names = ("href", "aria-labelledby", "aria-describedby")
    used = set(re.findall(r"url\(#([^)]*)\)", page.source))
    used |= {str(given[name]).removeprefix("#") for _, given in page.elements for name in names if given.get(name)}

    assert used - ids == set()
