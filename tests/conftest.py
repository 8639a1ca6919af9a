import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported: nothing is downloaded
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start; more threads round differently

from pathlib import Path

import pytest
import torch

from calyrex.user_cache import CACHE_VARIABLE
from chat_tokenizers import chatml
from tiny import tiny_base

torch.set_num_threads(1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(autouse=True)
def cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder; the built-in model stays in the user's own."""
    folder = tmp_path / "cache"
    if not request.node.get_closest_marker("real_model"):
        monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    return folder


@pytest.fixture
def base_folder(tmp_path: Path) -> Path:
    """A tiny base with a chat tokenizer, on disk."""
    folder = tmp_path / "base"
    tokenizer = chatml()
    base = tiny_base(vocab_size=len(tokenizer))
    base.config.eos_token_id = base.generation_config.eos_token_id = tokenizer.eos_token_id
    base.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def data_file(tmp_path: Path) -> Path:
    """Forty chats whose system prompt asks for a letter."""
    path = tmp_path / "chats.jsonl"
    rows = [
        {
            "messages": [
                {"role": "system", "content": f"Say {letter}."},
                {"role": "user", "content": "Now" * (1 + number % 3)},
                {"role": "assistant", "content": letter * 3},
            ]
        }
        for number, letter in enumerate("abcdefgh" * 5)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path
