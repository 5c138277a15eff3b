"""The native load generator, ceiling and link: built once into the cache, run as child processes; they print JSON."""

import fcntl
import hashlib
import json
import selectors
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ringmq.loadtest.stock.java import cache_dir

SOURCES = Path(__file__).with_name("native")
BUILD_TIMEOUT_S = 300
RUN_TIMEOUT_S = 900.0
CHECKED = 2  # exit status of ringmq-load when the run ended but not everything was right
Report = dict[str, Any]


class ToolError(RuntimeError):
    """A native tool could not be built or did not run; the text carries what it said."""


@dataclass(frozen=True)
class Tools:
    """Paths of the programs."""

    load: Path
    ceiling: Path
    link: Path


def build_tools() -> Tools:
    """Compile the tools (gcc, make, liburing) unless these sources were compiled before."""
    digest = hashlib.sha256()
    for source in sorted([*SOURCES.glob("*.[ch]"), SOURCES / "Makefile"]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    out = cache_dir() / f"native-{digest.hexdigest()[:12]}"
    tools = Tools(out / "ringmq-load", out / "ringmq-ceiling", out / "ringmq-link")
    with (cache_dir() / "native.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(path.exists() for path in (tools.load, tools.ceiling, tools.link)):
            return tools
        if shutil.which("make") is None:
            raise ToolError("`make` and a C compiler are needed to build the load generator")
        part = out.with_suffix(".part")
        done = subprocess.run(
            ["make", "-s", "-C", str(SOURCES), f"OUT={part}"], capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
        )
        if done.returncode != 0:
            raise ToolError(f"the load generator does not build (liburing-dev missing?):\n{done.stderr[-2000:]}")
        part.rename(out)
    return tools


def arguments_of(options: dict[str, object]) -> list[str]:
    """Command line of keyword options: `check_keys=5` is `--check-keys 5`, True a flag, None nothing."""
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


class Loader:
    """Runs ringmq-load against one broker."""

    def __init__(self, tools: Tools, port: int, pin: int | None = None, timeout_s: float = RUN_TIMEOUT_S) -> None:
        self._tools = tools
        self._port = port
        self._pin = pin
        self._timeout_s = timeout_s

    def run(self, command: str, **options: object) -> Report:
        """Run one command; its report, with `ok` false when something went wrong. `ToolError` when it did not run."""
        words = [str(self._tools.load), command, *arguments_of({"port": self._port, "pin": self._pin, **options})]
        return run_json(words, self._timeout_s, accept=(0, CHECKED))


def run_json(words: Sequence[str], timeout_s: float, accept: Sequence[int] = (0,)) -> Report:
    """Run a program that prints one JSON object."""
    try:
        done = subprocess.run(list(words), capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise ToolError(f"{Path(words[0]).name} did not end in {timeout_s} s") from None
    if done.returncode not in accept:
        raise ToolError(f"{Path(words[0]).name} ended with {done.returncode}: {done.stderr.strip()[-1000:]}")
    report: Report = json.loads(done.stdout)
    return report


class CeilingServer:
    """A running ringmq-ceiling. `mode` is "serve" (needs `log`) or "pull"; `port` is the one it took."""

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
        """End it and remove its log."""
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
    """fdatasync calls per second on the file system of `log`, each after writing `write_bytes` to a mapped file."""
    words = [str(tools.ceiling), "fdatasync", *arguments_of({"log": log, "seconds": seconds, "write": write_bytes})]
    try:
        return float(run_json(words, seconds + 60.0)["fdatasync_per_s"])
    finally:
        log.unlink(missing_ok=True)
