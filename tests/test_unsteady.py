"""A test that fails is not run again, unless it is marked `unsteady`. The number of marks only falls."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UNSTEADY_MAX = 0
SECOND_TIME = """
import pathlib, pytest
{mark}
def test_it():
    flag = pathlib.Path(__file__).with_name("flag")
    first = not flag.exists()
    flag.touch()
    assert not first
"""
MARK = "@pytest.mark.unsteady"


def test_no_test_is_marked() -> None:
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    assert sum(path.read_text().count("mark.unsteady") for path in files) <= UNSTEADY_MAX


@pytest.mark.parametrize(
    ("texts", "status"),
    [
        ({"one": SECOND_TIME.format(mark=MARK)}, 0),
        ({"one": SECOND_TIME.format(mark="")}, 1),
        ({"one": SECOND_TIME.format(mark=MARK), "two": "def test_it():\n    assert False\n"}, 1),
        ({"one": f"import pytest\n\n{MARK}\ndef test_it():\n    assert False\n"}, 1),
        ({"one": "def test_it():\n    pass\n"}, 0),
    ],
)
def test_only_a_marked_test_is_run_again(tmp_path: Path, texts: dict[str, str], status: int) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "tests", tmp_path / ".ci" / "tests")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    unsteady: again\naddopts = -p no:xdist\n")
    (tmp_path / "tests").mkdir()
    for name, text in texts.items():
        folder = tmp_path / "tests" / name
        folder.mkdir()
        (folder / f"test_{name}.py").write_text(text)
    command = [tmp_path / ".ci" / "tests", ".venv/bin/python", "-m", "pytest"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stdout + done.stderr
