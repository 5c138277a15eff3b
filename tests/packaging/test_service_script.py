"""`systemd/install` empties and removes only what it has made itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "systemd" / "install"
PREFIX = "/usr/local"


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A file of somebody else in the folder that PREFIX names."""
    path = tmp_path / "usr" / "local" / "bin" / "theirs"
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    return path


def run(action: str, stage: Path, prefix: str = PREFIX) -> subprocess.CompletedProcess[str]:
    # the wheel that is not there ends an installation that should not have begun
    given = {"DESTDIR": str(stage), "PREFIX": prefix, "PYTHON": sys.executable, "WHEEL": str(stage / "none.whl")}
    return subprocess.run([SCRIPT, action], env={**os.environ, **given}, capture_output=True, text=True, timeout=60)


def test_a_folder_of_others_is_not_made_an_environment(others: Path, tmp_path: Path) -> None:
    done = run("install", tmp_path)
    assert done.returncode == 1
    assert f"PREFIX={PREFIX}" in done.stderr and "folder of its own" in done.stderr
    assert others.read_text() == "precious"


def test_a_relative_prefix_is_refused(tmp_path: Path) -> None:
    assert "no absolute path" in run("install", tmp_path, "ringmq").stderr


def test_uninstall_keeps_a_folder_of_others(others: Path, tmp_path: Path) -> None:
    assert run("files", tmp_path).returncode == 0
    units = tmp_path / "usr/local/lib/systemd/system"
    assert (units / "ringmq-broker@.service").exists()
    done = run("uninstall", tmp_path)
    assert done.returncode == 0 and "kept" in done.stderr
    assert others.read_text() == "precious"
    assert not (units / "ringmq-broker@.service").exists()


def test_uninstall_removes_an_environment_of_its_own(tmp_path: Path) -> None:
    home = tmp_path / "opt" / "ringmq"
    home.mkdir(parents=True)
    (home / ".ringmq-service").touch()
    assert run("uninstall", tmp_path, "/opt/ringmq").returncode == 0
    assert not home.exists()
