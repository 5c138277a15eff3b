"""What the units leave open, as `systemd-analyze security` judges their files; tests/service looks at running ones."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPOSURE_MAX = 2.0
pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("staged")
    script = [ROOT / "systemd" / "install", "files"]
    subprocess.run(script, env={**os.environ, "DESTDIR": str(folder)}, check=True, timeout=60)
    return folder


def exposure(staged: Path, unit: str) -> str:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--root={staged}", unit]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    return done.stdout


def settings(name: str) -> list[str]:
    """`RestrictAddressFamilies=~AF_(INET|INET6)` -> AF_INET, AF_INET6; `RootDirectory=/RootImage=` -> RootDirectory."""
    setting, _, value = name.partition("=")
    if not value.startswith("~"):
        return [setting]
    prefix, _, choice = value[1:].partition("(")
    return [f"{prefix}{one}" for one in choice.rstrip(")").split("|")]


@pytest.mark.parametrize("kind", ["broker", "slave", "namesrv"])
def test_little_is_left_open_and_each_line_of_it_is_explained(staged: Path, kind: str) -> None:
    text = exposure(staged, f"ringmq-{kind}@default.service")
    assert float(text.rpartition(": ")[2].split()[0]) <= EXPOSURE_MAX
    left_open = [name for line in re.findall(r"^✗ (\S+)", text, re.MULTILINE) for name in settings(line)]
    assert {"@resources", "AF_INET6", "RootDirectory"} <= set(left_open)
    relaxed = (ROOT / "systemd/ringmq-.service.d/hardening.conf").read_text().partition("# Relaxed")[2]
    page = (ROOT / "docs/service.md").read_text().partition("## Sandbox")[2]
    for name in left_open:
        assert name in relaxed, f"hardening.conf does not say why {name} is left open"
        assert name in page, f"docs/service.md does not say why {name} is left open"


def test_a_slave_runs_as_a_broker_does() -> None:
    units = [(ROOT / f"systemd/ringmq-{kind}@.service").read_text() for kind in ("broker", "slave")]
    one, other = (unit.partition("[Service]")[2].replace("slave", "broker") for unit in units)
    assert one == other
    for line in ("Type=notify", "FileDescriptorStoreMax=64", "LimitMEMLOCK=infinity", "LimitNOFILE=1048576"):
        assert f"\n{line}\n" in one


def test_units_leave_memory_to_the_broker() -> None:
    for kind in ("broker", "slave"):
        unit = (ROOT / f"systemd/ringmq-{kind}@.service").read_text().splitlines()
        assert [line for line in unit if line.startswith("OOMScoreAdjust=")] == ["OOMScoreAdjust=0"]
    for path in (ROOT / "systemd").rglob("*"):
        lines = path.read_text().splitlines() if path.is_file() else []
        limits = [line for line in lines if line.startswith(("MemoryMax=", "MemoryHigh="))]
        assert not limits, f"{path.name}: a memory cgroup counts the page cache of the log"
