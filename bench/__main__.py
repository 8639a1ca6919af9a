"""``python -m bench``: measure all figures, or some, and bring docs/performance.md up to date."""

import argparse
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.inference import compare_contexts, compare_decode, compare_prefill
from bench.measure import Figure
from bench.memory import compare_memory
from bench.models import QUICK, Sizes
from bench.placements import compare_placements
from bench.report import read_results, render_table, require_markers, update_page, write_results
from bench.serving import compare_first_token, compare_throughput
from bench.train import compare_from_store, compare_whole_forward
from bench.width_cost import measure_width_cost

logger = logging.getLogger("bench")

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "performance.md"
FIGURES: dict[str, Callable[[Sizes], dict[str, Figure]]] = {
    "train_first_epoch_vs_lora": compare_whole_forward,
    "train_from_store_vs_lora": compare_from_store,
    "train_memory_vs_lora": compare_memory,
    "placements_shared_vs_separate": compare_placements,
    "prefill_overhead_points": compare_prefill,
    "decode_overhead_points_b1": partial(compare_decode, num_rows=1),
    "decode_overhead_points_b16": partial(compare_decode, num_rows=16),
    "decode_8k_vs_512": compare_contexts,
    "serve_throughput_vs_generate": compare_throughput,
    "serve_first_token_vs_alone": compare_first_token,
    "width_cost": measure_width_cost,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for."""
    parser = _make_parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    sizes = QUICK if options.quick else Sizes()
    output = options.output or FOLDER / ("quick.json" if options.quick else "results.json")
    page = options.page or (None if options.quick else PAGE)
    try:  # before anything is measured
        results = read_results(output)
        write_results(output, results)
        if page is not None:
            require_markers(page, "bench")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    missing = [key for key in FIGURES if key not in results]
    if not missing and not options.only:
        results, missing = {}, list(FIGURES)  # a finished run is done anew, one that was stopped goes on
    for key in options.only or missing:
        logger.info("%s ...", key)
        start = time.monotonic()
        figures = FIGURES[key](sizes)
        results |= {name: figure.record() for name, figure in figures.items()}
        write_results(output, results)
        values = ", ".join(f"{name} {figure.value:.3g} {figure.unit}" for name, figure in figures.items())
        logger.info("%s (%.0f s)", values, time.monotonic() - start)
    if page is not None and FIGURES.keys() <= results.keys():
        update_page(page, "bench", render_table(results))
    elif page is not None:
        logger.info("%s stays as it is until all figures are measured", page.name)
    logger.info("results in %s\n%s", output, render_table(results))


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure what Calyrex costs.")
    parser.add_argument("--only", type=_read_keys, metavar="KEY,...", help=f"some of: {', '.join(FIGURES)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the benchmarks themselves")
    parser.add_argument("--output", type=Path, help="results file; default: results.json beside this program")
    parser.add_argument("--page", type=Path, help="page whose table is written; default: docs/performance.md")
    return parser


def _read_keys(text: str) -> list[str]:
    keys = text.split(",")
    for key in keys:
        if key not in FIGURES:
            raise argparse.ArgumentTypeError(f"no figure {key!r}; there are {', '.join(FIGURES)}")
    return keys


if __name__ == "__main__":
    main()
