"""Held polls and the budget of their answerer: no poll takes a place of a request, whatever becomes of the poll."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import structs
from reader_kit import Client, connected, request
from test_asks import CODE, OTHER, PLAN, ROLE
from test_reader_held import HOLD, INBOX_BYTES, LATER_NS, REDO, SEND, Holder, frame, holds
from test_reader_unsent import plane_of
from waiting import wait_until

from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.held_polls import HeldPolls, Poll, first_ask
from ringmq.native import ffi, lib

PLACES = 5


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Holder]:
    plan = structs.replace(PLAN, cold_max=PLACES)
    made = Holder(tmp_path / "store", answerers=(plan,), inbox_bytes=INBOX_BYTES)
    made.begin()
    made.start("read")
    yield made
    made.close()


def has_its_places(kit: Holder, mine: Client | None = None) -> None:
    """The answerer has PLACES requests at a time, of `mine` or of new clients, and the next one is refused."""
    with ExitStack() as stack:
        clients = [mine or stack.enter_context(connected(kit)) for _ in range(PLACES)]
        for client in clients:
            client.send(request(CODE, {}))
        asks = [kit.next() for _ in clients]
        assert {ask.type for ask in asks} == {lib.RMQ_INBOX_COLD_FRAME}
        refused = stack.enter_context(connected(kit))
        assert refused.ask(request(CODE, {})).code == 2
        other = stack.enter_context(connected(kit))
        other.send(request(OTHER, {}))
        while (record := kit.take()[0]).type != lib.RMQ_INBOX_COLD_FRAME:
            pass  # the end of an earlier connection
        kit.verdict(record, SEND, frame(7, "control"))
        assert other.answer().remark == "control"
        for ask in asks:
            kit.say(ask, SEND, frame(7, "at once"), 0)
        assert {client.answer().remark for client in clients} == {"at once"}


def polls_of(kit: Holder, client: Client, count: int) -> list[Poll]:
    """Held polls of the client."""
    polls = []
    for number in range(count):
        client.send(request(CODE, {}, opaque=number))
        polls.append(kit.hold(kit.next(), opaque=number))
    return polls


def test_polls_that_are_held_and_answered(kit: Holder) -> None:
    with connected(kit) as client:
        has_its_places(kit, client)
        polls = polls_of(kit, client, 4 * PLACES)
        holds(kit, 4 * PLACES)
        has_its_places(kit, client)
        for poll in polls:
            kit.end(poll, payload=frame(1, "a message"))
            assert client.answer().remark == "a message"
        has_its_places(kit, client)
        has_its_places(kit)


def test_polls_that_a_new_answerer_is_asked_for(kit: Holder) -> None:
    """As many at a time as requests, beside them."""
    with connected(kit) as client:
        polls_of(kit, client, 3 * PLACES)
        holds(kit, 3 * PLACES)
        kit.die()
        kit.begin()
        asked = [kit.next() for _ in range(PLACES)]
        assert {ask.type for ask in asked} == {lib.RMQ_INBOX_HELD}
        has_its_places(kit)
        has_its_places(kit, client)
        for number, again in enumerate(asked):
            ask, deadline_ns = first_ask(again)
            if number % 2:
                kit.hold(ask, deadline_ns or 0)
            else:
                kit.say(ask, SEND, frame(7, "at once"), 0)
                assert client.answer().remark == "at once"
        for _ in range(2 * PLACES):
            ask, deadline_ns = first_ask(kit.next())
            kit.hold(ask, deadline_ns or 0)
        holds(kit, 2 * PLACES + PLACES // 2)
        has_its_places(kit, client)


def test_polls_whose_connection_closes_while_they_are_asked_again(kit: Holder) -> None:
    """They count until their answerer has answered, as requests of a closed connection do."""
    with connected(kit) as client:
        polls_of(kit, client, 2 * PLACES)
        holds(kit, 2 * PLACES)
        kit.die()
        kit.begin()
        asked = [kit.next() for _ in range(PLACES)]
    holds(kit, 0)
    with connected(kit) as refused:
        assert refused.ask(request(CODE, {})).code == 2
    for again in asked:
        kit.say(first_ask(again)[0], SEND, frame(7, "nobody"), 0)
    ring = kit.row.answers[lib.RMQ_ROLE_READ]
    wait_until(lambda: ring.head == ring.tail, "the reader has taken them")
    has_its_places(kit)


def test_polls_that_end_at_their_deadline_while_they_are_asked_again(kit: Holder) -> None:
    with connected(kit) as client:
        for number in range(PLACES):
            client.send(request(CODE, {}, opaque=number))
            kit.hold(kit.next(), time.monotonic_ns() + 300_000_000, opaque=number)
        kit.die()
        kit.begin()
        asked = [kit.next() for _ in range(PLACES)]
        assert {client.answer().remark for _ in asked} == {"nothing"}
        has_its_places(kit, client)
        holds(kit, 0)


SECOND, SECOND_CODE = ROLE + 1, CODE + 1
EIGHTH = 64
"""Of the reader's pending entries."""


