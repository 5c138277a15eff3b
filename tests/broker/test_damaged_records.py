"""One flipped bit in a record's header never keeps a broker from starting, and takes no other record away."""

import json
import shutil
import struct
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.config.run_config import store_config
from ringmq.broker.server import make_plane
from ringmq.client import ConsumeFrom, Message
from ringmq.client.blocking import Consumer, Producer
from ringmq.ipc.placement import place
from ringmq.ipc.segment import plane_name, remove_segments
from ringmq.ipc.workers import WORKERS
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import ffi, lib
from ringmq.store.checkpoint import Checkpoint, write_checkpoint
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import recover
from tests.store.test_torn_tail import encode
from tests.suite.samples import Sampled

HEADER_BYTES = 88
"""Of a record with IPv4 hosts, up to the body."""
BITS_OF_A_BYTE = 3
RECORDS = 6
FILE_BYTES = 65536
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "listenPort": "0",
    "ringmqReaders": "1",
    "ringmqReceiveBufferCount": "16",
}


def made_log() -> tuple[bytes, list[int]]:
    """Two topics by turns, and where each record begins."""
    log, places = b"", []
    for number in range(RECORDS):
        places.append(len(log))
        log += encode(
            number // 2, len(log), b"body %d" % number, b"KEYS\x01k\x02TAGS\x01t\x02", b"AB"[number % 2 :][:1]
        )
    return log, places


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "config").mkdir()
    topics = {name: {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for name in "AB"}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    yield root
    remove_segments(plane_name(root))


def start(root: Path, log: bytes) -> dict[tuple[str, int], list[int]]:
    """A start after a kill and a reboot, without workers but dispatch: the places that each queue names."""
    for folder in ("consumequeue", "index", "ringmq.cut"):
        shutil.rmtree(root / folder, ignore_errors=True)
    (root / "commitlog" / ("0" * 20)).write_bytes(log.ljust(FILE_BYTES, b"\0"))
    (root / "abort").touch()
    write_checkpoint(root, Checkpoint(0, 0, 0))
    config = changed(BrokerConfig(), {**SETTINGS, "storePathRootDir": str(root)})
    recovered = recover(store_config(config))
    rows = WORKERS.rows(1)
    plane = make_plane(config, root, recovered, rows, place([0], 1), "127.0.0.1")
    error = ffi.new("int *")
    dispatcher = lib.rmq_dispatcher_open(plane.struct, 16, ffi.NULL, error)
    assert dispatcher != ffi.NULL
    while plane.watermarks.dispatched_offset < plane.watermarks.append_offset:
        assert lib.rmq_dispatcher_run(dispatcher, 1) == lib.RMQ_RUN_BUDGET
        assert not plane.watermarks.dispatch_fault
    lib.rmq_dispatcher_close(dispatcher)
    remove_segments(plane.name)
    assert recovered.append_offset == plane.watermarks.append_offset
    return {
        (path.parent.parent.name, int(path.parent.name)): [
            position for position, size, _ in struct.iter_unpack(">qiq", path.read_bytes()) if 0 < size < 0x7FFFFFFF
        ]
        for path in sorted((root / "consumequeue").rglob("0*"))
        if path.is_file()
    }


def test_any_flipped_bit_in_the_header_of_the_last_record(root: Path, sampled: Sampled) -> None:
    """Of each byte the lowest bit, the highest one and another one."""
    log, places = made_log()
    whole = start(root, log)
    assert whole == {("A", 0): places[0::2], ("B", 0): places[1::2]}
    others = {("A", 0): places[0::2], ("B", 0): places[1:-1:2]}
    last = places[-1]
    for byte in range(HEADER_BYTES):
        for bit in sampled(range(8), BITS_OF_A_BYTE):
            damaged = bytearray(log)
            damaged[last + byte] ^= 1 << bit
            named = start(root, bytes(damaged))
            for key, wanted in others.items():
                assert [place for place in named[key] if place != last] == wanted, (byte, bit, named)


@pytest.mark.parametrize("at", [12, 15, 20, 27, 28, 35], ids=lambda at: f"byte {at}")
def test_any_flipped_bit_of_these_in_a_record_in_the_middle(root: Path, at: int) -> None:
    log, places = made_log()
    middle = places[2]
    for bit in range(8):
        damaged = bytearray(log)
        damaged[middle + at] ^= 1 << bit
        named = start(root, bytes(damaged))
        assert [place for place in named["A", 0] if place != middle] == [places[0], places[4]], (bit, named)
        assert named["B", 0] == places[1::2], (bit, named)


def test_a_broker_starts_with_damaged_records_and_serves_the_others(tmp_path: Path) -> None:
    store = tmp_path / "store"
    settings = {"mappedFileSizeCommitLog": FILE_BYTES, "defaultTopicQueueNums": 1}
    with RunningBroker(store, settings) as broker:
        with Producer(broker.namesrv) as producer:
            for number in range(8):
                producer.send(Message("Damaged", b"body %d" % number))
        broker.kill_all()
    path = store / "commitlog" / ("0" * 20)
    config = changed(BrokerConfig(), {"mappedFileSizeCommitLog": str(FILE_BYTES), "storePathRootDir": str(store)})
    log = MessageStore(store_config(config)).commit_log
    places = [record.commit_log_offset for _, record in log.scan(0, FILE_BYTES) if record.topic == "Damaged"]
    assert len(places) == 8
    data = bytearray(path.read_bytes())
    for number, at, value in ((2, 20, -3), (4, 28, 5), (7, 8, -1)):
        struct.pack_into(">q", data, places[number] + at, value)
    data[places[7] + 8 : places[7] + 12] = path.read_bytes()[places[7] + 8 : places[7] + 12]  # the CRC of the body
    path.write_bytes(data)
    shutil.rmtree(store / "consumequeue", ignore_errors=True)  # the broker may have died before it made the folder
    (store / "ringmq.boot").unlink(missing_ok=True)
    with RunningBroker(store, settings) as broker:
        said = broker.log_tail()
        assert (
            f"3 records with impossible values are kept in the log and not indexed; the first, at {places[2]}" in said
        )
        with Producer(broker.namesrv) as producer:
            producer.send(Message("Damaged", b"after"))
        got: list[bytes] = []
        with Consumer("Damaged", broker.namesrv, "readers", consume_from=ConsumeFrom.FIRST) as consumer:
            while len(got) < 6 and (messages := consumer.poll(timeout_ms=60_000)):
                got += [message.body for message in messages]
            got += [message.body for message in consumer.poll(timeout_ms=1000)]
        assert sorted(got) == sorted([b"body 0", b"body 1", b"body 3", b"body 5", b"body 6", b"after"])
        with urllib.request.urlopen(f"{broker.metrics_url}/metrics") as page:
            assert b"ringmq_records_not_indexed_total" in page.read()
        assert broker.stop() == 0
