"""GGUF files as ordinary model folders: unpacked once, kept as safetensors in the user's cache.

A GGUF file holds packed weights, a config and a tokenizer. Unpacking takes half a minute for the smallest
models, so the result is kept in a folder named after the file's content; every later start loads that folder.
"""

import hashlib
import logging
import os
import shutil
import struct
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from calyrex.errors import CalyrexError
from calyrex.user_cache import CACHE_VARIABLE, cache_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, TokenizersBackend

_MAGIC = b"GGUF"
_TEXT_FIELD = 8
_HEADER_LIMIT_BYTES = 2**25
_PARTIAL_PREFIX = ".partial-"
_PARTIAL_LIFETIME_S = 24 * 3600

logger = logging.getLogger(__name__)


def is_gguf(path: Path) -> bool:
    """Tell whether a file starts as a GGUF file does."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def folder_name(gguf_file: Path) -> str:
    """Return the name of the folder that a GGUF file is converted to, made from its content."""
    with gguf_file.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{gguf_file.stem}-{digest[:16]}"


def is_folder_of(folder: str, gguf_file: Path | None) -> bool:
    """Tell whether a path, perhaps of another machine, names the folder that a GGUF file is converted to."""
    name = PurePath(folder.replace("\\", "/")).name
    return gguf_file is not None and name.startswith(f"{gguf_file.stem}-") and name == folder_name(gguf_file)


def convert(gguf_file: Path) -> Path:
    """Convert a GGUF file to a model folder in the cache, unless it is already there.

    The folder appears under its name in one step when it is complete, so several processes may convert at
    once and a killed one leaves nothing that is ever used.

    Returns:
        The folder: config, bfloat16 safetensors, tokenizer with its chat template.

    Raises:
        CalyrexError: The file is no readable GGUF, its architecture is unknown, or the cache cannot be
            written.
    """
    if not is_gguf(gguf_file):
        raise CalyrexError(f"expected a GGUF file, but {gguf_file} does not start with 'GGUF': download it again")
    target = cache_folder() / "models" / folder_name(gguf_file)
    if target.is_dir():
        return target
    logger.info("converting %s once, to %s", gguf_file.name, target)
    model, tokenizer = _read(gguf_file)
    _write(model, tokenizer, target)
    return target


def _read(gguf_file: Path) -> tuple["PreTrainedModel", "TokenizersBackend"]:
    if find_spec("gguf") is None:
        raise CalyrexError(f"reading {gguf_file} needs the package gguf: pip install gguf")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {
        "pretrained_model_name_or_path": str(gguf_file.parent),
        "gguf_file": gguf_file.name,
    }
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(**where)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            **where, **_unpacked(), dtype=torch.bfloat16, output_loading_info=True
        )
    except Exception as error:  # the readers raise anything on a damaged file, down to a bare Exception
        raise CalyrexError(
            f"cannot read {gguf_file} as a causal language model: {_first_line(error)}; "
            "it is damaged (download it again) or of an architecture that transformers cannot read"
        ) from error
    model, missing = loaded[0], loaded[1]["missing_keys"]
    if missing:
        raise CalyrexError(
            f"{gguf_file} is incomplete: {len(missing)} tensors are missing, such as {min(missing)}; download it again"
        )
    _mend_pre_tokenizer(tokenizer, gguf_file)
    tokenizer.model_max_length = model.config.max_position_embeddings
    return model, tokenizer


def _unpacked() -> dict[str, Any]:
    """Return the argument that unpacks every weight; older versions of transformers know no other way."""
    import transformers

    if "GgufConfig" not in dir(transformers):
        return {}
    return {"quantization_config": transformers.GgufConfig(dequantize=True)}


def _mend_pre_tokenizer(tokenizer: "TokenizersBackend", gguf_file: Path) -> None:
    """Split digits one by one where the file asks for it; transformers ignores ``tokenizer.ggml.pre``."""
    from tokenizers import pre_tokenizers

    if _read_text(gguf_file, "tokenizer.ggml.pre") == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )


def _read_text(gguf_file: Path, key: str) -> str | None:
    """Read one text field of the header; a full reader takes seconds for the vocabulary alone."""
    with gguf_file.open("rb") as file:
        head = file.read(_HEADER_LIMIT_BYTES)
    start = head.find(key.encode() + struct.pack("<I", _TEXT_FIELD))
    if start < 0:
        return None
    start += len(key) + 4
    (length,) = struct.unpack_from("<Q", head, start)
    return head[start + 8 : start + 8 + length].decode()


def _write(model: "PreTrainedModel", tokenizer: "TokenizersBackend", target: Path) -> None:
    from safetensors import SafetensorError

    # Left behind by the loader, it makes save_pretrained refuse although every weight is unpacked.
    model.config.__dict__.pop("quantization_config", None)
    model.config.__dict__.pop("_model_name_or_path", None)
    model.__dict__.pop("hf_quantizer", None)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target.parent)
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL_PREFIX, dir=target.parent))
        try:
            model.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
            _publish(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise CalyrexError(
            f"cannot write the converted model to {target.parent}: {_first_line(error)}; "
            f"free some space there or set {CACHE_VARIABLE} to another folder"
        ) from error


def _publish(partial: Path, target: Path) -> None:
    """Rename the complete folder to its final name; a folder that another process put there first stays."""
    for path in partial.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    try:
        partial.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob(f"{_PARTIAL_PREFIX}*"):
        if time.time() - path.stat().st_mtime > _PARTIAL_LIFETIME_S:
            shutil.rmtree(path, ignore_errors=True)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
