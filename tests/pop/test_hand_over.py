"""A clean stop writes open messages into the log as a RocketMQ broker would have, and the next owner finds them."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.open_pops import OpenPops
from ringmq.pop.record_scan import RecordScan
from ringmq.pop.revive_records import REVIVE_GROUP
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import load_config
from ringmq.store.message_store import MessageStore
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient, Taken
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(240)
EXPORTS = SMALL
"""What is open goes into the log at a stop."""
EXPORTS_NOT = {**SMALL, "ringmqPopExportAtStop": False}
LONG_MS = 600_000
POLL_MS = 3000
"""A pop that comes late finds nothing, unless it waits."""
DAYS_MS = 3 * 86_400_000


def send(address: str, topic: str, count: int) -> None:
    with RawClient(address) as client:
        for number in range(count):
            assert client.send(topic, b"m%d" % number, 0).code == 0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "store"


def offsets(root: Path, topic: str, group: str) -> dict[int, int]:
    table = load_config(root, "consumerOffset.json")["offsetTable"].get(f"{topic}@{group}", {})
    return {int(queue): offset for queue, offset in table.items()}


def in_log(root: Path) -> dict[tuple[int, int], tuple[list[int], int]]:
    """(start offset, pop time) -> open messages and revive queue, as the records of the log say to another broker."""
    config = StoreConfig(root=root, commit_log_file_bytes=1 << 20, consume_queue_file_bytes=6000)
    found = OpenPops()
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    handled = offsets(root, topic, REVIVE_GROUP)
    store = MessageStore(config)
    for record in RecordScan(store, lambda topic, queue_id: handled.get(queue_id, -1)).records(0, 0, DAYS_MS):
        found.add(*record)
    assert not found.damaged
    return {
        (one.pop.start_offset, one.pop.pop_time_ms): (sorted(one.offsets), one.revive_queue)
        for one in found.all() if one.offsets
    }  # fmt: skip


def expected(taken: list[Taken]) -> dict[tuple[int, int], tuple[list[int], int]]:
    """The same of receipts in the hands of consumers."""
    pops: dict[tuple[int, int], tuple[list[int], int]] = {}
    for one in taken:
        start, time_ms, _, revive_queue, *_ = map(str, one.receipt.split())
        found = pops.setdefault((int(start), int(time_ms)), ([], int(revive_queue)))
        found[0].append(one.offset)
    return {key: (sorted(found), queue) for key, (found, queue) in pops.items()}


def forget_ours(root: Path) -> None:
    """Another broker has had the store: nothing of ours counts but the log."""
    shutil.rmtree(root / "pop")
    (root / "ringmq.queues").unlink()


def test_open_messages_change_hands_and_back(store: Path) -> None:
    with RunningBroker(store, EXPORTS) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", 20)
        client = PopClient(broker.address, "G", "T")
        first, second = client.pop(5, LONG_MS), client.pop(5, LONG_MS)
        assert all(client.ack(one).code == 0 for one in first[1:3])
        assert broker.stop() == 0
    left = [first[0], *first[3:], *second]
    assert in_log(store) == expected(left)
    assert offsets(store, "T", "G") == {0: 10}
    assert json.loads((store / "pop" / "records").read_text())["until_ms"] > time.time() * 1000

    with RunningBroker(store, EXPORTS) as broker:  # the next start of ours doubles nothing
        client = PopClient(broker.address, "G", "T")
        assert client.ack(left[0]).code == client.ack(left[-1]).code == 0
        third = client.pop(4, LONG_MS)
        assert [one.offset for one in third] == [10, 11, 12, 13]
        assert broker.stop() == 0
    assert in_log(store) == expected([*left[1:-1], *third])
    assert offsets(store, "T", "G") == {0: 14}

    forget_ours(store)
    with RunningBroker(store, EXPORTS) as broker:  # another broker takes them over
        client = PopClient(broker.address, "G", "T")
        assert [one.offset for one in client.pop(1, LONG_MS)] == [14]
        for one in (*left[1:-1], *third):
            assert client.ack(one).code == 0
        assert broker.stop() == 0
    assert [found for found, _ in in_log(store).values()] == [[14]]


def test_what_was_taken_over_and_is_done_does_not_come_again(store: Path) -> None:
    """Its check points still wait in the timer. The stop acknowledges them, whether it exports or not."""
    with RunningBroker(store, EXPORTS) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", 8)
        client = PopClient(broker.address, "G", "T")
        taken = [*client.pop(5, LONG_MS), *client.pop(3, LONG_MS)]
        assert broker.stop() == 0
    assert len(in_log(store)) == 2
    forget_ours(store)
    with RunningBroker(store, EXPORTS_NOT) as broker:
        client = PopClient(broker.address, "G", "T")
        assert all(client.ack(one).code == 0 for one in taken)
        assert broker.stop() == 0
    assert in_log(store) == {} and offsets(store, "T", "G") == {0: 8}


def test_messages_without_a_stop_that_exports_stay_in_memory_alone(store: Path) -> None:
    with RunningBroker(store, EXPORTS_NOT) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", 3)
        assert len(PopClient(broker.address, "G", "T").pop(3, LONG_MS)) == 3
        assert broker.stop() == 0
    assert in_log(store) == {} and offsets(store, "T", "G").get(0, 0) == 0
    assert not (store / "pop" / "records").exists()


def test_what_is_due_before_the_stop_goes_to_the_revive_queue_at_once(store: Path) -> None:
    with RunningBroker(store, {**EXPORTS, "ringmqPopReviveGraceMs": 60_000}) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", 1)
        taken = PopClient(broker.address, "G", "T").pop(1, 1000)
        wait_until(lambda: time.time() * 1000 > float(taken[0].receipt.split()[1]) + 1000, "it is due")
        assert broker.stop() == 0
    assert in_log(store) == expected(taken)
    queue = int(taken[0].receipt.split()[3])
    assert (store / "consumequeue" / "rmq_sys_REVIVE_LOG_DefaultCluster" / str(queue)).is_dir()


# ---- the way back ----


def exported(store: Path) -> list[Taken]:
    """Consumers have messages 0 and 3 to 9. Check points of them wait in the timer, and the consumer offset is 10."""
    with RunningBroker(store, EXPORTS) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", 20)
        client = PopClient(broker.address, "G", "T")
        first, second = client.pop(5, LONG_MS, pollTime=POLL_MS), client.pop(5, LONG_MS, pollTime=POLL_MS)
        assert all(client.ack(one).code == 0 for one in first[1:3])
        assert broker.stop() == 0
    assert offsets(store, "T", "G") == {0: 10} and len(in_log(store)) == 2
    return [first[0], *first[3:], *second]


def given(store: Path) -> list[bytes]:
    """The messages that an older version gives, or a RocketMQ broker: by log and offsets alone."""
    forget_ours(store)
    with RunningBroker(store, EXPORTS_NOT) as broker:
        taken = PopClient(broker.address, "G", "T").pop_all(invisible_ms=LONG_MS, pollTime=POLL_MS)
        assert broker.stop() == 0
    return [one.body for one in taken]


def test_a_stop_that_exports_nothing_ends_records_of_before(store: Path) -> None:
    left = exported(store)
    with RunningBroker(store, EXPORTS_NOT) as broker:
        assert PopClient(broker.address, "G", "T").ack(left[0]).code == 0
        assert broker.stop() == 0
    assert in_log(store) == {} and offsets(store, "T", "G") == {0: 3}
    assert given(store) == [b"m%d" % number for number in range(3, 20)]
