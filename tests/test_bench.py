import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache

from bench import limits, width
from bench.__main__ import FIGURES, main
from bench.measure import Figure, Side, alternate, paired_ratio
from bench.models import QUICK, attach_blocks, attach_lora, count_trainable, load, matching_rank
from bench.plots import plot_width
from bench.report import LINES, render_obedience, render_table, update_page
from bench.serving import read_reply
from bench.train import make_step, make_trainer, training_rows
from bench.width import make_curve, narrowest_enough

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
WIDTH, RANK, LAYERS = 24, 3, [5, 7, 8]
SHAPE = limits.read_shape(load(QUICK))
# Without a causal kernel every token attends to all.
FULL = limits.Batch(QUICK.batch_size, QUICK.tokens, QUICK.system_tokens, QUICK.answer_tokens, keys=QUICK.tokens)


def count_flops(run: Callable[[], object]) -> int:
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def record(**changes: object) -> dict:
    machine = {"device": "EPYC", "cpu": "EPYC", "threads": 2, "versions": {}, "date": "2026-01-02"}
    figure = {
        "value": 1.9876,
        "unit": "x",
        "limit": 2.25,
        "side_unit": "tokens/s",
        "dtype": "torch.float32",
        "sides": {"lora": [356.4, 350.1, 362.9], "calyrex": [1085.2, 1075.0]},
        "machine": machine,
    }
    return figure | changes


@pytest.fixture
def step_of(tmp_path: Path) -> Callable[[PeftModel], Callable[[], None]]:
    """One optimiser step of a model, with logits of all labels at once: the chunked loss runs outside the counter."""

    def make(model: PeftModel) -> Callable[[], None]:
        rows = training_rows(SHAPE.vocab_size, QUICK)
        trainer = make_trainer(model, rows, tmp_path, batch_size=QUICK.batch_size)
        trainer.is_chunked = False
        return make_step(trainer)

    return make


def test_flops_of_a_training_step_of_blocks_are_those_that_are_counted(step_of: Callable) -> None:
    step = step_of(attach_blocks(load(QUICK), WIDTH, LAYERS))

    assert count_flops(step) == limits.train_flops(SHAPE, FULL, LAYERS, WIDTH)


def test_flops_of_a_training_step_of_lora_are_those_that_are_counted(step_of: Callable) -> None:
    step = step_of(attach_lora(load(QUICK), RANK))

    assert count_flops(step) == limits.lora_flops(SHAPE, FULL, RANK)


def test_stored_activations_save_the_forward_of_the_layers_up_to_the_first_block() -> None:
    whole, stored = (limits.train_flops(SHAPE, FULL, LAYERS, WIDTH, is_stored=is_stored) for is_stored in (False, True))

    assert whole - stored == limits.layers_flops(SHAPE, FULL, 5, is_backward=False)


def test_flops_of_a_prefill_are_those_that_are_counted() -> None:
    base, anchored = load(QUICK), attach_blocks(load(QUICK), WIDTH, LAYERS).eval()
    ids = torch.ones(1, QUICK.tokens, dtype=torch.int64)
    system_mask = torch.arange(QUICK.tokens)[None] < QUICK.system_tokens
    batch = limits.Batch(1, QUICK.tokens, QUICK.system_tokens, 1, keys=QUICK.tokens)

    plain = count_flops(lambda: base(input_ids=ids, logits_to_keep=1))
    ours = count_flops(lambda: anchored(input_ids=ids, system_mask=system_mask, logits_to_keep=1))

    assert 100 * (ours / plain - 1) == pytest.approx(limits.prefill_percent(SHAPE, batch, len(LAYERS), WIDTH))


def test_what_a_decode_step_reads_is_what_the_models_and_the_cache_hold() -> None:
    base, anchored = load(QUICK), attach_blocks(load(QUICK), WIDTH, LAYERS)
    skipped = ("k_proj", "v_proj")
    read = sum(
        parameter.numel()
        for name, parameter in anchored.named_parameters()
        if parameter.requires_grad and not any(part in name for part in skipped)
    )

    cache = DynamicCache(config=base.config)
    base(input_ids=torch.ones(3, 17, dtype=torch.int64), cache=cache)
    kept = sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)

    percent = 100 * read / (sum(parameter.numel() for parameter in base.parameters()) + kept)

    assert limits.decode_percent(SHAPE, len(LAYERS), WIDTH, rows=3, context=17) == pytest.approx(percent)


@pytest.mark.parametrize(
    ("attach", "expected"),
    [
        (lambda base: attach_blocks(base, WIDTH, LAYERS), limits.saved_by_blocks(SHAPE, FULL, LAYERS, WIDTH)),
        (lambda base: attach_lora(base, RANK), limits.saved_by_lora(SHAPE, FULL, RANK)),
    ],
    ids=["blocks", "lora"],
)
def test_saved_values_are_a_lower_bound_of_what_autograd_keeps(
    attach: Callable, expected: int, step_of: Callable
) -> None:
    model = attach(load(QUICK))
    step = step_of(model)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point() and tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        step()
    num_values = sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) / 4

    # Not counted: logits, a mask, normed values before their weight, one number per token of norms and attention.
    assert expected <= num_values <= 1.25 * expected


