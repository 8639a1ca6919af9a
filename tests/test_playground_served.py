"""The playground in a real browser, on a real server with real blocks."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from browser import Tab, open_tab, start_browser
from pages import CHROMIUM
from server_process import Server, served
from serving import save_models

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
SYSTEM = 'Answer in capital letters only. End every answer with "STOP".'
QUESTION = "What is this?"
CHAT: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(save_models(tmp_path_factory.mktemp("served"))) as server:
        yield server


@pytest.fixture
def tab(server: Server, tmp_path: Path) -> Iterator[Tab]:
    with start_browser(tmp_path / "profile") as browser, open_tab(browser, server.address) as tab:
        yield tab


def ask(server: Server, path: str, body: dict[str, Any]) -> Any:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("POST", path, json.dumps(body))
        return json.loads(connection.getresponse().read())


def test_answers_rules_and_heat_map_are_what_the_server_says(tab: Tab, server: Server) -> None:
    expected = [server.say(model, messages=CHAT, max_tokens=24) for model in ("base", "mine0")]

    tab.wait("document.getElementById('status').textContent === 'Ready.'")
    tab.run("document.getElementById('more').open = true")
    tab.write("#max-tokens", "24")
    tab.write("#system", SYSTEM)
    tab.write("#message", QUESTION)
    tab.click("#send")
    tab.wait("document.querySelectorAll('.rules:not([hidden])').length === 2")
    said = tab.texts(".said")
    rules = tab.texts(".anchored .rules li")
    tab.click(".anchored .toggle")
    tab.wait("document.querySelector('.heard .word')")
    heard = tab.text(".anchored .heard")

    answers = [" ".join((text or "").split()) for text in expected]
    checked = ask(server, "/v1/calyrex/check", {"system": SYSTEM, "question": QUESTION, "answer": expected[1]})
    listened = ask(server, "/v1/calyrex/listen", {"model": "mine0", "messages": CHAT, "answer": expected[1]})
    assert [" ".join(text.split()) for text in said] == answers
    assert [rule["text"] in line for rule, line in zip(checked["rules"], rules, strict=True)] == [True, True]
    assert heard == SYSTEM == "".join(listened["system_tokens"])
    assert sum(listened["weights"]["2"][0]) == pytest.approx(1.0, abs=1e-4)
    assert tab.text(".anchored .heat output").startswith("The answer as a whole listened most to")
    assert tab.complaints() == []
