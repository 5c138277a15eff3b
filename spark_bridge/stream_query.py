"""The planning side of a running stream: the decisions of `stream_core` on an open catalog. No Spark.

Lives on the driver as long as its query. Nothing of it is needed for recovery: a place comes from Spark each time, and
the trigger state starts again.
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ringmq.spark_bridge.catalog import Catalog
from ringmq.spark_bridge.errors import DataLossError, ReadError
from ringmq.spark_bridge.limits import starting_offsets
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.plan import plan_spans
from ringmq.spark_bridge.retrying_catalog import RetryingCatalog
from ringmq.spark_bridge.slices import QueueKey, Slice
from ringmq.spark_bridge.store_watch import StoreWatch
from ringmq.spark_bridge.stream_core import (
    Limits,
    LogEnd,
    Offsets,
    StreamOffset,
    TriggerState,
    batch_between,
    next_end,
)
from ringmq.spark_bridge.truncated_queues import TruncatedQueues

if TYPE_CHECKING:
    from ringmq.spark_bridge.group_progress import GroupProgress

SETTLE_S: Final = 2.0
SETTLE_STEP_S: Final = 0.05
OUTAGE_MAX_S: Final = 120.0
OUTAGE_STEP_S: Final = 0.5
LOSSES_SHOWN: Final = 10

_log = logging.getLogger("ringmq.spark_bridge")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class StreamQuery:
    """One query's reads, batch after batch. Everything raises `ReadError` if brokers or files cannot be read."""

    def __init__(
        self, options: ReadOptions, catalog: Catalog | None = None, now_ms: Callable[[], int] = _now_ms
    ) -> None:
        self._options = options
        self._catalog = RetryingCatalog(catalog or open_catalog(options), OUTAGE_MAX_S, OUTAGE_STEP_S)
        self._now_ms = now_ms
        self._trigger = TriggerState()
        self._initial: Offsets | None = None
        self._frozen: LogEnd | None = None
        self._seen: Collection[str] = ()
        self._stores = StoreWatch()
        self._renewed: set[str] = set()
        self._truncated = TruncatedQueues(OUTAGE_MAX_S)
        self._away: set[str] = set()
        self._away_since: float | None = None
        self._progress: GroupProgress | None = None

    def initial_offsets(self) -> Offsets:
        """Return the first offsets of a query without a checkpoint. Raises `OptionError`."""
        self._initial = starting_offsets(self._catalog, self._options)
        return self._initial

    def freeze(self) -> None:
        """Freeze the current end of the log."""
        while (end := self._end_or_none()) is None:
            time.sleep(OUTAGE_STEP_S)
        self._frozen = end

    def log_end(self) -> LogEnd:
        """Return the log's current end."""
        ends = self._catalog.ends()
        if self._options.topics.queues:
            ends = {key: end for key, end in ends.items() if self._is_assigned(key)}
        places = self._catalog.brokers()
        self._renewed |= self._stores.renewed(places)
        self._seen = {place.name for place in places}
        return LogEnd(ends, self._seen)

    def last_end(self) -> LogEnd | None:
        """Return the log's current end, None while brokers cannot be reached."""
        try:
            return self.log_end()
        except ReadError:  # told where the next batch is planned
            return None

    def next_end(self, start: StreamOffset, limits: Limits) -> StreamOffset:
        """End of the batch that begins at `start`, or `start` itself if there is nothing to do.

        Everything before `start` has been processed."""
        is_first = not start.given_at_ms and start.offsets == self._initial
        log = self._settled_end(start)
        if self._frozen:
            limits = Limits(rows_max=limits.rows_max)  # to wait for more rows would be to wait for ever
        now_ms, renewed = self._now_ms(), self._renewed & set(log.brokers)
        step = next_end(
            start.offsets,
            replace(log, renewed=renewed),
            self._catalog.bounds,
            limits,
            self._trigger,
            now_ms,
        )
        self._trigger = step.trigger
        self._renewed -= renewed
        self._warn_of_absent({key.broker for key in start.offsets} - set(log.brokers))
        is_over = step.end == start.offsets and not step.recreated
        self._report_to_group(start.offsets, is_last=self._frozen is not None and is_over)
        if is_over and not is_first:
            return start
        return StreamOffset(step.end, start.offsets if is_first else None, step.recreated, now_ms)

    def _warn_of_absent(self, away: set[str]) -> None:
        if self._away_since is None and away != self._away:  # in an outage no broker is seen; _wait_for reports it
            self._away = away
            if away:
                _log.warning("not registered: %s. Their queues keep their offsets until they are back", sorted(away))

    def _settled_end(self, start: StreamOffset) -> LogEnd:
        """Return the log's end, frozen or now. Queues that catch up (`TruncatedQueues`) keep their offsets."""
        replaced: dict[QueueKey, int] = {}
        while True:
            log = self._seen_end(start)
            replaced |= self._truncated.replaced(start.offsets, log, self._catalog)
            short = self._short(log.offsets, start.offsets)
            held = self._truncated.held(short, log.offsets, self._catalog)
            if held and self._frozen:  # to give no end would end the query
                time.sleep(OUTAGE_STEP_S)
                continue
            kept = {key: place for key, place in short.items() if key.broker in held}
            lost = {key: place for key, place in short.items() if key.broker not in held}
            replaced |= self._truncated.lost(lost, self._catalog)
            return replace(log, offsets={**log.offsets, **kept}, replaced=replaced)

    def _short(self, ends: Offsets, places: Offsets) -> dict[QueueKey, int]:
        """Return the offsets of the queues that end before them, in stores that have not changed."""
        return {
            key: places[key]
            for key, end in ends.items()
            if end < places.get(key, 0) and key.broker not in self._renewed
        }

    def _seen_end(self, place: StreamOffset) -> LogEnd:
        """The log's end, frozen or now. While a broker starts its queues may seem shorter than they are: that a queue
        ends before its place is believed when it has lasted for `SETTLE_S`."""
        start = place.offsets
        if self._frozen and self._renewed:
            self._frozen = self._end_or_none() or LogEnd(start, ())  # that end was another store's
        log = self._frozen or self._end_or_none() or LogEnd(start, ())
        give_up_at = time.monotonic() + SETTLE_S
        while shrunk := {key for key, end in log.offsets.items() if end < start.get(key, 0)}:
            self._truncated.missed(self._short(log.offsets, start), place.given_at_ms)
            if time.monotonic() > give_up_at or {key.broker for key in shrunk} <= self._renewed:
                break
            time.sleep(SETTLE_STEP_S)
            if (now := self._end_or_none()) is None:  # it starts: what it shows then counts
                give_up_at = time.monotonic() + SETTLE_S
                continue
            ends = {key: min(now.offsets.get(key, 0), start[key]) for key in shrunk}
            log = LogEnd({**log.offsets, **ends}, log.brokers)
        if self._frozen:
            self._frozen = log
        return log

    def _end_or_none(self) -> LogEnd | None:
        """Return the log's end, None while brokers cannot be reached.

        A stream waits for a restart up to `OUTAGE_MAX_S`.
        """
        now = time.monotonic()
        try:
            end = self.log_end()
        except ReadError as error:
            if self._away_since is None:
                self._away_since = now
                _log.warning("%s. The stream waits up to %d s for it", error, OUTAGE_MAX_S)
            if now - self._away_since > OUTAGE_MAX_S:
                raise
            return None
        self._away_since = None
        return end

    def _is_assigned(self, key: QueueKey) -> bool:
        return any(queue in (key, (key.topic, None, key.queue_id)) for queue in self._options.topics.queues)

    def slices(self, start: StreamOffset, end: StreamOffset) -> list[Slice]:
        """Return the tasks of a batch. Raises `DataLossError` for lost rows unless the options allow them."""
        begin = start.offsets if end.began is None else end.began
        wanted = {key: stop for key, stop in end.offsets.items() if begin.get(key) != stop}
        self._wait_for({key.broker for key in wanted})
        replaced = self._wait_for_catch_up(wanted, end.given_at_ms)
        batch = batch_between(begin, end.offsets, self._catalog.bounds, {**replaced, **end.recreated})
        if batch.losses:
            more = len(batch.losses) - LOSSES_SHOWN
            text = "; ".join(batch.losses[:LOSSES_SHOWN]) + (f"; and {more} queues more" if more > 0 else "")
            if self._options.fail_on_data_loss:
                raise DataLossError(f"{text}. failOnDataLoss=false continues without these rows")
            _log.warning("%s. The stream continues without these rows", text)
        return plan_spans(self._catalog, batch.spans, self._options)

    def _wait_for(self, brokers: set[str]) -> None:
        """Wait until these brokers are seen: a batch repeated after a restart may be earlier than they are.

        A long backlog needs new metadata each time, because retention continues during the read.
        """
        if self._frozen is None and brokers <= set(self._seen):
            return
        give_up_at = time.monotonic() + OUTAGE_MAX_S
        while self._end_or_none() is None or not brokers <= set(self._seen):
            if time.monotonic() > give_up_at:
                away = ", ".join(sorted(brokers - set(self._seen))) or "the brokers"
                raise ReadError(
                    f"{away} did not answer for {OUTAGE_MAX_S:.0f} s; start the query again when they serve"
                )
            time.sleep(OUTAGE_STEP_S)

    def _wait_for_catch_up(self, ends: Offsets, given_at_ms: int) -> dict[QueueKey, int]:
        """Wait until the log has the rows of a batch, or the missing ones cannot come any more.

        Return the begin of other rows in queues that have caught up with rows other than their old ones.
        """
        missed: set[QueueKey] = set()
        while gone := {key for key, stop in ends.items() if self._catalog.bounds(key)[1] < stop}:
            if (log := self._end_or_none()) is not None:
                short = {key: ends[key] for key in gone & log.offsets.keys() if key.broker not in self._renewed}
                self._truncated.missed(short, given_at_ms)
                missed |= short.keys()
                if not self._truncated.held(short, log.offsets, self._catalog):
                    break
            time.sleep(OUTAGE_STEP_S)
        seen = LogEnd({key: self._catalog.bounds(key)[1] for key in missed}, self._seen)
        return self._truncated.replaced(ends, seen, self._catalog)

    def _report_to_group(self, place: Offsets, *, is_last: bool) -> None:
        """Commit to the group of option commitGroup.

        Spark's own commit() comes with the next batch only, which may be days later or, with Trigger.AvailableNow,
        never.
        """
        group, bootstrap = self._options.commit_group, self._options.bootstrap
        if group is None or bootstrap is None:
            return
        if self._progress is None:
            from ringmq.spark_bridge.group_progress import GroupProgress  # the import loads the client

            self._progress = GroupProgress(bootstrap, group)
        self._progress.report(place)
        if is_last:
            self._progress.flush()  # the process may end soon

    def close(self) -> None:
        """Close everything."""
        self._stores.close()
        if self._progress is not None:
            self._progress.close()
