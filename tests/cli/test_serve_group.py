"""`ringmq serve --slaves`: a group on one machine that starts, replicates, and ends as one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringmq.loadtest.running import RunningBroker
from tests.waiting import wait_until

SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "maxMessageSize": 131_072,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


def ringmq(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ringmq.cli.main", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(180)
def test_a_group_starts_replicates_and_ends_as_one(tmp_path: Path) -> None:
    store = tmp_path / "group" / "store"
    settings = {**SMALL, "brokerRole": "SYNC_MASTER"}
    with RunningBroker(store, settings, arguments=["--slaves", "2"]) as group:
        ringmq("produce", "Hello", "-m", "one", "-m", "two", "-n", group.namesrv)

        def brokers() -> list[dict[str, object]]:
            found = json.loads(ringmq("ha", "status", "-n", group.namesrv, "-o", "json"))
            assert isinstance(found, list)
            return found

        def is_replicated() -> bool:
            found = brokers()
            return len(found) == 3 and len({entry["appendOffset"] for entry in found}) == 1

        wait_until(is_replicated, "all three logs end at the same offset")
        found = brokers()
        assert [(entry["role"], entry["brokerId"]) for entry in found] == [("master", 0), ("slave", 1), ("slave", 2)]
        in_sync = "3 replicas in sync, 2 wanted"
        wait_until(lambda: in_sync in ringmq("ha", "status", "-n", group.namesrv), "the master has heard of it")
        os.kill(group.process.pid, signal.SIGINT)
        assert group.process.wait(60) == 0, group.log_tail()
    for home in (store, store.with_name("store-slave-1"), store.with_name("store-slave-2")):
        assert (home / "commitlog").is_dir()
        assert not (home / "abort").exists(), "a clean stop"


def test_a_group_whose_slave_cannot_start_ends_with_its_reason(tmp_path: Path) -> None:
    store = tmp_path / "group" / "store"
    store.parent.mkdir()
    store.with_name("store-slave-1").write_text("in the way")
    with pytest.raises(RuntimeError) as error:
        RunningBroker(store, SMALL, arguments=["--slaves", "1"])
    assert "store-slave-1" in str(error.value)
    assert "ended with status" in str(error.value)
    assert not (store / "abort").exists(), "the master was stopped cleanly"
