"""A slow link between two processes of this machine: `ringmq-link`, a proxy in C, driven from Python.

The kernel's own delay (`tc netem`) is not available everywhere. This proxy needs no rights. It delays each direction
by the same time at full bandwidth, holds a direction, or breaks the connection. TCP ends on both sides of it. So it
shows the effect of a long way on a protocol, and not the effect on TCP's own windows.
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
    """The time of a command (CLOCK_MONOTONIC, as `time.monotonic_ns`) and the bytes passed so far."""

    at_ns: int
    bytes_to: int
    bytes_back: int


class DelayLink:
    """A running link to 127.0.0.1:`to_port`. Clients connect to `port`."""

    def __init__(self, tools: Tools, to_port: int, *, delay_ms: float = 0.0, buffer_bytes: int | None = None) -> None:
        options: dict[str, object] = {"to": to_port, "delay_ms": delay_ms, "buffer_bytes": buffer_bytes}
        self.process = subprocess.Popen(
            [str(tools.link), *arguments_of(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self._line("ready", 30.0)[0])

    def _line(self, word: str, timeout_s: float) -> list[str]:
        """Return the numbers of the next line, which must begin with `word`."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            words = self.process.stdout.readline().split() if selector.select(timeout_s) else []
        if words[:1] != [word]:
            self.process.kill()
            raise ToolError(f"ringmq-link: wanted a line `{word} ...`, got {words}")
        return words[1:]

    def run(self, command: Command) -> LinkState:
        """Carry out a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        at_ns, bytes_to, bytes_back = self._line(command, 10.0)
        return LinkState(int(at_ns), int(bytes_to), int(bytes_back))

    def close(self) -> None:
        """End the link and its connections."""
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
    """Return the least haWindowBytes for a busy link: bandwidth x (round trip + time until the slave reports).

    The result is a power of two, so that a value measured on a good day still fits on a better one.
    """
    wanted = bytes_per_s * (round_trip_ms + report_ms) / 1000
    return 1 << max(16, int(wanted).bit_length())


def seconds_since(at_ns: int) -> float:
    """Return the seconds since a LinkState's time."""
    return (time.monotonic_ns() - at_ns) / 1e9
