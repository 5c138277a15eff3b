"""The journal passes from write to a receiver and back, on one plane: what a change of the side does with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plane_kit import Kit
from receiver_kit import SlaveKit, frames

from ringmq.ipc.tenure import AS_MASTER, Tenure, TenureState
from ringmq.native import lib

PORTS = 2
PER_TURN = 3


def bodies(count: int, first: int = 0) -> list[bytes]:
    """Bodies of one length, so that records of two brokers have the same places."""
    return [b"message %06d" % number for number in range(first, first + count)]


def send(kit: Kit, topic: int, run: Callable[[], int], count: int, first: int) -> list[Any]:
    """Requests of both ports, one batch each. Returns the completions."""
    done = []
    for number, body in enumerate(bodies(count, first)):
        kit.request(topic, 0, body, producer=number % PORTS)
        run()
        done += kit.completions(number % PORTS)
    return done


def master_bytes(root: Path, start: int, count: int) -> bytes:
    """The log of a master from `start` on, with `count` records in front of its end."""
    kit = Kit(root)
    topic = kit.topic(b"T")
    with kit.writer() as run:
        number = 0
        while kit.marks.append_offset < start:
            send(kit, topic, run, 1, number)
            number += 1
        assert kit.marks.append_offset == start
        send(kit, topic, run, count, number)
    return kit.log(start, kit.marks.append_offset)


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
@pytest.mark.parametrize("received", [0, 1, 2, 3])
def test_write_goes_on_behind_what_a_receiver_has_stored(tmp_path: Path, batches: int, received: int) -> None:
    """The entry of the newest generation is then the receiver's. Old positions of ports in it would make write store
    requests again, or drop them."""
    kit = SlaveKit(tmp_path / "broker")
    topic = kit.topic(b"T")
    kit.marks.tenure = AS_MASTER.word
    with kit.writer() as run:
        assert [found.code for found in send(kit, topic, run, batches, 0)] == [0] * batches
    start = kit.marks.append_offset
    kit.marks.tenure = Tenure(TenureState.SLAVE, epoch=1).word
    stream = master_bytes(tmp_path / "master", start, received)
    sizes = len(stream) // received if received else 0
    with kit.receiver() as slave:
        slave.connect()
        slave.run()
        for number in range(received):  # a generation each
            piece = stream[number * sizes : (number + 1) * sizes]
            assert slave.feed(frames(piece, start + number * sizes, 65_536)) == lib.RMQ_RUN_BUDGET
    assert kit.marks.append_offset == start + len(stream)
    kit.marks.tenure = Tenure(TenureState.MASTER, epoch=2).word
    with kit.writer() as run:
        assert kit.marks.append_offset == start + len(stream), "nothing is stored a second time"
        found = send(kit, topic, run, PER_TURN, batches + received)
    assert [one.code for one in found] == [0] * PER_TURN
    assert [one.queue_offset for one in found] == list(range(batches + received, batches + received + PER_TURN))
    assert found[0].commit_log_offset == start + len(stream)
    stored = [record for _, record, _ in kit.records()]
    sent = bodies(batches + received + PER_TURN)
    assert len(stored) == len(sent) and all(body in record for body, record in zip(sent, stored, strict=True))
    for port in range(PORTS):
        ring = kit.header.ports.port[port].request
        assert ring.tail == ring.head


def test_both_entries_have_the_positions_of_the_ports(tmp_path: Path) -> None:
    kit = SlaveKit(tmp_path)
    topic = kit.topic(b"T")
    kit.marks.tenure = AS_MASTER.word
    with kit.writer() as run:
        send(kit, topic, run, 5, 0)
    with kit.receiver():
        first, second = kit.header.ports.journal.entry
        for port in range(PORTS):
            positions = [
                (entry.port[port].request_tail, entry.port[port].completion_head, entry.port[port].parked_count)
                for entry in (first, second)
            ]
            assert positions[0] == positions[1]
        assert first.parked_head == second.parked_head
