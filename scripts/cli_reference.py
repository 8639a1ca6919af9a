"""Write docs/cli.md, the command line reference, from the options of the verbs."""

from pathlib import Path

from calyrex.cli import VERBS
from calyrex.flags import Option, default_text, kind_text, read_options

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"

_HEAD = """# Command line

*Written by `make docs` from the options themselves; a test compares.*

Every option is a flag (`--learning-rate 1e-5`) and a key of the YAML file that `--config` names
(`learning_rate: 1e-5`). A flag beats the file, the file beats the default, and unknown keys are refused.
The exit code is 0 when done, 2 when you must change something (one line says what), 130 when interrupted.
"""


def render_reference() -> str:
    """Render the whole page."""
    return _HEAD + "".join(_render_verb(name) for name in VERBS)


def _render_verb(name: str) -> str:
    options_class = VERBS[name].options_class
    summary = (options_class.__doc__ or "").partition("\n")[0]
    rows = "".join(_render_row(option) for option in read_options(options_class))
    return f"\n## calyrex {name}\n\n{summary}\n\n| flag | value | default | |\n|---|---|---|---|\n{rows}"


def _render_row(option: Option) -> str:
    value = kind_text(option.kind).replace("|", "\\|")
    default = default_text(option).removeprefix("default: ")
    return f"| `{option.flag}` | {value} | {default} | {option.help} |\n"


if __name__ == "__main__":
    PAGE.write_text(render_reference(), encoding="utf-8")
