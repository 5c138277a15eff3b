"""Rows about a long way between master and slave."""

from collections.abc import Callable

from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.ceiling.delay_link import window_bytes
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ, Measurement
from ringmq.loadtest.replication.pairs import ASYNC_MASTER, SYNC_MASTER, Settings
from ringmq.loadtest.replication.rows import MANY, acknowledged_rate, open_pair, replicated_row
from ringmq.loadtest.replication.tcp_copy import copy_rate

MIB = 1 << 20


def delay_row(delay_ms: float) -> Callable[[Context, str], Measurement]:
    """Return a row of bytes/s acknowledged over a link with a delay in each direction, relative to one without.

    `window_bytes` sizes the window of a RingMQ master from the rate at 0 ms. The row counts if the link itself passes
    more than the measured rate.
    """

    def run(context: Context, system: str) -> Measurement:
        near, _ = _rate(context, system, {}, 0.0)
        window = window_bytes(near, 2 * delay_ms)
        settings: Settings = {"ringmqHaWindowBytes": window} if system == RINGMQ else {}
        far, link = _rate(context, system, settings, delay_ms)
        with open_pair(context, system, {**SYNC_MASTER, **settings}, delay_ms) as pair:
            sync = replicated_row("repl-link", "send", MANY)(context, pair)
        values = {"kept": far / near, "bytes_per_s": far, "bytes_per_s_0": near, "link_bytes_per_s": link}
        values |= {"window_mib": window / MIB, "sync_messages_per_s": sync.values[RATE], "sync_p99": sync.values["p99"]}
        notes = [f"{far / 1e6:.0f} MB/s, at 0 ms {near / 1e6:.0f}, the link alone {link / 1e6:.0f}"]
        notes += [f"sync 64x16 {sync.values[RATE]:,.0f} msg/s", *filter(None, [sync.note])]
        return Measurement(values, ok=sync.ok and link > far, note="; ".join(notes))

    return run


def _rate(context: Context, system: str, settings: Settings, delay_ms: float) -> tuple[float, float]:
    """Return bytes/s acknowledged by the slave, and bytes/s of a copy of the log's first file through the same link."""
    with open_pair(context, system, {**ASYNC_MASTER, **settings}, delay_ms) as pair:
        rate = acknowledged_rate(context, pair, context.link_bytes)
        source = pair.master.store / "commitlog" / f"{0:020d}"
        return rate, copy_rate(context.tools, source, pair.folder / "copy", delay_ms=delay_ms)
