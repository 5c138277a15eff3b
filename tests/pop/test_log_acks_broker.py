"""Messages with a check point in the log: what consumers say of them is in the log, too, when the broker is killed."""

import base64
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.open_pops import OpenPops
from ringmq.pop.record_scan import RecordScan
from ringmq.remoting.codes import RequestCode
from ringmq.store.config import StoreConfig
from ringmq.store.message_store import MessageStore
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient, Taken
from tests.pop.test_hand_over import DAYS_MS, EXPORTS, LONG_MS, send
from tests.services.late_start import ask_started
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(240)
LOG_BYTES = 1 << 20


def open_in_log(root: Path) -> dict[tuple[int, int], set[int]]:
    """(start offset, pop time) -> open messages, as another broker finds them in the store of a killed one."""
    store = MessageStore(StoreConfig(root=root, commit_log_file_bytes=LOG_BYTES, consume_queue_file_bytes=6000))
    end = max(int(path.name) for path in (root / "commitlog").iterdir()) + LOG_BYTES
    found = OpenPops()
    for record in RecordScan(store, lambda topic, queue_id: -1).records(0, end, DAYS_MS):
        found.add(*record)
    assert not found.damaged
    return {(one.pop.start_offset, one.pop.pop_time_ms): one.offsets for one in found.all() if one.offsets}


def receipt_of(taken: Taken) -> tuple[int, int]:
    start, time_ms = taken.receipt.split()[:2]
    return int(start), int(time_ms)


def by_receipt(taken: Iterable[Taken]) -> dict[tuple[int, int], set[int]]:
    found: dict[tuple[int, int], set[int]] = {}
    for one in taken:
        found.setdefault(receipt_of(one), set()).add(one.offset)
    return found


def ack_batch(client: PopClient, taken: list[Taken], *, is_plain: bool = True) -> None:
    """Acknowledge messages of one pop. `is_plain`: in the shape that C reads."""
    start, time_ms, invisible_ms, revive_queue = (int(part) for part in taken[0].receipt.split()[:4])
    bits = sum(1 << one.offset - start for one in taken)
    text = base64.b64encode(bits.to_bytes(bits.bit_length() + 7 >> 3, "little")).decode()
    ack = {
        "c": client.group, "t" if is_plain else "topic": client.topic, "r": "0", "so": start, "q": taken[0].queue_id,
        "rq": revive_queue, "pt": time_ms, "it": invisible_ms, "b": text,
    }  # fmt: skip
    body = json.dumps({"brokerName": "broker-a", "acks": [ack]}).encode()
    answer = ask_started(client.raw, RequestCode.BATCH_ACK_MESSAGE, {}, body)
    assert answer.code == 0, answer.remark


def pop_so_many(client: PopClient, count: int, invisible_ms: int) -> list[Taken]:
    """Pop until so many messages have come. The first pops of a slow start find nothing."""
    found: list[Taken] = []

    def has_all() -> bool:
        found.extend(client.pop(invisible_ms=invisible_ms))
        return len(found) >= count

    wait_until(has_all, f"{count} messages are popped")
    return found


@pytest.fixture
def popped(tmp_path: Path) -> tuple[Path, list[Taken]]:
    """A store with check points of open messages in the log, and these messages."""
    store = tmp_path / "store"
    with RunningBroker(store, EXPORTS) as broker:
        make_topic(broker.address, "Orders", 1)
        send(broker.address, "Orders", 96)
        client = PopClient(broker.address, "billing", "Orders")
        taken = pop_so_many(client, 96, LONG_MS)
        client.close()
        assert broker.stop() == 0
    assert open_in_log(store) == by_receipt(taken)
    return store, taken


def test_acknowledgements_of_messages_in_the_log_are_there_when_they_are_answered(
    popped: tuple[Path, list[Taken]],
) -> None:
    store, taken = popped
    with RunningBroker(store, SMALL) as broker:
        client = PopClient(broker.address, "billing", "Orders")
        for one in taken[:5]:
            assert client.ack(one).code == 0
        ack_batch(client, taken[40:50])
        ack_batch(client, taken[70:80], is_plain=False)
        assert client.ack(taken[0]).code == 0, "a repeated one"
        broker.kill_all()
    left = [*taken[5:40], *taken[50:70], *taken[80:]]
    assert open_in_log(store) == by_receipt(left)
    with RunningBroker(store, SMALL) as broker:
        client = PopClient(broker.address, "billing", "Orders")
        assert client.pop() == []
        for one in left:
            assert client.ack(one).code == 0
        broker.kill_all()
    assert open_in_log(store) == {}


def test_a_copy_of_a_message_in_the_log_ends_its_check_point(tmp_path: Path) -> None:
    """Else another broker would give the copy and the message."""
    store = tmp_path / "store"
    with RunningBroker(store, EXPORTS) as broker:
        make_topic(broker.address, "Orders", 1)
        send(broker.address, "Orders", 40)
        client = PopClient(broker.address, "billing", "Orders")
        taken = pop_so_many(client, 40, 8000)
        client.close()
        assert broker.stop() == 0
    assert open_in_log(store) == by_receipt(taken)
    with RunningBroker(store, SMALL) as broker:
        client = PopClient(broker.address, "billing", "Orders")
        found = pop_so_many(client, 40, LONG_MS)
        broker.kill_all()
    assert sorted(one.body for one in found) == sorted(one.body for one in taken)
    assert {one.flag for one in found} == {1}
    assert open_in_log(store) == {}


def test_a_change_of_a_message_in_the_log_moves_its_check_point(popped: tuple[Path, list[Taken]]) -> None:
    store, taken = popped
    with RunningBroker(store, SMALL) as broker:
        client = PopClient(broker.address, "billing", "Orders")
        answer = client.change(taken[3], 2 * DAYS_MS)
        assert answer.code == 0, answer.remark
        fields = answer.ext_fields
        time_ms = int(fields["popTime"])
        parts = taken[3].receipt.split()
        receipt = " ".join(
            [parts[7], str(time_ms), fields["invisibleTime"], fields["reviveQid"], *parts[4:]]
        )  # fmt: skip
        broker.kill_all()
    expected = by_receipt([*taken[:3], *taken[4:]]) | {(taken[3].offset, time_ms): {taken[3].offset}}
    assert open_in_log(store) == expected
    with RunningBroker(store, SMALL) as broker:
        client = PopClient(broker.address, "billing", "Orders")
        assert client.ack(Taken(taken[3].message, receipt)).code == 0
        broker.kill_all()
    assert open_in_log(store) == by_receipt([*taken[:3], *taken[4:]])
