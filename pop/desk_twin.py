"""Twin of the choice of messages for an answer (native/src/pop/pop_batch.c, pop_picks.c), and of the look of a
notification, without IO.

It knows queues as lists of messages, and of each window the next offset and what was returned. It leaves out windows
with open messages at a bound, records on disk and filters by conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

NORMAL, RETRY_V1, RETRY_V2 = 0, 1, 2
HEADER_BYTES, RETRY_BYTES = 5120, 512
"""Room for the header of an answer, and for the bytes that a retry may have more."""
_MASK = (1 << 64) - 1


TOO_LATE_MS, OWN_DELAY_MS = 500, 3000


def is_too_late(
    born_ms: int, poll_ms: int, now_ms: int, *, delay_ms: int = 0, has_waited: bool = False,
    is_before_start: bool = False, is_held: bool = False, left_ms: int | None = None,
) -> bool:  # fmt: skip
    """True if the client of a pop waits no longer. `delay_ms`: since the request was received. `has_waited`: for
    something that was made for it. `is_before_start`: it was received before the process began. `is_held`: it is a poll
    of this process. `left_ms`: of the time that an earlier process has known, by the monotonic clock."""
    if is_held or left_ms is not None:
        return not is_held and left_ms is not None and left_ms < -TOO_LATE_MS
    own_ms = min(delay_ms, OWN_DELAY_MS) if has_waited or is_before_start else 0
    last_ms = born_ms + poll_ms
    return born_ms != 0 and -(1 << 63) <= last_ms < 1 << 63 and now_ms - own_ms - TOO_LATE_MS > last_ms


def next_random(state: int) -> int:
    """xorshift64. The choice of an answer is the state modulo 100."""
    state ^= state << 13 & _MASK
    state ^= state >> 7
    return state ^ (state << 17 & _MASK)


class Message(Struct, frozen=True):
    """A unit of a queue."""

    size: int
    tag: str = ""


class TwinQueue(Struct):
    """A queue, and the window that a group has of it."""

    messages: list[Message] = field(default_factory=list)
    first: int = 0
    """Offset of the first message that retention has left."""
    next_offset: int = 0
    returned: list[int] = field(default_factory=list)
    """Offsets that no consumer has received, ascending."""
    batch: list[int] = field(default_factory=list)
    """Offsets of an orderly group's batch."""
    counts: dict[int, int] = field(default_factory=dict)
    """The number of earlier pops of each message of the batch."""
    acked: set[int] = field(default_factory=set)
    attempt: str = ""
    is_over: bool = False
    """True if the time of the batch is over."""

    @property
    def open(self) -> list[int]:
        """Offsets of the batch that are not done."""
        return [offset for offset in self.batch if offset >= self.next_offset and offset not in self.acked]

    def blocks(self, attempt: str) -> bool:
        """True if a pop of this attempt gets nothing of the queue."""
        return bool(self.open) and not self.is_over and (not attempt or attempt != self.attempt)

    def ack(self, offset: int) -> None:
        """A message of the batch is done."""
        self.acked.add(offset)
        left = [each for each in self.batch if each not in self.acked]
        self.next_offset = max(self.next_offset, left[0] if left else self.batch[-1] + 1)


class Settings(Struct, frozen=True):
    """The properties of the broker on which the choice depends."""

    retry_percent: int = 20
    has_v1: bool = True
    has_v2: bool = False
    count_max: int = 32
    bytes_max: int = 262_144


class Pick(Struct):
    """Messages of one queue in an answer."""

    flag: int
    queue_id: int
    start_offset: int
    offsets: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """Of an orderly pop."""

    @property
    def order(self) -> str:
        """Its part of orderCountInfo."""
        known = [
            f"{self.flag} qo{self.queue_id}%{offset} {count}"
            for offset, count in zip(self.offsets, self.counts, strict=True) if count
        ]  # fmt: skip
        return ";".join([*known, f"{self.flag} {self.queue_id} {min(self.counts)}"])


class TwinAnswer(Struct):
    """An answer as its fields tell it."""

    picks: list[Pick] = field(default_factory=list)
    rest: int = 0

    @property
    def starts(self) -> str:
        """startOffsetInfo"""
        return ";".join(f"{pick.flag} {pick.queue_id} {pick.start_offset}" for pick in self.picks)

    @property
    def offsets(self) -> str:
        """msgOffsetInfo"""
        return ";".join(f"{pick.flag} {pick.queue_id} {','.join(map(str, pick.offsets))}" for pick in self.picks)

    @property
    def orders(self) -> str:
        """orderCountInfo"""
        return ";".join(pick.order for pick in self.picks)


