"""The read of a slice over the remoting protocol: pulls from its broker, decoded in the receive buffer.

For tasks that do not see the store's files, and for stock brokers. The protocol never returns half messages, and
offsets are those of the queues, so the rows equal those of shared memory. `Rows` does all work per message, and a
pull costs some microseconds here. The read waits for a broker that restarts, and continues by offset.
"""

import logging
import time
from collections import Counter
from collections.abc import Generator, Iterator

import pyarrow as pa

from ringmq.client import ConnectError, MessageQueue, RequestTimeoutError, RingmqError
from ringmq.client.connections.pull_connection import PullAnswer, PullConnection, PullStatus
from ringmq.client.retry import backoff_ms
from ringmq.spark_bridge.data_loss import DataLossPolicy
from ringmq.spark_bridge.errors import DataLossError, ReadError
from ringmq.spark_bridge.open_rows import open_rows
from ringmq.spark_bridge.pull_schedule import Piece, Pull, PullSchedule
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.rows import ANYWHERE, Rows, WantedQueue, WantedRows, walk_log
from ringmq.spark_bridge.slices import QueueKey, Slice
from ringmq.store import layout
from ringmq.store import record as records

log = logging.getLogger("ringmq.spark_bridge")

TRIES_MAX = 16  # in a row without progress: about 25 s with their pauses
TRIES_FOR_OFFSET_MAX = 10  # until an offset that was planned and is not there counts as lost: about 6 s
PAUSE_FIRST_MS = 20
PAUSE_MAX_MS = 3000
OFFSET_MAX = (1 << 63) - 1
_QUEUE_OFFSET_AT = 20  # in a record; the sys flag lies at 36
_SYS_FLAG_AT = 36
_HEAD_BYTES = 40
_RECORD_BYTES_MIN = 91


