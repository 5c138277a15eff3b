"""Polls that a read worker holds for an answerer (RMQ_VERDICT_HOLD): slots, deadlines, another process of either
side."""

import mmap
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from reader_kit import Client, connected, request
from test_asks import ANSWERER, CODE, PLAN, ROLE
from test_reader_records import frame_of
from test_reader_unsent import Answerer, every_notice
from waiting import wait_until

from ringmq.ipc.asks import Ask
from ringmq.ipc.held_polls import HeldPolls, Poll, first_ask
from ringmq.ipc.record_answers import records_payload
from ringmq.native import ffi, lib
from ringmq.remoting.command import RemotingCommand, encode_frame

READ = lib.RMQ_ROLE_READ
SEND, HOLD, DROP = lib.RMQ_VERDICT_SEND, lib.RMQ_VERDICT_HOLD, lib.RMQ_VERDICT_DROP
CLOSE, REDO, RECORDS = lib.RMQ_VERDICT_CLOSE, lib.RMQ_VERDICT_REDO, lib.RMQ_VERDICT_RECORDS
GONE, STALE, FULL = lib.RMQ_UNSENT_GONE, lib.RMQ_UNSENT_STALE, lib.RMQ_UNSENT_FULL
INBOX_BYTES = 1 << 20
LATER_NS, GRACE_NS = 60_000_000_000, lib.RMQ_HELD_GRACE_MS * 1_000_000


def frame(opaque: int, remark: str) -> bytes:
    """An answer."""
    return encode_frame(RemotingCommand(code=0, opaque=opaque, flag=1, remark=remark))


class Holder(Answerer):
    """The test is an answerer that holds."""

    def begin(self) -> None:
        super().begin()
        self.polls = HeldPolls()

    def next(self) -> Ask:
        """The next ask; ends of connections are passed over."""
        found: list[Ask] = []

        def look() -> bool:
            while not found and (ask := self.inbox.take()) is not None:
                found.extend([ask] if ask.type != lib.RMQ_INBOX_CLOSED else [])
            return bool(found)

        wait_until(look, "an ask")
        return found[0]

    def hold(self, ask: Ask, deadline_ns: int = 0, opaque: int = 7) -> Poll:
        """Hold it. By default for long."""
        held = self.polls.hold(ask, deadline_ns or time.monotonic_ns() + LATER_NS, frame(opaque, "nothing"))
        assert held is not None
        self.say(ask, HOLD, held.payload, held.poll.serial)
        return held.poll

    def say(self, ask: Ask, kind: int, payload: bytes, serial: int, **how: Any) -> None:
        """A verdict."""
        where = ask.connection, ask.connection_generation
        pending = how.pop("pending", ask.pending)
        assert self.inbox.answer(ask.role, kind, where, pending, ask.role_generation, payload, serial=serial, **how)

    def end(self, poll: Poll, kind: int = SEND, payload: bytes = b"", *, tells: bool = True) -> None:
        """Answer a held poll."""
        self.say(poll.ask, kind, payload, poll.serial, pending=poll.slot, held=True, tells=tells)
        self.polls.end(poll)

    @property
    def held(self) -> int:
        return self.counter(lib.RMQ_READ_HELD)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Holder]:
    made = Holder(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES)
    made.begin()
    made.start("read")
    yield made
    made.close()


def holds(kit: Holder, count: int) -> None:
    """Wait until the reader holds so many."""
    wait_until(lambda: kit.held == count, f"{count} polls are held")


def test_a_poll_is_held_and_answered(kit: Holder) -> None:
    with connected(kit) as client:
        client.send(request(CODE, {}, opaque=3))
        poll = kit.hold(kit.next())
        holds(kit, 1)
        assert client.is_quiet()
        kit.end(poll, payload=frame(3, "a message"))
        assert client.answer().remark == "a message"
        holds(kit, 0)
    assert every_notice(kit) == []