class TwinDesk:
    """Topics by flag: that of the request, and its retry topics, if they are there."""

    def __init__(self, topics: Mapping[int, Sequence[TwinQueue]], settings: Settings, state: int) -> None:
        self._topics, self._settings, self._state = topics, settings, state
        self._wanted, self._count, self._bytes, self._is_full = 0, 0, 0, False
        self._tags: frozenset[str] | None = None
        self._answer = TwinAnswer()

    def pop(self, wanted: int, queue_id: int = -1, tags: frozenset[str] | None = None) -> TwinAnswer:
        """Choose the messages of one answer, and move the windows."""
        self._state = next_random(self._state)
        turn, settings = self._state % 100, self._settings
        self._wanted, self._count, self._bytes, self._is_full = wanted, 0, HEADER_BYTES, False
        self._tags, self._answer = tags, TwinAnswer()
        both = settings.has_v1 and settings.has_v2
        flag = RETRY_V2 if (turn % 2 if both else settings.has_v2) else RETRY_V1
        has_retry = bool(self._topics.get(flag))
        is_first = has_retry and turn < settings.retry_percent
        if is_first:
            self._pick_topic(flag, turn, -1)
        self._pick_topic(NORMAL, turn, queue_id)
        if has_retry and not is_first and self._count < wanted:
            self._pick_topic(flag, turn, -1)
        return self._answer

    def has_message(self, queue_id: int = -1) -> bool:
        """True if a notification says that a pop would find one (native/src/pop/pop_notification.c)."""
        flags = [RETRY_V1] * self._settings.has_v1 + [RETRY_V2] * self._settings.has_v2
        asked = self._topics[NORMAL] if queue_id < 0 else [self._topics[NORMAL][queue_id]]
        queues = [*asked, *(queue for flag in flags for queue in self._topics.get(flag, ()))]
        return any(
            max(queue.next_offset, queue.first) < len(queue.messages)
            or any(offset >= queue.first for offset in queue.returned)
            for queue in queues
        )

    @staticmethod
    def has_batch(queues: Sequence[TwinQueue], attempt: str) -> bool:
        """The same of an orderly group, for all its queues."""
        return any(
            not queue.blocks(attempt) and max(queue.next_offset, queue.first) < len(queue.messages) for queue in queues
        )

    def pop_in_order(self, queues: Sequence[TwinQueue], wanted: int, attempt: str) -> TwinAnswer:
        """Choose the messages of an orderly pop of all queues, and note their batches."""
        self._state = next_random(self._state)
        turn = self._state % 100
        self._wanted, self._count, self._bytes, self._is_full = wanted, 0, HEADER_BYTES, False
        self._tags, self._answer = None, TwinAnswer()
        for n in range(len(queues)):
            number = (turn + n) % len(queues)
            queue = queues[number]
            if queue.blocks(attempt):
                continue
            behind = queue.next_offset
            if not self._is_full and self._count < self._wanted:
                behind = self._pick_batch(number, queue, attempt)
            self._answer.rest += len(queue.messages) - behind
        return self._answer

    def _pick_batch(self, number: int, queue: TwinQueue, attempt: str) -> int:
        """The offset behind those that were looked at. That of the window stays at the first message."""
        start = queue.next_offset
        pick = Pick(NORMAL, number, start)
        self._pick_next(pick, queue)
        behind, queue.next_offset = queue.next_offset, max(start, queue.first)
        if pick.offsets:
            is_same = attempt and attempt == queue.attempt
            known = {offset: queue.counts[offset] + (not is_same) for offset in queue.batch}
            pick.counts = [known.get(offset, 0) for offset in pick.offsets]
            queue.batch, queue.counts = pick.offsets, dict(zip(pick.offsets, pick.counts, strict=True))
            queue.acked, queue.attempt, queue.is_over = set(), attempt, False
            self._answer.picks.append(pick)
        return behind

    def unsent(self, answer: TwinAnswer) -> None:
        """No client has received the answer."""
        for pick in answer.picks:
            queue = self._topics[pick.flag][pick.queue_id]
            queue.returned = sorted({*queue.returned, *pick.offsets})

    def _pick_topic(self, flag: int, turn: int, queue_id: int) -> None:
        queues = self._topics[flag]
        for number in [queue_id] if queue_id >= 0 else [(turn + n) % len(queues) for n in range(len(queues))]:
            self._pick_queue(flag, number, queues[number])

    def _pick_queue(self, flag: int, number: int, queue: TwinQueue) -> None:
        if not self._is_full and self._count < self._wanted:
            pick = Pick(flag, number, queue.next_offset)
            if not self._pick_returned(pick, queue):
                self._pick_next(pick, queue)
            if pick.offsets:
                self._answer.picks.append(pick)
        self._answer.rest += len(queue.messages) - queue.next_offset

    def _pick_returned(self, pick: Pick, queue: TwinQueue) -> bool:
        """True if some of the returned messages are left, in the answer or not."""
        looked = queue.returned[: self._wanted - self._count]
        gone = [offset for offset in looked if offset < queue.first]
        there = looked[len(gone) :]
        for offset in there:
            if not self._add(pick, queue, offset):
                break
        if pick.offsets:
            pick.start_offset = pick.offsets[0]
        queue.returned = [offset for offset in queue.returned if offset not in (*gone, *pick.offsets)]
        return bool(there)

    def _pick_next(self, pick: Pick, queue: TwinQueue) -> None:
        queue.next_offset = pick.start_offset = max(queue.next_offset, queue.first)
        room = self._wanted - self._count
        for offset in range(queue.next_offset, len(queue.messages)):
            if len(pick.offsets) == room:
                break
            is_wanted = self._tags is None or queue.messages[offset].tag in self._tags
            if is_wanted and not self._add(pick, queue, offset):
                break
            queue.next_offset = offset + 1

    def _add(self, pick: Pick, queue: TwinQueue, offset: int) -> bool:
        """False if the answer would exceed the bounds of a pull."""
        more = queue.messages[offset].size + (RETRY_BYTES if pick.flag else 0)
        count, size = self._count + 1, self._bytes + more
        if count > 1 and (size > self._settings.bytes_max or count > self._settings.count_max):
            self._is_full = self._count > 0
            return False
        self._count, self._bytes = count, size
        pick.offsets.append(offset)
        return True
