import pytest

from calyrex import hub


@pytest.mark.parametrize("name", ["gpt2", "HuggingFaceTB/SmolLM2-135M-Instruct", "a_b/c.d"])
def test_hub_ids_are_recognised(name: str) -> None:
    assert hub.is_hub_id(name)


@pytest.mark.parametrize("name", ["", "/a", "./a", "a/b/c", "a b", "../a", "~/a", "C:\\a"])
def test_paths_are_no_hub_ids(name: str) -> None:
    assert not hub.is_hub_id(name)
