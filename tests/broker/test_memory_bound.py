"""ringmqMemoryMax: the requests that are refused near it, and a real broker that comes near."""

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from ringmq.broker import memory_watch
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.memory_watch import BESIDE_TABLES_BYTES, MemoryWatch, memory_max_bytes
from ringmq.broker.plane_setup import capacity_of
from ringmq.ipc.memory import MemoryUse
from ringmq.ipc.ports import REQUEST_SLOTS
from ringmq.ipc.segment import plane_name, segment_path
from ringmq.ipc.workers import WORKERS
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.pop.arena import arena_bytes as pop_bytes
from ringmq.pop.arena import memory_bytes as pop_memory_bytes
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.heartbeat import HeartbeatData, LockBatch
from ringmq.remoting.message_queue import MessageQueue
from ringmq.services.arenas import chains_bytes, republisher_bytes, services_bytes
from tests.broker.exporter_kit import value
from tests.broker.fakes import make_harness, peer
from tests.raw_client import RawClient
from tests.waiting import wait_until

MIB = 1 << 20


def watched(max_bytes: int) -> tuple[MemoryWatch, SimpleNamespace, list[str]]:
    header = SimpleNamespace(plane_bytes=300 * MIB, memory=SimpleNamespace(level=0))
    lines: list[str] = []
    plane = SimpleNamespace(header=header, name="none", arena_bytes=lambda: 0)
    return MemoryWatch(plane, BrokerConfig(memory_max=max_bytes), lines.append), header, lines  # type: ignore[arg-type]


def test_the_default_is_what_is_configured_and_half_a_gibibyte() -> None:
    config = BrokerConfig(receive_buffer_bytes=65_536, receive_buffer_count=256, reassembly_bytes_max=64 * MIB)
    added = 2 * int(lib.rmq_reader_scratch_bytes(REQUEST_SLOTS))
    capacity = capacity_of(config, WORKERS.rows(2))
    arenas = sum(port.arena_bytes for port in capacity.ports)
    rest = memory_max_bytes(config, 300 * MIB, arenas) - (300 + 2 * 80) * MIB - added - BESIDE_TABLES_BYTES
    services = services_bytes(config) + 2 * republisher_bytes(config) + chains_bytes(config) + pop_bytes(config)
    assert rest == services + pop_memory_bytes(config), (
        "the arenas of `services`, `delay`, `timer`, `transactions` and `pop`, and its windows and entries"
    )
    assert pop_memory_bytes(config) > config.pop_open_max * 64, "an entry has 64 bytes"
    assert memory_max_bytes(BrokerConfig(memory_max=5), 300 * MIB, arenas) == 5


def test_each_change_of_the_level_gets_a_line() -> None:
    watch, header, lines = watched(1000 * MIB)
    assert header.memory.max_bytes == 1000 * MIB
    for private, level in ((100, 0), (899, 0), (900, 1), (980, 2), (940, 2), (900, 1), (100, 0)):
        watch.take(MemoryUse((private - 50) * MIB, 50 * MIB), 0)
        assert (header.memory.level, header.memory.shared_bytes) == (level, 50 * MIB)
    assert [line.partition(",")[0] for line in lines] == [f"memory: {used} of 1000 MiB" for used in (900, 980, 100)]
    assert all("ringmqMemoryMax" in line for line in lines)