def test_rank_of_lora_is_the_one_that_trains_nearly_as_much() -> None:
    blocks = attach_blocks(load(QUICK), WIDTH, LAYERS)
    rank = matching_rank(SHAPE, len(LAYERS), WIDTH)
    sizes = {each: count_trainable(attach_lora(load(QUICK), each)) for each in (rank - 1, rank, rank + 1)}

    nearest = min(sizes, key=lambda each: abs(sizes[each] - count_trainable(blocks)))

    assert nearest == rank
    assert SHAPE.block_parameters(WIDTH) * len(LAYERS) == count_trainable(blocks)


def test_sides_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []
    sides = {name: Side(lambda name=name: calls.append(name), lambda: calls.append("reset")) for name in "ab"}

    seconds = alternate(sides, rounds=2)

    assert calls == ["a", "reset", "b", "reset"] * 3
    assert [len(values) for values in seconds.values()] == [2, 2]


def test_ratio_is_the_median_of_neighbours() -> None:
    assert paired_ratio([2.0, 30.0, 8.0], [1.0, 10.0, 2.0]) == 3.0


def test_table_shows_value_limit_medians_and_machine() -> None:
    table = render_table({"train_first_epoch_vs_lora": record()})

    assert table.splitlines()[2] == (
        f"| {LINES['train_first_epoch_vs_lora'].title} | **1.99 x** | 2.25 x | >= 1.8 x "
        "| lora 356 (353-360), calyrex 1,080 tokens/s | EPYC, 2 threads, float32, 2026-01-02 |"
    )


def test_table_writes_points_with_their_sign_and_the_limit_in_percent() -> None:
    table = render_table({"prefill_overhead_points": record(value=-0.44, unit="points", limit=6.25)})

    assert "| **-0.4 points** | 6.2 % |" in table


def test_table_puts_the_full_width_beside_its_figure_and_leaves_out_what_is_not_measured() -> None:
    names = ("train_memory_vs_lora_full_width", "decode_8k_vs_512", "train_memory_vs_lora")

    titles = [
        row.split(" | ")[0].removeprefix("| ") for row in render_table(dict.fromkeys(names, record())).splitlines()
    ]

    memory = LINES["train_memory_vs_lora"].title
    assert titles[2:] == [memory, f"{memory}, blocks as wide as the base", LINES["decode_8k_vs_512"].title]


def test_curve_of_widths_has_a_table_of_its_own() -> None:
    entry = {
        "intermediate_size": 1024,
        "relative_train_time": 0.8123,
        "train_limit": 0.75,
        "relative_decode_time": 0.97,
        "decode_limit": 0.96,
    }

    table = render_table({"width_cost": record(details={"curve": [entry]})})

    assert table.endswith("\n| 1,024 | 0.81 | 0.75 | 0.97 | 0.96 |\n")


def test_page_keeps_all_but_the_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")

    update_page(page, "bench", render_table({}))

    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n{render_table({})}{END}\nafter\n"


def test_page_without_markers_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing", encoding="utf-8")

    with pytest.raises(ValueError, match="must hold"):
        update_page(page, "bench", render_table({}))


def test_performance_page_has_the_markers_and_explains_every_figure() -> None:
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")

    assert BEGIN in text and END in text
    assert [key for key in FIGURES if f"`{key}`" not in text] == []
    assert [*LINES, "width_cost"] == list(FIGURES)


def test_width_curve_measures_the_gain_against_the_widest_with_intervals() -> None:
    base = [True] * 10 + [False] * 90
    kept = {64: [[True] * 40 + [False] * 60, [True] * 50 + [False] * 50], 1536: [[True] * 60 + [False] * 40]}

    narrow, widest = make_curve(base, kept)

    assert (narrow["intermediate_size"], narrow["num_seeds"], narrow["obeyed"]) == (64, 2, pytest.approx(0.45))
    assert narrow["gain_kept"] == pytest.approx(100 * (0.45 - 0.1) / (0.6 - 0.1))
    assert narrow["gain_kept_low"] < narrow["gain_kept"] < narrow["gain_kept_high"]
    assert [widest[f"gain_kept{end}"] for end in ("_low", "", "_high")] == pytest.approx([100] * 3)
    assert "| 64 | 45.0 % | 70.0 % (" in render_obedience({"curve": [narrow, widest]})


