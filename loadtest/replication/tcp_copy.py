"""The rate of a file copy through loopback TCP: the reference of a replica's catch-up, and of a link."""

import subprocess
from pathlib import Path

from ringmq.loadtest.ceiling.delay_link import DelayLink
from ringmq.loadtest.load.tools import ToolError, Tools, arguments_of, run_json

COPY_TIMEOUT_S = 300.0


def copy_rate(tools: Tools, source: Path, target: Path, *, delay_ms: float | None = None) -> float:
    """Return bytes/s of `source` into the new file `target` (removed again), through a link with `delay_ms`.

    The sender sends from its mapping, the receiver writes. The clock stops when the sender knows that all is written.
    """
    size_bytes = source.stat().st_size
    words = [str(tools.ceiling), "copy-in", *arguments_of({"log": target, "log_bytes": size_bytes})]
    receiver = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert receiver.stdout is not None
        ready = receiver.stdout.readline().split()
        if ready[:1] != ["ready"]:
            raise ToolError("ringmq-ceiling copy-in did not start")
        port = int(ready[1])
        if delay_ms is None:
            seconds = _send(tools, source, port)
        else:
            with DelayLink(tools, port, delay_ms=delay_ms) as link:
                seconds = _send(tools, source, link.port)
    finally:
        receiver.kill()
        receiver.communicate()
        target.unlink(missing_ok=True)
    return size_bytes / seconds


def _send(tools: Tools, source: Path, port: int) -> float:
    words = [str(tools.ceiling), "copy-out", *arguments_of({"log": source, "port": port})]
    return float(run_json(words, COPY_TIMEOUT_S)["seconds"])
