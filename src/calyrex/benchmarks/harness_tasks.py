"""Tasks of the installed lm-eval (EleutherAI's lm-evaluation-harness): their prompts, filters and metrics."""

from pathlib import Path
from typing import Any

from calyrex.errors import CalyrexError


def find_tasks(folder: str) -> Path:
    """Return a folder with task files of the installed lm-eval.

    Args:
        folder: Its path below lm-eval's own folder of tasks, such as ``mmlu/default``.

    Raises:
        CalyrexError: lm-eval is not installed, or has no such folder.
    """
    try:
        import lm_eval
    except ImportError as error:
        raise CalyrexError("this benchmark runs with lm-eval: pip install 'calyrex[eval]'") from error
    path = Path(lm_eval.__file__).parent / "tasks" / folder
    if not path.is_dir():
        raise CalyrexError(f"the installed lm-eval has no tasks in {folder}: pip install --upgrade 'calyrex[eval]'")
    return path


def read_task(folder: str, name: str) -> dict[str, Any]:
    """Return what a task file of the installed lm-eval says, without the files that it includes.

    Args:
        folder: Its folder, as for ``find_tasks``.
        name: Name of the file, without its ending.

    Raises:
        CalyrexError: lm-eval is not installed, or has no such task.
    """
    import yaml

    path = find_tasks(folder) / f"{name}.yaml"
    if not path.is_file():
        raise CalyrexError(f"the installed lm-eval has no task {name}: pip install --upgrade 'calyrex[eval]'")
    task: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return task
