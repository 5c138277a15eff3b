"""The steps of a streaming query: the end of a batch, and its lost rows. No IO, no Spark.

A query's position is one offset per queue, the next that it will read. A checkpoint has it as JSON in a fixed order,
`{"topic": {"broker:queue": 5}}`: Spark compares and keeps text. Names in parentheses, which no topic can have, say more
about a batch's end (see `StreamOffset`). A queue without an offset is newer than the position; the query reads it from
its first offset on. Limits are those of Spark's Kafka source.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ringmq.spark_bridge.slices import QueueKey, QueueSpan

Offsets = Mapping[QueueKey, int]
Bounds = Callable[[QueueKey], tuple[int, int]]
"""A queue's first readable offset and the offset behind its last, (0, 0) for a queue that does not exist."""


class OffsetsError(ValueError):
    """A checkpoint's text does not have this source's form."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A batch's end as the checkpoint has it: `offsets`, and what Spark does not keep for us.

    `began` is the start of the query, in the end of its first batch: Spark asks again for that start when it repeats
    the batch after a restart. `recreated` has the first offsets of queues that were deleted and created since the
    batch's start. For queues that lost their newest rows it has the begin of the rows that replaced them. `given_at_ms`
    is the time of the end, 0 if unknown.
    """

    offsets: Offsets
    began: Offsets | None = None
    recreated: Offsets = field(default_factory=dict)
    given_at_ms: int = 0


BEGAN, RECREATED, GIVEN, GIVEN_MS = "(began)", "(anew)", "(given)", "ms"
"""Keys of checkpoints, which outlive a version."""


def stream_offset_to_json(position: StreamOffset) -> dict[str, dict[str, int]]:
    """Return the position as JSON. Notes look like offsets, with the topic in the label: `"Orders/broker-a:0"`."""
    notes = {} if position.began is None else {BEGAN: _note(position.began)}
    if position.recreated:
        notes[RECREATED] = _note(position.recreated)
    if position.given_at_ms:
        notes[GIVEN] = {GIVEN_MS: position.given_at_ms}
    return notes | offsets_to_json(position.offsets)


def stream_offset_from_json(value: object) -> StreamOffset:
    """The reverse of `stream_offset_to_json`. Raises `OffsetsError`."""
    offsets = offsets_from_json(value)
    assert isinstance(value, Mapping)  # or there would be no offsets
    try:
        began = _noted(value[BEGAN]) if BEGAN in value else None
        return StreamOffset(
            offsets, began, _noted(value.get(RECREATED, {})), int(value.get(GIVEN, {}).get(GIVEN_MS, 0))
        )
    except (AttributeError, TypeError, ValueError):
        raise _foreign(value) from None


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return the offsets as JSON, sorted by topic, broker and queue id, so that equal offsets are equal text."""
    by_topic: dict[str, dict[str, int]] = {}
    for key in sorted(offsets):
        by_topic.setdefault(key.topic, {})[key.label] = offsets[key]
    return by_topic


def offsets_from_json(value: object) -> dict[QueueKey, int]:
    """Return the offsets in JSON, without the notes. Raises `OffsetsError`."""
    try:
        return {
            _key(topic, label): offset
            for topic, by_queue in value.items()  # type: ignore[attr-defined]
            if topic not in (BEGAN, RECREATED, GIVEN)
            for label, offset in by_queue.items()
        }
    except (AttributeError, ValueError):
        raise _foreign(value) from None


def _foreign(value: object) -> OffsetsError:
    return OffsetsError(
        f'the checkpoint holds {str(value)[:200]}, no offsets of the form {{"topic": {{"broker:queue": 5}}}}: '
        "it was written by another source; give the query a checkpoint of its own"
    )


def _note(offsets: Offsets) -> dict[str, int]:
    return {f"{key.topic}/{key.label}": offsets[key] for key in sorted(offsets)}


def _noted(note: Mapping[str, int]) -> dict[QueueKey, int]:
    return {_key(*name.split("/", 1)): offset for name, offset in note.items()}


@lru_cache(maxsize=1 << 16)
def _key(topic: str, label: str) -> QueueKey:
    broker, separator, queue_id = label.rpartition(":")
    if not separator or not queue_id.isdigit():
        raise ValueError(label)
    return QueueKey(topic, broker, int(queue_id))


# ---- the end of a batch ----


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The log at one moment.

    It has the offset behind the last readable row of each chosen queue, the brokers seen, and those with another
    store than before. For queues that lost rows of the query's offsets it has the begin of their other rows.
    """

    offsets: Offsets
    brokers: Collection[str]
    renewed: Collection[str] = ()
    replaced: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a batch. The query waits for `rows_min` rows, up to `delay_max_ms` since the last batch."""

    rows_min: int | None = None
    rows_max: int | None = None
    delay_max_ms: int = 15 * 60_000


@dataclass(frozen=True, slots=True)
class TriggerState:
    """State that a batch leaves for the next: the time of its end (0: none yet), and the queue that was served last if
    the batch was too small for all queues."""

    batch_at_ms: int = 0
    served_last: QueueKey | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The end of a batch, the trigger state from now on, and the first offsets of queues that were made again since the
    start (see `StreamOffset`)."""

    end: Offsets
    """Equal to the start if there is nothing to do."""
    trigger: TriggerState = field(default_factory=TriggerState)
    recreated: Offsets = field(default_factory=dict)


