"""Options from flags and a YAML file: a dataclass is the whole declaration.

A field becomes the flag ``--its-name`` and the YAML key ``its_name``; its line in the docstring is the help.
Flags and YAML values go through one converter, from text, so that ``1e-5`` is a number in both.
Written out because jsonargparse and tyro take longer for ``--help`` than a verb may.
"""

import argparse
import contextlib
import dataclasses
import difflib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

from calyrex.errors import CalyrexError

Options = TypeVar("Options")

_NULL = ("null", "none", "~")
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a verb, read off its dataclass field.

    Attributes:
        name: Field name, which is the YAML key.
        kind: Annotated type.
        default: Default value, or `dataclasses.MISSING` where one must be given.
        help: Help text from the docstring.
    """

    name: str
    kind: object
    default: object
    help: str

    @property
    def flag(self) -> str:
        """The flag that sets the option."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_required(self) -> bool:
        """Whether a value must be given."""
        return self.default is dataclasses.MISSING


class _Extend(argparse.Action):
    """Adds up the lists of a flag that is given several times."""

    def __call__(  # what argparse hands over
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, None)
        is_sum = isinstance(before, list) and isinstance(values, list)
        setattr(namespace, self.dest, [*before, *values] if is_sum else values)  # type: ignore[misc]


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are the user's: one line, raised."""

    def error(self, message: str) -> NoReturn:
        """Raise the message instead of printing the usage.

        Raises:
            CalyrexError: Always.
        """
        raise CalyrexError(f"{message} (see {self.prog} --help)")


def read_options(options_class: type) -> list[Option]:
    """Read the options of a dataclass off its fields and the ``Attributes`` of its docstring and of those above it."""
    kinds = typing.get_type_hints(options_class)
    helps: dict[str, str] = {}
    for declaring in reversed(options_class.__mro__):
        helps |= _attribute_texts(inspect.cleandoc(declaring.__doc__ or ""))
    return [
        Option(field.name, kinds[field.name], field.default, helps.get(field.name, ""))
        for field in dataclasses.fields(options_class)
    ]


def add_flags(parser: argparse.ArgumentParser, options_class: type, *, takes_file: bool = False) -> None:
    """Add ``--config`` and one flag for each option of the dataclass to a parser.

    Args:
        parser: The parser of a verb.
        options_class: Dataclass of the verb.
        takes_file: Whether the YAML file may also be given as a word of its own.
    """
    parser.add_argument("--config", metavar="FILE", help="YAML file with any of these options; a flag beats it")
    if takes_file:
        parser.add_argument("file", nargs="?", metavar="FILE", help="the same as --config FILE")
    for option in read_options(options_class):
        text = f"{option.help} ({default_text(option)})".replace("%", "%%")
        if option.kind is bool:
            action = argparse.BooleanOptionalAction
            parser.add_argument(option.flag, action=action, default=argparse.SUPPRESS, help=text)
        else:
            convert = functools.partial(_convert_flag, option.kind)
            text_kind = kind_text(option.kind)
            metavar = text_kind if "|" in text_kind else text_kind.removesuffix(" or null").upper()
            how = _Extend if "list" in text_kind else "store"
            parser.add_argument(
                option.flag, type=convert, action=how, default=argparse.SUPPRESS, metavar=metavar, help=text
            )


def build_options(options_class: Callable[..., Options], given: Mapping[str, object]) -> Options:
    """Build the options of a verb: a flag beats the file named by ``config``, which beats the default.

    Args:
        options_class: Dataclass of the verb.
        given: Values of the flags that were given, by field name, and ``config`` or ``file``, the path of a file or
            None.

    Raises:
        CalyrexError: The file cannot be used, a value is out of range, or a required option is missing.
    """
    declared = read_options(typing.cast(type, options_class))
    if given.get("config") and given.get("file"):
        raise CalyrexError(f"two files of options were given, {given['config']} and {given['file']}: give one")
    config = given.get("config") or given.get("file")
    values = read_file(Path(str(config)), declared) if config is not None else {}
    values |= {name: value for name, value in given.items() if name not in ("config", "file")}
    missing = [option for option in declared if option.is_required and option.name not in values]
    if missing:
        raise CalyrexError(f"{missing[0].flag} must be given, as a flag or in the --config file: {missing[0].help}")
    return options_class(**values)


