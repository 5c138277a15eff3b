"""The planning side of a running stream: the decisions of `stream_core` on an open catalog. No Spark.

Lives on the driver as long as its query. Nothing of it is needed for recovery: a place comes from Spark each time, and
the pace starts anew.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ringmq.spark_bridge.catalog import Catalog, open_catalog
from ringmq.spark_bridge.errors import DataLossError, ReadError
from ringmq.spark_bridge.limits import starting_offsets
from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.plan import plan_spans
from ringmq.spark_bridge.slices import QueueKey, Slice
from ringmq.spark_bridge.stream_core import (
    Limits,
    LogEnd,
    Offsets,
    Pace,
    batch_between,
    next_end,
)

if TYPE_CHECKING:
    from ringmq.spark_bridge.group_progress import GroupProgress

SETTLE_S: Final = 2.0
SETTLE_STEP_S: Final = 0.05
OUTAGE_MAX_S: Final = 120.0
LOSSES_SHOWN: Final = 10

_log = logging.getLogger("ringmq.spark_bridge")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class StreamQuery:
    """One query's reading, batch after batch. Everything raises `ReadError` where brokers or files cannot be asked."""

    def __init__(
        self, options: ReadOptions, catalog: Catalog | None = None, now_ms: Callable[[], int] = _now_ms
    ) -> None:
        self._options = options
        self._catalog = catalog or open_catalog(options)
        self._now_ms = now_ms
        self._pace = Pace()
        self._frozen: LogEnd | None = None
        self._away_since: float | None = None
        self._progress: GroupProgress | None = None

    def initial_offsets(self) -> Offsets:
        """Where a query without a checkpoint begins. Raises `OptionError`."""
        return starting_offsets(self._catalog, self._options)

    def freeze(self) -> None:
        """From now on the log ends where it ends now."""
        self._frozen = self.log_end()

    def log_end(self) -> LogEnd:
        """The log's end now."""
        ends = self._catalog.ends()
        if self._options.topics.queues:
            ends = {key: end for key, end in ends.items() if self._is_assigned(key)}
        return LogEnd(ends, {broker.name for broker in self._catalog.brokers()})

    def next_end(self, start: Offsets, limits: Limits) -> Offsets:
        """Where the batch that begins at `start` ends. Everything before `start` has been processed."""
        log = self._settled_end(start)
        if self._frozen:
            limits = Limits(rows_max=limits.rows_max)  # to wait for more rows would be to wait for ever
        step = next_end(start, log, self._catalog.bounds, limits, self._pace, self._now_ms())
        self._pace = step.pace
        self._tell_group(start, is_last=self._frozen is not None and step.end == start)
        return step.end

    def _settled_end(self, start: Offsets) -> LogEnd:
        """The log's end, frozen or now. While a broker starts its queues may seem shorter than they are: that a queue
        ends before its place is believed when it has lasted for `SETTLE_S`."""
        log = self._frozen or self._end_or_none() or LogEnd(start, ())
        give_up_at = time.monotonic() + SETTLE_S
        while shrunk := {key for key, end in log.offsets.items() if end < start.get(key, 0)}:
            if time.monotonic() > give_up_at:
                break
            time.sleep(SETTLE_STEP_S)
            now = (self._end_or_none() or LogEnd(start, ())).offsets
            log = LogEnd({**log.offsets, **{key: min(now.get(key, 0), start[key]) for key in shrunk}}, log.brokers)
        if self._frozen:
            self._frozen = log
        return log

    def _end_or_none(self) -> LogEnd | None:
        """None while brokers cannot be asked: a stream waits for one that restarts, up to `OUTAGE_MAX_S`."""
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

    def slices(self, start: Offsets, end: Offsets) -> list[Slice]:
        """The tasks of a batch. Raises `DataLossError` when rows of it are gone and that is not accepted."""
        if self._frozen:
            self._catalog.ends()  # a new look: retention goes on while a long backlog is read
        batch = batch_between(start, end, self._catalog.bounds)
        if batch.losses:
            more = len(batch.losses) - LOSSES_SHOWN
            text = "; ".join(batch.losses[:LOSSES_SHOWN]) + (f"; and {more} queues more" if more > 0 else "")
            if self._options.fail_on_data_loss:
                raise DataLossError(f"{text}. failOnDataLoss=false goes on without these rows")
            _log.warning("%s. The stream goes on without these rows", text)
        return plan_spans(self._catalog, batch.spans, self._options)

    def _tell_group(self, place: Offsets, *, is_last: bool) -> None:
        """The group of option commitGroup. Spark's own commit() comes with the next batch only, which may be days later
        or, with Trigger.AvailableNow, never."""
        group, bootstrap = self._options.commit_group, self._options.bootstrap
        if group is None or bootstrap is None:
            return
        if self._progress is None:
            from ringmq.spark_bridge.group_progress import GroupProgress  # it brings the client along

            self._progress = GroupProgress(bootstrap, group)
        self._progress.report(place)
        if is_last:
            self._progress.flush()  # the process may be gone in a moment

    def close(self) -> None:
        """Let go of everything."""
        if self._progress is not None:
            self._progress.close()