def test_held_polls_leave_the_budgets_of_asks(kit: Holder) -> None:
    """A connection may have 128 asks at work. 400 polls stall neither it nor another one."""
    with connected(kit) as client, connected(kit) as other:
        for number in range(400):
            client.send(request(CODE, {}, opaque=number))
            kit.hold(kit.next())
        for asker in (client, other):
            asker.send(request(CODE, {}, opaque=9))
            ask = kit.next()
            kit.say(ask, SEND, frame(9, "at once"), 0)
            assert asker.answer().remark == "at once"
        holds(kit, 400)


def test_polls_that_fill_the_budget_release_their_connection(kit: Holder) -> None:
    """The connection stalls with its 65th ask. It goes on as polls are held."""
    with connected(kit) as client:
        client.send(*(request(CODE, {}, opaque=number) for number in range(300)))
        for _ in range(300):
            kit.hold(kit.next())
        holds(kit, 300)


def test_every_verdict_of_a_held_poll(kit: Holder) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(kit)) for _ in range(5)]
        polls = []
        for client in clients:
            client.send(request(CODE, {}))
            polls.append(kit.hold(kit.next()))
        kit.end(polls[0], RECORDS, records_payload(frame_of(b"body"), frame(7, "instead")))
        assert clients[0].answer().body == b"body"
        kit.end(polls[1], CLOSE)
        assert clients[1].is_closed()
        kit.end(polls[2], DROP)
        kit.end(polls[3], payload=frame(7, "bytes"))
        assert clients[3].answer().remark == "bytes"
        kit.end(polls[4], REDO)
        again, deadline_ns = first_ask(kit.next())
        assert (again.payload, deadline_ns) == (polls[4].ask.payload, polls[4].deadline_ns)
        assert again.payload == request(CODE, {})
        kit.say(again, SEND, frame(7, "asked again"), 0)
        assert clients[4].answer().remark == "asked again"
        assert clients[2].is_quiet()
        holds(kit, 0)


def test_the_reader_answers_when_nobody_else_does(kit: Holder) -> None:
    """Not before the deadline and its grace. The answerer's late word is stale, and it hears so."""
    with connected(kit) as client:
        client.send(request(CODE, {}))
        deadline_ns = time.monotonic_ns() + 50_000_000
        poll = kit.hold(kit.next(), deadline_ns)
        assert client.answer().remark == "nothing"
        assert time.monotonic_ns() >= deadline_ns + GRACE_NS
        kit.end(poll, payload=frame(7, "too late"))
        assert kit.notice() == (poll.slot, poll.serial, STALE)
        assert client.is_quiet()


def test_deadlines_pass_in_their_order(kit: Holder) -> None:
    """However they come."""
    with connected(kit) as client:
        now_ns = time.monotonic_ns()
        order = [7, 2, 9, 4, 1, 8, 3, 6, 5, 0]
        client.send(*(request(CODE, {}, opaque=number) for number in order))
        for number in order:
            kit.hold(kit.next(), now_ns + number * 20_000_000, opaque=number)
        assert [client.answer().opaque for _ in order] == sorted(order)


def test_a_verdict_that_is_in_the_ring_at_the_deadline_counts(tmp_path: Path) -> None:
    """The reader takes verdicts before it looks at deadlines, however late it comes to both."""
    kit = Holder(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES)
    kit.begin()
    error = ffi.new("int *")
    reader = lib.rmq_reader_open(kit.plane, 0, *(listener.fileno() for listener in kit.listeners), error)
    client = Client(kit.listeners[0].getsockname())
    client.send(request(CODE, {}))
    while (ask := kit.inbox.take()) is None:
        lib.rmq_reader_run(reader, 1_000_000)
    poll = kit.hold(ask, time.monotonic_ns() + 1)
    lib.rmq_reader_run(reader, 1_000_000)
    kit.end(poll, payload=frame(7, "a message"))
    over_ns = poll.deadline_ns + GRACE_NS + 5_000_000
    wait_until(lambda: time.monotonic_ns() > over_ns, "the deadline is over")
    lib.rmq_reader_run(reader, 1_000_000)
    assert client.answer().remark == "a message"
    assert every_notice(kit) == []
    client.close()
    lib.rmq_reader_close(reader)
    kit.close()