@pytest.mark.parametrize(
    ("used", "every_ms"), [(0, 1000), (8970, 1000), (9487, 500), (9888, 250), (10_000, 250), (12_000, 250)]
)
def test_a_sample_comes_before_memory_can_have_grown_to_the_limit(
    used: int, every_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The level begins at 10,000 of 11,112 MiB."""
    monkeypatch.setattr(memory_watch.MemorySampler, "sample", lambda self, pids, now_ms: MemoryUse(used * MIB, 0))
    watch, header, _ = watched(10_000 * MIB * 10 // 9)
    watch.tick(0, [])
    assert header.memory.private_bytes == used * MIB
    header.memory.private_bytes = -1
    watch.tick(every_ms - 1, [])
    assert header.memory.private_bytes == -1
    watch.tick(every_ms, [])
    assert header.memory.private_bytes == used * MIB


def test_near_the_limit_clients_add_nothing_and_go_on() -> None:
    harness = make_harness()
    producer = HeartbeatData("p1", producer_groups=["makers"]).encode()
    locks = LockBatch("group", "c1", [MessageQueue("T", "wire-a", 0)]).encode()
    harness.make_topic("T")
    assert harness.join("group", {"T": "*"}).code == 0
    assert harness.ask(RequestCode.HEART_BEAT, body=producer, connection=peer(2)).code == 0
    assert harness.ask(RequestCode.LOCK_BATCH_MQ, body=locks).code == 0
    harness.plane.header.memory.level = 1

    assert harness.join("group", {"T": "*"}).code == 0
    assert harness.ask(RequestCode.HEART_BEAT, body=producer, connection=peer(2)).code == 0
    assert harness.ask(RequestCode.LOCK_BATCH_MQ, body=locks).code == 0
    harness.make_topic("ByAnOperator")

    others_locks = LockBatch("other", "c1", [MessageQueue("T", "wire-a", 0)]).encode()
    refused = [
        harness.join("group", {"T": "*"}, connection=peer(3)),
        harness.join("another", {"T": "*"}),
        harness.ask(RequestCode.HEART_BEAT, body=producer, connection=peer(3)),
        harness.ask(RequestCode.LOCK_BATCH_MQ, body=others_locks),
        harness.ask(RequestCode.SEND_MESSAGE_V2, {"a": "p", "b": "New", "c": "TBW102", "d": "4", "e": "0", "f": "0",
                                                  "g": "1", "h": "0", "i": "", "j": "0", "k": "false"}, b"x"),
    ]  # fmt: skip
    for answer in refused:
        assert answer.code == ResponseCode.SYSTEM_BUSY and "ringmqMemoryMax" in answer.remark
    assert harness.broker.groups.get("another") is None and harness.broker.topics.get("New") is None


def test_a_broker_near_its_limit_takes_no_connection_and_serves_those_it_has(tmp_path: Path) -> None:
    def metric(name: str, **labels: str) -> float:
        with urlopen(broker.metrics_url + "/metrics", timeout=60) as answer:
            return value(answer.read().decode(), name, **labels)

    def is_ready() -> bool:
        with contextlib.suppress(HTTPError), urlopen(broker.metrics_url + "/ready", timeout=60) as answer:
            ready.update(json.load(answer))
            return True
        return False

    ready: dict[str, Any] = {}

    def used_bytes() -> int:
        wait_until(lambda: metric("ringmq_memory_bytes", kind="private") > 0, "memory is sampled")
        return int(metric("ringmq_memory_bytes", kind="private") + metric("ringmq_memory_bytes", kind="shared"))

    store, small = tmp_path / "store", {"mappedFileSizeCommitLog": 1 << 20}
    with RunningBroker(store, small) as broker:
        used = used_bytes()
        assert metric("ringmq_memory_level") == 0 and used < metric("ringmq_memory_max_bytes") / 2
        assert broker.stop() == 0
    limit = used + 256 * MIB  # workers that come up late may use more than has been seen
    with RunningBroker(store, {**small, "ringmqMemoryMax": limit}) as broker, RawClient(broker.address) as old:
        assert old.send("Hello", b"x").code == 0
        ballast = segment_path(plane_name(store), "ballast")  # a shared segment as any other
        ballast.write_bytes(bytes(int(limit * 0.98) - used_bytes()))
        wait_until(lambda: "memory: " in broker.log_tail(20_000), "the level has risen")
        assert "ringmqMemoryMax" in broker.log_tail(20_000)
        with RawClient(broker.address) as refused:
            assert refused.receive() is None
        assert old.send("Hello", b"x").code == 0
        assert old.send("Fresh", b"x").code == ResponseCode.SYSTEM_BUSY
        wait_until(is_ready, "a name server knows the broker")
        assert "new connections and clients are refused" in ready["reasons"][0]
        assert metric("ringmq_memory_level") >= 1
        ballast.unlink()
        wait_until(lambda: metric("ringmq_memory_level") == 0, "there is room again")
        with RawClient(broker.address) as later:
            assert later.send("Fresh", b"x").code == 0
        assert broker.stop() == 0
