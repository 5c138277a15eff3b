"""The source distribution has all that a build needs; what is built from it runs."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not in Python 3.11.2


def run(words: Sequence[str | Path], cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution, made from a copy of what git knows."""
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("sdist")
    for name in run(["git", "ls-files", "-z"], ROOT).split("\0"):
        if name and (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "examples/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    run([sys.executable, "setup.py", "-q", "sdist", "-d", out], copy)
    with tarfile.open(next(out.glob("*.tar.gz"))) as archive:
        archive.extractall(out, **SAFELY)
    return next(path for path in out.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, source]
    run(pip, out, RINGMQ_REQUIRE_NATIVE="1")
    return next(out.glob("*.whl"))


def test_the_source_distribution_has_the_c_core(source: Path) -> None:
    in_tree = {path.name for path in (ROOT / "native/src").iterdir() if path.suffix in {".c", ".h"}}
    assert {path.name for path in (source / "native/src").iterdir()} >= in_tree
    assert (source / "LICENSE").is_file()


def test_the_wheel_has_every_package_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {"/".join(name.split("/")[:2]) for name in names if name.startswith("ringmq/")}
    packages = {folder.parent.name for folder in ROOT.glob("*/__init__.py") if folder.parent.name != "tests"}
    assert {f"ringmq/{package}" for package in packages} <= tops
    assert not [name for name in names if name.startswith("tests/") or "/tests/" in name]
    assert [name for name in names if name.startswith("ringmq/native/_native") and name.endswith(".so")]


def test_the_wheel_runs_where_nothing_else_of_the_project_is(wheel: Path, tmp_path: Path) -> None:
    run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path / "site", wheel], tmp_path)
    look = "import ringmq.native as native; print(native.__file__); assert native.lib"
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    assert run([sys.executable, "-c", look], tmp_path, **environment).startswith(str(tmp_path / "site"))
    help_text = run([sys.executable, "-m", "ringmq.cli.main", "serve", "--help"], tmp_path, **environment)
    assert "--namesrv-port" in help_text
