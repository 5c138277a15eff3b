"""The view of `ringmq top`: numbers out of two scrapes, and the screen made of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ringmq.cli.metrics_text import Samples, quantile
from ringmq.remoting.printable import printable

ROWS_MAX = 10
KEYS = "q ends, ? explains the columns"
STAGES = ("queued", "appended", "flushed", "replicated", "answered", "control")


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic."""

    topic: str
    in_per_second: float
    bytes_per_second: float
    messages: int


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group on one topic."""

    group: str
    topic: str
    out_per_second: float
    lag: int
    in_flight: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class StageRow:
    """Sends of the interval up to a stage. Times are upper bounds of buckets."""

    stage: str
    per_second: float
    mean_ms: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker."""

    worker: str
    up: bool
    cpu_percent: float
    resident_bytes: int
    starts: int
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class SlaveRow:
    """One slave of the shown master."""

    slave: str
    in_sync: bool
    lag_bytes: int
    lag_seconds: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class PopRow:
    """Messages that consumers take one by one, of all groups."""

    given_per_second: float
    acked_per_second: float
    again_per_second: float
    open: int
    oldest_seconds: float
    due: int
    polls: int
    entries_ratio: float


@dataclass(frozen=True, slots=True)
class View:
    """All values on the screen."""

    broker: str
    cluster: str
    ready: bool
    writable: bool
    seconds: float
    in_per_second: float
    out_per_second: float
    received_bytes_per_second: float
    sent_bytes_per_second: float
    refused_per_second: float
    connections: int
    disk_available_ratio: float
    unflushed_bytes: int
    in_sync_replicas: int
    wanted_replicas: int
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]
    stages: tuple[StageRow, ...]
    workers: tuple[WorkerRow, ...]
    slaves: tuple[SlaveRow, ...]
    pops: tuple[PopRow, ...]
    """One row if a group has popped since the start."""

    def as_json(self) -> dict[str, Any]:
        """Return the view as JSON for programs."""
        return asdict(self)


def view_of(before: Samples, now: Samples) -> View:
    """Return the view of two scrapes. Rates are those between them."""
    seconds = max(now.at - before.at, 1e-9)

    def rate(name: str) -> float:
        return max(0.0, now.total(name) - before.total(name)) / seconds

    (labels, _), *_ = now.rows("ringmq_ready") or [({}, 0.0)]
    disk = now.by("ringmq_disk_bytes", "state")
    return View(
        broker=labels.get("node_id", "?"),
        cluster=labels.get("cluster", "?"),
        ready=now.total("ringmq_ready") > 0,
        writable=now.total("ringmq_writable") > 0,
        seconds=round(seconds, 3),
        in_per_second=rate("rocketmq_messages_in_total"),
        out_per_second=rate("rocketmq_messages_out_total"),
        received_bytes_per_second=rate("ringmq_received_bytes_total"),
        sent_bytes_per_second=rate("ringmq_sent_bytes_total"),
        refused_per_second=rate("ringmq_write_refused_total") + rate("ringmq_busy_answers_total"),
        connections=int(now.total("ringmq_connections")),
        disk_available_ratio=disk.get(("available",), 0.0) / (disk.get(("total",), 0.0) or 1.0),
        unflushed_bytes=int(now.total("rocketmq_storage_flush_behind_bytes")),
        in_sync_replicas=int(now.total("ringmq_replication_in_sync_replicas")),
        wanted_replicas=int(now.total("ringmq_replication_wanted_replicas")),
        topics=_topics(before, now, seconds),
        groups=_groups(before, now, seconds),
        stages=_stages(before, now, seconds),
        workers=_workers(before, now, seconds),
        slaves=_slaves(now),
        pops=_pops(before, now, seconds),
    )