def test_verdicts_that_name_another_poll_are_stale(kit: Holder) -> None:
    """Another serial, another slot, a slot beyond the table, another process of the reader."""
    with connected(kit) as client:
        client.send(request(CODE, {}))
        poll = kit.hold(kit.next())
        ask = poll.ask
        for slot, serial in ((poll.slot, poll.serial + 1), (poll.slot + 1, poll.serial), (1 << 20, poll.serial)):
            kit.say(ask, SEND, frame(7, "wrong"), serial, pending=slot, held=True, tells=True)
            assert kit.notice() == (slot, serial, STALE)
        kit.inbox.answer(
            READ, SEND, (0, 0), poll.slot, 99, frame(7, "wrong"), serial=poll.serial, held=True, tells=True
        )
        assert kit.notice() == (poll.slot, poll.serial, STALE)
        kit.end(poll, payload=frame(7, "right"))
        assert client.answer().remark == "right"


def test_a_closed_connection_takes_its_polls_along(kit: Holder) -> None:
    """The answerer hears of the close. A verdict under way is told to be unsent."""
    with connected(kit) as other:
        other.send(request(CODE, {}))
        stays = kit.hold(kit.next())
        with connected(kit) as client:
            client.send(request(CODE, {}), request(CODE, {}))
            gone = [kit.hold(kit.next()), kit.hold(kit.next())]
            holds(kit, 3)
        wait_until(kit.ask_waits, "the answerer hears")
        closed = kit.inbox.take()
        assert closed is not None and closed.type == lib.RMQ_INBOX_CLOSED
        kit.end(gone[0], payload=frame(7, "nobody"))
        assert {poll.serial for poll in kit.polls.closed(closed)} == {gone[1].serial}
        assert kit.notice() == (gone[0].slot, gone[0].serial, STALE)
        holds(kit, 1)
        kit.end(stays, payload=frame(7, "here"))
        assert other.answer().remark == "here"


def test_a_poll_of_a_client_that_went_before_it_was_held(kit: Holder) -> None:
    with connected(kit) as client:
        client.send(request(CODE, {}))
        ask = kit.next()
    wait_until(kit.ask_waits, "the reader knows")
    for reason in (GONE, STALE):  # the ask ends with the first word
        poll = kit.hold(ask)
        (said,) = kit.notices(1)
        assert (said.reason, kit.polls.unsent(said)) == (reason, poll)
    assert kit.polls.is_idle


def test_bounds_of_held_polls(tmp_path: Path) -> None:
    """Beyond them a poll is answered at once, and its answerer hears of it."""
    kit = Holder(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES)
    s = kit.header.settings
    s.held_polls_max, s.held_connection_polls_max, s.held_bytes_max = 5, 3, 5000
    kit.begin()
    kit.start("read")
    with connected(kit) as one, connected(kit) as two, connected(kit) as three:

        def poll(client: Client, body: bytes = b"") -> Poll:
            client.send(request(CODE, {}, body))
            return kit.hold(kit.next())

        def is_refused(client: Client, body: bytes = b"") -> None:
            refused = poll(client, body)
            assert client.answer().remark == "nothing"
            (said,) = kit.notices(1)
            assert (said.serial, said.reason) == (refused.serial, FULL)
            assert kit.polls.unsent(said) is refused

        polls = [poll(one) for _ in range(3)]
        is_refused(one)
        is_refused(two, bytes(6000))
        polls += [poll(two), poll(two)]
        is_refused(three)
        kit.end(polls[0], payload=frame(7, "one"))
        assert one.answer().remark == "one"
        poll(three)
        is_refused(one)
        holds(kit, 5)
    kit.close()


def test_a_slot_that_is_given_to_another_poll(kit: Holder) -> None:
    """The answerer has given the first poll up: it is answered as at its deadline."""
    with connected(kit) as client:
        client.send(request(CODE, {}, opaque=1), request(CODE, {}, opaque=2))
        first = kit.hold(kit.next(), opaque=1)
        kit.polls.end(first)
        second = kit.hold(kit.next(), opaque=2)
        assert (first.slot, first.serial + 1) == (second.slot, second.serial)
        assert client.answer().opaque == 1
        kit.end(second, payload=frame(2, "a message"))
        assert client.answer().opaque == 2


