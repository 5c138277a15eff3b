"""Families of timer messages: what waits, what the worker `timer` has done, and how late it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.exporter.metric import LOCAL_DISK, STAGE_BOUNDS
from ringmq.broker.exporter.sources import Add, Sources
from ringmq.broker.exporter.text import Page
from ringmq.ipc.admission import RuleKind
from ringmq.ipc.plane import Plane
from ringmq.ipc.republish_words import SKIPPED
from ringmq.native import lib
from ringmq.store.config_files import ConfigFileError, read_standard_json
from ringmq.store.layout import CONFIG, TIMER_COUNTS_FILE, TIMER_TOPIC, TIMER_TOPICS_FILE
from ringmq.timer.wheel_view import BOUNDS_S, read_wheel
from ringmq.timer.words import TimerState, timer_state

DELAY_BOUNDS = ("60", "600", "3600", "43200", "86400", "259200")
Numbers = TypeVar("Numbers")
_WORDS = {
    "ringmq_timer_enqueued_total": lib.RMQ_TIMER_WORD_ENQUEUED,
    "ringmq_timer_delivered_total": lib.RMQ_TIMER_WORD_DELIVERED,
    "ringmq_timer_rolled_total": lib.RMQ_TIMER_WORD_ROLLED,
    "ringmq_timer_recalled_total": lib.RMQ_TIMER_WORD_DELETED,
    "ringmq_timer_rebuilds_total": lib.RMQ_TIMER_WORD_REBUILDS,
    "ringmq_timer_mended_slots_total": lib.RMQ_TIMER_WORD_MENDED_SLOTS,
    "ringmq_timer_minute_messages": lib.RMQ_TIMER_WORD_MINUTE_COUNT,
}
_MINUTE = {
    "0.5": lib.RMQ_TIMER_WORD_MINUTE_P50_US,
    "0.99": lib.RMQ_TIMER_WORD_MINUTE_P99_US,
    "1": lib.RMQ_TIMER_WORD_MINUTE_MAX_US,
}


def families(sources: Sources) -> Add:
    """Those of a master."""
    return sources.of_master(TimerFamilies(sources.plane, sources.config, sources.store_time).add_to)


class TimerFamilies:
    """The families of one plane. Without the worker `timer` since the start, no message waits.

    `store_time` returns the store time of (topic, queue, offset), 0 if it is unknown.
    """

    def __init__(self, plane: Plane, config: BrokerConfig, store_time: Callable[[str, int, int], int]) -> None:
        self._plane, self._config, self._store_time = plane, config, store_time
        self._root = Path(config.store_path_root_dir)
        self._waiting = NumbersFile(self._root / CONFIG / TIMER_COUNTS_FILE, _waiting)
        self._totals = NumbersFile(self._root / CONFIG / TIMER_TOPICS_FILE, _totals)

    def add_to(self, page: Page, now_ms: int) -> None:
        """Add all families."""
        role = self._plane.role(lib.RMQ_ROLE_TIMER)
        words = role.counters
        for name, word in _WORDS.items():
            page.add(name, int(words[word]))
        page.add("ringmq_timer_skipped_total", int(words[SKIPPED]) + int(words[lib.RMQ_TIMER_WORD_UNREADABLE]))
        state = timer_state(self._plane, now_ms)
        page.add("ringmq_timer_behind_seconds", state.behind_ms / 1000)
        page.add("ringmq_timer_unread_messages", state.unread)
        minute = [({"quantile": share}, int(words[word]) / 1e6) for share, word in _MINUTE.items()]
        page.add("ringmq_timer_minute_lateness_seconds", minute)
        lateness = self._plane.header.latency[lib.RMQ_ROLE_TIMER][lib.RMQ_TIMER_LATENCY_DELIVERED]
        counts = [int(count) for count in lateness.counts]
        page.add_histograms("ringmq_timer_lateness_seconds", STAGE_BOUNDS, [({}, counts, int(lateness.sum_ns) / 1e9)])
        if oldest := int(words[lib.RMQ_TIMER_WORD_OLDEST]):
            log_min = int(self._plane.watermarks.min_offset)
            page.add("ringmq_timer_oldest_record_bytes", max(0, oldest - 1 - log_min))
        self._add_stock(page, state, now_ms)
        self._add_by_topic(page, self._totals.read() if role.generation else {})
        self._add_wheel(page, now_ms, is_used=bool(role.generation))

    def _add_stock(self, page: Page, state: TimerState, now_ms: int) -> None:
        words = self._plane.role(lib.RMQ_ROLE_TIMER).counters
        for name, value in (
            ("rocketmq_timer_enqueue_lag", state.unread),
            ("rocketmq_timer_enqueue_latency_milliseconds", self._age_of_unread(state, now_ms)),
            ("rocketmq_timer_dequeue_lag", int(words[lib.RMQ_TIMER_WORD_WAITING])),
            ("rocketmq_timer_dequeue_latency_milliseconds", state.behind_ms),
        ):
            page.add(name, [(LOCAL_DISK, value)])

    def _add_by_topic(self, page: Page, totals: dict[str, list[int]]) -> None:
        """Add messages that wait, and those that have come and gone since the start of the worker."""
        labels = {topic: {**LOCAL_DISK, "topic": topic} for topic in totals}
        page.add("rocketmq_timer_enqueue_total", [(labels[topic], found[0]) for topic, found in totals.items()])
        page.add("rocketmq_timer_dequeue_total", [(labels[topic], found[1]) for topic, found in totals.items()])
        delays = [(labels[topic], found[3:], found[2]) for topic, found in totals.items()]
        page.add_histograms("rocketmq_delay_message_latency_seconds", DELAY_BOUNDS, delays)
        waiting = self._waiting.read().items()
        page.add("rocketmq_timing_messages", [({**LOCAL_DISK, "topic": topic}, count) for topic, count in waiting])

    def _add_wheel(self, page: Page, now_ms: int, *, is_used: bool) -> None:
        config = self._config
        rules = self._plane.admission_rules() if is_used else ()
        full = next((rule.slot_messages_max for rule in rules if rule.kind is RuleKind.TIMER and not rule.name), 0)
        window = config.timer_roll_window_slot if is_used else 0
        words = self._plane.role(lib.RMQ_ROLE_TIMER).counters
        open_ms = int(words[lib.RMQ_TIMER_WORD_OPEN_MS])
        view = read_wheel(self._root, now_ms, config.timer_precision_ms, window, full or (1 << 31), open_ms)
        page.add("ringmq_timer_waiting_messages", min(view.messages, int(words[lib.RMQ_TIMER_WORD_WAITING])))
        page.add("ringmq_timer_waiting_beyond_day", view.beyond)
        snapshot = zip(BOUNDS_S, view.by_bound, strict=True)
        page.add(
            "rocketmq_timer_message_snapshot",
            [({**LOCAL_DISK, "timer_bound_s": str(bound)}, count) for bound, count in snapshot],
        )
        page.add("ringmq_timer_full_slots", view.full_slots)
        page.add("ringmq_timer_fullest_slot_messages", view.fullest_messages)
        page.add("ringmq_timer_fullest_slot_seconds", view.fullest_in_ms / 1000)

    def _age_of_unread(self, state: TimerState, now_ms: int) -> int:
        """The age in ms of the oldest message that is not in the wheel."""
        following = int(self._plane.role(lib.RMQ_ROLE_TIMER).counters[lib.RMQ_TIMER_WORD_NEXT])
        stored_ms = self._store_time(TIMER_TOPIC, 0, following) if state.unread else 0
        return max(0, now_ms - stored_ms) if stored_ms > 0 else 0


class NumbersFile(Generic[Numbers]):
    """Numbers by topic in a file that the worker `timer` replaces. A file that cannot be read changes nothing."""

    def __init__(self, path: Path, parse: Callable[[Any], dict[str, Numbers]]) -> None:
        self._path, self._parse = path, parse
        self._numbers: dict[str, Numbers] = {}
        self._read: tuple[int, int] | None = None

    def read(self) -> dict[str, Numbers]:
        """Return those that were written last."""
        try:
            status = self._path.stat()
            if (status.st_mtime_ns, status.st_size) != self._read:
                self._numbers = self._parse(read_standard_json(self._path))
                self._read = status.st_mtime_ns, status.st_size
        except (OSError, ConfigFileError, ValueError, TypeError, KeyError, AttributeError):
            return self._numbers
        return self._numbers


def _waiting(value: Any) -> dict[str, int]:
    return {topic: max(0, int(entry["count"])) for topic, entry in value["timingCount"].items()}


def _totals(value: Any) -> dict[str, list[int]]:
    """Lists of TopicCountsFile. Raises ValueError for others."""
    if not all(len(numbers) == 3 + lib.RMQ_TIMER_DELAY_BUCKETS for numbers in value.values()):
        raise ValueError("a topic has another number of numbers")
    return {topic: [int(number) for number in numbers] for topic, numbers in value.items()}
