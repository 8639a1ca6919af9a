"""Made-up benchmark rows in the formats of the originals, written to a data folder."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

IFEVAL_ROWS = [
    {
        "key": 7,
        "prompt": "Say hello without a comma.",
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{}],
    },
    {
        "key": 8,
        "prompt": "Write about tea in lower case and use the word leaf twice.",
        "instruction_id_list": ["change_case:english_lowercase", "keywords:frequency"],
        "kwargs": [{}, {"keyword": "leaf", "frequency": 2, "relation": "at least"}],
    },
    {
        "key": 9,
        "prompt": "Write two sentences at most.",
        "instruction_id_list": ["length_constraints:number_sentences"],
        "kwargs": [{"relation": "less than", "num_sentences": 3}],
    },
]


def write_rows(path: Path, rows: Sequence[Any]) -> None:
    """Write rows as lines of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_ifeval(data_dir: Path) -> None:
    """Write IFEval's rows, and the same with the instructions in the system prompt."""
    write_rows(data_dir / "ifeval" / "input_data.jsonl", IFEVAL_ROWS)
    chats = [
        [{"role": "system", "content": row["prompt"]}, {"role": "user", "content": "Go on."}] for row in IFEVAL_ROWS
    ]
    rows = [{**row, "messages": chat} for row, chat in zip(IFEVAL_ROWS, chats, strict=True)]
    write_rows(data_dir / "realguardrails" / "ifeval" / "sys_ifeval.jsonl", rows)
