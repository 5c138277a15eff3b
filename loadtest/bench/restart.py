"""Restart after kill -9: fill the log, kill everything, time from exec to `ready` with page cache and without."""

import contextlib
import os
from pathlib import Path

from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.load.targets import RingmqTarget
from ringmq.loadtest.load.tools import Report
from ringmq.loadtest.measuring.measurement import RINGMQ, Measurement

BODY_BYTES = 1024
RECORD_BYTES = 1250  # of such a message in the log, about
RUN_ID = "0BADCAFE"


def restart_row(context: Context, system: str) -> Measurement:
    """Measure `hot_s`, and `cold_s` if caches may be dropped. Counts if sampled keys and all bodies are found again."""
    assert system == RINGMQ
    folder = context.folder / "restart"
    messages = max(1000, context.restart_bytes // RECORD_BYTES)
    topic = context.topic("restart")
    target = RingmqTarget(folder, {}, context.cpus)
    try:
        filled = context.loader(target.port).run(
            "batch",
            topic=topic,
            create=True,
            connections=8,
            depth=2,
            size=BODY_BYTES,
            messages=messages,
            run_id=RUN_ID,
            check=True,
        )
        target.kill()
        values, note = {}, ""
        target = RingmqTarget(folder, {}, context.cpus, keep=True)
        values["hot_s"] = target.start_seconds
        found = _everything_found(context, target.port, topic, filled)
        target.kill()
        if _drop_caches():
            target = RingmqTarget(folder, {}, context.cpus, keep=True)
            values["cold_s"] = target.start_seconds
            note = f"cold {target.start_seconds:.1f} s"
        else:
            note = "cold start not measured: the page cache can only be dropped by root"
        return Measurement(values, ok=found and bool(filled["ok"]), note=note, raw=filled)
    finally:
        with contextlib.suppress(ProcessLookupError):
            target.close()


def _everything_found(context: Context, port: int, topic: str, filled: Report) -> bool:
    loader = context.loader(port)
    keys = loader.run(
        "keys", topic=topic, messages=filled["acked"], run_id=RUN_ID, check_keys=10 * context.check_keys, settle_ms=5000
    )
    back = loader.run("verify", topic=topic)
    same = back["read"] == filled["acked"] and back["read_crc_sum"] == filled["check"]["crc_sum"]
    return bool(keys["ok"]) and bool(back["ok"]) and same


def _drop_caches() -> bool:
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True
