"""The command line: parse, dispatch, exit codes. A verb is imported only to run it."""

import argparse
import errno
import importlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from calyrex import __version__
from calyrex.analysis.options import AnalyzeOptions
from calyrex.errors import CalyrexError
from calyrex.flags import Parser, add_flags, build_options, refuse_unknown
from calyrex.options import ChatOptions, DemoOptions, EvalOptions, TrainOptions
from calyrex.serve.options import ServeOptions
from calyrex.studies.options import AblateOptions, CompareOptions

_CANNOT_WRITE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES),
    *(errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR),
    *(errno.EPERM, errno.EIO, errno.EFBIG),
)
_INTERRUPTED = 130


class Verb(NamedTuple):
    """A verb.

    Attributes:
        options_class: Dataclass of its options.
        target: ``module:function``, which is called with them.
        extra: Optional dependencies of the package that it needs.
        takes_file: Whether its YAML file may be given as a word of its own, without ``--config``.
    """

    options_class: type
    target: str
    extra: str | None = None
    takes_file: bool = False


class _StderrHandler(logging.Handler):
    """Writes to what stderr is at the time, so that a line stands above the progress bars that hold it."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")


VERBS = {
    "demo": Verb(DemoOptions, "calyrex.demo:run"),
    "train": Verb(TrainOptions, "calyrex.training.sft:train"),
    "eval": Verb(EvalOptions, "calyrex.evaluation:evaluate", extra="eval"),
    "compare": Verb(CompareOptions, "calyrex.comparison:compare", extra="studies", takes_file=True),
    "ablate": Verb(AblateOptions, "calyrex.ablation:ablate", extra="studies", takes_file=True),
    "analyze": Verb(AnalyzeOptions, "calyrex.analyzing:analyze", extra="studies"),
    "chat": Verb(ChatOptions, "calyrex.chat:run"),
    "serve": Verb(ServeOptions, "calyrex.serve.running:serve", extra="serve"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Words after ``calyrex``; those of the process by default.

    Returns:
        Exit code: 0 done, 2 the user must change something, 130 interrupted.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8
    logging.basicConfig(format="%(message)s", handlers=[_StderrHandler()])
    logging.getLogger("calyrex").setLevel(logging.INFO)
    # PEFT reads an attribute that transformers has renamed; nothing that a user could mend.
    warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
    try:
        verb, options = parse(sys.argv[1:] if arguments is None else arguments)
        _load(verb)(options)
    except CalyrexError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        sys.stderr.write("calyrex: interrupted\n")
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _INTERRUPTED
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        place = error.filename or "the results"
        return _fail(f"cannot write {place}: {error.strerror}; make room or choose another folder")
    return 0


def parse(arguments: list[str]) -> tuple[str, Any]:
    """Parse the words after ``calyrex`` to a verb and the options it is called with.

    Raises:
        CalyrexError: A word, a flag's value or the configuration file does not fit.
    """
    parser, verb_parsers = _build_parsers()
    known, unknown = parser.parse_known_args(arguments)
    given = vars(known)
    verb = given.pop("verb")
    if verb is None:
        parser.error(f"expected a verb: {', '.join(VERBS)}")
    options_class = VERBS[verb].options_class
    if unknown:
        refuse_unknown(verb_parsers[verb], options_class, unknown)
    return verb, build_options(options_class, given)


def _build_parsers() -> tuple[Parser, dict[str, argparse.ArgumentParser]]:
    description = "Make a language model keep to its system prompt."
    parser = Parser(prog="calyrex", description=description, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"calyrex {__version__}")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    verb_parsers: dict[str, argparse.ArgumentParser] = {}
    for name, verb in VERBS.items():
        summary = (verb.options_class.__doc__ or "").partition("\n")[0]
        verb_parsers[name] = subparsers.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        add_flags(verb_parsers[name], verb.options_class, takes_file=verb.takes_file)
    return parser, verb_parsers


def _load(verb: str) -> Callable[[Any], object]:
    module, _, function = VERBS[verb].target.partition(":")
    try:
        loaded: Callable[[Any], object] = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if VERBS[verb].extra is None:
            raise
        raise CalyrexError(
            f"calyrex {verb} needs {error.name}, which is not installed: pip install 'calyrex[{VERBS[verb].extra}]'"
        ) from error
    return loaded


def _fail(message: str) -> int:
    sys.stderr.write(f"calyrex: error: {' '.join(message.split())}\n")
    return 2
