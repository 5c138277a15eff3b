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


def become_master(kit: Kit) -> None:
    """The first tenure of a master."""
    kit.marks.tenure, kit.header.ports.journal.owner = AS_MASTER.word, lib.RMQ_ROLE_WRITE


def give(kit: Kit, role: int, other: int) -> None:
    """The role gives the journal away."""
    assert lib.rmq_journal_is_owned(kit.plane, role) and not lib.rmq_journal_is_owned(kit.plane, other)
    lib.rmq_journal_give(kit.plane, role, other)
    assert lib.rmq_journal_is_owned(kit.plane, other) and not kit.header.ports.journal.opened


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
@pytest.mark.parametrize("received", [0, 1, 2, 3])
def test_write_goes_on_behind_what_a_receiver_has_stored(tmp_path: Path, batches: int, received: int) -> None:
    """The entry of the newest generation is then the receiver's. Old positions of ports in it would make write store
    requests again, or drop them."""
    kit = SlaveKit(tmp_path / "broker")
    topic = kit.topic(b"T")
    become_master(kit)
    with kit.writer() as run:
        assert [found.code for found in send(kit, topic, run, batches, 0)] == [0] * batches
    start = kit.marks.append_offset
    give(kit, lib.RMQ_ROLE_WRITE, lib.RMQ_ROLE_HA)
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
    give(kit, lib.RMQ_ROLE_HA, lib.RMQ_ROLE_WRITE)
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
    become_master(kit)
    with kit.writer() as run:
        send(kit, topic, run, 5, 0)
    give(kit, lib.RMQ_ROLE_WRITE, lib.RMQ_ROLE_HA)
    with kit.receiver():
        first, second = kit.header.ports.journal.entry
        for port in range(PORTS):
            positions = [
                (entry.port[port].request_tail, entry.port[port].completion_head, entry.port[port].parked_count)
                for entry in (first, second)
            ]
            assert positions[0] == positions[1]
        assert first.parked_head == second.parked_head


@pytest.mark.parametrize("state", TenureState)
def test_a_tenure_gives_the_journal_to_one_role(tmp_path: Path, state: TenureState) -> None:
    kit = Kit(tmp_path)
    kit.marks.tenure = Tenure(state, epoch=9).word
    writes = state in (TenureState.TAKING, TenureState.MASTER)
    assert lib.rmq_journal_role(kit.marks) == (lib.RMQ_ROLE_WRITE if writes else lib.RMQ_ROLE_HA)
    lib.rmq_journal_opened(kit.plane)
    assert kit.header.ports.journal.opened == kit.marks.tenure


@pytest.mark.parametrize("state", [TenureState.YIELDING, TenureState.SLAVE])
def test_write_yields_behind_the_last_request(tmp_path: Path, state: TenureState) -> None:
    """A read worker may be about to publish a request that it has taken as a master's."""
    kit = Kit(tmp_path, sync=True)
    topic, port = kit.topic(b"T"), kit.header.ports.port[0]
    kit.header.roles[port.role].pid = 1
    with kit.writer() as run, kit.flusher() as flush:
        kit.request(topic, 0, b"stored")
        assert run() == lib.RMQ_RUN_BUDGET
        kit.marks.tenure = Tenure(state, epoch=1).word
        assert run() == lib.RMQ_RUN_BUDGET, "the reader may still submit"
        kit.request(topic, 0, b"late")
        port.stands = kit.marks.tenure
        assert run() == lib.RMQ_RUN_BUDGET, "an answer is parked"
        flush()
        assert run() == lib.RMQ_RUN_YIELDED
    answers = [(answer.code, answer.cause) for ring in ("completed", "appended") for answer in kit.completions(0, ring)]
    assert answers[0][0] in (0, 2) and answers[1] == (2, lib.RMQ_CAUSE_NO_MASTER)
    assert len(kit.records()) == 1


def test_a_port_without_a_process_keeps_no_write(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    with kit.writer() as run:
        kit.marks.tenure = Tenure(TenureState.YIELDING).word
        assert run() == lib.RMQ_RUN_YIELDED
        kit.marks.tenure = Tenure(TenureState.TAKING, epoch=2).word
        lib.rmq_journal_opened(kit.plane)
        assert run() == lib.RMQ_RUN_BUDGET, "it is to be the master again"


@pytest.mark.parametrize("state", [TenureState.TAKING, TenureState.MASTER])
def test_a_receiver_yields_at_the_end_of_its_turn(tmp_path: Path, state: TenureState) -> None:
    kit = SlaveKit(tmp_path / "broker")
    stream = master_bytes(tmp_path / "master", 0, 2)
    with kit.receiver() as slave:
        slave.connect()
        assert slave.run() == lib.RMQ_RUN_BUDGET
        assert slave.feed(frames(stream[:-1], 0, 65_536)) == lib.RMQ_RUN_BUDGET
        kit.marks.tenure = Tenure(state, epoch=1).word
        assert slave.run() == lib.RMQ_RUN_YIELDED
    assert kit.marks.append_offset == len(stream) // 2, "the part of a record is gone"
    assert kit.header.ports.journal.intent_high == kit.marks.append_offset
    assert not any(kit.log(kit.marks.append_offset, len(stream)))
