"""The view of `ringmq timer top`: numbers out of two scrapes, and the screen made of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.text import Text

from ringmq.cli.metrics_text import Samples
from ringmq.cli.top_view import duration, name_cell, short, table
from ringmq.remoting.printable import printable


@dataclass(frozen=True, slots=True)
class TopicRow:
    """Waiting messages of one topic."""

    topic: str
    messages: int


@dataclass(frozen=True, slots=True)
class BoundRow:
    """Waiting messages by time to delivery. `up_to_seconds` is None behind the last bound."""

    up_to_seconds: int | None
    messages: int


@dataclass(frozen=True, slots=True)
class TimerView:
    """All values on the screen. Rates are those between two scrapes, lateness is that of the last minute."""

    broker: str
    cluster: str
    seconds: float
    waiting: int
    recalled: int
    unread: int
    """Messages of the timer topic that are not in the wheel yet."""
    behind_ms: float
    """Age of the slot that is being delivered."""
    enqueued_per_second: float
    delivered_per_second: float
    rolled_per_second: float
    recalled_per_second: float
    skipped: int
    """Since the start."""
    minute_messages: int
    minute_p50_ms: float
    minute_p99_ms: float
    minute_max_ms: float
    """Upper bounds of buckets."""
    full_slots: int
    fullest_slot_messages: int
    fullest_slot_in_ms: float
    by_time: tuple[BoundRow, ...]
    by_topic: tuple[TopicRow, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the view as JSON for programs."""
        return asdict(self)


def view_of(before: Samples, now: Samples) -> TimerView:
    """Return the view of two scrapes."""
    seconds = max(now.at - before.at, 1e-9)

    def rate(name: str) -> float:
        return max(0.0, now.total(name) - before.total(name)) / seconds

    (labels, _), *_ = now.rows("ringmq_ready") or [({}, 0.0)]
    waiting = int(now.total("ringmq_timer_waiting_messages"))
    half, most, latest = (
        now.total("ringmq_timer_minute_lateness_seconds", quantile=share) * 1e3 for share in ("0.5", "0.99", "1")
    )
    return TimerView(
        broker=labels.get("node_id", "?"),
        cluster=labels.get("cluster", "?"),
        seconds=round(seconds, 3),
        waiting=waiting,
        recalled=max(0, int(now.total("rocketmq_timer_dequeue_lag")) - waiting),
        unread=int(now.total("ringmq_timer_unread_messages")),
        behind_ms=now.total("ringmq_timer_behind_seconds") * 1e3,
        enqueued_per_second=rate("ringmq_timer_enqueued_total"),
        delivered_per_second=rate("ringmq_timer_delivered_total"),
        rolled_per_second=rate("ringmq_timer_rolled_total"),
        recalled_per_second=rate("ringmq_timer_recalled_total"),
        skipped=int(now.total("ringmq_timer_skipped_total")),
        minute_messages=int(now.total("ringmq_timer_minute_messages")),
        minute_p50_ms=half,
        minute_p99_ms=most,
        minute_max_ms=latest,
        full_slots=int(now.total("ringmq_timer_full_slots")),
        fullest_slot_messages=int(now.total("ringmq_timer_fullest_slot_messages")),
        fullest_slot_in_ms=now.total("ringmq_timer_fullest_slot_seconds") * 1e3,
        by_time=_by_time(now, waiting),
        by_topic=_by_topic(now),
    )


def _by_time(now: Samples, waiting: int) -> tuple[BoundRow, ...]:
    """Overdue messages are in the first row. The snapshot begins with the present."""
    found = now.by("rocketmq_timer_message_snapshot", "timer_bound_s")
    rows = sorted((int(bound), int(messages)) for (bound,), messages in found.items())
    beyond = int(now.total("ringmq_timer_waiting_beyond_day"))
    if rows:
        overdue = max(0, waiting - beyond - sum(messages for _, messages in rows))
        rows[0] = (rows[0][0], rows[0][1] + overdue)
    return (*(BoundRow(bound, messages) for bound, messages in rows), BoundRow(None, beyond))


def _by_topic(now: Samples) -> tuple[TopicRow, ...]:
    rows = [TopicRow(topic, int(count)) for (topic,), count in now.by("rocketmq_timing_messages", "topic").items()]
    return tuple(sorted((row for row in rows if row.messages), key=lambda row: (-row.messages, row.topic)))


# ---- the screen ----


def screen(view: TimerView, keys: str = "") -> Group:
    """Return the head and two tables. `keys` names the keys of the live screen."""
    parts: list[Any] = [_head(view).append(f"\n{keys}", "dim") if keys else _head(view)]
    parts.append(table("Waiting, by time to delivery", view.by_time, _TIME_COLUMNS))
    parts.append(table("Waiting, by topic", view.by_topic, _TOPIC_COLUMNS))
    return Group(*(line for part in parts if part is not None for line in (part, "")))


def help_screen() -> Group:
    """Return the meaning of the numbers."""
    return Group(Text("q ends, any other key goes back", "bold"), "", *(f"  {line}" for line in _HELP))


_HELP = (
    "waiting: messages in the wheel; recalled ones stay there until their time",
    "not in the wheel: messages that the worker timer has not read yet",
    "behind: age of the slot that is being delivered",
    "late: bounds of the time from a message's time to its place in the log, in the last minute",
    "full slots: steps of timerPrecisionMs with more than timerCongestNumEachSlot messages, whose sends are refused",
    "skipped: messages without a target, a time or a record, since the start",
    "by time to delivery: waiting messages, overdue ones in the first row",
    "by topic: waiting and recalled messages",
)


def _head(view: TimerView) -> Text:
    text = Text()
    text.append(printable(view.broker), "bold")
    text.append(f" of {printable(view.cluster)}  waiting {short(view.waiting)} and {short(view.recalled)} recalled  ")
    text.append(f"not in the wheel {short(view.unread)}  ")
    text.append(f"behind {duration(view.behind_ms)}", "bold red" if view.behind_ms > 10_000 else "")
    text.append(f"  skipped {short(view.skipped)}\n", "bold red" if view.skipped else "")
    text.append(f"into the wheel {short(view.enqueued_per_second)}/s  delivered {short(view.delivered_per_second)}/s  ")
    text.append(f"rolled {short(view.rolled_per_second)}/s  recalled {short(view.recalled_per_second)}/s\n")
    text.append(f"last minute: {short(view.minute_messages)} delivered, late p50 < {duration(view.minute_p50_ms)}  ")
    text.append(f"p99 < {duration(view.minute_p99_ms)}", "bold red" if view.minute_p99_ms > 1000 else "")
    text.append(f"  most < {duration(view.minute_max_ms)}\n")
    text.append(f"full slots {view.full_slots}", "bold red" if view.full_slots else "")
    text.append(f"  fullest {short(view.fullest_slot_messages)} messages")
    if view.fullest_slot_messages:
        text.append(f" in {duration(max(1, view.fullest_slot_in_ms))}")
    return text


def _bound(row: BoundRow) -> str:
    return "later" if row.up_to_seconds is None else f"up to {duration(row.up_to_seconds * 1000)}"


_TIME_COLUMNS = (("time", _bound), ("messages", lambda row: short(row.messages)))
_TOPIC_COLUMNS = (("topic", lambda row: name_cell(row.topic)), ("messages", lambda row: short(row.messages)))
