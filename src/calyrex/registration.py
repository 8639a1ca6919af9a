"""Make PEFT know the methods, in whatever order ``calyrex`` and ``peft`` are imported."""

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_METHODS = {
    "calyrex": ("calyrex.config:CalyrexConfig", "calyrex.tuner:CalyrexModel"),
    "parallel_mlp": ("calyrex.parallel_mlp:ParallelMLPConfig", "calyrex.parallel_mlp:ParallelMLPModel"),
}
"""For each PEFT method the homes of its configuration and its model."""


def register() -> None:
    """Add CALYREX and ParallelMLP to PEFT's methods; does nothing the second time.

    Whoever imports one of their modules before PEFT comes here while that module is half loaded; each calls again at
    its end.
    """
    from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
    from peft.utils import register_peft_method
    from peft.utils.peft_types import PeftType

    for name in _METHODS:
        if name.upper() not in PeftType.__members__:
            _extend_enum(PeftType, name.upper())
    for name, homes in _METHODS.items():
        config = _find(homes[0])
        if config is None:  # the others need it whole
            return
        model = _find(homes[1])
        if model is not None and name.upper() not in PEFT_TYPE_TO_TUNER_MAPPING:
            register_peft_method(name=name, config_cls=config, model_cls=model)


def _find(home: str) -> Any:
    """Return a class, or None while its module is half loaded."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name, None)


def register_with_peft() -> None:
    """Register now if PEFT is loaded, else as soon as it is: importing ``calyrex`` alone stays light."""
    if "peft" in sys.modules:
        register()
    elif not any(isinstance(finder, _PeftFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _PeftFinder())


def _extend_enum(enum: Any, name: str) -> None:
    """Add a member to a ``str`` enum: PEFT's list of methods is closed, and a plain string breaks its model card."""
    member = str.__new__(enum, name)
    member._name_ = member._value_ = name
    enum._member_names_.append(name)
    enum._member_map_[name] = member
    enum._value2member_map_[name] = member
    type.__setattr__(enum, name, member)


class _PeftFinder(MetaPathFinder):
    """Find ``peft`` as usual, and register the method once it has been executed."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "peft":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("peft")
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader)
        return spec


class _RegisteringLoader(Loader):
    """PEFT's own loader, followed by the registration."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        register()
