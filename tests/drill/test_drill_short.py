"""The drill's short form: twelve seeded kills and stops under load; `make drill` is the long one."""

import asyncio
from pathlib import Path

import pytest

from ringmq.loadtest.drills.drill import ONE_WORKER, plan_faults, run_drill
from ringmq.loadtest.drills.loads import POP_LOADS

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
FAULTS = 12
KINDS = {"kill", "stop", "restart", "supervisor", "everybody"}
SEEDS = {"SYNC_FLUSH": 246, "ASYNC_FLUSH": 181}
"""Each plans all kinds of faults. Together they hit all workers."""
LOADS = (
    "acknowledged", "read while it ran", "delayed", "with a time", "sent back", "in an ordered group",
    "transactions ended", "read by SQL92", *(["polls"] if POP_LOADS else []),
)  # fmt: skip


@pytest.mark.parametrize("flush", SEEDS)
def test_twelve_faults_break_no_promise(tmp_path: Path, flush: str) -> None:
    seed = SEEDS[flush]
    faults = plan_faults(seed, FAULTS)
    report = asyncio.run(run_drill(tmp_path / "store", seed, faults, {"flushDiskType": flush}))
    log = (tmp_path / "store.log").read_text(errors="replace")
    assert report.violations == [], f"{report.text()}\n{log[-6000:]}"
    assert report.faults == FAULTS
    idle = [words for words in LOADS if not report.counts[words]]
    assert not idle, "how much a load does in the time of the faults depends on the machine"


def test_the_short_plans_have_all_kinds_and_workers() -> None:
    plans = [plan_faults(seed, FAULTS) for seed in SEEDS.values()]
    assert [{fault.kind for fault in plan} for plan in plans] == [KINDS, KINDS]
    assert {worker for plan in plans for fault in plan for worker in fault.workers} == set(ONE_WORKER)