def test_a_new_answerer_is_asked_again(kit: Holder) -> None:
    """For every poll of the dead one, with the deadlines that they have. No poll is lost, none is answered twice."""
    count = 3000
    with connected(kit) as client:
        for number in range(count):
            client.send(request(CODE, {}, opaque=number))
            kit.hold(kit.next(), opaque=number)
        old = list(kit.polls.see_reader(READ, 99))
        kit.die()
        kit.begin()
        seen = {}
        for _ in range(count):
            ask, deadline_ns = first_ask(kit.next())
            assert deadline_ns
            poll = kit.hold(ask, deadline_ns)
            seen[ask.payload] = poll
        assert {poll.ask.payload: poll.deadline_ns for poll in old} == {
            payload: poll.deadline_ns for payload, poll in seen.items()
        }
        holds(kit, count)
        role = kit.header.roles[ROLE]
        role.generation -= 1
        kit.say(old[0].ask, SEND, b"from the grave", old[0].serial, pending=old[0].slot, held=True)
        role.generation += 1
        for number in range(count):
            poll = seen[request(CODE, {}, opaque=number)]
            kit.end(poll, payload=frame(number, "a message"))
            assert client.answer().opaque == number
        assert client.is_quiet()


def test_asks_of_clients_go_on_while_polls_are_asked_again(kit: Holder) -> None:
    with connected(kit) as client, connected(kit) as other:
        for number in range(500):
            client.send(request(CODE, {}, opaque=number))
            kit.hold(kit.next())
        kit.die()
        kit.begin()
        other.send(*(request(CODE, {}, opaque=number) for number in range(30)))
        kinds = [kit.next().type for _ in range(64 + 30)]  # an eighth of the pending entries, and they
        assert kinds.count(lib.RMQ_INBOX_COLD_FRAME) == 30, "no poll counts for their budget"


def test_an_answerer_that_dies_again_with_polls_in_its_hand(kit: Holder) -> None:
    with connected(kit) as client:
        client.send(request(CODE, {}, opaque=1), request(CODE, {}, opaque=2))
        for _ in range(2):
            kit.hold(kit.next())
        for _ in range(3):
            kit.die()
            kit.begin()
            lost = kit.next()
            assert lost.type == lib.RMQ_INBOX_HELD
        kit.die()
        kit.begin()
        found = {}
        while len(found) < 2:
            ask, _ = first_ask(kit.next())
            found[ask.payload] = ask
        for ask in found.values():
            kit.say(ask, SEND, ask.payload, 0)
        assert {client.read_frame(), client.read_frame()} == set(found)


def test_a_poll_with_which_answerers_die_ends(kit: Holder) -> None:
    """Nobody can tell whether it is the cause. A poll that they have not come to goes on."""
    with connected(kit) as client, connected(kit) as other:
        client.send(request(CODE, {}, opaque=1))
        kit.hold(kit.next())
        other.send(request(CODE, {}, opaque=2))
        kit.hold(kit.next())
        for _ in range(3):
            assert client.is_quiet()
            kit.die()
            kit.begin()
            while (found := first_ask(kit.next()))[0].payload != request(CODE, {}, opaque=1):
                kit.hold(*found)
        kit.die()
        kit.begin()
        answer = client.answer()
        assert (answer.code, answer.opaque) == (1, 1) and "has ended several times" in answer.remark
        ask, _ = first_ask(kit.next())
        kit.say(ask, SEND, frame(2, "a message"), 0)
        assert other.answer().opaque == 2
        holds(kit, 0)


