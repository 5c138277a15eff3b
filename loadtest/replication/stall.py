"""A row about a slave that stops for a minute under load: the growth of the master's memory."""

import threading
import time
from pathlib import Path

from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.load.process_stats import private_bytes
from ringmq.loadtest.load.tools import Report
from ringmq.loadtest.measuring.measurement import Measurement
from ringmq.loadtest.replication.pairs import ASYNC_MASTER
from ringmq.loadtest.replication.rows import open_pair

MIB = 1 << 20
LOAD_RATE = 20_000  # messages/s of 200 B: 60 s write half a gigabyte
SETTLE_LOAD_MAX_S = 3.0  # buffers are as large as they get under this load
CATCH_UP_TIMEOUT_S = 120.0


def stall_row(context: Context, system: str) -> Measurement:
    """Measure the largest growth of the master's private memory, and of all TCP buffers, after SIGSTOP of the slave.

    Counts if production continued meanwhile and the slave caught up afterwards with the same log.
    """
    with open_pair(context, system, ASYNC_MASTER) as pair:
        reports: list[Report] = []
        topic = context.topic("stall")
        settle_s = min(SETTLE_LOAD_MAX_S, context.stall_s)
        seconds = context.stall_s + 2 * settle_s

        def load() -> None:
            loader = context.loader(pair.port)
            options = {"connections": 16, "depth": 64, "size": 200, "rate": LOAD_RATE, "seconds": seconds}
            reports.append(loader.run("send", topic=topic, create=True, **options))

        producer = threading.Thread(target=load)
        producer.start()
        time.sleep(settle_s)
        master = pair.master.pids()
        before, tcp_before = private_bytes(master)["total"], tcp_bytes()
        grown, tcp_grown, behind = 0, 0, 0
        with pair.slave_stopped():
            end = time.monotonic() + context.stall_s
            while time.monotonic() < end:
                time.sleep(0.5)
                grown = max(grown, private_bytes(master)["total"] - before)
                tcp_grown = max(tcp_grown, tcp_bytes() - tcp_before)
            progress = pair.progress()
            behind = progress.end - progress.acknowledged
        producer.join()
        pair.wait_in_sync(CATCH_UP_TIMEOUT_S)
        ok = pair.same_logs() and bool(reports) and bool(reports[0]["ok"])
    values = {"grown_mib": grown / MIB, "tcp_grown_mib": tcp_grown / MIB, "behind_mib": behind / MIB}
    note = f"{behind / MIB:.0f} MiB behind, TCP buffers grew by {tcp_grown / MIB:.1f} MiB"
    return Measurement(values, ok=ok, note=note)


def tcp_bytes() -> int:
    """Return the kernel's memory for TCP sockets of this machine."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        words = line.split()
        if words[0] == "TCP:":
            return int(words[words.index("mem") + 1]) * 4096
    raise RuntimeError("/proc/net/sockstat has no line TCP:")
