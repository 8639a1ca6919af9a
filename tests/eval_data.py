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


ALIGNMENTS = ("align", "misalign", "align", "align", "misalign")
NUM_CRITERIA = (1, 2, 1, 1, 3)


def rebuilt(number: int = 7, *, dependent: bool = True) -> dict[str, Any]:
    """Return a dialogue of SysBench as it was rebuilt from the published sheets."""
    turns = [
        {
            "round": i,
            "user": f"Question {i}",
            "alignment": a,
            "criteria": [f"{j + 1}. Rule {i}{j} | form" for j in range(n)],
        }
        for i, (a, n) in enumerate(zip(ALIGNMENTS, NUM_CRITERIA, strict=True), start=1)
    ]
    return {"system_id": number, "system_prompt": "Be brief.", "multi_rounds_related": dependent, "turns": turns}


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


def write_sysbench(data_dir: Path) -> None:
    """Write one dialogue of SysBench."""
    write_rows(data_dir / "sysbench" / "sysbench_reconstructed.jsonl", [rebuilt()])