def test_a_poll_that_answerers_leave_in_the_inbox_when_they_die_ends(kit: Holder) -> None:
    """Loops in C serve a record where it lies: the one at the front may be the cause, those behind it are not."""
    with connected(kit) as client, connected(kit) as other:
        for asker in (client, other):
            asker.send(request(CODE, {}, opaque=1))
            kit.hold(kit.next())
        kit.die()
        kit.begin()
        wait_until(kit.ask_waits, "a poll is asked again")
        front, inbox = lib.rmq_inbox_take(kit.plane, ANSWERER), kit.row.inbox
        assert front.type == lib.RMQ_INBOX_HELD
        wait_until(lambda: inbox.head - inbox.tail >= 2 * front.length, "so is the other one")
        deaths, askers = 0, [client, other]
        while all(asker.is_quiet() for asker in askers):
            kit.die()
            kit.begin()
            deaths += 1
            assert deaths < 100
        assert deaths >= 3
        (ended,) = [asker for asker in askers if not asker.is_quiet()]
        assert ended.answer().code == 1
        ask, behind = (first_ask(kit.next())[0] for _ in range(2))
        kit.hold(ask)
        kit.say(behind, SEND, frame(1, "a message"), 0)
        askers.remove(ended)
        assert askers[0].answer().remark == "a message"
        assert [said.reason for said in kit.notices(1)] == [STALE], "the ask is over"


def test_half_an_answer_of_an_answerer_that_dies_is_given_back(kit: Holder) -> None:
    """The chunks are of no use to the next one, which answers as a whole."""
    with connected(kit) as client:
        client.send(*(request(CODE, {}, opaque=number) for number in range(4)))
        for _ in range(4):
            kit.hold(kit.next())
        before = resident_bytes()
        for _ in range(8):
            kit.die()
            kit.begin()
            ask, _ = first_ask(kit.next())
            for _ in range(30):
                wait_until(lambda: kit.inbox.room(READ) >= len(CHUNK), "there is room")
                kit.say(ask, SEND, CHUNK, 0, last=False)
        kit.die()
        kit.begin()
        for _ in range(4):
            ask, _ = first_ask(kit.next())
            kit.say(ask, SEND, frame(7, "whole"), 0)
            assert client.answer().remark == "whole"
        assert resident_bytes() - before < 4 * 30 * len(CHUNK), "that of one is kept at a time, and freed"


CHUNK = bytes(240_000)


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_a_poll_that_is_asked_again_keeps_its_deadline(kit: Holder) -> None:
    """Also when the new answerer does not come to it. What it says later is stale."""
    with connected(kit) as client:
        client.send(request(CODE, {}))
        kit.hold(kit.next(), time.monotonic_ns() + 300_000_000)
        kit.die()
        kit.begin()
        wait_until(kit.ask_waits, "it is asked again")
        assert client.answer().remark == "nothing"
        ask, _ = first_ask(kit.next())
        poll = kit.hold(ask)
        (said,) = kit.notices(1)
        assert (said.reason, kit.polls.unsent(said)) == (STALE, poll), "the ask is over"
        assert client.is_quiet()


def test_a_connection_that_closes_while_its_poll_is_asked_again(kit: Holder) -> None:
    with connected(kit) as client:
        client.send(request(CODE, {}))
        kit.hold(kit.next())
        kit.die()
        kit.begin()
        wait_until(kit.ask_waits, "it is asked again")
    ask, deadline_ns = first_ask(kit.next())
    assert deadline_ns
    wait_until(kit.ask_waits, "the reader knows")
    poll = kit.hold(ask, deadline_ns)
    (said,) = kit.notices(1)
    assert (said.reason, kit.polls.unsent(said)) == (GONE, poll)
    holds(kit, 0)


def test_the_byte_maps() -> None:
    assert (ffi.sizeof("struct rmq_hold"), ffi.sizeof("struct rmq_asked_again")) == (24, 8)
    ask = Ask(1, READ, 1, 2, 3, 4, 5, b"", 0, 0, 0, b"ask")
    held = HeldPolls().hold(ask, 1 << 40, b"answered")
    assert held is not None
    hold = ffi.from_buffer("struct rmq_hold *", held.payload[:24])
    assert (hold.slot, hold.ask_bytes, hold.answer_bytes, hold.deadline_ns) == (0, 3, 8, 1 << 40)
    assert held.payload[24:] == b"askanswered"
