"""The order of pulls and of their results. No IO.

Several pulls are in flight, also of one queue. Each names its own range of offsets, so no message comes twice. The
schedule adapts to the number of messages that a broker returns per pull. It requests the rest of a short answer
again, and makes the queue's later pulls as large as that answer. Now and then it tries a larger pull. Rows leave in
queue order.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ringmq.spark_bridge.slices import QueueKey, QueueSpan

COUNT_FIRST = 32  # a broker's default (maxTransferCountOnMessageInMemory)
COUNT_MAX = 4096  # 1 MiB of small messages, which is what a RingMQ broker puts into an answer
FULL_ANSWERS_FIRST = 1
FULL_ANSWERS_MAX = 1024
PULLS_MAX = 32
PULLS_MIN = 4
IN_FLIGHT_BYTES = 2 << 20
HELD_BYTES_MAX = 16 << 20


class Pull(NamedTuple):
    """Offsets [`begin`, `end`) of a queue, requested in one pull. `place` is the queue's index in the slice."""

    place: int
    key: QueueKey
    begin: int
    end: int


class Piece(NamedTuple):
    """Records of a queue with its rows of [`begin`, `end`), in order. An inner batch may have rows around them."""

    key: QueueKey
    begin: int
    end: int
    body: memoryview | bytes


class Loss(NamedTuple):
    """Lost offsets below `end`, and the pieces that are now in turn."""

    end: int
    pieces: list[Piece]


@dataclass(slots=True)
class _Queue:
    span: QueueSpan
    next_new: int  # first offset that was never asked for
    next_out: int  # first offset that was not handed on
    count: int = COUNT_FIRST
    full_answers: int = 0  # since the last change of `count`
    full_answers_wanted: int = FULL_ANSWERS_FIRST  # before a larger pull is tried
    in_flight: int = 0
    is_known: bool = False  # an answer has come; until then one pull goes alone
    is_single: bool = False  # inner batches: a pull can bring more than was asked for, so one goes after the other
    is_listed: bool = False
    held: dict[int, Piece] = field(default_factory=dict)


class PullSchedule:
    """The pulls of a slice's spans."""

    def __init__(self, spans: Iterable[QueueSpan], *, pulls_max: int = PULLS_MAX) -> None:
        self._queues = [_Queue(span, span.begin, span.begin) for span in spans if span.count > 0]
        self._open = len(self._queues)
        self._pulls_max = pulls_max
        self._pulls_now = pulls_max  # fewer when answers are large
        self._in_flight: set[Pull] = set()
        self._again: deque[Pull] = deque()
        self._ready: deque[int] = deque()
        self._held_bytes = 0
        for place in range(len(self._queues)):
            self._list(place)

    @property
    def is_done(self) -> bool:
        """True if all rows were passed on."""
        return self._open == 0

    def next_pull(self) -> Pull | None:
        """Return the next pull, which counts as in flight from now on. None until an answer comes."""
        if len(self._in_flight) >= self._pulls_now:
            return None
        if self._again:
            return self._launch(self._again.popleft())
        if not self._ready or self._held_bytes > HELD_BYTES_MAX:
            return None
        place = self._ready.popleft()
        queue = self._queues[place]
        queue.is_listed = False
        begin = queue.next_new
        queue.next_new = end = min(begin + queue.count, queue.span.end)
        pull = self._launch(Pull(place, queue.span.key, begin, end))
        self._list(place)
        return pull

    def take(
        self, pull: Pull, next_offset: int, body: memoryview | bytes = b"", *, is_batch: bool = False
    ) -> list[Piece]:
        """Add the answer, records of the pull's offsets below `next_offset`. Return the pieces that are now in turn.

        With `is_batch` the records are inner batches. The caller may overwrite `body` afterwards: a piece that has to
        wait is copied.
        """
        queue = self._land(pull)
        if body:
            fitting = max(PULLS_MIN, IN_FLIGHT_BYTES // len(body))
            self._pulls_now = min(self._pulls_max, fitting)
        queue.is_known = True
        queue.is_single |= is_batch
        end = min(next_offset, queue.span.end if queue.is_single else pull.end)
        self._learn(queue, end - pull.begin, pull.end - pull.begin)
        if queue.is_single:
            queue.next_new = end
        elif end < pull.end:
            self._again.append(pull._replace(begin=end))
        return self._hand_on(pull.place, Piece(pull.key, pull.begin, end, body))

    def lose(self, pull: Pull, to: int) -> Loss:
        """Record that the queue has no rows from the pull's first offset up to `to`."""
        queue = self._land(pull)
        end, asked_up_to = min(to, pull.end), queue.next_new
        if end < pull.end:
            self._again.append(pull._replace(begin=end))
        pieces = self._hand_on(pull.place, Piece(pull.key, pull.begin, end, b""))
        last = min(to, queue.span.end)
        if asked_up_to < last:  # the pulls between are in flight and will be answered alike
            queue.next_new = last
            pieces += self._hand_on(pull.place, Piece(pull.key, asked_up_to, last, b""))
        return Loss(last, pieces)

    def give_back(self, pull: Pull) -> None:
        """Repeat a pull without an answer, or with an empty one."""
        self._land(pull)
        self._again.append(pull)

    def give_all_back(self) -> None:
        """Repeat all pulls in flight after a lost connection."""
        for pull in sorted(self._in_flight):
            self.give_back(pull)

    def _launch(self, pull: Pull) -> Pull:
        self._in_flight.add(pull)
        self._queues[pull.place].in_flight += 1
        return pull

    def _land(self, pull: Pull) -> _Queue:
        self._in_flight.remove(pull)
        queue = self._queues[pull.place]
        queue.in_flight -= 1
        return queue

    def _list(self, place: int) -> None:
        """Add the queue to those with further pulls, if it may have one."""
        queue = self._queues[place]
        if queue.is_listed or queue.next_new >= queue.span.end:
            return
        depth = max(2, self._pulls_max // self._open) if queue.is_known and not queue.is_single else 1
        if queue.in_flight + len(queue.held) < depth:
            queue.is_listed = True
            self._ready.append(place)

    def _learn(self, queue: _Queue, got: int, asked: int) -> None:
        if got < asked:
            queue.count = max(1, got)
            queue.full_answers = 0
            queue.full_answers_wanted = min(2 * queue.full_answers_wanted, FULL_ANSWERS_MAX)
        elif asked >= queue.count:
            queue.full_answers += 1
            if queue.full_answers >= queue.full_answers_wanted and queue.count < COUNT_MAX:
                queue.count = min(2 * queue.count, COUNT_MAX)
                queue.full_answers = 0

    def _hand_on(self, place: int, piece: Piece) -> list[Piece]:
        queue = self._queues[place]
        pieces = []
        if piece.begin > queue.next_out:
            queue.held[piece.begin] = piece._replace(body=bytes(piece.body))
            self._held_bytes += len(piece.body)
        else:
            pieces.append(piece)
            queue.next_out = piece.end
            while (held := queue.held.pop(queue.next_out, None)) is not None:
                self._held_bytes -= len(held.body)
                pieces.append(held)
                queue.next_out = held.end
            if queue.next_out >= queue.span.end:
                self._open -= 1
        self._list(place)
        return pieces
