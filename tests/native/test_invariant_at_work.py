"""Broken invariants of dispatch and ha: what another process stores while they are at work, and what no peer can do."""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ha_kit import HaKit
from plane_kit import Kit
from test_invariant import ended

from ringmq.native import ffi, lib
from tests.ha.receiver_kit import SlaveKit, frame

Plant = Callable[[Any], object]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """A log with three records that wait for dispatch."""
    made = Kit(tmp_path / "store", sync=True)
    topic = made.topic(b"T")
    for _ in range(3):
        made.request(topic, 0, b"x" * 100)
    with made.writer() as write:
        write()
    return made


def meanwhile(kit: Kit, plant: Plant) -> None:
    """Dispatch has done its work; then another process stores."""
    kit.marks.flushed_offset = kit.marks.append_offset
    with kit.dispatcher() as run:
        run()
        plant(kit)
        run(1)


def set_back(kit: Kit) -> None:
    kit.marks.dispatched_offset = 0


def keep_arrival(kit: Kit) -> None:
    """The ring of arrivals is full, so one is kept, and sent again from the list of all queues."""
    port = kit.header.ports.port[0]
    flags = ffi.cast("uint8_t *", kit.plane.base + port.parked_flags_at)
    flags[0], port.arrived.head = 1, port.arrived.capacity
    with kit.writer() as write_it:
        kit.request(1, 0, b"x")
        write_it()
    kit.marks.flushed_offset = kit.marks.append_offset
    kit.header.tables.queue_count = 5000


