"""The native load generator, and in a checkout ceiling and link: built once into the cache, run as child processes."""

import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringmq.loadtest.stock.java import cache_dir

SOURCES = Path(__file__).with_name("native")
CEILING_SOURCES = Path(__file__).parents[1] / "ceiling/native"
"""The sources of ceiling and link, in a checkout alone."""
BUILD_TIMEOUT_S = 300
RUN_TIMEOUT_S = 900.0
CHECKED = 2  # exit status of ringmq-load when the run ended but not everything was right
Report = dict[str, Any]


class ToolError(RuntimeError):
    """A native tool could not be built or did not run. The text has its output."""


@dataclass(frozen=True)
class Tools:
    """Paths of the programs. `ceiling` and `link` exist in a checkout alone."""

    load: Path
    ceiling: Path
    link: Path


def build_tools() -> Tools:
    """Compile the tools (gcc, make, liburing) unless these sources were compiled before."""
    folders = [folder for folder in (SOURCES, CEILING_SOURCES) if folder.is_dir()]
    digest = hashlib.sha256()
    for source in sorted(path for folder in folders for path in (*folder.glob("*.[ch]"), folder / "Makefile")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    out = cache_dir() / f"native-{digest.hexdigest()[:12]}"
    tools = Tools(out / "ringmq-load", out / "ringmq-ceiling", out / "ringmq-link")
    with (cache_dir() / "native.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if out.exists():
            return tools
        if shutil.which("make") is None:
            raise ToolError("`make` and a C compiler are needed to build the load generator")
        part = out.with_suffix(".part")
        for folder in folders:
            words = ["make", "-s", "-C", str(folder), f"OUT={part}"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
            if done.returncode != 0:
                raise ToolError(f"the load generator does not build (liburing-dev missing?):\n{done.stderr[-2000:]}")
        part.rename(out)
    return tools


def arguments_of(options: dict[str, object]) -> list[str]:
    """Return the command line of keyword options: `check_keys=5` is `--check-keys 5`, True a flag, None nothing."""
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
        """Run one command and return its report, with `ok` false after a fault.

        Raises `ToolError` if it did not run.
        """
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