def _topics(before: Samples, now: Samples, seconds: float) -> tuple[TopicRow, ...]:
    messages, old = (one.by("rocketmq_messages_in_total", "topic") for one in (now, before))
    written, old_written = (one.by("rocketmq_throughput_in_total", "topic") for one in (now, before))
    rows = [
        TopicRow(
            key[0],
            max(0.0, count - old.get(key, 0.0)) / seconds,
            max(0.0, written[key] - old_written.get(key, 0.0)) / seconds,
            int(count),
        )
        for key, count in messages.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.in_per_second, -row.messages, row.topic)))


def _groups(before: Samples, now: Samples, seconds: float) -> tuple[GroupRow, ...]:
    keys = ("consumer_group", "topic")
    lag, in_flight = (now.by(f"rocketmq_consumer_{what}", *keys) for what in ("lag_messages", "inflight_messages"))
    age = now.highest("rocketmq_consumer_lag_latency_milliseconds", *keys)
    out, old = (one.by("rocketmq_messages_out_total", *keys) for one in (now, before))
    rows = [
        GroupRow(
            key[0],
            key[1],
            max(0.0, out.get(key, 0.0) - old.get(key, 0.0)) / seconds,
            int(lag.get(key, 0)),
            int(in_flight.get(key, 0)),
            int(age.get(key, 0)),
        )
        for key in lag.keys() | out.keys()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.lag, -row.out_per_second, row.group, row.topic)))


def _stages(before: Samples, now: Samples, seconds: float) -> tuple[StageRow, ...]:
    name = "ringmq_request_seconds"
    rows = []
    for stage in STAGES:
        count = now.total(f"{name}_count", stage=stage) - before.total(f"{name}_count", stage=stage)
        took = now.total(f"{name}_sum", stage=stage) - before.total(f"{name}_sum", stage=stage)
        half, most = (quantile(before, now, name, share, stage=stage) for share in (0.5, 0.99))
        if count > 0 and half is not None and most is not None:
            rows.append(StageRow(stage, count / seconds, took / count * 1e3, half * 1e3, most * 1e3))
    return tuple(rows)


def _workers(before: Samples, now: Samples, seconds: float) -> tuple[WorkerRow, ...]:
    up, starts, silent, resident = (
        now.by(f"ringmq_worker_{what}", "worker") for what in ("up", "starts_total", "silent_seconds", "resident_bytes")
    )
    cpu, old = (one.by("ringmq_worker_cpu_seconds_total", "worker") for one in (now, before))
    return tuple(
        WorkerRow(
            key[0],
            bool(value),
            max(0.0, cpu.get(key, 0.0) - old.get(key, 0.0)) / seconds * 100,
            int(resident.get(key, 0)),
            int(starts.get(key, 0)),
            silent.get(key, 0.0),
        )
        for key, value in sorted(up.items())
    )


def _slaves(now: Samples) -> tuple[SlaveRow, ...]:
    in_sync, lag, seconds, rate = (
        now.by(f"ringmq_slave_{what}", "slave") for what in ("in_sync", "lag_bytes", "lag_seconds", "bytes_per_second")
    )
    return tuple(SlaveRow(key[0], bool(yes), int(lag[key]), seconds[key], rate[key]) for key, yes in in_sync.items())


def _pops(before: Samples, now: Samples, seconds: float) -> tuple[PopRow, ...]:
    if not now.total("ringmq_pop_windows"):
        return ()

    def rate(name: str, **labels: str) -> float:
        return max(0.0, now.total(name, **labels) - before.total(name, **labels)) / seconds

    row = PopRow(
        given_per_second=rate("ringmq_pop_messages_total"),
        acked_per_second=rate("ringmq_pop_acks_total", result="done"),
        again_per_second=rate("ringmq_pop_revived_total", result="copied"),
        open=int(now.total("ringmq_pop_open_messages")),
        oldest_seconds=now.total("ringmq_pop_oldest_open_seconds"),
        due=int(now.total("rocketmq_pop_revive_lag_milliseconds")),
        polls=int(now.total("ringmq_pop_polls")),
        entries_ratio=now.total("ringmq_pop_entries") / (now.total("ringmq_pop_entries_max") or 1.0),
    )
    return (row,)


