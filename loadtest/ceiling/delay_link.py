"""A slow link between two processes of this machine: `ringmq-link`, a proxy in C, driven from Python.

The kernel's own delay (`tc netem`) is not everywhere; this one needs no rights. It delays each direction by the same
time at full bandwidth, holds a direction, or breaks the connection. TCP ends on both sides of it, so it shows what a
protocol makes of a long way, and nothing of what TCP's own windows make of it.
"""

import selectors
import subprocess
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from ringmq.loadtest.load.tools import ToolError, Tools, arguments_of

Command = Literal["hold-to", "hold-back", "flow", "reset", "close", "refuse", "accept", "count"]


@dataclass(frozen=True)
class LinkState:
    """When a command was carried out (CLOCK_MONOTONIC, as `time.monotonic_ns`) and what has passed so far."""

    at_ns: int
    bytes_to: int
    bytes_back: int


class DelayLink:
    """A running link to 127.0.0.1:`to_port`; connect to `port`."""

    def __init__(self, tools: Tools, to_port: int, *, delay_ms: float = 0.0, buffer_bytes: int | None = None) -> None:
        options: dict[str, object] = {"to": to_port, "delay_ms": delay_ms, "buffer_bytes": buffer_bytes}
        self.process = subprocess.Popen(
            [str(tools.link), *arguments_of(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self._line("ready", 30.0)[0])

    def _line(self, word: str, timeout_s: float) -> list[str]:
        """The numbers of the next line, which must begin with `word`."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            words = self.process.stdout.readline().split() if selector.select(timeout_s) else []
        if words[:1] != [word]:
            self.process.kill()
            raise ToolError(f"ringmq-link: wanted a line `{word} ...`, got {words}")
        return words[1:]

    def tell(self, command: Command) -> LinkState:
        """Carry a command out."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        at_ns, bytes_to, bytes_back = self._line(command, 10.0)
        return LinkState(int(at_ns), int(bytes_to), int(bytes_back))

    def close(self) -> None:
        """End it, and with it its connections."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def window_bytes(bytes_per_s: float, round_trip_ms: float, report_ms: float = 2.0) -> int:
    """The least window (haWindowBytes) that keeps a link busy: bandwidth x (round trip + time until the slave reports).

    A power of two, so that a figure measured on a good day still fits on a better one.
    """
    wanted = bytes_per_s * (round_trip_ms + report_ms) / 1000
    return 1 << max(16, int(wanted).bit_length())


def seconds_since(at_ns: int) -> float:
    """Seconds since a LinkState's time."""
    return (time.monotonic_ns() - at_ns) / 1e9
