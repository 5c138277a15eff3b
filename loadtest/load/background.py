"""The native load generator beside another load."""

import contextlib
import json
import subprocess
from collections.abc import Iterator

from ringmq.loadtest.load.tools import RUN_TIMEOUT_S, Report, ToolError, Tools, arguments_of


class BackgroundLoad:
    """`ringmq-load` beside another load. `report` waits for its end."""

    def __init__(self, tools: Tools, port: int, command: str, **options: object) -> None:
        self._command = command
        self._said: tuple[str, str] | None = None
        self._process = subprocess.Popen(
            [str(tools.load), command, *arguments_of({"port": port, **options})],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self, within_s: float) -> bool:
        """True if the load ends in time. 0 is too short for one that has ended long ago."""
        try:
            self._said = self._process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def report(self, timeout_s: float = RUN_TIMEOUT_S) -> Report:
        """Wait for the end and return the report. Raises ToolError without one."""
        if self._said is None and not self.ended(timeout_s):
            raise ToolError(f"ringmq-load {self._command} did not end in {timeout_s:g} s")
        out, error = self._said or ("", "")
        if not out:
            status = self._process.returncode
            raise ToolError(f"ringmq-load {self._command} ended with {status}: {error.strip()[-500:]}")
        report: Report = json.loads(out)
        return report

    def end(self) -> Report:
        """Have the load end now, and return its report. Raises ToolError without one."""
        if self._process.poll() is None:
            self._process.terminate()
        return self.report()

    def kill(self) -> None:
        """End the load if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def running(tools: Tools, port: int, command: str, **options: object) -> Iterator[BackgroundLoad]:
    """Yield a load that does not outlive the block."""
    found = BackgroundLoad(tools, port, command, **options)
    try:
        yield found
    finally:
        found.kill()
