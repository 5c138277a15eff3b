"""The answerer's side of held polls: slots, deadlines, another process of the reader."""

import pytest
from msgspec import structs

from ringmq.ipc.asks import Ask, Unsent
from ringmq.ipc.held_polls import DEADLINES_LEFT, DUE_MAX, Held, HeldPolls, Poll, first_ask
from ringmq.native import lib

READER, OTHER = 8, 9


def ask(connection: int = 1, *, role: int = READER, generation: int = 1, kind: int = lib.RMQ_INBOX_COLD_FRAME) -> Ask:
    return Ask(kind, role, generation, connection, 3, 4, 5, b"", 0, 0, 0, b"frame")


def held(polls: HeldPolls, of: Ask, deadline_ns: int = 100) -> Poll:
    found = polls.hold(of, deadline_ns, b"nothing.")
    assert isinstance(found, Held)
    return found.poll


def test_slots_are_used_again_with_other_serials() -> None:
    polls = HeldPolls(per_reader=2)
    first, second = held(polls, ask()), held(polls, ask())
    assert (first.slot, second.slot) == (0, 1)
    assert polls.hold(ask(), 100, b"nothing.") is None
    assert held(polls, ask(role=OTHER)).slot == 0, "each reader has its own"
    polls.end(first)
    third = held(polls, ask())
    assert third.slot == 0 and third.serial not in (first.serial, second.serial)
    polls.end(first)  # it is over already
    assert polls.may_answer(third, 99) and not polls.may_answer(first, 99)


def test_nothing_is_given_behind_the_deadline() -> None:
    polls = HeldPolls()
    late, early = held(polls, ask(), 200), held(polls, ask(), 100)
    assert polls.next_deadline_ns == 100
    assert polls.may_answer(early, 99) and not polls.may_answer(early, 100)
    assert list(polls.due(150)) == [early]
    assert not polls.may_answer(early, 0) and len(polls) == 1 and not polls.is_idle
    polls.end(late)
    assert list(polls.due(300)) == [] and polls.next_deadline_ns is None
    assert polls.is_idle


def test_a_new_reader_has_none_of_the_polls_of_the_old_one() -> None:
    polls = HeldPolls()
    old, other = held(polls, ask()), held(polls, ask(role=OTHER))
    assert polls.see_reader(READER, 1) == []
    assert polls.see_reader(READER, 2) == [old]
    assert not polls.may_answer(old, 0) and polls.may_answer(other, 0)
    new = held(polls, ask(generation=2))
    assert new.slot == old.slot
    polls.end(old)
    assert polls.may_answer(new, 0), "the end of the old one is not that of the new one"
    assert polls.closed(ask(generation=1)) == []
    assert list(polls.due(1000)) == [other, new]


def test_an_ask_of_a_new_reader_forgets_the_old_one() -> None:
    polls = HeldPolls()
    old = held(polls, ask())
    held(polls, ask(generation=2))
    assert not polls.may_answer(old, 0) and len(polls) == 1


def test_a_closed_connection() -> None:
    polls = HeldPolls()
    first, second, stays = held(polls, ask(1)), held(polls, ask(1)), held(polls, ask(2))
    gone = polls.closed(ask(1, kind=lib.RMQ_INBOX_CLOSED))
    assert sorted(poll.serial for poll in gone) == [first.serial, second.serial]
    assert polls.may_answer(stays, 0) and len(polls) == 1
    assert polls.closed(ask(1)) == []


@pytest.mark.parametrize(
    ("role", "generation", "pending", "is_held"),
    [(OTHER, 1, 4, False), (READER, 2, 4, False), (READER, 1, 5, False), (READER, 1, 4, True), (READER, 1, 0, False)],
    ids=["another reader", "another process", "another ask", "another slot", "an ask whose token is the slot"],
)
def test_a_notice_that_names_no_poll(role: int, generation: int, pending: int, is_held: bool) -> None:
    """Answers have serials, too, which the answerer counts as it likes."""
    polls = HeldPolls()
    poll = held(polls, ask())
    stale = lib.RMQ_UNSENT_STALE
    assert polls.unsent(Unsent(role, generation, pending, poll.serial, stale, is_held)) is None
    assert polls.unsent(Unsent(READER, 1, 4, poll.serial + 1, stale)) is None
    assert not polls.is_idle


