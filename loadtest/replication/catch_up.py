"""Rows about an empty slave: its speed in catching up with a long log, and the effect on producers."""

import os
import time
from contextlib import closing

from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.measuring.measurement import Measurement
from ringmq.loadtest.replication.pairs import ASYNC_MASTER, POLL_S, Pair, Settings
from ringmq.loadtest.replication.rows import fill
from ringmq.loadtest.replication.tcp_copy import copy_rate

# Stock starts an empty slave with the newest file: one file makes the bytes equal. The largest that stock can map.
ONE_FILE: Settings = {**ASYNC_MASTER, "mappedFileSizeCommitLog": (1 << 31) - 4096}
FLOW_BYTES_PER_S = 104_857_600  # maxHaTransferByteInSecond's default
CATCH_UP_TIMEOUT_S = 300.0
PRODUCTION = {"connections": 64, "depth": 256, "size": 1024}
PRODUCTION_RATE = 5000  # messages/s, far below what both brokers bear


def _filled_master(context: Context, system: str, settings: Settings) -> Pair:
    pair = Pair(system, context.folder / f"{system}-pair", {**ONE_FILE, **settings}, context.cpus)
    try:
        fill(context, pair, context.catch_up_bytes)  # this warms stock's master, too
        os.sync()
    except BaseException:
        pair.close()
        raise
    return pair


def _wait_for_first(pair: Pair) -> int:
    """Start an empty slave, and return its acknowledged bytes once they are more than nothing."""
    pair.start_slave()
    deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
    while (progress := pair.progress()).acknowledged == 0:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the slave got nothing in {CATCH_UP_TIMEOUT_S:.0f} s: {progress}")
        time.sleep(POLL_S)
    return progress.acknowledged


def catch_up_row(context: Context, system: str) -> Measurement:
    """Measure bytes/s from a slave's first acknowledgement to its last, beside a copy through loopback TCP."""
    with closing(_filled_master(context, system, {})) as pair:
        source = pair.master.store / "commitlog" / f"{0:020d}"
        copy = copy_rate(context.tools, source, pair.folder / "copy")
        os.sync()
        at = _wait_for_first(pair)
        began = time.monotonic()
        end = pair.wait_in_sync(CATCH_UP_TIMEOUT_S).end
        rate = (end - at) / max(time.monotonic() - began, POLL_S)
        ok = pair.same_logs()
    note = f"{rate / 1e6:.0f} MB/s of {end / 1e6:.0f} MB; a copy {copy / 1e6:.0f} MB/s"
    values = {"of_copy": rate / copy, "bytes_per_s": rate, "copy_bytes_per_s": copy, "bytes": float(end)}
    return Measurement(values, ok=ok, note=note if ok else f"{note}; the slave's log differs")


def production_row(context: Context, system: str) -> Measurement:
    """Measure p99 of an open loop while an empty slave catches up with flow control, over the p99 without a slave."""
    seconds = 2 * context.seconds
    limit = min(FLOW_BYTES_PER_S, int(context.catch_up_bytes / (seconds + 4)))
    flow: Settings = {"haFlowControlEnable": True, "maxHaTransferByteInSecond": limit}
    options = {"seconds": seconds, "warmup": context.warmup_s, "rate": PRODUCTION_RATE, **PRODUCTION}
    with closing(_filled_master(context, system, flow)) as pair:
        loader = context.loader(pair.port)
        alone = loader.run("send", topic=context.topic("production"), create=True, **options)
        _wait_for_first(pair)
        beside = loader.run("send", topic=context.topic("production"), create=True, **options)
        behind = pair.progress()
        pair.wait_in_sync(CATCH_UP_TIMEOUT_S)
    p99 = {"alone": float(alone["latency_us"]["p99"]), "beside": float(beside["latency_us"]["p99"])}
    note = f"p99 {p99['alone']:.0f} us alone, {p99['beside']:.0f} us meanwhile"
    caught_up = behind.acknowledged >= behind.end
    if caught_up:
        note += "; the slave had caught up before the end"
    ok = bool(alone["ok"] and beside["ok"]) and not caught_up
    return Measurement({"p99_ratio": p99["beside"] / p99["alone"], **p99}, ok=ok, note=note)