def next_end(
    start: Offsets,
    log: LogEnd,
    bounds: Bounds,
    limits: Limits,
    trigger: TriggerState,
    now_ms: int,
) -> Step:
    """Return the end of the batch that begins at `start`.

    * A queue that is gone from a broker leaves the offsets. If it comes back it is a new one.
    * A queue whose broker is not seen keeps its offset: it will be back.
    * A queue that ends before its offset has lost its newest rows. It continues at its end (as Kafka's source), or at
      the other rows of `log.replaced`. A queue that was deleted and made again continues at its first offset.
    * So does a queue whose broker's store is another one now.
    """
    held = {key: offset for key, offset in start.items() if key not in log.offsets and key.broker not in log.brokers}
    moved = {
        key: end
        for key, end in log.offsets.items()
        if start.get(key) != end or key.broker in log.renewed or key in log.replaced
    }
    recreated = {
        key: bounds(key)[0] if key.broker in log.renewed else log.replaced[key]
        for key in moved
        if key in start and (key.broker in log.renewed or key in log.replaced)
    }
    begins = {
        key: recreated[key] if key in recreated else min(start[key], end) if key in start else bounds(key)[0]
        for key, end in moved.items()
    }
    lags = {key: moved[key] - begin for key, begin in begins.items() if begin < moved[key]}
    still = held | {key: begins.get(key, offset) for key, offset in start.items() if key in log.offsets}
    if not lags:
        return Step(still, trigger, recreated)
    total = sum(lags.values())
    is_late = now_ms - trigger.batch_at_ms >= limits.delay_max_ms
    if limits.rows_min is not None and total < limits.rows_min and not is_late and not recreated:
        return Step(start, trigger)
    rows, served_last = apportion(lags, limits.rows_max, trigger.served_last)
    return Step(
        still | {key: begins[key] + count for key, count in rows.items()}, TriggerState(now_ms, served_last), recreated
    )


def apportion(
    lags: Offsets, rows_max: int | None, served_last: QueueKey | None = None
) -> tuple[dict[QueueKey, int], QueueKey | None]:
    """Divide a batch of at most `rows_max` rows among queues, in proportion to the (positive) lags.

    Every queue gets at least one row. If there are more queues than rows they take turns, in order behind
    `served_last`. Returns the rows by queue, and the queue served last if turns were taken.
    """
    total = sum(lags.values())
    if rows_max is None or total <= rows_max:
        return dict(lags), None
    if len(lags) > rows_max:
        ordered = sorted(lags)
        later = [key for key in ordered if served_last is None or key > served_last]
        turn = (later + ordered)[:rows_max]
        return dict.fromkeys(turn, 1), turn[-1]
    # one row each, then the rest by largest remainder: exact, and never more than a queue has
    rest, rest_of_lags = rows_max - len(lags), total - len(lags)
    shares = {key: divmod(rest * (lag - 1), rest_of_lags) for key, lag in lags.items()}
    rows = {key: 1 + share[0] for key, share in shares.items()}
    by_remainder = sorted(shares, key=lambda key: (-shares[key][1], key))
    for key in by_remainder[: rows_max - sum(rows.values())]:
        rows[key] += 1
    return rows, None


# ---- the rows of a batch ----


@dataclass(frozen=True, slots=True)
class Batch:
    """The spans between two ends. `losses` has a sentence for each loss of rows."""

    spans: tuple[QueueSpan, ...]
    losses: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """The number of offsets."""
        return sum(span.count for span in self.spans)


def batch_between(start: Offsets, end: Offsets, bounds: Bounds, recreated: Offsets | None = None) -> Batch:
    """Return the rows from `start` to `end`. `end` and `recreated` come from `next_end`, now or before a restart.

    The same ends give the same spans as long as the log has their rows.
    """
    spans: list[QueueSpan] = []
    losses = [
        f"queue {key.label} of topic {key.topic} does not exist, the query was at its offset {start[key]}: "
        "check whether it was deleted"
        for key in sorted(start.keys() - end.keys())
        if start[key]  # a queue without messages lost none
    ]
    for key in sorted(end):
        begin, stop = start.get(key, 0), end[key]
        where = f"queue {key.label} of topic {key.topic}"
        if recreated and key in recreated:
            other = recreated[key]
            if other > bounds(key)[0]:
                losses.append(
                    f"the newest rows of {where} were lost, it has others from offset {other} on; the query was at "
                    f"{begin if begin > other else stop}"
                )
                begin = min(begin, other)
            else:
                if begin > 0:
                    losses.append(f"{where} was deleted and created, the query was at offset {begin} of the old one")
                begin = other
        elif key in start and stop == begin:
            continue
        elif stop < begin:
            losses.append(f"{where} ends at offset {stop}, the query was at {begin}: its newest rows were lost")
            continue
        first, last = bounds(key)
        if begin < first:
            losses.append(f"offsets {begin} to {min(first, stop) - 1} of {where} were deleted, it begins at {first}")
        if stop > last:
            losses.append(f"offsets {max(begin, last)} to {stop - 1} of {where} do not exist, it ends at {last}")
        begin, stop = max(begin, first), min(stop, last)
        if begin < stop:
            spans.append(QueueSpan(key, begin, stop))
    return Batch(tuple(spans), tuple(losses))
