"""The house keeps its shape: imports point one way, files and functions stay small, notes stay out."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "native": set(),
    "ipc": {"native"},
    "remoting": {"native"},
    "store": {"native"},
    "ha": {"native", "ipc", "remoting", "store"},
    "broker": {"native", "ipc", "remoting", "store", "ha"},
    "doctor": {"native", "ipc", "remoting", "store", "broker"},
    "namesrv": {"ipc", "remoting"},
    "client": {"remoting"},
    "cli": {"client", "remoting"},
    "spark_bridge": {"native", "ipc", "store", "client"},
    "loadtest": {"client", "remoting"},
    "testing": {"client", "remoting", "cli", "loadtest"},
}
# Imports inside functions only: the command line must print its help without loading any of these.
MAY_IMPORT_LAZILY = {
    "cli": {"store", "ipc", "native", "broker", "doctor", "namesrv", "loadtest"},
    "client": {"native"},
    "loadtest": {"spark_bridge", "ipc"},  # what the Spark bench measures; what a killed broker leaves
}
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70


def python_files() -> Iterator[Path]:
    for folder in MAY_IMPORT:
        yield from sorted((ROOT / folder).rglob("*.py"))


def imported_packages(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "ringmq" else [module]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "ringmq" and len(parts) > 1:
                yield parts[1]


def top_level(tree: ast.Module) -> ast.Module:
    """The module without function bodies."""
    kept = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in kept:
        if isinstance(node, ast.ClassDef):
            node.body = [part for part in node.body if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    return ast.Module(kept, [])


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_point_one_way(folder: str) -> None:
    allowed = MAY_IMPORT[folder] | {folder}
    lazily = allowed | MAY_IMPORT_LAZILY.get(folder, set())
    wrong = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in imported_packages(tree) if name not in lazily]
        outside = imported_packages(top_level(tree))
        wrong += [f"{path.relative_to(ROOT)} imports {name} at the top" for name in outside if name not in allowed]
    assert not wrong


def test_no_file_is_too_long() -> None:
    sources = [*python_files(), *(ROOT / "native/src").glob("*.[ch]"), *(ROOT / "loadtest/native").glob("*.[ch]")]
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources}
    assert not {name: lines for name, lines in long.items() if lines > FILE_LINES_MAX}


def test_no_function_is_too_long() -> None:
    long = []
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{path.relative_to(ROOT)}:{node.name} {lines}")
    assert not long


def test_every_package_says_what_it_owns() -> None:
    silent = [
        folder for folder in MAY_IMPORT if not ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text()))
    ]
    assert not silent


def test_no_unfinished_marks() -> None:
    mark = re.compile(r"\b(TODO|FIXME|HACK|NotImplementedError)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in [*python_files(), *(ROOT / "native/src").glob("*.[ch]")]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if mark.search(line)
    ]
    assert not found


def test_tests_have_no_hopeful_sleeps() -> None:
    sleeping = re.compile(r"\b(time|asyncio)\.sleep\((?!0\))")
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if sleeping.search(line) and not re.search("# .*(poll|span)", line) and path != Path(__file__):
                found.append(f"{path.relative_to(ROOT)}:{number}")
    assert not found, "wait for a condition with a deadline; a polling pause or an observed span says so in a comment"
