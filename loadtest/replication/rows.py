"""Rows about the throughput of a master with one slave, and the cost of waiting for the slave."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from time import monotonic

from ringmq.loadtest.bench.rows import Context, Run, send_row
from ringmq.loadtest.bench.warm_up import warm_up
from ringmq.loadtest.load.targets import Target
from ringmq.loadtest.measuring.measurement import RATE, STOCK, Measurement
from ringmq.loadtest.replication.pairs import ASYNC_MASTER, SYNC_MASTER, Pair, Settings, start_pair

LOG_BYTES_MAX = 1_500_000_000  # that one run may write
FILL_TRIES = 100
RECORD_OVERHEAD = 250  # bytes of a record besides its body, about
BATCH: Mapping[str, int] = {"connections": 16, "depth": 4, "size": 1024, "batch": 32}
MANY: Mapping[str, int] = {"connections": 64, "depth": 16, "size": 200}


def messages_of(log_bytes: int, body_bytes: int) -> int:
    """Return the number of messages for so much log."""
    return max(1000, log_bytes // (body_bytes + RECORD_OVERHEAD))


def replicated_row(row: str, command: str, options: Mapping[str, int]) -> Run:
    """Return a closed loop of sends. It counts if everything was read back and the slave's log has the same bytes."""
    limit = messages_of(LOG_BYTES_MAX, options["size"])

    def run(context: Context, target: Target) -> Measurement:
        assert isinstance(target, Pair)
        measured = send_row(row, command, **options, messages=min(limit, context.messages_max))(context, target)
        target.wait_in_sync()
        if target.same_logs():
            return measured
        return Measurement(
            measured.values, ok=False, note=f"the slave's log differs; {measured.note}", raw=measured.raw
        )

    return run


@contextmanager
def open_pair(context: Context, system: str, settings: Settings, delay_ms: float | None = None) -> Iterator[Pair]:
    """Yield a pair in sync, warmed up if it is stock's, and remove it at the end."""
    folder = context.folder / f"{system}-pair"
    with closing(start_pair(system, folder, settings, context.cpus, tools=context.tools, delay_ms=delay_ms)) as pair:
        if system == STOCK:
            warm_up(context, pair, context.stock_warmup_s)
            pair.wait_in_sync()
        os.sync()
        yield pair


def fill(context: Context, pair: Pair, log_bytes: int) -> None:
    """Send batches of 1 KiB bodies at full speed until the log has grown by about so much.

    Stock refuses a part when it is busy, and refused batches are sent again. Raises RuntimeError if too little was
    stored.
    """
    topic, left = context.topic("fill"), messages_of(log_bytes, BATCH["size"])
    refused = ""
    for _ in range(FILL_TRIES):
        report = context.loader(pair.port).run("batch", topic=topic, create=True, messages=left, **BATCH)
        left -= report["acked"]
        refused = f"{report['errors']} {report['remark']} {report['trouble']}"
        if left < BATCH["batch"] or report["trouble"]:
            break
    if left >= BATCH["batch"]:
        raise RuntimeError(f"filling the log: {left} messages are missing: {refused}")


def acknowledged_rate(context: Context, pair: Pair, log_bytes: int) -> float:
    """Return bytes/s from the first send until the slave has acknowledged the last offset."""
    begin, began = pair.progress().end, monotonic()
    fill(context, pair, log_bytes)
    return (pair.wait_in_sync().end - begin) / (monotonic() - began)


def sync_cost_row(context: Context, system: str) -> Measurement:
    """Measure 64x16 that waits for the slave, relative to the rate with an attached slave and no wait."""
    runs = {}
    for name, settings in (("async", ASYNC_MASTER), ("sync", SYNC_MASTER)):
        with open_pair(context, system, settings) as pair:
            runs[name] = replicated_row(f"repl-{name}", "send", MANY)(context, pair)
    rates = {name: run.values[RATE] for name, run in runs.items()}
    note = f"async {rates['async']:,.0f}, sync {rates['sync']:,.0f} msg/s"
    note = "; ".join([note, *(run.note for run in runs.values() if run.note)])
    ok = all(run.ok for run in runs.values())
    return Measurement({"kept": rates["sync"] / rates["async"], **rates}, ok=ok, note=note)
