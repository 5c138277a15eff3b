"""`ringmq-ceiling` as a child process: a server that only copies, and the rate of fdatasync."""

import selectors
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ringmq.loadtest.load.tools import ToolError, Tools, arguments_of, run_json


class CeilingServer:
    """A running ringmq-ceiling. `mode` is "serve" (needs `log`) or "pull". `port` is its port."""

    def __init__(
        self,
        tools: Tools,
        mode: str,
        *,
        log: Path | None = None,
        log_bytes: int | None = None,
        cpus: Sequence[int] = (),
    ) -> None:
        words = [str(tools.ceiling), mode, *arguments_of({"log": log, "log_bytes": log_bytes})]
        if cpus:
            words = ["taskset", "-c", ",".join(map(str, cpus)), *words]
        self._log = log
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.port = self._wait_ready(30.0)

    def _wait_ready(self, timeout_s: float) -> int:
        assert self.process.stdout is not None and self.process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            deadline = time.monotonic() + timeout_s
            line = self.process.stdout.readline() if selector.select(deadline - time.monotonic()) else ""
        if not line.startswith("ready "):
            self.process.kill()
            _, said = self.process.communicate()
            raise ToolError(f"ringmq-ceiling did not start: {said.strip()}")
        return int(line.split()[1])

    def stop(self) -> None:
        """End the server and remove its log."""
        self.process.terminate()
        self.process.communicate(timeout=30)
        if self._log is not None:
            self._log.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def fdatasync_rate(tools: Tools, log: Path, seconds: int = 3, write_bytes: int = 4096) -> float:
    """Return fdatasync calls per second beside `log`, each after a write of `write_bytes` to a mapped file."""
    words = [str(tools.ceiling), "fdatasync", *arguments_of({"log": log, "seconds": seconds, "write": write_bytes})]
    try:
        return float(run_json(words, seconds + 60.0)["fdatasync_per_s"])
    finally:
        log.unlink(missing_ok=True)
