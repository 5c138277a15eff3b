"""What the Debian package's scripts do on a machine, with folders of the test's in place of the machine's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "packaging" / "debian"
MODULES = ("lib/python3.11/site-packages/some/module.py", "runtime/lib/python3.11/other.py")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """What the package has unpacked into /opt/ringmq."""
    home = tmp_path / "opt" / "ringmq"
    for module in MODULES:
        (home / module).parent.mkdir(parents=True)
        (home / module).write_text("there = True\n")
    (home / "bin").mkdir()
    (home / "bin" / "python").symlink_to(sys.executable)
    return home


def run(script: str, machine: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As dpkg runs it; the commands that would change this machine do nothing."""
    commands = machine / "commands"
    commands.mkdir(exist_ok=True)
    for name in ("systemd-sysusers", "systemd-tmpfiles", "systemctl"):
        (commands / name).write_text("#!/bin/sh\n")
        (commands / name).chmod(0o755)
    text = (SCRIPTS / script).read_text()
    for folder in ("/opt/ringmq", "/usr/local/lib"):
        text = text.replace(folder, f"{machine}{folder}")
    environment = {"PATH": f"{commands}:{os.environ['PATH']}"}
    command = ["sh", "-c", text, script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def bytecode(home: Path) -> list[str]:
    """The modules that are compiled."""
    return [name for name in MODULES if [*(home / name).parent.glob(f"__pycache__/{Path(name).stem}.*.pyc")]]


def test_all_is_compiled_and_nothing_of_it_stays(home: Path, tmp_path: Path) -> None:
    assert run("postinst", tmp_path, "configure", "").returncode == 0
    assert bytecode(home) == [*MODULES]
    assert run("prerm", tmp_path, "upgrade", "2").returncode == 0
    assert bytecode(home) == [] and all((home / module).exists() for module in MODULES)


def test_what_cannot_be_compiled_is_no_failed_installation(home: Path, tmp_path: Path) -> None:
    (home / MODULES[0]).write_text("def\n")
    assert run("postinst", tmp_path, "configure", "").returncode == 0
    assert bytecode(home) == [MODULES[1]]


@pytest.mark.parametrize("made", ["opt/ringmq/.ringmq-service", "usr/local/lib/systemd/system/ringmq-broker@.service"])
def test_what_the_sources_have_installed_is_not_installed_over(made: str, tmp_path: Path) -> None:
    assert run("preinst", tmp_path, "install").returncode == 0
    (tmp_path / made).parent.mkdir(parents=True)
    (tmp_path / made).touch()
    for action in (["install"], ["upgrade", "1"]):
        done = run("preinst", tmp_path, *action)
        assert done.returncode == 1 and "make uninstall-service" in done.stderr
        assert str(tmp_path / made) in done.stderr
    assert run("preinst", tmp_path, "abort-upgrade", "2").returncode == 0


def test_every_script_is_in_the_package() -> None:
    packed = (SCRIPTS.parent / "deb").read_text().partition("cp packaging/debian/{")[2].partition("}")[0].split(",")
    assert {*packed, "control"} == {path.name for path in SCRIPTS.iterdir()}