class TwoHolders(Holder):
    """Two answerers that hold polls: self and `second`, which has an inbox and polls of its own."""

    def __init__(self, root: Path) -> None:
        plans = (PLAN, structs.replace(PLAN, role=SECOND, codes=(SECOND_CODE,)))
        super().__init__(root, answerers=plans, inbox_bytes=INBOX_BYTES)
        self.begin()
        self.begin_second()

    def begin_second(self) -> None:
        """A process of the second answerer starts."""
        self.header.roles[SECOND].generation += 1
        self.second = Inbox(plane_of(self), SECOND)
        self.second.begin()
        self.second_polls = HeldPolls()

    def next_of_second(self) -> Ask:
        """The next ask of the second answerer."""
        mine, self.inbox = self.inbox, self.second
        ask = self.next()
        self.inbox = mine
        return ask

    def hold_of_second(self, ask: Ask) -> None:
        """It holds a poll."""
        held = self.second_polls.hold(ask, time.monotonic_ns() + LATER_NS, frame(7, "nothing"))
        assert held is not None
        where = ask.connection, ask.connection_generation
        assert self.second.answer(
            ask.role, HOLD, where, ask.pending, ask.role_generation, held.payload, serial=held.poll.serial
        )


def test_an_answerer_that_takes_no_polls_keeps_those_of_no_other(tmp_path: Path) -> None:
    """It is asked again for as many as it may have, and hangs. The other one is replaced, and is asked for its own."""
    kit = TwoHolders(tmp_path / "store")
    kit.start("read")
    with connected(kit) as client:
        polls_of(kit, client, 2 * EIGHTH)
        kit.die()
        kit.begin()
        asked = [kit.next() for _ in range(EIGHTH)]
        assert {ask.type for ask in asked} == {lib.RMQ_INBOX_HELD}
        client.send(request(SECOND_CODE, {}))
        kit.hold_of_second(kit.next_of_second())
        holds(kit, 2 * EIGHTH + 1)
        kit.begin_second()
        assert kit.next_of_second().type == lib.RMQ_INBOX_HELD
    kit.close()


def test_an_answerer_that_does_not_serve_is_asked_for_one_poll(tmp_path: Path) -> None:
    """To start it. Its inbox keeps the room for requests. When it serves it is asked for the others."""
    kit = Holder(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES)
    kit.begin()
    reader = lib.rmq_reader_open(kit.plane, 0, *(one.fileno() for one in kit.listeners), ffi.new("int *"))
    client = Client(kit.listeners[0].getsockname())
    polls = []
    for number in range(PLACES):
        client.send(request(CODE, {}, opaque=number))
        while (ask := kit.inbox.take()) is None:
            lib.rmq_reader_run(reader, 1_000_000)
        polls.append(kit.hold(ask, opaque=number))
    for poll in polls:
        kit.end(poll, REDO)
    kit.die()
    asked = []
    for _ in range(20):
        lib.rmq_reader_run(reader, 1_000_000)
        while (ask := kit.inbox.take()) is not None:
            asked.append(ask.type)
    assert asked == [lib.RMQ_INBOX_HELD]
    kit.begin()
    for _ in range(20):
        lib.rmq_reader_run(reader, 1_000_000)
        while (ask := kit.inbox.take()) is not None:
            asked.append(ask.type)
    assert asked == [lib.RMQ_INBOX_HELD] * (PLACES + 1), "the first one was lost with its process"
    client.close()
    lib.rmq_reader_close(reader)
    kit.close()
