"""Races of held polls: a message that comes while a poll is being held, and a ring of answers that is full."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from holding_service import HoldingService
from reader_kit import connected, send_frame
from test_asks import ANSWERER, PLAN, ROLE
from test_reader_held import CODE, HOLD, INBOX_BYTES, LATER_NS, READ, SEND, Holder, frame, holds, request
from waiting import wait_until

from ringmq.ipc.answerers import AnswererPlan
from ringmq.ipc.asks import Ask
from ringmq.ipc.ports import PortPlan
from ringmq.native import ffi, lib
from ringmq.services.arrivals import Arrivals

OTHER = READ + 1
"""A second read worker, of which there is no process."""
PORT = PortPlan(ROLE, arena_bytes=1 << 20, flags=lib.RMQ_PORT_ARRIVALS)


class Raced(HoldingService):
    """The example of an answerer, and what happens between its steps."""

    between: Callable[[int], None]

    def serve(self, ask: Ask) -> bool:
        self.between(0)
        is_served = super().serve(ask)
        self.between(3)
        return is_served

    def want(self) -> None:
        super().want()
        self.between(1)

    def hold(self, ask: Ask, deadline_ns: int) -> None:
        super().hold(ask, deadline_ns)
        self.between(2)


def raced(kit: Holder, queue: int, kind: type[HoldingService] = Raced) -> Any:
    """The answerer of the kit."""
    number = next(n for n in range(kit.header.ports.count) if kit.header.ports.port[n].role == ROLE)
    arrivals = Arrivals(_PlaneOfKit(kit), number)
    return kind(kit.inbox, kit.polls, arrivals, queue, lambda: int(lib.rmq_queue_at(kit.plane, queue).max_offset))


class _PlaneOfKit:
    """What `Arrivals` needs of a plane."""

    def __init__(self, kit: Holder) -> None:
        self.struct, self.header = kit.plane, kit.header


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Holder]:
    made = Holder(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES, ports=(PORT,))
    made.create_segment(made.header.settings.segment_bytes)
    made.begin()
    for name in ("write", "dispatch", "read"):
        made.start(name)
    yield made
    made.close()


def test_a_message_that_comes_while_a_poll_is_being_held(kit: Holder) -> None:
    """At each step of the answerer: before it, behind its wish for arrivals, behind HOLD, at its end. The poll has the
    message, once."""
    queue, moment, looked = kit.queue_slot(kit.wide_topic(b"TopicA", 1), 0), -1, -1
    service = raced(kit, queue)
    with connected(kit) as client, connected(kit) as producer:

        def between(step: int) -> None:
            nonlocal looked
            if step == moment:
                before = service.end()
                assert producer.ask(send_frame("TopicA", b"x")).code == 0
                wait_until(lambda: service.end() > before, "it is dispatched")
            looked = step

        service.between = between
        for moment in range(4):
            client.send(request(CODE, {}))
            assert service.serve(kit.next())
            if moment == 3:
                wait_until(lambda: service.arrivals.is_waiting, "dispatch tells")
            service.arrivals.take()
            service.give()
            assert client.answer().remark == f"message {moment}"
            assert client.is_quiet() and not service.waiting and not service.messages
        assert looked == 3
        holds(kit, 0)


def test_a_message_of_a_client_that_went_goes_to_another(kit: Holder) -> None:
    """UNSENT gives it back."""
    service = raced(kit, kit.queue_slot(kit.wide_topic(b"TopicA", 1), 0), HoldingService)
    with connected(kit) as producer, connected(kit) as stays:
        with connected(kit) as client:
            client.send(request(CODE, {}))
            assert service.serve(kit.next())
            holds(kit, 1)
        wait_until(kit.ask_waits, "its reader knows")
        assert producer.ask(send_frame("TopicA", b"x")).code == 0
        wait_until(service.end, "it is dispatched")
        service.give()  # the record of the close has not been taken
        (said,) = kit.notices(1)
        service.take_back(said)
        assert service.messages == [0] and not service.given
        stays.send(request(CODE, {}))
        assert service.serve(kit.next())
        assert stays.answer().remark == "message 0"


def test_a_full_ring_leaves_its_polls_and_stops_no_other_reader(tmp_path: Path) -> None:
    """The answerer looks for room before it decides. Here the ring of a reader that does not come to it is full."""
    kit = Holder(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES)
    kit.begin()
    kit.start("read")
    kit.header.roles[OTHER].generation = 1
    kit.polls.see_reader(OTHER, 1)
    with connected(kit) as client:
        stuck = kit.polls.hold(ask_of(OTHER), time.monotonic_ns() + LATER_NS, frame(7, "nothing"))
        assert stuck is not None
        while kit.inbox.answer(OTHER, HOLD, (1, 1), 5, 1, stuck.payload, serial=stuck.poll.serial):
            pass
        for number in range(50):
            client.send(request(CODE, {}, opaque=number))
            polls = [stuck.poll, kit.hold(kit.next(), opaque=number)]
            payload = frame(number, "a message")
            ready = [poll for poll in polls if kit.inbox.room(poll.ask.role) >= len(payload)]
            assert ready == polls[1:]
            kit.end(ready[0], payload=payload)
            assert client.answer().opaque == number
        assert kit.polls.may_answer(stuck.poll, time.monotonic_ns())
        ring = kit.row.answers[OTHER]
        ring.tail = ring.head  # it has come to it
        assert kit.inbox.room(OTHER) >= len(payload)
        kit.end(stuck.poll, payload=payload)
        waiting = lib.rmq_verdict_waiting(kit.plane, ANSWERER, OTHER, ffi.new("uint64_t *"))
        assert (waiting.serial, waiting.pending) == (stuck.poll.serial, stuck.poll.slot)
    kit.close()


@pytest.mark.parametrize("seed", range(4))
def test_what_there_is_room_for_fits(tmp_path: Path, seed: int) -> None:
    """Wherever the ring ends, so that no decision is made without its answer."""
    chance = random.Random(seed)
    kit = Holder(tmp_path / "store", answerers=(SMALL,), inbox_bytes=4096)
    kit.begin()
    row: Any = kit.row.answers[READ]
    fitted = 0
    for _ in range(3000):
        room = kit.inbox.room(READ)
        size = chance.randrange(room + 1) if chance.random() < 0.7 else room
        if room and chance.random() < 0.8:
            assert kit.inbox.answer(READ, SEND, (0, 0), 1, 1, bytes(size)), (room, size)
            fitted += 1
        else:
            taken = lib.rmq_verdict_take(kit.plane, ANSWERER, READ)
            if taken != ffi.NULL:
                lib.rmq_verdict_done(kit.plane, ANSWERER, READ, taken)
    assert fitted > 500 and row.head > 20 * row.capacity
    kit.close()


SMALL = AnswererPlan(ROLE, frozenset({READ}), 4096, 4096, (CODE,))


def ask_of(role: int) -> Ask:
    """An ask of a read worker without a process."""
    return Ask(lib.RMQ_INBOX_COLD_FRAME, role, 1, 2, 3, 4, 5, b"", 0, 0, 0, b"frame")
