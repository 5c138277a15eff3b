"""Servers that tests of several folders share (`tests/server_pool.py`), and what servers said before a failure.

`tests/suite` spreads the tests over workers, records what they do and judges the run.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from ringmq.loadtest.load.program import fork_programs
from tests.suite.groups import group_of, uses_stock

if TYPE_CHECKING:
    from tests.server_pool import ServerPool

if sys.dont_write_bytecode:  # a worker takes 8 s to collect compiled tests, 27 s if it has to compile them
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(Path(__file__).parents[1] / "build" / "pycache")

pytest_plugins = (
    "tests.suite.spread", "tests.suite.recorder", "tests.suite.leftovers", "tests.suite.needs", "tests.suite.samples",
)  # fmt: skip

POOL = pytest.StashKey["ServerPool"]()
LOG_TAIL_BYTES = 3000
LOGS_SHOWN = 4
TICK_S = 0.02


class LogLines(logging.Handler):
    """Keeps the texts of log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))


def pytest_configure(config: pytest.Config) -> None:
    """Servers and commands of the tests are forked from an image of programs. No example of hypothesis is too slow."""
    fork_programs()
    settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any speed")


@pytest.fixture
def log_text() -> Iterator[Callable[[], str]]:
    """The lines that this process has logged since the last call, without time, level and worker."""
    lines, logger = LogLines(), logging.getLogger("ringmq")
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.DEBUG)

    def taken() -> str:
        texts, lines.texts = lines.texts, []
        return "".join(f"{text}\n" for text in texts)

    yield taken
    logger.removeHandler(lines)
    logger.setLevel(level)


@pytest.fixture(scope="session")
def shared_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ServerPool]":
    """`shared_servers("ringmq" or "stock", "default" or "sync")`: one server of each for all tests that share well."""
    from tests.server_pool import ServerPool  # here: the tests without compiled code shut it out before any import

    pool = request.session.stash[POOL] = ServerPool(tmp_path_factory.mktemp)
    yield pool
    pool.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """After a group that shares servers no test needs them: later tests measure time and memory. The stock broker is
    closed behind the files that use it."""
    root = item.config.rootpath
    try:
        yield
    finally:
        if POOL in item.session.stash:
            if nextitem is None or group_of(nextitem.path, root) != group_of(item.path, root):
                item.session.stash[POOL].close()
            elif uses_stock(item.path, root) and not uses_stock(nextitem.path, root):
                item.session.stash[POOL].close_kind("stock")


def logs_written(folder: Path, since_s: float) -> list[Path]:
    """Logs of servers below a folder of tests that have changed since a moment, the newest first.

    A file's time is that of the kernel's last tick, which may lie some milliseconds before the write.
    """
    found: list[tuple[float, Path]] = []
    for where, _, names in os.walk(folder):
        for path in (Path(where, name) for name in names if name == "log" or name.endswith(".log")):
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, path))
    return [path for changed, path in sorted(found, reverse=True) if changed >= since_s - TICK_S]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Beside a failure stands what the servers said meanwhile."""
    report = yield
    if report.failed:
        base: Path = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        for path in logs_written(base, call.start)[:LOGS_SHOWN]:
            with contextlib.suppress(OSError):  # a server may remove its log meanwhile
                tail = path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
                report.sections.append((f"end of {path.relative_to(base)}", tail))
    return report
