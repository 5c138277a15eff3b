"""The replication drill's short form; `make ha-drill` is the long one. A process of its own: it changes namespaces."""

import subprocess
import sys
from pathlib import Path

import pytest

from ringmq.loadtest.drills.ha_drill import run_drill
from ringmq.loadtest.drills.ha_faults import NEEDS_DISK, NEEDS_NETWORK, WEIGHTS, Fault, plan_faults
from ringmq.loadtest.drills.ha_net import missing_for_network

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
SHORT = ("kill HA writer", "slave loses tail", "master loses tail", "lies", "partition to slave")
DEGRADING = ("kill HA client", "kill slave")


def drill(folder: Path, *arguments: str, kinds: tuple[str, ...]) -> str:
    """Run the command over every kind once; its report."""
    only = [part for kind in kinds for part in ("--only", kind)]
    command = [sys.executable, "-m", "ringmq.loadtest.drills.ha_drill", "--folder", str(folder), *arguments, *only]
    done = subprocess.run([*command, "--rounds", str(len(kinds))], capture_output=True, text=True)
    logs = "".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in folder.glob("*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    return done.stdout


def test_no_promise_is_broken_by_deaths_lies_and_partitions(tmp_path: Path) -> None:
    kinds = tuple(kind for kind in SHORT if not (missing_for_network() and kind in NEEDS_NETWORK))
    report = drill(tmp_path, "--seed", "1", kinds=kinds)
    assert "0 violations" in report
    for kind in kinds:
        assert f"1 x {kind}" in report


def test_degraded_mode_is_entered_and_left(tmp_path: Path) -> None:
    report = drill(tmp_path, "--seed", "2", "--auto", kinds=DEGRADING)
    assert "0 violations" in report
    entered, left = (int(part.split()[0]) for part in report.split("degraded mode entered ")[1].split(" times, left "))
    assert entered >= left >= 1, "a client that is back before the next send does not show"


def test_the_drill_finds_what_an_unreplicated_broker_does_not_keep(tmp_path: Path) -> None:
    """ASYNC_MASTER acknowledges what its stopped slave has not: the drill has to say so."""
    faults = [Fault("stop HA client", span_s=4.0)]  # long enough for a send on a machine that stands still
    report = run_drill(tmp_path, 1, faults, {"brokerRole": "ASYNC_MASTER"}, None)
    assert {violation.kind for violation in report.violations} == {"not held"}


def test_a_plan_comes_from_its_seed_and_has_every_kind() -> None:
    assert plan_faults(7, 100) == plan_faults(7, 100)
    assert plan_faults(7, 100) != plan_faults(8, 100)
    assert {fault.kind for fault in plan_faults(1, len(WEIGHTS))} == set(WEIGHTS)
    assert set(NEEDS_DISK) | set(NEEDS_NETWORK) < set(WEIGHTS)
