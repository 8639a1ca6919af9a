"""The model under test, and the judge, as Inspect models."""

import os
import re
from dataclasses import dataclass
from typing import Any

from inspect_ai.model import GenerateConfig, Model, get_model

from calyrex.benchmarks.provider import MAX_CONNECTIONS, LocalModel
from calyrex.models import BUILTIN, recorded_base
from calyrex.options import EvalOptions
from calyrex.training.fingerprint import hash_model

_KEY, _JUDGE_KEY = "CALYREX_API_KEY", "CALYREX_JUDGE_API_KEY"
_MAX_RETRIES = 4
_ATTEMPT_TIMEOUT_S = 900
_SERVED_CONNECTIONS = 16


@dataclass(frozen=True)
class Subject:
    """The model under test.

    Attributes:
        model: The model as Inspect sees it.
        local: The same in this process; None for a served one.
        judge: The model that judges its answers where no program can; None where the options name none.
        identity: What tells it from every other model: names, scale, and a hash of its weights if they are here.
    """

    model: Model
    local: LocalModel | None
    judge: Model | None
    identity: dict[str, Any]


def open_subject(options: EvalOptions) -> Subject:
    """Load the model under test, or name it on its server, and the judge; whether servers answer is not asked.

    Raises:
        CalyrexError: Base or adapter is missing or damaged, or they do not fit.
    """
    judge = _open_served(options.judge, options.judge_url, _JUDGE_KEY) if options.judge and options.judge_url else None
    if options.url is not None:
        model = _open_served(str(options.model), options.url, _KEY)
        return Subject(model, None, judge, {"model": options.model, "url": options.url})
    base = options.model or (recorded_base(options.adapter) if options.adapter else BUILTIN)
    name = re.sub(r"[^\w.-]+", "-", f"{base}-{options.adapter}" if options.adapter else base).strip("-.")[-80:]
    model = get_model(
        f"calyrex/{name}",
        config=GenerateConfig(max_connections=MAX_CONNECTIONS),  # without it Inspect begins with twenty
        memoize=False,
        base=base,
        adapter=options.adapter,
        scale=options.scale,
        dtype=options.dtype,
    )
    if not isinstance(model.api, LocalModel):
        raise TypeError(f"expected the provider of calyrex, got {type(model.api).__name__}")
    identity = {"model": base, "adapter": options.adapter, "scale": options.scale, "dtype": options.dtype}
    return Subject(model, model.api, judge, {**identity, "weights": hash_model(model.api.model)})


def _open_served(name: str, url: str, key_variable: str) -> Model:
    config = GenerateConfig(
        max_retries=_MAX_RETRIES, max_connections=_SERVED_CONNECTIONS, attempt_timeout=_ATTEMPT_TIMEOUT_S
    )
    key = os.environ.get(key_variable) or "none"
    return get_model(f"openai-api/served/{name}", base_url=url, api_key=key, config=config, memoize=False)
