"""Stores of a stock broker with waiting timers, opened by RingMQ: what waited comes once, what was deleted never.

All of it is overdue, so it goes out at once. Records that have no unit yet join in the order of their times, unless
half a round of the wheel has passed since.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.message import MessageExt
from ringmq.store.inferred_config import config_without_index
from ringmq.store.message_store import MessageStore
from ringmq.timer.timer_checkpoint import read_timer_checkpoint
from ringmq.timer.timer_wheel import FILE_BYTES
from tests.archives import unpack
from tests.broker.test_delay_faults import Clock
from tests.staging import messages_of
from tests.waiting import wait_until

GOLDEN = Path(__file__).parents[1] / "golden" / "timer"
SETTINGS = {
    "mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000, "mappedFileSizeTimerLog": 10_240,
    "timerRollWindowSlot": 20, "fileReservedTime": 720_000, "brokerClusterName": "GoldCluster", "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}  # fmt: skip
RECORDED: dict[str, Any] = json.loads((GOLDEN / "messages.json").read_text())
SIX_DAYS_S = 6 * 86_400
BY_STOCK = {row["uniqKey"] for row in RECORDED["messages"] if row.get("wheelRecords") and row["delivered"]}
"""Keys of the messages of the first run that stock has delivered in the end."""


def delivered(address: str) -> list[MessageExt]:
    return [message for message in messages_of(address, "GT", 2) if "TIMER_DEQUEUE_MS" in message.properties]


def timer_pairs(store: Path) -> Iterator[dict[str, str]]:
    """Properties of the records of the timer topic, in the order of its queue."""
    messages = MessageStore(config_without_index(store))
    queue = messages.queue("rmq_sys_wheel_timer", 0)
    assert queue is not None
    for unit in queue.units(0, queue.max_offset(1 << 62)):
        record = messages.commit_log.record_at(unit.commit_log_offset, 1 << 62, unit.size)
        assert record is not None
        yield record.properties


def behind_their_delete(store: Path) -> set[str]:
    """Keys of messages that stock has rolled after their delete. RingMQ rolls neither of the two.

    If all is read again when all is overdue, the delete's slot may be over before the message is read.
    """
    deleted, found = set(), set()
    for pairs in timer_pairs(store):
        target = pairs.get("TIMER_DEL_UNIQKEY")
        if target is not None:
            deleted.add(target)
        elif f"GT+{pairs['UNIQ_KEY']}" in deleted:
            found.add(pairs["UNIQ_KEY"])
    return found


def wanted_keys(store: Path, *, enqueued_by_stock: bool = True) -> set[str]:
    """Keys of all timer messages of a store, less those that a delete names: of the same slot, if stock has placed it.

    RingMQ places a delete of another time in the slot of its target.
    """
    found, deleted = set(), set()
    for pairs in timer_pairs(store):
        out_ms, target = pairs.get("TIMER_OUT_MS"), pairs.get("TIMER_DEL_UNIQKEY")
        if target is not None:
            deleted.add((target, out_ms))
        elif pairs.get("REAL_TOPIC") == "GT" and out_ms is not None:
            found.add((f"GT+{pairs['UNIQ_KEY']}", out_ms))
    if not enqueued_by_stock:
        names = {name for name, _ in deleted}
        return {key.removeprefix("GT+") for key, _ in found if key not in names}
    return {key.removeprefix("GT+") for key, _ in found - deleted}


def wait_for(address: str, wanted: set[str]) -> Counter[str]:
    def all_are_there() -> bool:
        return {message.properties["UNIQ_KEY"] for message in delivered(address)} >= wanted

    wait_until(all_are_there, "what waited is delivered")
    return Counter(message.properties["UNIQ_KEY"] for message in delivered(address))


@pytest.mark.parametrize("is_late", [False, True], ids=["six days later", "now"])
@pytest.mark.parametrize("name", ["pending-running", "after-delivery", "clean-stop-pending", "stuck"])
def test_what_waited_is_delivered_once(tmp_path: Path, name: str, is_late: bool) -> None:
    store, clock = tmp_path / "store", Clock(tmp_path)
    unpack(GOLDEN / f"store-{name}.tar.xz", store)
    wanted = wanted_keys(store, enqueued_by_stock=name != "stuck")
    assert len(wanted) > 400 and (name == "stuck" or wanted >= BY_STOCK - {"NOPE"} - halves())
    recorded = read_timer_checkpoint(store)
    assert recorded is not None
    if not is_late:
        clock.set(recorded.last_read_ms // 1000 + SIX_DAYS_S - int(time.time()))
    with RunningBroker(store, SETTINGS, environment=clock.environment) as broker:
        copies = wait_for(broker.address, wanted)
        assert set(copies) == wanted and set(copies.values()) == {1}
        ours = [message for message in delivered(broker.address) if message.prepared_transaction_offset]
        times = [int(message.properties["TIMER_OUT_MS"]) for message in ours if message.queue_id == 0]
        assert ours and (is_late or times == sorted(times))


def halves() -> set[str]:
    return {row["uniqKey"] for row in RECORDED["messages"] if row["name"] == "half-with-timer"}


@pytest.mark.parametrize(
    "damage", ["log is missing", "newest log file is missing", "wheel is short", "checkpoint is zeros"]
)
def test_files_that_are_lost_are_rebuilt(tmp_path: Path, damage: str) -> None:
    store = tmp_path / "store"
    unpack(GOLDEN / "store-clean-stop-pending.tar.xz", store)
    match damage:
        case "log is missing":
            for path in (store / "timerlog").iterdir():
                path.unlink()
        case "newest log file is missing":
            max((store / "timerlog").iterdir()).unlink()
        case "wheel is short":
            (store / "timerwheel").write_bytes(bytes(FILE_BYTES - 32))
        case "checkpoint is zeros":
            (store / "config" / "timercheck").write_bytes(bytes(4096))
    wanted = wanted_keys(store)
    with RunningBroker(store, SETTINGS) as broker:
        copies = wait_for(broker.address, wanted)
        if damage == "checkpoint is zeros":
            assert wanted <= set(copies) <= wanted | behind_their_delete(store)
        else:
            assert set(copies) == wanted and set(copies.values()) == {1}
