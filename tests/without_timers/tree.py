"""A copy of this tree without timers. The rest of the broker knows guests by their rows, so the copy is a broker."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.plain_cc import compiler

ROOT = Path(__file__).resolve().parents[2]
GUEST = ("timer", "native/src/timer", "tests/timer")
"""The folders of timers: Python, the room of the C core, tests."""
NOT_COPIED = {".git", ".venv", "build", "dist", "target", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis"}
NOT_OF_A_BROKER = {"tests", "docs", "examples", "monitoring", "systemd"}
NAMES_TIMERS = re.compile("timer", re.IGNORECASE)
OF_TESTS = re.compile(r"^\s*from (tests\.[\w.]+|\w+) import (.*)$", re.MULTILINE)
OF_THE_WHOLE = (
    "broker/test_recorded_scenes.py", "cli/test_documented_commands.py", "client/test_stock_features.py",
    "loadtest/test_fuzz.py", "monitoring/test_docs.py", "native/test_crash_points.py", "native/test_hardening.py",
    "packaging/test_distributions.py", "remoting/test_access.py", "services/test_adding_a_service.py",
    "suite/test_spread.py", "test_words.py",
)  # fmt: skip
"""Files of tests that name no timers, but need them under another name, or compare pages or codes of the wire with all
guests, or look at the build or at what git knows.
"""
NO_OTHER_TREE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in repr(finder)]
"""
"""An editable environment (`make dev`) would find the packages of its own tree that the copy lacks."""
BUILD = ROOT / "build" / "without-timers"


def copy_tree(target: Path, *, with_tests: bool) -> Path:
    """Copy the tree without timers. Without tests: what a broker is built of. Returns `target`."""

    def left_out(folder: str, names: list[str]) -> Iterable[str]:
        place = Path(folder).relative_to(ROOT)
        for name in names:
            is_of_guest = (place / name).as_posix() in GUEST or name.endswith(".so")
            is_of_tests = not with_tests and place == Path() and name in NOT_OF_A_BROKER
            if name in NOT_COPIED or is_of_guest or is_of_tests:
                yield name

    shutil.copytree(ROOT, target, symlinks=True, ignore=lambda folder, names: list(left_out(folder, names)))
    if with_tests:
        for path in files_that_need_timers(target):
            path.unlink()
        (target / ".venv").symlink_to(ROOT / ".venv")  # tests that build a core run make, which runs this Python
    packages = target / "build" / "path" / "ringmq"
    packages.mkdir(parents=True)
    for path in [
        *(target / "packaging" / "ringmq").iterdir(),
        *(found.parent for found in target.glob("*/__init__.py")),
    ]:
        (packages / path.name).symlink_to(path)
    (packages.parent / "sitecustomize.py").write_text(NO_OTHER_TREE)
    return target


def files_that_need_timers(root: Path) -> list[Path]:
    """The files of tests that import timers, and those that import one of them."""
    texts = {path: path.read_text() for path in (root / "tests").rglob("*.py")}
    lost = {path for path, text in texts.items() if "ringmq.timer" in text or path.parent.name == "timer"}
    while more := {path for path in texts.keys() - lost if _imported(root, path, texts[path]) & lost}:
        lost |= more
    return sorted(lost)


def _imported(root: Path, path: Path, text: str) -> set[Path]:
    """The files of tests that a file may import: by their packages, or beside it by a bare name."""
    found: set[Path] = set()
    for module, names in OF_TESTS.findall(text):
        base = root.joinpath(*module.split(".")) if module.startswith("tests") else path.with_name(module)
        found |= {base.with_suffix(".py"), *(base / f"{name.strip()}.py" for name in names.split(","))}
    return found


def files_that_name_timers(root: Path) -> list[Path]:
    """The files of tests that name timers, or that compare something with all guests."""
    paths = [path for path in (root / "tests").rglob("test_*.py") if NAMES_TIMERS.search(path.read_text())]
    return sorted({*paths, *(root / "tests" / name for name in OF_THE_WHOLE)})


def environment(root: Path) -> dict[str, str]:
    """The environment in which Python finds the packages of this copy."""
    return {**os.environ, "PYTHONPATH": str(root / "build" / "path"), "PYTHONDONTWRITEBYTECODE": "1"}


def build_core(root: Path) -> None:
    """Build the C core of a copy as `make build` does, but without optimisation.

    Tests ask what it does, not how fast. The core of an earlier copy serves until a source changes.
    """
    sources = [*(ROOT / "native" / "src").rglob("*.[ch]"), ROOT / "native" / "build_native.py"]
    newest = max(path.stat().st_mtime for path in sources)
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = next(BUILD.glob("_native*.so"), None)
        if found is None or found.stat().st_mtime < newest:
            command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
            wanted = {**os.environ, "CC": compiler(protected=False), "RINGMQ_REQUIRE_NATIVE": "1"}
            subprocess.run(command, cwd=root, env=wanted, check=True, timeout=280)
            made = next((root / "native").glob("_native*.so"))
            found = Path(shutil.copy(made, BUILD / made.name))
        else:
            shutil.copy(found, root / "native" / found.name)
