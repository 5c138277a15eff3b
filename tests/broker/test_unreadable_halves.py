"""Halves that cannot be read or copied: the others go on, and no half is taken for ended."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.heartbeat import HeartbeatData
from ringmq.remoting.message import decode_messages
from ringmq.remoting.message_id import decode_offset_id
from tests.broker.transaction_kit import COMMIT, EXPIRED, HALF, OP, ROLLBACK, Transaction, bodies, listed, queue_of
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
SETTINGS = {
    "transactionTimeOut": 3_600_000,
    "transactionCheckInterval": 300,
    "transactionCheckMax": 2,
}
UNIT_BYTES, MAGIC_AT = 20, 4
PROPERTIES_BYTES_MAX = 32_767


def overwrite(path: Path, at: int, size: int) -> bytes:
    """Put zeros into a file, and return the bytes that were there."""
    with path.open("r+b") as file:
        file.seek(at)
        before = file.read(size)
        file.seek(at)
        file.write(bytes(size))
    return before


class Damage:
    """Damages a store whose files are mapped by its broker."""

    def __init__(self, store: Path) -> None:
        self._store = store

    def unit(self, topic: str, offset: int) -> None:
        overwrite(self._store / "consumequeue" / topic / "0" / ("0" * 20), UNIT_BYTES * offset, UNIT_BYTES)

    def record(self, position: int) -> None:
        overwrite(self._store / "commitlog" / ("0" * 20), position + MAGIC_AT, 4)


def counter(store: Path, number: int) -> int:
    plane = Plane.open(plane_name(store))
    return int(plane.role(lib.RMQ_ROLE_TRANSACTIONS).counters[number])


def lost(store: Path) -> int:
    return counter(store, lib.RMQ_TRANSACTIONS_LOST)


def filler(client: RawClient, broker: RunningBroker) -> str:
    """The value of a pair FILL that leaves a half no room for another pair."""
    Transaction(client, b"narrow", FILL="x").end(client, ROLLBACK)
    [narrow] = [message for message in queue_of(broker, HALF) if message.body == b"narrow"]
    used = sum(len(name) + len(value) + 2 for name, value in narrow.properties.items())
    return "x" * (PROPERTIES_BYTES_MAX - used - 10)


def test_damage_ends_no_other_transaction(tmp_path: Path) -> None:
    store = tmp_path / "store"
    damage = Damage(store)
    with ExitStack() as stack:
        broker = stack.enter_context(RunningBroker(store, SETTINGS))
        client, peer = (stack.enter_context(RawClient(broker.address)) for _ in range(2))
        make_topic(broker.address, "T", 1)
        heartbeat = HeartbeatData("one@producer", ["P"])
        assert peer.ask(RequestCode.HEART_BEAT, {}, heartbeat.encode()).code == ResponseCode.SUCCESS
        fill = filler(client, broker)
        unit, record, sound, ended = (Transaction(client, body) for body in (b"unit", b"record", b"sound", b"ended"))
        assert ended.end(client, COMMIT).code == ResponseCode.SUCCESS
        wait_until(lambda: listed(broker) == [0, ended.offset], "its op record is there")
        damage.unit(HALF, unit.offset)
        damage.unit(OP, 1)
        damage.record(record.position)
        os.kill(broker.worker_pids()["transactions"], signal.SIGKILL)
        assert sound.end(client, COMMIT).code == ResponseCode.SUCCESS
        assert ended.end(client, COMMIT).code == ResponseCode.SUCCESS, "its committed message is in the log"
        for half in (unit, record):
            assert half.end(client, COMMIT).code == ResponseCode.SYSTEM_ERROR
        wait_until(lambda: len(bodies(broker)) == 2, "the sound one is delivered")
        assert lost(store) == 1, "its record is damaged"
        later, wide = Transaction(client, b"later"), Transaction(client, b"wide", FILL=fill)
        wait_until(lambda: counter(store, lib.RMQ_TRANSACTIONS_OPEN) == 2, "the service has both")
        damage.record(later.position)
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"transactionTimeOut=0").code == ResponseCode.SUCCESS
        for _ in range(2):
            while (asked := peer.receive()) and decode_messages(asked.body)[0].body != b"wide":
                pass
            assert asked and asked.code == RequestCode.CHECK_TRANSACTION_STATE, "it has no room for a count"
            _, _, offset = decode_offset_id(asked.ext_fields["offsetMsgId"])
            viewed = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
            assert decode_messages(viewed.body)[0].body == b"wide", "the id names the half"
        wait_until(lambda: b"wide" in bodies(broker, EXPIRED), "it has had all checks")
        wait_until(lambda: lost(store) == 2, "a round finds the damaged record")
        assert later.end(client, COMMIT).code == wide.end(client, COMMIT).code == ResponseCode.SYSTEM_ERROR
        assert bodies(broker) == [b"ended", b"sound"]
        log = broker.log_tail(1 << 20)
        assert [log.count(text) for text in ("cannot be read", "is damaged", "have no room")] == [1, 2, 1], log
        assert broker.stop() == 0
    with RunningBroker(store, {**SETTINGS, "transactionTimeOut": 3_600_000}) as broker:
        with RawClient(broker.address) as client:
            assert unit.end(client, COMMIT).code == ResponseCode.SUCCESS, "a start has made its unit again"
            wait_until(lambda: len(bodies(broker)) == 3, "it is delivered")
        assert bodies(broker) == [b"ended", b"sound", b"unit"]