def test_finished_study_of_widths_becomes_a_table_and_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, costs = tmp_path / "performance.md", tmp_path / "results.json"
    page.write_text("<!-- width: begin -->\n<!-- width: end -->\n", encoding="utf-8")
    curve = [
        {"intermediate_size": each, "relative_train_time": 0.5, "relative_decode_time": 0.9} for each in width.WIDTHS
    ]
    costs.write_text(json.dumps({"width_cost": record(details={"curve": curve})}), encoding="utf-8")
    monkeypatch.setattr(width, "PAGE", page)
    monkeypatch.setattr(width, "RESULTS", costs)
    for number, name in enumerate(["base", *(f"{each}-{seed}" for each, seed in width.RUNS)]):
        verdicts = [True] * 50 * (number + 1) + [False] * (350 - 50 * number)
        (tmp_path / f"{name}.json").write_text(json.dumps({"kept": verdicts}), encoding="utf-8")

    width.main(["--output", str(tmp_path)])

    study = json.loads((tmp_path / "width.json").read_text(encoding="utf-8"))
    assert study["base_obeyed"] == 0.125
    assert study["narrowest_enough"] == 1536
    assert "| 64 | 25.0 % | 20.0 % (" in page.read_text(encoding="utf-8")
    assert (tmp_path / "width.png").stat().st_size > 0


def test_narrowest_width_that_is_enough_has_only_such_above_it() -> None:
    curve = [{"intermediate_size": size, "gain_kept": gain} for size, gain in ((64, 96.0), (128, 90.0), (256, 95.0))]

    assert narrowest_enough([*curve, {"intermediate_size": 512, "gain_kept": 100.0}]) == 256


def test_page_keeps_figures_that_were_not_measured_here(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\nmeasured elsewhere\n{END}\n", encoding="utf-8")
    output = tmp_path / "results.json"

    main(["--only", "decode_overhead_points_b1", "--quick", "--output", str(output), "--page", str(page)])

    assert "decode_overhead_points_b1" in json.loads(output.read_text())
    assert "measured elsewhere" in page.read_text(encoding="utf-8")


def test_unknown_figure_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "train_speed"])

    assert "no figure 'train_speed'; there are train_first_epoch_vs_lora" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("results", "more", "message"),
    [
        ('{"a":', [], "Expecting value"),
        ("[1]", [], "is no results file"),
        ("{}", ["--page", "nowhere.md"], "nowhere.md"),
        ("{}", ["--output", "nowhere/results.json"], "nowhere"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], results: str, more: list[str], message: str
) -> None:
    (tmp_path / "results.json").write_text(results, encoding="utf-8")

    with pytest.raises(SystemExit) as stopped:
        main(["--quick", "--output", str(tmp_path / "results.json"), *more])

    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_figures_are_kept_one_by_one_and_some_can_be_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "results.json"
    output.write_text(json.dumps({"width_cost": {"value": 1}, "prefill_overhead_points": record()}), encoding="utf-8")
    figure = Figure(2.0, "x", 1.0, {"a": [1.0, 3.0, 2.0]}, "s", "torch.float32", {"curve": []})
    monkeypatch.setitem(FIGURES, "width_cost", lambda _sizes: {"width_cost": figure})

    main(["--only", "width_cost", "--quick", "--output", str(output)])

    results = json.loads(output.read_text(encoding="utf-8"))
    assert results["prefill_overhead_points"] == record()
    assert (results["width_cost"]["value"], results["width_cost"]["medians"]) == (2.0, {"a": 2.0})


def test_width_is_drawn(tmp_path: Path) -> None:
    curve = [
        {
            "intermediate_size": size,
            "gain_kept": kept,
            "gain_kept_low": kept - 6,
            "gain_kept_high": kept + 5,
            "relative_train_time": size / 1536,
            "relative_decode_time": 0.9,
        }
        for size, kept in ((1536, 100), (64, 80), (512, 97))
    ]

    plot_width(curve, tmp_path / "width.png")

    assert (tmp_path / "width.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_every_figure_is_measured(tmp_path: Path) -> None:
    output, page = tmp_path / "results.json", tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}

    subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--output", str(output), "--page", str(page)],
        cwd=ROOT,
        env=environment,
        check=True,
        timeout=600,
    )

    results = json.loads(output.read_text(encoding="utf-8"))
    both_widths = list(FIGURES)[:3] + list(FIGURES)[4:7]
    assert set(results) == {*FIGURES, *(f"{key}_full_width" for key in both_widths)}
    assert page.read_text(encoding="utf-8") == f"{BEGIN}\n{render_table(results)}{END}\n"


def test_the_first_token_of_a_served_answer_is_its_first_text() -> None:
    deltas = [{"role": "assistant", "content": ""}, {"content": "Now"}, {"content": " then"}]

    def lines() -> Iterator[bytes]:
        for delta in deltas:
            yield b"data: " + json.dumps({"choices": [{"delta": delta}], "usage": None}).encode()
        time.sleep(0.5)
        yield b'data: {"choices": [], "usage": {"completion_tokens": 2}}'
        yield b"data: [DONE]"

    reply = read_reply(lines(), time.perf_counter())

    assert (reply.text, reply.num_tokens) == ("Now then", 2)
    assert 0 < reply.first_s < 0.5
