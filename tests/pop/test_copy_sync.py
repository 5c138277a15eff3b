"""A slave's requests for a copy of its master's POP memory: their times, pieces, and answers that are impossible."""

from __future__ import annotations

import pytest

from ringmq.ha.slave_sync import Ask
from ringmq.pop.copy_sync import PERIOD_MS, RETRY_FIRST_MS, RETRY_MAX_MS, CopySync, Known
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.pop_copy_headers import COPY_BYTES_MAX, NAMES_BYTES_MAX, PIECE_BYTES_MAX

KNOWN = Known(5, 40, 300, 99)
FIELDS = {
    "run": 5,
    "snapshot": 41,
    "copyId": 3,
    "offset": 0,
    "size": 10,
    "journalBytes": 8,
    "namesFrom": 0,
    "logEnd": 9,
}


def asking(known: Known = KNOWN) -> tuple[CopySync, Ask]:
    """A schedule with its first request."""
    sync = CopySync(known)
    sync.master_is("m:1", 1000)
    ask = sync.due(1000)
    assert ask is not None
    return sync, ask


def answer(body: bytes, **fields: int) -> RemotingCommand:
    ext = {name: str(value) for name, value in {**FIELDS, **fields}.items()}
    return RemotingCommand.response_to(RemotingCommand.request(RequestCode.POP_PROGRESS), 0, None, ext, body)


def test_without_a_master_nothing_is_asked() -> None:
    sync = CopySync()
    assert sync.due(1 << 40) is None
    sync.master_is("m:1", 7)
    assert sync.due(7) is not None
    assert sync.due(1 << 40) is None, "one request is in flight at a time"


def test_a_request_tells_what_the_slave_has() -> None:
    _, ask = asking()
    assert (ask.address, ask.code) == ("m:1", 270006)
    assert ask.ext_fields == {"run": "5", "snapshot": "40", "namesBytes": "300", "namesCrc": "99"}


def test_nothing_new_is_asked_for_again_after_the_period() -> None:
    sync, ask = asking()
    sync.answered(ask, answer(b"", size=0, journalBytes=0), 1010)
    assert sync.coming is None and not sync.is_gone
    assert sync.due(1000 + PERIOD_MS - 1) is None
    assert sync.due(1000 + PERIOD_MS) is not None


def test_pieces_follow_at_once_until_the_copy_is_whole() -> None:
    sync, ask = asking()
    sync.answered(ask, answer(b"abcdef"), 1001)
    assert not sync.is_whole and sync.take_pieces() == [b"abcdef"]
    ask = sync.due(1001) or pytest.fail("the next piece is asked for")
    assert (ask.ext_fields["copyId"], ask.ext_fields["offset"]) == ("3", "6")
    sync.answered(ask, answer(b"ghij", offset=6), 1002)
    assert sync.is_whole and sync.take_pieces() == [b"ghij"]
    assert sync.due(1 << 40) is None, "it waits for the slave's log"
    sync.taken_over(Known(5, 41, 301, 98))
    again = sync.due(1000 + PERIOD_MS)
    assert again is not None and again.ext_fields["snapshot"] == "41"


def test_a_master_without_memory_takes_the_copy_away() -> None:
    sync, ask = asking()
    sync.answered(ask, answer(b"", run=0, snapshot=0, size=0, journalBytes=0), 1001)
    assert sync.is_gone and sync.due(1 << 40) is None
    sync.taken_over(Known())
    ask = sync.due(1 << 40) or pytest.fail("it asks on")
    sync.answered(ask, answer(b"", run=0, snapshot=0, size=0, journalBytes=0), 1 << 40)
    assert not sync.is_gone, "there is none to take away"


def test_another_master_begins_anew() -> None:
    sync, ask = asking()
    sync.answered(ask, answer(b"abc"), 1001)
    late = sync.due(1001) or pytest.fail("the next piece is asked for")
    sync.master_is("m:2", 1002)
    assert sync.coming is None and sync.take_pieces() == []
    sync.answered(late, answer(b"defghij", offset=3), 1003)
    sync.failed(late, 1003)
    assert sync.coming is None, "an answer of the former master"
    ask = sync.due(1003) or pytest.fail("the new one is asked at once")
    assert ask.address == "m:2" and "copyId" not in ask.ext_fields


def test_pauses_grow_while_the_master_does_not_answer() -> None:
    sync, ask = asking()
    now_ms, pauses = 1000, []
    for _ in range(9):
        sync.failed(ask, now_ms)
        pauses.append(sync.next_ms - now_ms)
        now_ms = sync.next_ms
        assert sync.due(now_ms - 1) is None
        ask = sync.due(now_ms) or pytest.fail("it asks again")
    assert pauses[:3] == [RETRY_FIRST_MS, 2 * RETRY_FIRST_MS, 4 * RETRY_FIRST_MS]
    assert pauses[-2:] == [RETRY_MAX_MS, RETRY_MAX_MS]
    sync.answered(ask, answer(b"abcdefghij"), now_ms)
    sync.taken_over(Known(5, 41, 301, 98))
    ask = sync.due(now_ms + PERIOD_MS) or pytest.fail("it asks on")
    sync.failed(ask, now_ms)
    assert sync.next_ms - now_ms == RETRY_FIRST_MS


