import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from calyrex import gguf
from calyrex.errors import CalyrexError
from calyrex.models import load_base, load_tokenizer
from saved import TEMPLATE, message_of, write_gguf
from tiny import tiny_base


def test_gguf_becomes_the_same_model_with_its_tokenizer(tmp_path: Path, cache: Path) -> None:
    original = tiny_base("llama", torch.bfloat16)
    file = write_gguf(tmp_path / "tiny.gguf", original)

    base, tokenizer = load_base(file, dtype="bfloat16", device="cpu"), load_tokenizer(file)

    input_ids = torch.arange(3, 20)[None]
    assert torch.equal(base(input_ids).logits, original(input_ids).logits)
    assert Path(str(base.name_or_path)).parent == cache / "models"
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer("<|im_end|>").input_ids == [2]
    assert tokenizer.tokenize("12") == ["1", "2"]


def test_gguf_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", tiny_base())
    first = gguf.convert(file)
    copy = tmp_path / "elsewhere" / "tiny.gguf"
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    monkeypatch.setattr(gguf, "_read", lambda _: pytest.fail("converted again"))

    assert gguf.convert(copy) == first


def test_another_content_under_the_same_name_is_another_model(tmp_path: Path) -> None:
    first = gguf.convert(write_gguf(tmp_path / "tiny.gguf", tiny_base(seed=0)))

    assert gguf.convert(write_gguf(tmp_path / "tiny.gguf", tiny_base(seed=1))) != first


@pytest.mark.slow
def test_processes_that_convert_at_once_get_the_same_whole_folder(tmp_path: Path, cache: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", tiny_base())

    with multiprocessing.get_context("spawn").Pool(2) as pool:
        folders = pool.map(gguf.convert, [file] * 2, chunksize=1)

    assert folders[0] == folders[1]
    assert [path.name for path in (cache / "models").iterdir()] == [folders[0].name]
    load_base(folders[0], device="cpu")


def test_folder_that_appears_during_the_conversion_is_kept(tmp_path: Path) -> None:
    partial, target = tmp_path / "partial", tmp_path / "target"
    for folder in (partial, target):
        folder.mkdir()
        (folder / "config.json").write_text(folder.name)

    gguf._publish(partial, target)

    assert (target / "config.json").read_text() == "target"


def test_abandoned_conversion_is_not_used_and_is_removed_a_day_later(tmp_path: Path, cache: Path) -> None:
    abandoned = cache / "models" / ".partial-old"
    abandoned.mkdir(parents=True)
    os.utime(abandoned, (0, 0))

    folder = gguf.convert(write_gguf(tmp_path / "tiny.gguf", tiny_base()))

    assert list((cache / "models").iterdir()) == [folder]


def test_cache_that_cannot_be_written_is_named_with_the_way_out(tmp_path: Path, cache: Path) -> None:
    cache.write_text("a file stands in the way")

    with pytest.raises(CalyrexError) as error:
        load_base(write_gguf(tmp_path / "tiny.gguf", tiny_base()))

    assert str(cache / "models") in message_of(error)
    assert "set CALYREX_CACHE to another folder" in message_of(error)


@pytest.mark.parametrize("size", [10, 2000, -64])
def test_cut_gguf_is_refused_by_name(tmp_path: Path, cache: Path, size: int) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", tiny_base())
    file.write_bytes(file.read_bytes()[:size])

    with pytest.raises(CalyrexError) as error:
        load_base(file)

    assert message_of(error).startswith(f"cannot read {file} as a causal language model")
    assert not cache.exists()


def test_file_that_is_no_gguf_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_text("<html>not found</html>")

    with pytest.raises(CalyrexError, match="does not start with 'GGUF': download it again"):
        load_base(file)
