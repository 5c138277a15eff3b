"""A slave whose log is ahead of its topics: the queues that get an entry before write counts their offsets."""

from pathlib import Path
from typing import Any

import pytest
from plane_kit import Kit
from receiver_kit import SlaveKit, frames

from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import ffi, lib

QUEUES = (0, 3, 1, 3, 0, 2)
"""Queue ids of the records of the master's log, in order."""
ALL = 1 << 40


def follower(root: Path) -> SlaveKit:
    """A slave with a master's records of topic T, and without that topic."""
    master = Kit(root / "master")
    topic = master.topic(b"T", queues=4)
    with master.writer() as run:
        for number, queue_id in enumerate(QUEUES):
            master.request(topic, queue_id, b"message %d" % number)
            run()
    stream = master.log(0, master.marks.append_offset)
    kit = SlaveKit(root / "slave")
    with kit.receiver() as slave:
        slave.connect()
        slave.run()
        slave.feed(frames(stream, 0, 65_536))
    assert kit.marks.append_offset == len(stream)
    return kit


def found(kit: Kit, at: Any, bytes_max: int = ALL) -> tuple[str, int, int] | None:
    rc = lib.rmq_missing_queue_find(kit.plane, at, kit.marks.append_offset, bytes_max)
    assert rc >= 0
    name = bytes(ffi.buffer(at.topic, at.topic_length)).decode()
    return (name, at.queue_id, at.is_batch) if rc else None


@pytest.mark.parametrize("bytes_max", [1, 200, ALL])
def test_each_queue_without_an_entry_is_found_in_the_order_of_the_log(tmp_path: Path, bytes_max: int) -> None:
    kit = follower(tmp_path)
    at = ffi.new("struct rmq_missing_queue *")
    missing = []
    topic = kit.topic(b"T", queues=0)
    while at.offset < kit.marks.append_offset:
        one = found(kit, at, bytes_max)
        if one is not None:
            missing.append(one)
            lib.rmq_queue_add(kit.plane, topic, one[1], 0, 0, 0)
    assert missing == [("T", 0, 0), ("T", 3, 0), ("T", 1, 0), ("T", 2, 0)]


def test_a_damaged_record_is_left_out(tmp_path: Path) -> None:
    kit = follower(tmp_path)
    with (kit.root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(4)  # the magic of the first record
        file.write(bytes(4))
    at = ffi.new("struct rmq_missing_queue *")
    assert found(kit, at) == ("T", 3, 0)


def test_write_waits_until_all_queues_have_entries(tmp_path: Path) -> None:
    """Else a send would get the queue offset of a record that the old master has stored."""
    kit = follower(tmp_path)
    lib.rmq_journal_give(kit.plane, lib.RMQ_ROLE_HA, lib.RMQ_ROLE_WRITE)
    kit.marks.tenure = Tenure(TenureState.TAKING, epoch=1).word
    assert lib.rmq_journal_is_owned(kit.plane, lib.RMQ_ROLE_WRITE)
    assert not lib.rmq_journal_may_open(kit.plane, lib.RMQ_ROLE_WRITE)
    lib.rmq_journal_let_open(kit.plane)
    assert lib.rmq_journal_may_open(kit.plane, lib.RMQ_ROLE_WRITE)
    kit.marks.tenure = Tenure(TenureState.TAKING, epoch=2).word
    assert not lib.rmq_journal_may_open(kit.plane, lib.RMQ_ROLE_WRITE), "another promotion"
    kit.marks.tenure = Tenure(TenureState.SLAVE, epoch=1).word
    assert lib.rmq_journal_may_open(kit.plane, lib.RMQ_ROLE_WRITE), "to give it back"
