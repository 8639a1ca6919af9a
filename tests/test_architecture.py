import ast
import re
from pathlib import Path

import pytest

import calyrex

PACKAGE = Path(__file__).parent.parent / "src" / "calyrex"
MODULES = sorted(PACKAGE.rglob("*.py"))
# Lowest first: a module imports only what stands before it, or its own folder.
ORDER = (
    *("__version__", "errors", "flags", "options", "user_cache"),
    *(
        "block",
        "placement",
        "initialise",
        "masking",
        "conversation",
        "rendering",
        "vocabulary",
        "template",
        "span",
    ),
    *(
        "registration",
        "base",
        "cache",
        "config",
        "context",
        "wrapping",
        "layer",
        "tuner",
        "parallel_mlp",
        "hub",
        "gguf",
        "adapters",
        "models",
    ),
    *("generation", "data", "training", "benchmarks", "studies", "analysis", "report"),
    *("evaluation", "comparison", "ablation", "analyzing", "serve", "chat", "demo", "cli", "__main__"),
)
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
MAX_PUBLIC_NAMES = 12


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_layers(path: Path) -> set[str]:
    """Names directly under ``calyrex`` that the module imports."""
    full_names: list[str] = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            full_names += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)} has a relative import"
            full_names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in full_names if name.startswith("calyrex.")}


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, its docstring not counted."""
    first, last = function.body[0], function.body[-1]
    has_docstring = ast.get_docstring(function) is not None
    docstring_lines = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (last.end_lineno or 0) - function.lineno + 1 - docstring_lines


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_has_its_place_in_the_order(path: Path) -> None:
    assert layer_of(path) in (*ORDER, "__init__"), f"give {name_of(path)} its place in ORDER"


@pytest.mark.parametrize("path", [path for path in MODULES if layer_of(path) != "__init__"], ids=name_of)
def test_module_imports_downwards_only(path: Path) -> None:
    allowed = {*ORDER[: ORDER.index(layer_of(path))], layer_of(path)}

    assert imported_layers(path) - allowed == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_file_is_within_its_budget(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_are_within_their_budget(path: Path) -> None:
    functions = [node for node in ast.walk(parse(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    too_long = {node.name: code_lines(node) for node in functions if code_lines(node) > MAX_FUNCTION_LINES}

    assert too_long == {}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_does_not_print(path: Path) -> None:
    calls = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]

    printing = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]

    assert printing == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_leaves_nothing_unfinished(path: Path) -> None:
    assert re.findall(r"\b(?:TODO|FIXME|XXX)\b", path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "misc"])
def test_no_module_is_a_drawer(name: str) -> None:
    assert [name_of(path) for path in MODULES if path.stem == name] == []


def test_package_has_few_public_names() -> None:
    assert len(calyrex.__all__) <= MAX_PUBLIC_NAMES


def test_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()
