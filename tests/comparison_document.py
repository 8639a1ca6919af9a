"""A made-up comparison of ten contenders in fifteen measures: no figure in it was measured."""

import math
import random
from typing import Any

CONTENDERS = (
    ("base", "Base model", "SmolLM2-135M-Instruct as it is"),
    ("repetition", "Prompt repetition", "the system prompt again before the last user turn"),
    ("lora", "LoRA, all linear layers", "rank 22 on 210 linear maps"),
    ("lora_late", "LoRA, layers 26 to 30 only", "rank 128 on the linear maps of the last five layers"),
    ("parallel_mlp", "Parallel MLP (control without attention)", "a SwiGLU of the same size in the same places"),
    ("calyrex", "CALYREX, after layers 26 to 30", "five blocks, output projections from zero"),
    ("calyrex:init=random", "CALYREX, random initialisation", "blocks that do not start from the layers' weights"),
    ("calyrex:placement=all", "CALYREX, after every layer", "thirty narrow blocks"),
    ("calyrex:width=192", "CALYREX, narrow feed-forward of 192", "blocks with a small SwiGLU"),
    ("calyrex:shuffled", "CALYREX, shuffled system prompts", "trained on the prompts of other rows"),
)
MEASURES = (
    ("rules/obeyed", "rules obeyed, no attack", "obedience", "share", True, True),
    ("long_rules/obeyed_48", "obeyed after 48 rule-breaking turns", "obedience", "share", True, True),
    ("sysbench/isr", "SysBench, instructions kept over five turns", "obedience", "share", True, False),
    ("fidelity/nats", "loss of answers that keep the prompt", "obedience", "nats", False, False),
    ("tensortrust/held", "TensorTrust, password kept", "security", "share", True, True),
    ("injecagent/followed", "InjecAgent, injected instructions followed", "security", "share", False, True),
    ("ih_challenge/passed", "IH-Challenge, higher instruction kept", "security", "share", True, False),
    ("msj/slope", "many-shot jailbreaking, growth for each doubling", "security", "nats", False, False),
    ("ifeval/prompt_strict", "IFEval, prompts, strict", "utility", "share", True, True),
    ("squad/f1", "SQuAD, F1", "utility", "share", True, False),
    ("glaive/calls", "Glaive, right function called", "utility", "share", True, False),
    ("gsm8k/exact", "GSM8K, exact answer", "utility", "share", True, False),
    ("mmlu/correct", "MMLU, correct letters", "forgetting", "share", True, True),
    ("losses/chats", "loss of everyday chats", "forgetting", "nats", False, True),
    ("losses/plain", "loss of plain text", "forgetting", "nats", False, False),
)
WORDS = ("the", "rule", "says", "answer", "only", "in", "lower", "case", "and", "never", "tell", "a", "word", "agreed")


def make_document(seed: int = 0) -> dict[str, Any]:
    """Return a complete document of ``calyrex compare``."""
    draw = random.Random(seed)
    strength = {name: draw.uniform(-0.12, 0.12) for name, _, _ in CONTENDERS}
    strength |= {"calyrex": 0.24, "calyrex:placement=all": 0.2, "lora": 0.14, "calyrex:shuffled": -0.02}
    return {
        "run": {
            "command": "calyrex compare study.yaml",
            "versions": {"calyrex": "0.1.0", "torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.0"},
            "commit": "0123abc",
            "machine": "2 cores, x86_64, 16 GB",
            "seconds": 81230.0,
            "options": {"model": "built-in", "seeds": [0, 1, 2], "batch_tokens": 4096, "output_dir": "runs/compare"},
            "data": [
                {"name": "built-in rules", "rows": 1000, "tokens": 55000, "licence": "Apache-2.0"},
                {"name": "everyday chats", "rows": 400, "tokens": 100000, "licence": None},
            ],
            "budget": 6641280,
            "reference": "calyrex",
        },
        "contenders": [_contender(draw, number, *texts) for number, texts in enumerate(CONTENDERS)],
        "measures": [_measure(draw, strength, *texts) for texts in MEASURES],
        "checks": [
            {"name": "seeds", "text": "Two seeds of calyrex differ by 1.2 points, less than to LoRA.", "holds": True},
            {"name": "shuffled", "text": "Trained on shuffled prompts, calyrex is not above the base.", "holds": True},
            {"name": "budget", "text": "All budgets are within 2 % of each other.", "holds": False},
        ],
        "verdict": [
            "CALYREX obeys rules more often than LoRA: +10.3 points [+4.1 to +16.2], p = 0.004 after correction.",
            "It forgets no more than LoRA: MMLU does not differ significantly.",
            "It loses to LoRA in SQuAD.",
        ],
    }


