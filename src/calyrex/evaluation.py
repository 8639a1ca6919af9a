"""``calyrex eval``: benchmarks on a base, an adapter or a served model, as one table."""

import dataclasses
from pathlib import Path

from rich.console import Console

from calyrex.benchmarks.evaluating import Evaluation, open_results
from calyrex.benchmarks.registry import choose_tasks
from calyrex.benchmarks.subject import open_subject
from calyrex.errors import CalyrexError
from calyrex.flags import save_options
from calyrex.options import EvalOptions
from calyrex.report.evaluation import print_table, write_table
from calyrex.training.folder import locked
from calyrex.training.progress import make_progress


def evaluate(options: EvalOptions) -> Path:
    """Run benchmarks and write ``results.json``, ``table.md``, all samples and Inspect's logs.

    A task that cannot be evaluated is skipped with the reason, and the others run.

    Returns:
        The output folder.

    Raises:
        CalyrexError: A task is unknown, the model cannot be loaded, the folder is of another evaluation; or, when the
            others are done, a task broke off, or none could be evaluated for want of data or of a judge.
    """
    tasks = choose_tasks(options.tasks)
    folder = Path(options.output_dir)
    data_dir = Path(options.data_dir).absolute() if options.data_dir is not None else None
    options = dataclasses.replace(options, output_dir=folder, data_dir=data_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), make_progress() as progress:
        subject = open_subject(options)
        results = open_results(folder, options, subject)
        save_options(options, folder / "options.yaml")
        evaluation = Evaluation(options, subject, results, progress)
        for task in tasks:
            evaluation.run(task)
            write_table(folder / "table.md", results)
    print_table(Console(), results, folder)
    if evaluation.broken_off:
        raise evaluation.broken_off[0]
    if not any("metrics" in results.entries[task] for task in tasks):
        raise CalyrexError(f"no task could be evaluated: {results.entries[tasks[0]]['skipped']}")
    return folder