def read_file(path: Path, declared: list[Option]) -> dict[str, object]:
    """Read option values from a YAML file.

    Raises:
        CalyrexError: The file cannot be read, is not a mapping, has an unknown key or an unfit value.
    """
    import yaml  # a quarter of the time of --help, which never needs it

    try:
        # Every scalar stays text: YAML 1.1 would read 1e-5 as a string and no as a boolean.
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except OSError as error:
        raise CalyrexError(f"--config {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CalyrexError(f"--config {path}: expected a text file in UTF-8, got other bytes") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise CalyrexError(f"--config {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if content in (None, ""):
        return {}
    if not isinstance(content, dict):
        raise CalyrexError(f"--config {path}: expected lines such as 'seed: 0', got {_shorten(content)}")
    kinds = {option.name: option.kind for option in declared}
    return {key: _file_value(path, kinds, key, value) for key, value in content.items()}


def save_options(options: object, path: Path) -> None:
    """Write options as a YAML file that ``--config`` reads back to the same values."""
    import yaml

    values = {option.name: getattr(options, option.name) for option in read_options(type(options))}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    path.write_text(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), encoding="utf-8")


def refuse_unknown(parser: argparse.ArgumentParser, options_class: type, unknown: list[str]) -> NoReturn:
    """Refuse what a verb does not know and list what it does.

    Raises:
        CalyrexError: Always.
    """
    known = ["--config", *(option.flag for option in read_options(options_class))]
    raise CalyrexError(f"{parser.prog} has no option {unknown[0]}{_list_known(unknown[0].split('=')[0], known)}")


def kind_text(kind: object) -> str:
    """Name a type as a user would: ``text``, ``number``, ``random|base``, ``integer or null``."""
    names = {
        str: "text",
        Path: "path",
        int: "integer",
        float: "number",
        bool: "true|false",
        type(None): "null",
    }
    if kind in names:
        return names[kind]
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return "|".join(arguments)
    if typing.get_origin(kind) is list:
        return f"{kind_text(arguments[0])} list"
    return " or ".join(kind_text(argument) for argument in arguments)


def default_text(option: Option) -> str:
    """Say what an option is when it is not given."""
    if option.is_required:
        return "required"
    shown = {None: "null", True: "true", False: "false"}
    is_word = option.default is None or isinstance(option.default, bool)
    return f"default: {shown[typing.cast(bool | None, option.default)] if is_word else option.default}"


def convert(kind: object, value: object) -> object:
    """Convert text, or a list of texts, to a value of the annotated type.

    Raises:
        ValueError: The text does not fit the type.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return _convert_union(arguments, value)
    if origin is list and isinstance(value, str):
        return convert(kind, re.split(r"\s*,\s*", value.strip("[] ")))
    if origin is list and isinstance(value, list):
        return [convert(arguments[0], item) for item in value if item != ""]
    if not isinstance(value, str):
        raise ValueError
    if origin is Literal:
        return _lookup({argument: argument for argument in arguments}, value)
    if kind is bool:
        return _lookup(_BOOLEANS, value.lower())
    if kind is type(None):
        return _lookup(dict.fromkeys(_NULL), value.lower())
    return typing.cast(Callable[[str], object], kind)(value)


def _convert_union(kinds: tuple[object, ...], value: object) -> object:
    """Convert to the first type that fits: null before the others, and text, which always fits, last."""
    for kind in sorted(kinds, key=lambda kind: (kind is str, kind is not type(None))):
        with contextlib.suppress(ValueError):
            return convert(kind, value)
    raise ValueError


def _lookup(table: Mapping[str, object], text: str) -> object:
    if text not in table:
        raise ValueError
    return table[text]


def _convert_flag(kind: object, text: str) -> object:
    try:
        return convert(kind, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected {kind_text(kind)}, got {text}") from error


def _file_value(path: Path, kinds: Mapping[str, object], key: str, value: object) -> object:
    if key not in kinds:
        raise CalyrexError(f"--config {path}: unknown key {key}{_list_known(key, list(kinds))}")
    if value == "" and type(None) in typing.get_args(kinds[key]):
        return None  # as YAML means a key without a value
    try:
        return convert(kinds[key], value)
    except ValueError as error:
        expected = kind_text(kinds[key])
        raise CalyrexError(f"--config {path}: {key}: expected {expected}, got {_shorten(value)}") from error


def _list_known(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {close[0]}? Known: {', '.join(known)}" if close else f". Known: {', '.join(known)}"


def _shorten(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def _attribute_texts(docstring: str) -> dict[str, str]:
    """Read the texts of a Google docstring's ``Attributes`` section by name."""
    section = docstring.partition("Attributes:\n")[2]
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
