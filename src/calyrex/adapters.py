"""Adapter folders on disk: read with care, and matched with a base before anything is changed."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calyrex.errors import CalyrexError
from calyrex.hub import fetch, is_hub_id

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PreTrainedModel

_CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class AdapterFiles:
    """What an adapter folder holds.

    Attributes:
        folder: where it lies.
        config: its PEFT config.
        shapes: shape of each stored tensor by its name in the file.
    """

    folder: Path
    config: "PeftConfig"
    shapes: dict[str, tuple[int, ...]]

    @property
    def base(self) -> str | None:
        """Name or path of the base it was trained on; None where that was not recorded."""
        return self.config.base_model_name_or_path or None


def read_adapter(adapter_path: str | Path) -> AdapterFiles:
    """Read the config and the tensor shapes of an adapter, without its weights.

    Args:
        adapter_path: A folder that ``save_pretrained`` wrote, or the hub id of one.

    Raises:
        CalyrexError: There is no adapter, or a file of it is missing or damaged.
    """
    folder = _find_folder(adapter_path)
    for name in (_CONFIG, _WEIGHTS):
        if not (folder / name).is_file():
            raise CalyrexError(f"no adapter at {adapter_path}: {name} is missing")
    return AdapterFiles(folder, _read_config(folder), _read_shapes(folder / _WEIGHTS))


def check_adapter(adapter_path: str | Path, base: "PreTrainedModel", *, allow_other_base: bool = False) -> None:
    """Make sure that an adapter belongs to a base; neither is changed.

    Args:
        adapter_path: A folder that ``save_pretrained`` wrote, or the hub id of one.
        base: The model, without adapters.
        allow_other_base: Accept an adapter that was trained on a base of another name, if every tensor fits.

    Raises:
        CalyrexError: The adapter is missing or damaged, records another base, or its tensors are not exactly
            those that the base would get, with finite numbers in them.
    """
    adapter = read_adapter(adapter_path)
    expected = _expected_shapes(adapter, base)
    complaint = _compare(adapter.shapes, expected)
    origin = f"the adapter {adapter_path}" + (f", trained on {adapter.base}," if adapter.base else "")
    if complaint:
        raise CalyrexError(f"{origin} does not fit {_describe(base)}: {complaint}")
    _require_finite(adapter.folder / _WEIGHTS)
    if not allow_other_base and not _is_same_base(adapter.base, base.name_or_path):
        raise CalyrexError(
            f"{origin} was not trained on {base.name_or_path}; give its own base, or allow another base if "
            "these are the same weights under another name"
        )


def _find_folder(adapter_path: str | Path) -> Path:
    folder = Path(adapter_path).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists() or isinstance(adapter_path, Path) or "/" not in adapter_path or not is_hub_id(adapter_path):
        raise CalyrexError(f"no adapter at {adapter_path}: expected a folder with {_CONFIG} and {_WEIGHTS}")
    return fetch(adapter_path, [_CONFIG, _WEIGHTS])


def _read_config(folder: Path) -> "PeftConfig":
    from peft import PeftConfig

    try:
        config: PeftConfig = PeftConfig.from_pretrained(str(folder))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CalyrexError(f"{folder / _CONFIG} is damaged: no JSON ({error})") from error
    except KeyError as error:
        raise CalyrexError(f"{folder / _CONFIG} names a peft_type that PEFT does not know: {error}") from error
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CalyrexError(f"{folder / _CONFIG} is no PEFT config: {error}") from error
    if not isinstance(config.base_model_name_or_path, str | None):
        raise CalyrexError(f"{folder / _CONFIG}: base_model_name_or_path must be text")
    return config


def _read_shapes(weights: Path) -> dict[str, tuple[int, ...]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CalyrexError(f"{weights} is damaged ({error}): copy or download it again") from error


def _require_finite(weights: Path) -> None:
    from safetensors import safe_open

    with safe_open(weights, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118
            tensor = file.get_tensor(name)
            if not tensor.is_floating_point() or not bool(tensor.float().isfinite().all()):
                raise CalyrexError(f"{weights} is damaged: {name} holds values that are no finite numbers")


def _expected_shapes(adapter: AdapterFiles, base: "PreTrainedModel") -> dict[str, tuple[int, ...]]:
    """Build the adapter over a copy of the base without weights: exact for every PEFT method, and free."""
    import torch
    from peft import PeftConfig, get_peft_model, get_peft_model_state_dict

    config = PeftConfig.from_pretrained(str(adapter.folder))
    config.base_model_name_or_path = None  # PEFT warns when it renames a base
    try:
        with torch.device("meta"):
            skeleton = type(base)(copy.deepcopy(base.config))
            peft_model = get_peft_model(skeleton, config)
    except (CalyrexError, ValueError, TypeError) as error:
        raise CalyrexError(f"the adapter {adapter.folder} does not fit {_describe(base)}: {error}") from error
    state: dict[str, torch.Tensor] = get_peft_model_state_dict(peft_model, save_embedding_layers=False)
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _compare(given: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]) -> str | None:
    """Name the first difference, the most telling kind first."""
    for name in sorted(given.keys() & expected.keys()):
        if given[name] != expected[name]:
            return f"{name} must be {list(expected[name])}, got {list(given[name])}"
    for names, verdict in (
        (given.keys() - expected.keys(), "the base has no place for"),
        (expected.keys() - given.keys(), "the file lacks"),
    ):
        if names:
            return f"{verdict} {len(names)} of its tensors, such as {min(names)}"
    return None


def _describe(base: "PreTrainedModel") -> str:
    config = base.config.get_text_config()
    sizes = f"{config.num_hidden_layers} layers, hidden size {config.hidden_size}"
    return f"{base.name_or_path or type(base).__name__} ({sizes})"


def _is_same_base(recorded: str | None, given: str | None) -> bool:
    """Compare hub ids with an owner as a whole, else the last part, which a model keeps when its folder moves."""
    if not recorded or not given:
        return True
    if all("/" in name and is_hub_id(name) and not Path(name).exists() for name in (recorded, given)):
        return recorded.lower() == given.lower()
    return Path(recorded).name == Path(given).name