MEANWHILE: dict[str, tuple[Plant, str]] = {
    "dispatched set back": (set_back, r"dispatcher.c:\d+: not done == d->dispatched && .* = 0, \d+, 3"),
    "more ports than rows": (
        lambda kit: setattr(kit.header.ports, "count", 99), r"dispatcher.c:\d+: not done == d->dispatched && .*, 99$",
    ),
    "more queues than the table has": (
        keep_arrival, r"dispatch_batch.c:\d+: not queues <= d->queue_capacity; .* = 5000, 4096",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANWHILE)
def test_what_another_process_stores_meanwhile_ends_dispatch(kit: Kit, name: str) -> None:
    plant, line = MEANWHILE[name]
    assert ended(lambda: meanwhile(kit, lambda kit: None), kit) == (0, "")
    status, said = ended(lambda: meanwhile(kit, plant), kit)
    assert status == lib.RMQ_EXIT_INVARIANT, said
    assert re.search(line, said, re.MULTILINE), said


# --- ha of a master ---------------------------------------------------------------------------------------------------

ROWS: dict[str, tuple[Plant, str]] = {
    "a replica that reports more than it was sent": (
        lambda kit: setattr(row(kit), "reported_offset", 900_000),
        r".*reported <= sent .* = 0, 900000, 0, 300000, 300000",
    ),
    "a replica that has received more than it was sent": (
        lambda kit: setattr(row(kit), "received_offset", 900_000),
        r".*reported <= sent .* = 0, 300000, 900000, 300000, 300000",
    ),
    "a replica that was sent more than the log has": (
        lambda kit: setattr(row(kit), "sent_offset", 900_000), r".*reported <= sent .* = 0, 300000, 0, 900000, 300000",
    ),
    "a replica without a socket": (
        lambda kit: setattr(row(kit, 7), "state", lib.RMQ_HA_TRANSFER), r"row->state <= RMQ_HA_TRANSFER .* = 7, 2, -1",
    ),
    "a socket without a replica": (
        lambda kit: setattr(row(kit), "state", lib.RMQ_HA_FREE), r"row->state <= RMQ_HA_TRANSFER .* = 0, 0, \d+",
    ),
    "a state that is none": (
        lambda kit: setattr(row(kit), "state", 77), r"row->state <= RMQ_HA_TRANSFER .* = 0, 77, \d+",
    ),
    "a log that has shrunk": (
        lambda kit: setattr(kit.marks, "append_offset", 7), r"append >= s->append_offset; .* = 7, 300000",
    ),
}  # fmt: skip


def row(kit: HaKit, peer: int = 0) -> Any:
    return kit.header.replication.peers[peer]


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[HaKit]:
    """A master's ha worker, and a slave that has all of its log."""
    kit = HaKit(tmp_path / "store", window_bytes=1 << 20)
    kit.append(b"x" * 300_000)
    slave = kit.follow(0)
    kit.turn_until(lambda: slave.end() == 300_000, "the slave has the log")
    slave.report(300_000)
    kit.turn_until(lambda: row(kit).reported_offset == 300_000, "it has said so")
    yield kit
    kit.close()


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_a_replica_that_cannot_be_ends_ha(followed: HaKit, name: str) -> None:
    """Else a send would be answered as replicated that no slave has."""
    plant, line = ROWS[name]
    assert ended(followed.turn, followed, lib.RMQ_ROLE_HA) == (0, "")
    plant(followed)
    status, said = ended(followed.turn, followed, lib.RMQ_ROLE_HA)
    assert status == lib.RMQ_EXIT_INVARIANT, said
    assert re.search(rf"ha_sender.c:\d+: not {line}", said), said
    for slave in followed.slaves:
        assert not slave.closed


@pytest.mark.parametrize("offset", [2**63, 2**64 - 1, 299_999, 300_001, 0])
def test_no_report_of_a_slave_ends_ha(followed: HaKit, offset: int) -> None:
    """Bytes of a peer close its connection."""
    followed.slaves[0].report(offset)
    followed.turn_until(lambda: row(followed).state == lib.RMQ_HA_FREE, "it is closed")
    assert ended(followed.turn, followed, lib.RMQ_ROLE_HA) == (0, "")


# --- ha of a slave ----------------------------------------------------------------------------------------------------

WORDS: dict[str, tuple[Plant, str]] = {
    "an end of the log that has moved": (
        lambda kit: setattr(kit.marks, "append_offset", 77), r"before == r->append; .* = 77, \d+",
    ),
    "flushed beyond the log": (
        lambda kit: setattr(kit.marks, "flushed_offset", 1 << 40), r"flushed <= r->append; .* = 1099511627776, \d+",
    ),
}  # fmt: skip


def log_of(root: Path, count: int) -> bytes:
    """A log of so many records."""
    source = Kit(root)
    topic = source.topic(b"T")
    for _ in range(count):
        source.request(topic, 0, b"x" * 500)
    with source.writer() as write:
        write()
    return source.log(0, int(source.marks.append_offset))


def receive(kit: SlaveKit, log: bytes, plant: Plant) -> None:
    """Half of the log comes, with half a record; then another process stores; then the rest comes."""
    with kit.receiver() as slave:
        slave.connect()
        stream = frame(0, log)
        slave.feed(stream[: len(stream) // 2])
        plant(kit)
        slave.feed(stream[len(stream) // 2 :])


@pytest.mark.parametrize("name", WORDS)
def test_a_word_that_cannot_be_ends_the_ha_of_a_slave(tmp_path: Path, name: str) -> None:
    plant, line = WORDS[name]
    log, kit = log_of(tmp_path / "master", 9), SlaveKit(tmp_path / "slave", sync=True)
    status, said = ended(lambda: receive(kit, log, plant), kit, lib.RMQ_ROLE_HA)
    assert status == lib.RMQ_EXIT_INVARIANT, said
    assert re.search(rf"ha_receiver.c:\d+: not {line}", said, re.MULTILINE), said


def test_bytes_that_a_successor_would_not_wipe_end_the_ha_of_a_slave(tmp_path: Path) -> None:
    log, kit = log_of(tmp_path / "master", 9), SlaveKit(tmp_path / "slave", sync=True)

    def take() -> None:
        with kit.receiver() as slave:
            slave.connect()
            slave.feed(frame(0, log)[:-100])
            kit.header.ports.journal.intent_high = 0

    status, said = ended(take, kit, lib.RMQ_ROLE_HA)
    assert status == lib.RMQ_EXIT_INVARIANT, said
    assert re.search(r"ha_receiver.c:\d+: not r->received <= high; .* = \d+, 0, \d+", said), said


def test_a_journal_whose_entry_is_of_another_generation_ends_the_ha_of_a_slave(tmp_path: Path) -> None:
    log, kit = log_of(tmp_path / "master", 9), SlaveKit(tmp_path / "slave", sync=True)
    assert ended(lambda: receive(kit, log, lambda kit: None), kit, lib.RMQ_ROLE_HA) == (0, "")
    journal = kit.header.ports.journal
    assert journal.generation, "the journal is shared"
    journal.entry[journal.generation & 1].generation = 77
    status, said = ended(lambda: receive(kit, log, lambda kit: None), kit, lib.RMQ_ROLE_HA)
    assert status == lib.RMQ_EXIT_INVARIANT, said
    assert re.search(r"ha_receiver.c:\d+: not !generation \|\| entered == generation; .* = 77, \d+", said), said


@pytest.mark.parametrize("seed", range(30))
def test_no_bytes_of_a_master_end_the_ha_of_a_slave(tmp_path: Path, seed: int) -> None:
    """A damaged stream ends the connection."""
    chance = random.Random(seed)
    log, kit = log_of(tmp_path / "master", 9), SlaveKit(tmp_path / "slave", sync=True)
    stream = bytearray(frame(0, log[:2000]) + frame(2000, log[2000:]))
    for _ in range(chance.randrange(1, 5)):
        stream[chance.choice([chance.randrange(12), chance.randrange(len(stream))])] = chance.randrange(256)

    def take() -> None:
        with kit.receiver() as slave:
            slave.connect()
            slave.feed(bytes(stream))
            slave.run()

    assert ended(take, kit, lib.RMQ_ROLE_HA) == (0, "")