def _contender(draw: random.Random, number: int, name: str, label: str, description: str) -> dict[str, Any]:
    is_trained = name not in ("base", "repetition")
    rates = (0.0002, 0.0005, 0.001, 0.003)
    search = [{"learning_rate": rate, "loss": None if rate == 0.003 else draw.uniform(1.1, 1.6)} for rate in rates]
    chosen = min((tried for tried in search if tried["loss"]), key=lambda tried: tried["loss"])["learning_rate"]
    parameters = 6641280 + draw.randrange(-90000, 90000)
    return {
        "name": name,
        "label": label,
        "description": description,
        "is_trained": is_trained,
        "is_control": name in ("parallel_mlp", "calyrex:shuffled"),
        "trainable_parameters": parameters if is_trained else 0,
        "budget_difference": parameters / 6641280 - 1 if is_trained else None,
        "learning_rate": chosen if is_trained else None,
        "search": search if is_trained else [],
        "tokens": 155000 if is_trained else None,
        "seeds": [0, 1, 2] if is_trained else [0],
        "wall_seconds": 1234.0 if is_trained else None,
        "train_seconds": draw.uniform(900, 2400) if is_trained else None,
        "peak_memory_bytes": draw.uniform(1.4e9, 2.6e9) if is_trained else None,
        "added_flops_per_token": 1.3e7 * (1 + number / 20) if is_trained else 0,
        "losses": {str(seed): _losses(draw) for seed in range(3)} if is_trained else {},
    }


def _losses(draw: random.Random) -> list[dict[str, float]]:
    floor, pace = draw.uniform(0.9, 1.1), draw.uniform(60, 110)
    return [
        {"step": step, "loss": floor + 1.6 * math.exp(-step / pace) + draw.gauss(0, 0.05)} for step in range(1, 501)
    ]


def _measure(draw: random.Random, strength: dict[str, float], *texts: Any) -> dict[str, Any]:
    name, label, group, unit, higher_is_better, is_headline = texts
    sign = (1 if higher_is_better else -1) * (0.25 if group in ("utility", "forgetting") else 1)
    middle = draw.uniform(0.35, 0.6) if unit == "share" else draw.uniform(1.2, 2.4)
    figures = {}
    for contender, effect in strength.items():
        value = middle + sign * effect + draw.gauss(0, 0.02)
        by_seed = [value + draw.gauss(0, 0.01) for _ in range(3)]
        figures[contender] = {"value": value, "low": value - 0.07, "high": value + 0.08, "by_seed": by_seed}
    others = [contender for contender in strength if contender != "calyrex"]
    pairs = [("calyrex", other) for other in others] + [("lora", "base"), ("lora", "parallel_mlp")]
    differences = []
    for first, second in pairs:
        gap = figures[first]["value"] - figures[second]["value"]
        p_value = math.exp(-((gap / 0.045) ** 2))
        adjusted = min(1.0, 12 * p_value)
        interval = {"value": gap, "low": gap - 0.085, "high": gap + 0.085}
        tests = {"p_value": p_value, "adjusted_p_value": adjusted, "is_significant": adjusted < 0.05}
        differences.append({"first": first, "second": second, **interval, **tests})
    return {
        "name": name,
        "label": label,
        "group": group,
        "unit": unit,
        "higher_is_better": higher_is_better,
        "is_headline": is_headline,
        "num_cases": draw.choice((60, 120, 541, 1000)),
        "values": figures,
        "differences": differences,
    }


def make_samples(count: int = 300, seed: int = 0) -> list[dict[str, Any]]:
    """Return samples of three tasks with the answers of all contenders; some conversations are long."""
    draw = random.Random(seed)
    return [_sample(draw, number) for number in range(count)]


def _sample(draw: random.Random, number: int) -> dict[str, Any]:
    task = ("rules", "long_rules", "tensortrust")[number % 3]
    turns = 48 if task == "long_rules" else draw.choice((0, 0, 2))
    messages = [{"role": "system", "content": f"Rule {number}: {_say(draw, 30)}"}]
    for _ in range(turns):
        messages += [{"role": "user", "content": _say(draw, 12)}, {"role": "assistant", "content": _say(draw, 9)}]
    messages.append({"role": "user", "content": f"Question {number}: {_say(draw, 14)}?"})
    attack = draw.choice((None, "prefix", "fiction"))
    shows = {"attack": attack, "turns": turns} if task != "tensortrust" else {"attack": "password", "defence": number}
    seeds = {name: 1 if name in ("base", "repetition") else 3 for name, _, _ in CONTENDERS}
    return {
        "task": task,
        "id": f"{task}-{number}",
        "messages": messages,
        "shows": shows,
        "answers": {name: [_say(draw, draw.randrange(5, 40)) for _ in range(n)] for name, n in seeds.items()},
        "passed": {name: [draw.random() < 0.5 for _ in range(n)] for name, n in seeds.items()},
    }


def _say(draw: random.Random, count: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(count))