def read_over_tcp(part: Slice, columns: tuple[str, ...], how: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Yield batches of the slice's rows, each queue's in its order. Raises `ReadError` and `DataLossError`."""
    if part.broker.address is None:
        raise ReadError(
            f"the address of broker {part.broker.name} is not known, so its rows cannot be pulled: give the name "
            "servers in option bootstrap"
        )
    wanted = WantedRows(
        tuple(WantedQueue(span.key.topic, span.key.queue_id, span.begin, span.end) for span in part.spans),
        part.times,
        how.verify_crc,
    )
    return _Reader(part, how, open_rows(how.shape(columns, part.broker.name), wanted)).batches()


class _Reader:
    """The read of one slice from the broker at `address`."""

    def __init__(self, part: Slice, how: ReadSettings, rows: Rows) -> None:
        assert part.broker.address is not None
        self._broker = part.broker.name
        self._address = part.broker.address
        self._how = how
        self._rows = rows
        self._schedule = PullSchedule(part.spans)
        self._tries = 0
        self._tries_for_offset: Counter[tuple[QueueKey, int]] = Counter()
        self._data_loss = DataLossPolicy(fail=how.fail_on_data_loss)
        self._pause_ms = 0.0
        self._refusal = ""  # a broker without time, in the answers that came together last

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches until every row was passed on or is known to be lost."""
        while not self._schedule.is_done:
            try:
                with PullConnection(self._address, self._how.pull_group) as connection:
                    yield from self._pull(connection)
            except (ConnectError, RequestTimeoutError) as error:
                self._count_try(str(error), error)
                log.info("broker %s: %s; continuing over a new connection", self._broker, error)
                self._schedule.give_all_back()
            self._rest()
        if self._rows.count:
            yield self._rows.take()

    def _pull(self, connection: PullConnection) -> Iterator[pa.RecordBatch]:
        in_flight: dict[int, Pull] = {}
        while not self._schedule.is_done:
            while (pull := self._schedule.next_pull()) is not None:
                number = connection.ask(MessageQueue(*pull.key), pull.begin, pull.end - pull.begin)
                in_flight[number] = pull
            for answer in connection.answers():
                answered = in_flight.pop(answer.number, None)
                if answered is None:
                    raise ConnectError(self._address, f"an answer without a request, code {answer.code}", sent=True)
                if answer.status is PullStatus.GO_AWAY:
                    raise ConnectError(self._address, "the broker is stopping", sent=True)
                for piece in self._take(answered, answer):
                    yield from self._decode(piece)
            if self._refusal:
                self._count_try(self._refusal, None)
                self._refusal = ""
            self._rest()

    def _take(self, pull: Pull, answer: PullAnswer) -> list[Piece]:
        status = answer.status
        if status is PullStatus.FOUND and len(answer.body) >= _HEAD_BYTES and answer.next_offset > pull.begin:
            return self._found(pull, answer)
        if status is PullStatus.NOTHING_MATCHED and answer.next_offset > pull.begin:
            return self._lose(pull, answer.next_offset, answer)
        if status is PullStatus.MOVED and pull.begin < answer.min_offset:
            return self._lose(pull, answer.min_offset, answer)
        if status is PullStatus.UNKNOWN_TOPIC:
            return self._lose(pull, OFFSET_MAX, answer)
        if status in (PullStatus.NOT_YET, PullStatus.MOVED):
            return self._wait_for_offset(pull, answer)
        self._schedule.give_back(pull)
        reason = f"answered {answer.code} {answer.remark!r} to a pull of queue {pull.key.label} of {pull.key.topic}"
        if status is PullStatus.REFUSED:
            raise ReadError(
                f"broker {self._broker} at {self._address} {reason} at offset {pull.begin} in the name of group "
                f"{self._how.pull_group} (option groupIdPrefix)"
            )
        self._refusal = reason
        return []

    def _found(self, pull: Pull, answer: PullAnswer) -> list[Piece]:
        self._tries = 0
        head = answer.body[:_HEAD_BYTES]
        first = int.from_bytes(head[_QUEUE_OFFSET_AT : _QUEUE_OFFSET_AT + 8], "big", signed=True)
        is_batch = bool(int.from_bytes(head[_SYS_FLAG_AT:], "big") & layout.INNER_BATCH)
        if first > pull.begin:  # its messages before that lay in a file that is removed
            self._report_loss(pull.key, pull.begin, min(first, pull.end), answer)
        return self._schedule.take(pull, answer.next_offset, answer.body, is_batch=is_batch)

    def _wait_for_offset(self, pull: Pull, answer: PullAnswer) -> list[Piece]:
        """Wait for a planned offset beyond the queue's end: a broker that has just started may not have it yet."""
        self._tries_for_offset[pull.key, pull.begin] += 1
        tries = self._tries_for_offset[pull.key, pull.begin]
        if tries > TRIES_FOR_OFFSET_MAX:
            return self._lose(pull, answer.next_offset if answer.next_offset > pull.begin else OFFSET_MAX, answer)
        self._schedule.give_back(pull)
        self._pause_ms = max(self._pause_ms, backoff_ms(tries, 0.0, PAUSE_FIRST_MS, PAUSE_MAX_MS))
        return []

    def _lose(self, pull: Pull, to: int, answer: PullAnswer) -> list[Piece]:
        loss = self._schedule.lose(pull, to)
        self._report_loss(pull.key, pull.begin, loss.end, answer)
        return loss.pieces

    def _report_loss(self, key: QueueKey, begin: int, end: int, answer: PullAnswer) -> None:
        self._data_loss.report(
            DataLossError(
                f"queue {key.label} of topic {key.topic}: offsets {begin} to {end - 1} were deleted since the plan; "
                f"broker {self._broker} at {self._address} answers {answer.code} {answer.remark!r} and has "
                f"{answer.min_offset} to {answer.max_offset - 1}: deleted by retention, or with the topic"
            )
        )

    def _decode(self, piece: Piece) -> Generator[pa.RecordBatch, None, None]:
        at, end = 0, len(piece.body)
        while at < end:
            stop = yield from walk_log(self._rows, piece.body, at, end, ANYWHERE)
            if stop.reason == records.END:
                return
            self._data_loss.report(
                ReadError(
                    f"broker {self._broker} at {self._address}: queue {piece.key.label} of topic {piece.key.topic}, "
                    f"pull from offset {piece.begin} on, byte {stop.at}: {stop.text}"
                )
            )
            at = stop.at + max(_RECORD_BYTES_MIN, int.from_bytes(piece.body[stop.at : stop.at + 4], "big"))

    def _count_try(self, reason: str, cause: RingmqError | None) -> None:
        self._tries += 1
        if self._tries > TRIES_MAX:
            raise ReadError(
                f"broker {self._broker} at {self._address}: given up after {TRIES_MAX} tries without rows: {reason}"
            ) from cause
        self._pause_ms = max(self._pause_ms, backoff_ms(self._tries, 0.0, PAUSE_FIRST_MS, PAUSE_MAX_MS))

    def _rest(self) -> None:
        if self._pause_ms:
            time.sleep(self._pause_ms / 1000)
            self._pause_ms = 0.0