@pytest.mark.parametrize(("code", "is_gone"), [(3, True), (16, False), (1, False)])
def test_a_master_that_knows_no_copies_takes_it_away(code: int, is_gone: bool) -> None:
    """A stock master has followed one of RingMQ. One that refuses may have its copy still."""
    sync, ask = asking()
    sync.refused(ask, code, 1001)
    assert sync.is_gone == is_gone
    sync.taken_over(Known())
    assert sync.due(1000 + RETRY_FIRST_MS) is None
    ask = sync.due(1001 + RETRY_FIRST_MS) or pytest.fail("it asks on")
    sync.refused(ask, code, 5000)
    assert not sync.is_gone and sync.next_ms == 5000 + 2 * RETRY_FIRST_MS


def test_a_failed_piece_begins_anew() -> None:
    sync, ask = asking()
    sync.answered(ask, answer(b"abc"), 1001)
    ask = sync.due(1001) or pytest.fail("the next piece is asked for")
    sync.failed(ask, 1002)
    assert sync.take_pieces() == []
    ask = sync.due(1002 + RETRY_FIRST_MS) or pytest.fail("it asks again")
    assert "copyId" not in ask.ext_fields


def test_pauses_grow_while_copies_cannot_be_kept() -> None:
    """A whole copy may take longer than the first pause. Its pieces are no sign that the next one can be kept."""
    sync, ask = asking()
    now_ms, pauses = 1000, []
    for _ in range(8):
        sync.answered(ask, answer(b"abcdefghij"), now_ms)
        now_ms += 5000
        sync.dropped(now_ms)
        assert sync.take_pieces() == []
        pauses.append(sync.next_ms - now_ms)
        now_ms = sync.next_ms
        ask = sync.due(now_ms) or pytest.fail("it asks again")
    assert pauses[:3] == [RETRY_FIRST_MS, 2 * RETRY_FIRST_MS, 4 * RETRY_FIRST_MS]
    assert pauses[-2:] == [RETRY_MAX_MS, RETRY_MAX_MS]
    sync.answered(ask, answer(b"", size=0, journalBytes=0), now_ms)
    sync.failed(sync.due(now_ms + PERIOD_MS) or pytest.fail("it asks on"), now_ms)
    assert sync.next_ms - now_ms == RETRY_MAX_MS, "nothing new may be a master that writes its image"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"abc", {"offset": 1}),
        (b"", {}),
        (b"x" * 11, {}),
        (b"x" * (PIECE_BYTES_MAX + 1), {"size": 1 << 30}),
        (b"x", {"size": -1}),
        (b"x", {"size": COPY_BYTES_MAX + 1}),
        (b"x", {"journalBytes": 11}),
        (b"x", {"namesFrom": -1}),
        (b"x", {"snapshot": -1}),
        (b"x", {"logEnd": -1}),
        (b"x", {"namesFrom": 299}),
        (b"x", {"namesFrom": 300, "size": NAMES_BYTES_MAX - 300 + 9}),
    ],
)  # fmt: skip
def test_an_impossible_piece_ends_the_copy(body: bytes, fields: dict[str, int]) -> None:
    sync, ask = asking()
    with pytest.raises(RemotingError):
        sync.answered(ask, answer(body, **fields), 1001)
    assert sync.coming is None and sync.take_pieces() == []
    assert sync.due(1000 + RETRY_FIRST_MS) is None and sync.due(1001 + RETRY_FIRST_MS) is not None


@pytest.mark.parametrize("fields", [{"copyId": 4}, {"size": 11}, {"offset": 7}])
def test_a_piece_of_another_copy_ends_it(fields: dict[str, int]) -> None:
    sync, ask = asking()
    sync.answered(ask, answer(b"abcdef"), 1001)
    ask = sync.due(1001) or pytest.fail("the next piece is asked for")
    with pytest.raises(RemotingError):
        sync.answered(ask, answer(b"ghij", **{"offset": 6, **fields}), 1002)
    assert sync.coming is None


def test_an_answer_without_fields_ends_the_copy() -> None:
    sync, ask = asking()
    with pytest.raises(RemotingError):
        sync.answered(ask, RemotingCommand.response_to(RemotingCommand.request(270006), 0), 1001)
    assert sync.due(1001 + RETRY_FIRST_MS) is not None
