"""The row of single sends beside pulls that have to wait for the disk."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ringmq.loadtest.bench.rows import Context, latencies, send_row
from ringmq.loadtest.load.targets import Target
from ringmq.loadtest.measuring.measurement import RATE, Measurement

FILE_BYTES = 64 << 20
"""Of a log file: no process maps a full file, so that the kernel lets go of their pages."""
OLD_MESSAGES = 512_000
BODY_BYTES = 1024
PULLED_PER_S = 32_000
"""Messages. 37 MB a second: the pages that were dropped last longer than the run."""
RESIDENT_MAX = 0.2


def beside_disk_row(context: Context, target: Target) -> Measurement:
    """Return rate and latencies (us) of one connection's sends, while four connections pull a log that is on disk.

    Counts if the sends do, the pulls are answered, and at most a fifth of the log is in memory before them.
    """
    topic, loader = context.topic("on_disk"), context.loader(target.port)
    fill = loader.run("batch", topic=topic, create=True, size=BODY_BYTES, connections=8, depth=2, messages=OLD_MESSAGES)
    resident = drop_pages(target.store / "commitlog")
    if not fill["ok"] or resident > RESIDENT_MAX:
        return Measurement({}, ok=False, note=f"filled: {fill['ok']}, {resident:.0%} of the log in memory", raw=fill)
    pulls = {"topic": topic, "connections": 4, "depth": 1, "count": 32, "rate": PULLED_PER_S}
    with ThreadPoolExecutor(1) as beside:
        pulling = beside.submit(loader.run, "pull", **pulls, seconds=context.seconds + context.warmup_s + 1)
        sent = send_row("beside-disk", "send", connections=1, depth=1, size=200)(context, target)
        pulled = pulling.result()
    note = sent.note if pulled["ok"] else f"pulls: errors {pulled['errors']}, short {pulled['short_answers']}"
    values = {**sent.values, "pulled_per_s": float(pulled[RATE]), "pull_p99": latencies(pulled)["p99"]}
    return Measurement(values, ok=sent.ok and bool(pulled["ok"]), note=note, raw=sent.raw)


def drop_pages(folder: Path) -> float:
    """Have the kernel let go of the pages of these files. Returns the share that is in memory all the same."""
    paths = sorted(folder.iterdir())
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)  # a page that is not on disk stays
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    command = ["fincore", "--bytes", "--noheadings", "--output", "RES,SIZE", *map(str, paths)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return sum(map(int, told[::2])) / sum(map(int, told[1::2]))
