"""Archives of classes for the JVMs of tests, which `.ci/bootstrap` makes by `stock-classes` and `spark-classes`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CI = Path(__file__).parents[2] / ".ci"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    return tmp_path


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def test_a_failed_archive_is_tried_again(checkout: Path) -> None:
    lines = (CI / "bootstrap").read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("archive_classes() {"))
    function = "\n".join(lines[begin : lines.index("}", begin) + 1])
    script(checkout / ".ci" / "progress", '"$@"')
    script(checkout / ".ci" / "stock-classes", "echo >>tried; [ -e works ]")

    def run(state: str) -> int:
        command = ["bash", "-euo", "pipefail", "-c", f"{function}\narchive_classes stock \"stock's\" '{state}'"]
        subprocess.run(command, cwd=checkout, check=True, capture_output=True)
        return (checkout / "tried").read_text().count("\n")

    assert [run("one"), run("one")] == [1, 2]
    (checkout / "works").touch()
    assert [run("one"), run("one"), run("two")] == [3, 3, 4]


@pytest.mark.parametrize("name", ["stock", "spark"])
@pytest.mark.parametrize("works", [True, False])
def test_an_archive_is_moved_within_its_file_system(checkout: Path, name: str, works: bool) -> None:
    """A move from another one is a copy: a JVM that starts meanwhile maps a part of the archive."""
    shutil.copy(CI / f"{name}-classes", checkout / ".ci")
    write = 'case $archive in "$PWD"/.venv/*) printf whole >"$archive" ;; *) exit 3 ;; esac' if works else "exit 1"
    find = """archive=$(grep -o "[^'= ]*\\.jsa" <<<"${JDK_JAVA_OPTIONS:-} $*")"""
    script(checkout / ".venv" / "bin" / "python", f"{find}\n{write}")
    script(checkout / "tar", "exit 0")
    environment = {**os.environ, "JDK_JAVA_OPTIONS": "", "PATH": f"{checkout}:{os.environ['PATH']}"}
    done = subprocess.run([checkout / ".ci" / f"{name}-classes", "write"], env=environment, capture_output=True)
    assert (done.returncode == 0) == works, done.stderr
    archive = checkout / ".venv" / f"{name}.jsa"
    assert (archive.read_text() if archive.exists() else "") == ("whole" if works else "")
    assert {path.name for path in (checkout / ".venv").iterdir()} <= {"bin", archive.name}, "nothing else is left"