@pytest.mark.parametrize(("pending", "is_held"), [(4, False), (0, True)], ids=["not held", "its answer"])
def test_a_notice_of_a_poll(pending: int, is_held: bool) -> None:
    polls = HeldPolls()
    poll = held(polls, ask())
    assert polls.unsent(Unsent(READER, 1, pending, poll.serial, lib.RMQ_UNSENT_FULL, is_held)) is poll
    assert polls.is_idle


def test_an_answer_at_once_has_a_number_of_its_own() -> None:
    polls = HeldPolls()
    first = held(polls, ask())
    serial = polls.new_serial()
    second = held(polls, ask())
    assert len({first.serial, serial, second.serial}) == 3
    assert polls.unsent(Unsent(READER, 1, 0, serial, lib.RMQ_UNSENT_GONE)) is None
    assert len(polls) == 2


def test_a_late_ask_of_a_dead_reader_ends_no_poll_of_the_new_one() -> None:
    """An answerer may come to it behind the look at the read worker."""
    polls = HeldPolls()
    polls.see_reader(READER, 2)
    new = held(polls, ask(generation=2))
    assert polls.hold(ask(generation=1), 100, b"nothing.") is None
    assert polls.see_reader(READER, 1) == [] and polls.may_answer(new, 0)
    polls.see_reader(OTHER, 0xFFFFFFFF)
    assert polls.hold(ask(role=OTHER, generation=1), 100, b"nothing.") is not None, "the numbers begin again"


def test_a_frame_that_is_too_large_for_the_ring_is_not_held() -> None:
    """A client chooses its size. An answer that is no frame would end the read worker."""
    polls = HeldPolls(payload_bytes_max=24 + len(b"frame") + len(b"nothing."))
    assert polls.hold(ask(), 100, b"nothing. ") is None and polls.is_idle
    assert held(polls, ask()).slot == 0
    large = structs.replace(ask(), payload=bytes(1 << 20))
    assert HeldPolls().hold(large, 100, b"nothing.") is None
    with pytest.raises(ValueError, match="has 7 bytes"):
        polls.hold(ask(), 100, b"nothing")


def test_polls_that_are_over_leave_nothing_until_their_deadline() -> None:
    """However many a client makes: here it closes, polls are answered, and its reader dies."""
    polls = HeldPolls()
    for number in range(3000):
        held(polls, ask(number % 3, generation=1 + number // 1000), 1 << 40)
        if number % 2:
            polls.closed(ask(number % 3, kind=lib.RMQ_INBOX_CLOSED, generation=1 + number // 1000))
    for _ in range(1000):
        polls.end(held(polls, ask(generation=3), 1 << 40))
    left = len(polls)
    assert left > 0 and len(polls._deadlines) <= 2 * left + DEADLINES_LEFT
    assert len(list(polls.due(1 << 40, left))) == left and polls.is_idle


def test_a_turn_ends_a_bounded_number_of_polls() -> None:
    polls = HeldPolls()
    for deadline_ns in range(DUE_MAX + 3):
        held(polls, ask(), deadline_ns)
    first = list(polls.due(1 << 40))
    assert len(first) == DUE_MAX and first[0].deadline_ns == 0
    assert polls.next_deadline_ns == DUE_MAX, "the next turn is due at once"
    assert len(list(polls.due(1 << 40))) == 3 and polls.is_idle


def test_an_ask_that_a_predecessor_has_held() -> None:
    again = Ask(lib.RMQ_INBOX_HELD, READER, 1, 2, 3, 4, 5, b"host", 6, 0, 7, (123).to_bytes(8, "little") + b"frame")
    first, deadline_ns = first_ask(again)
    assert (first.type, first.payload, first.peer_host, deadline_ns) == (
        lib.RMQ_INBOX_COLD_FRAME, b"frame", b"host", 123,
    )  # fmt: skip
    assert first_ask(ask()) == (ask(), None)
