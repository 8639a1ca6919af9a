"""What an analysis has found: the document that figures, page and verdict are made from."""

import json
import os
import platform
from collections.abc import Sequence
from typing import Any

from calyrex.analysis.blocks import SCALES
from calyrex.analysis.chats import Conversation
from calyrex.analysis.forced import TOKEN_CLASSES
from calyrex.analysis.measuring import Record
from calyrex.analysis.options import AnalyzeOptions
from calyrex.analysis.summary import Sample, late_layers, spell, summarise
from calyrex.analysis.verdict import write_verdict
from calyrex.benchmarks.metric import ratio
from calyrex.training.folder import find_commit, versions

NUM_MAPS = 6
"""Conversations whose attention maps are shown: the first ones."""


def build_document(
    options: AnalyzeOptions, base: str, conversations: Sequence[Conversation], records: Sequence[Record], seconds: float
) -> dict[str, Any]:
    """Put together what was measured.

    Args:
        options: What the user has said.
        base: The model, as the user would name it.
        conversations: Those that were measured.
        records: One for each of them.
        seconds: Wall time of all starts so far.

    Returns:
        The content of ``analysis.json``.
    """
    sample = Sample(
        records=records,
        rules=[conversation.rule for conversation in conversations],
        families=[str(conversation.family) for conversation in conversations] if options.data is None else None,
        num_layers=len(records[0]["knock_out"]["value"]),
        seed=options.seed,
    )
    document: dict[str, Any] = {
        "run": {
            **_describe(options, base, sample),
            "seconds": round(seconds, 1),
            "log_probability": {
                name: float(sample.table("log_probability", name).mean()) for name in records[0]["log_probability"]
            },
            "obeyed_share": float(sample.table("obeyed").mean()) if options.data is None else None,
            "rule_effect": spell(sample.metric(sample.effects)),
            "num_rules": len(set(sample.rules)),
        },
        "measures": summarise(sample),
        "blocks": _summarise_blocks(sample) if records[0]["blocks"] else None,
    }
    document["verdict"] = write_verdict(document)
    return document


def _describe(options: AnalyzeOptions, base: str, sample: Sample) -> dict[str, Any]:
    blocks = sample.records[0]["blocks"]
    return {
        "command": f"calyrex analyze --config {options.output_dir / 'options.yaml'}",
        "versions": versions(),
        "commit": find_commit(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "options": json.loads(json.dumps(vars(options), default=str)),
        "model": base,
        "adapter": options.adapter,
        "num_layers": sample.num_layers,
        "late_layers": late_layers(sample.num_layers),
        "blocks": [int(number) for number in blocks["norms"]] if blocks else [],
        "num_chats": len(sample.records),
        "num_answer_tokens": sum(record["num_answer_tokens"] for record in sample.records),
        "data": options.data or "built-in rules",
        "licence": "that of its source" if options.data else "Apache-2.0",
    }


def _summarise_blocks(sample: Sample) -> dict[str, Any]:
    first = sample.records[0]["blocks"]
    scaled = sample.table("blocks", "scale")
    own = scaled[:, SCALES.index(1.0)]
    off = {name: sample.table("blocks", "off", name) for name in first["off"]}
    return {
        "norms": [norm for block in first["norms"] for name in TOKEN_CLASSES if (norm := _norm(sample, block, name))],
        "scale": [
            {
                "scale": scale,
                **spell(sample.metric(column)),
                "difference": spell(sample.metric(column - own)),
            }
            for scale, column in zip(SCALES, scaled.T, strict=True)
        ],
        "off": [
            {
                "block": int(name) if name.isdecimal() else name,
                **spell(sample.metric(values)),
                "difference": spell(sample.metric(values - off["none"])),
            }
            for name, values in off.items()
        ],
        "maps": [record["map"] for record in sample.records if record["map"] is not None],
    }


def _norm(sample: Sample, block: str, name: str) -> dict[str, Any] | None:
    """Return how much a block adds to the tokens of a class; None where there are none."""
    found = [record["blocks"]["norms"][block].get(name, (0.0, 0)) for record in sample.records]
    if not any(number for _, number in found):
        return None
    return {
        "block": int(block),
        "class": name,
        **spell(ratio(found, sample.rules)),
        "num_tokens": sum(number for _, number in found),
    }
