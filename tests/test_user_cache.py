from pathlib import Path

import pytest

from calyrex.user_cache import CACHE_VARIABLE, cache_folder


def test_cache_follows_the_variable_then_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "/chosen")
    assert cache_folder() == Path("/chosen")

    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/calyrex")