# ---- the screen ----


def screen(view: View, keys: str = "") -> Group:
    """Return tables one below another. Long ones are cut at ROWS_MAX. `keys` names the keys of the live screen."""
    parts: list[Any] = [_head(view).append(f"\n{keys}", "dim") if keys else _head(view)]
    parts.append(table("Topics", view.topics, _TOPIC_COLUMNS))
    parts.append(table("Groups", view.groups, _GROUP_COLUMNS))
    parts.append(table("POP", view.pops, _POP_COLUMNS))
    parts.append(table("Stages since received", view.stages, _STAGE_COLUMNS))
    parts.append(table("Workers", view.workers, _WORKER_COLUMNS))
    parts.append(table("Slaves", view.slaves, _SLAVE_COLUMNS))
    return Group(*(line for part in parts if part is not None for line in (part, "")))


def help_screen() -> Group:
    """Return the meaning of keys and columns."""
    parts: list[Any] = [Text("q ends, any other key goes back", "bold"), ""]
    for title, lines in _HELP.items():
        parts.append(Text(title, "bold"))
        parts += [Text(f"  {name:<10}{meaning}") for name, meaning in lines.items()]
    return Group(*parts)


_HELP = {
    "Head": {
        "refused": "sends per second that the broker refused or asked to try again",
        "not flushed": "bytes of the log that a power cut would take",
    },
    "Topics": {"in/s": "messages stored per second", "messages": "stored since the topic was made"},
    "Groups": {
        "out/s": "messages that the group got per second",
        "lag": "messages behind the committed offset",
        "in flight": "messages that the group has got and not consumed; of groups that pop, open ones",
        "oldest": "age of the oldest message that is not committed",
    },
    "POP": {
        "again/s": "messages per second whose time was over, and that came again",
        "open": "messages that consumers hold; ringmq group inflight shows those of a group",
        "due": "open messages whose time is over, and that have no copy yet",
        "waiting": "pops that wait for a message",
        "entries": "used part of the memory for open messages (ringmqPopOpenMax)",
    },
    "Stages": {
        "stage": "a send from its receipt to here: queued, appended, flushed, replicated, answered",
        "p50, p99": "upper bounds: so many of the sends were faster",
    },
    "Workers": {
        "starts": "processes started so far; more than 1: the worker has died",
        "silent": "time since the worker's loop last turned",
    },
    "Slaves": {"behind": "bytes of the log that the slave lacks", "for": "time since the slave had everything"},
}


def _head(view: View) -> Text:
    text = Text()
    text.append(printable(view.broker), "bold")
    text.append(f" of {printable(view.cluster)}  ")
    text.append("ready" if view.ready else "NOT READY", "green" if view.ready else "bold red")
    text.append("  ")
    text.append("takes sends" if view.writable else "takes no sends", "green" if view.writable else "bold red")
    text.append(f"  replicas {view.in_sync_replicas}/{view.wanted_replicas}  ")
    text.append(f"disk {view.disk_available_ratio:.0%} left", "" if view.disk_available_ratio >= 0.15 else "bold red")
    text.append(f"  connections {view.connections}\n")
    text.append(f"in {short(view.in_per_second)}/s  out {short(view.out_per_second)}/s  ")
    text.append(f"received {size(view.received_bytes_per_second)}/s  sent {size(view.sent_bytes_per_second)}/s  ")
    text.append(f"refused {short(view.refused_per_second)}/s", "bold red" if view.refused_per_second else "")
    text.append(f"  not flushed {size(view.unflushed_bytes)}")
    return text


