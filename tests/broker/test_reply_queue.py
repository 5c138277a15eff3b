"""Control's way out: small answers pass large ones of other connections, and nothing is sent to the dead."""

from typing import Any

from ringmq.broker.requests.reply_queue import BACKLOG_BYTES_LARGE, LARGE_BYTES_A_TURN, LARGE_CHUNK_BYTES, ReplyQueues
from ringmq.broker.requests.request import (
    Connection,
    Effect,
    Hangup,
    Outbox,
    Push,
    Records,
    Release,
    Reply,
    Request,
)
from ringmq.ipc.plane import NONE
from ringmq.ipc.ports import Reader
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, decode_frame
from tests.broker.fakes import peer

TABLE = bytes(range(256)) * 40_000
DEAD = peer(9)


class FakeRing:
    """Rings of answers with room for so many bytes."""

    chunk_bytes = 1 << 20
    readers = (Reader(0, lib.RMQ_ROLE_READ), Reader(1, lib.RMQ_ROLE_READ + 1))

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room
        self.taken: list[tuple[int, int, int, Any, bool]] = []
        """(kind, connection, pending, payload, last)"""

    def answer(
        self,
        role: int,
        kind: int,
        connection: tuple[int, int],
        pending: int,
        generation: int,
        payload: Any,
        last: bool,
        rule: int,
    ) -> bool:
        assert rule == 0, "an answer runs nothing again"
        if len(payload) > self.room:
            return False
        self.room -= len(payload)
        self.taken.append((kind, connection[0], pending, payload, last))
        return True

    @property
    def finished(self) -> list[int]:
        """Pendings in the order of their last verdict."""
        return [pending for _, _, pending, _, last in self.taken if last]


def made(room: int = 1 << 40) -> tuple[FakeRing, ReplyQueues]:
    ring = FakeRing(room)
    subject: Any = ring
    return ring, ReplyQueues(FakeRing.readers, subject)


def reply(connection: Connection, pending: int, body: bytes = b"") -> Reply:
    return Reply(connection, pending, RemotingCommand(code=0, opaque=pending, flag=1, body=body))


def test_a_small_answer_passes_large_ones_of_others() -> None:
    ring, replies = made()
    replies.perform([reply(peer(1), 1, TABLE), reply(peer(2), 2, TABLE), reply(peer(3), 3)])
    assert ring.finished == [3]
    replies.perform([reply(peer(4), 4)])
    for _ in range(8):
        replies.send_waiting()
    assert ring.finished == [3, 4, 1, 2]
    assert not replies.is_waiting


def test_the_order_within_a_connection_stays() -> None:
    ring, replies = made()
    one = peer(1)
    push = Push(one, RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, oneway=True))
    effects: list[Effect] = [reply(one, 1, TABLE), reply(one, 2), push, reply(one, 3, TABLE), Hangup(one, 4)]
    replies.perform(effects)
    for _ in range(8):
        replies.send_waiting()
    assert ring.finished == [1, 2, NONE, 3, 4]
    replies.perform([reply(one, 5)])
    assert ring.finished[-1] == 5


def test_a_turn_puts_a_part_and_bodies_are_not_copied() -> None:
    ring, replies = made()
    replies.perform([reply(peer(number), number, TABLE) for number in range(5)])
    assert sum(len(payload) for *_, payload, _ in ring.taken) <= LARGE_BYTES_A_TURN + LARGE_CHUNK_BYTES
    replies.perform([])
    before = len(ring.taken)
    assert replies.backlog_bytes() > BACKLOG_BYTES_LARGE, "requests with large answers wait"
    for _ in range(20):
        replies.send_waiting()
    assert len(ring.taken) > before
    assert replies.backlog_bytes() == 0
    whole = b"".join(bytes(payload) for _, _, pending, payload, _ in ring.taken if pending == 3)
    assert decode_frame(whole).body == TABLE
    views = [payload for *_, payload, _ in ring.taken if len(payload) == LARGE_CHUNK_BYTES]
    assert {id(view.obj) for view in views} == {id(TABLE)}


def test_what_waits_for_a_closed_connection_is_dropped() -> None:
    ring, replies = made(room=LARGE_BYTES_A_TURN)
    replies.perform([reply(DEAD, 1, TABLE), reply(DEAD, 2), reply(peer(2), 3, TABLE)])
    begun = len(ring.taken)
    assert begun > 1
    replies.end(DEAD)
    ring.room = 1 << 40
    for _ in range(5):
        replies.send_waiting()
    rest = [
        (kind, pending, len(payload)) for kind, connection, pending, payload, _ in ring.taken[begun:] if pending < 3
    ]
    assert rest == [(lib.RMQ_VERDICT_DROP, 1, 0), (lib.RMQ_VERDICT_DROP, 2, 0)]
    assert ring.finished == [1, 2, 3]
    assert not replies.is_waiting
    replies.end(DEAD)
    assert replies.backlog_bytes() == 0


def test_a_full_ring_makes_all_wait_and_loses_nothing() -> None:
    ring, replies = made(room=0)
    replies.perform([reply(peer(1), 1, TABLE), reply(peer(2), 2), reply(peer(1), 3)])
    assert ring.taken == []
    for _ in range(200):
        ring.room += 300_000
        replies.send_waiting()
    assert ring.finished == [2, 1, 3]


def test_an_answer_that_names_records_keeps_its_place() -> None:
    ring, replies = made()
    effects: list[Effect] = [reply(peer(1), 1, TABLE), Records(peer(1), 2, b"payload"), Records(peer(2), 3, b"other")]
    replies.perform(effects)
    for _ in range(8):
        replies.send_waiting()
    assert ring.finished == [3, 1, 2]
    named = [(kind, pending, bytes(payload)) for kind, _, pending, payload, _ in ring.taken if pending > 1]
    assert named == [(lib.RMQ_VERDICT_RECORDS, 3, b"other"), (lib.RMQ_VERDICT_RECORDS, 2, b"payload")]


def test_late_answers_of_an_outbox() -> None:
    outbox = Outbox()
    asked = Request(RemotingCommand(code=1, opaque=1), peer(1), 0, pending=4)
    oneway = Request(RemotingCommand(code=1, opaque=2, flag=2), peer(2), 0, pending=5)
    for request in (asked, oneway):
        outbox.records(request, b"payload")
    assert outbox.take() == [Records(peer(1), 4, b"payload"), Release(peer(2), 5)]