def short(number: float) -> str:
    """Return a number in short form: 1234567 -> 1.23M."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            return f"{number / (limit if letter != 'k' else 1e3):.3g}{letter}"
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def size(count: float) -> str:
    """Return bytes with a binary unit."""
    for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if count >= 1024**power:
            return f"{count / 1024**power:.1f} {letter}iB"
    return f"{count:.0f} B"


def duration(ms: float) -> str:
    """Return a time with a readable unit."""
    if ms <= 0:
        return "-"
    if ms < 1000:
        return f"{ms:.3g} ms" if ms >= 1 else f"{ms * 1000:.0f} us"
    seconds = ms / 1000
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def name_cell(name: str) -> str:
    """Return the cell of a name, which `rich` would read as markup and would print as it is."""
    return escape(printable(name))


_TOPIC_COLUMNS = (
    ("topic", lambda row: name_cell(row.topic)),
    ("in/s", lambda row: short(row.in_per_second)),
    ("bytes/s", lambda row: size(row.bytes_per_second)),
    ("messages", lambda row: short(row.messages)),
)
_GROUP_COLUMNS = (
    ("group", lambda row: name_cell(row.group)),
    ("topic", lambda row: name_cell(row.topic)),
    ("out/s", lambda row: short(row.out_per_second)),
    ("lag", lambda row: short(row.lag)),
    ("in flight", lambda row: short(row.in_flight)),
    ("oldest", lambda row: duration(row.age_ms)),
)
_POP_COLUMNS = (
    ("group", lambda row: "all"),
    ("given/s", lambda row: short(row.given_per_second)),
    ("acked/s", lambda row: short(row.acked_per_second)),
    ("again/s", lambda row: short(row.again_per_second)),
    ("open", lambda row: short(row.open)),
    ("oldest", lambda row: duration(row.oldest_seconds * 1000)),
    ("due", lambda row: short(row.due)),
    ("waiting", lambda row: short(row.polls)),
    ("entries", lambda row: f"{row.entries_ratio:.0%}"),
)
_STAGE_COLUMNS = (
    ("stage", lambda row: name_cell(row.stage)),
    ("/s", lambda row: short(row.per_second)),
    ("mean", lambda row: duration(row.mean_ms)),
    ("p50 <", lambda row: duration(row.p50_ms)),
    ("p99 <", lambda row: duration(row.p99_ms)),
)
_WORKER_COLUMNS = (
    ("worker", lambda row: name_cell(row.worker) if row.up else f"[bold red]{name_cell(row.worker)} DOWN[/]"),
    ("cpu", lambda row: f"{row.cpu_percent:.0f}%"),
    ("resident", lambda row: size(row.resident_bytes)),
    ("starts", lambda row: str(row.starts)),
    ("silent", lambda row: duration(row.silent_seconds * 1000) if row.silent_seconds >= 1 else "-"),
)
_SLAVE_COLUMNS = (
    ("slave", lambda row: name_cell(row.slave)),
    ("in sync", lambda row: "yes" if row.in_sync else "[bold red]NO[/]"),
    ("behind", lambda row: size(row.lag_bytes)),
    ("for", lambda row: duration(row.lag_seconds * 1000)),
    ("bytes/s", lambda row: size(row.bytes_per_second)),
)


def table(title: str, rows: tuple[Any, ...], columns: Any) -> Table | None:
    """Return a table of at most ROWS_MAX rows, None without rows. `columns`: (name, cell of a row) each."""
    if not rows:
        return None
    more = f" ({len(rows) - ROWS_MAX} more)" if len(rows) > ROWS_MAX else ""
    shown = Table(
        title=title + more, title_justify="left", box=SIMPLE_HEAD, show_edge=False, title_style="bold", padding=(0, 1)
    )
    for number, (name, _) in enumerate(columns):
        is_name = number == 0 or name == "topic"
        shown.add_column(name, justify="left" if is_name else "right", overflow="fold" if is_name else "ellipsis")
    for row in rows[:ROWS_MAX]:
        shown.add_row(*(cell(row) for _, cell in columns))
    return shown
