"""A plugin of pytest: a file of tests ends all that it starts.

If a process is left 20 s after the last test of a file, that test fails with the command lines of what is left, and the
processes are killed: they would take CPU and ports from the tests behind them.
"""

import os
import time
from collections.abc import Generator

import pytest

from tests.suite.groups import group_of
from tests.suite.processes import MARK, ancestors, command_line, end, pids_marked, whole_command
from tests.waiting import POLL_S

END_S = 20.0
KEPT_COMMANDS = (
    "multiprocessing.resource_tracker",
    "org.apache.spark.deploy.SparkSubmit",
    "sed --unbuffered /^WARNING: Using incubator modules/d",  # filters what that one says
    "pyspark.daemon",
)
"""Started once by a worker's process and used by the files behind: they end with the worker."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Behind the last test of a group, and behind all teardowns, nothing that the group started runs any more."""
    try:
        yield
    except BaseException:
        if is_last(item, nextitem):
            end(left_behind())
        raise
    if is_last(item, nextitem):
        wait_for_the_end()


def wait_for_the_end() -> None:
    """Return when nothing is left; fail with the commands of what does not end."""
    deadline = time.monotonic() + END_S
    while left := left_behind():
        if time.monotonic() > deadline:
            lines = "\n".join(f"{pid} {command_line(pid)}" for pid in left)
            end(left)
            pytest.fail(f"still running {END_S:g} s behind the last test of the file:\n{lines}", pytrace=False)
        time.sleep(POLL_S)  # poll


def left_behind() -> list[int]:
    """Processes of this worker that no fixture has ended and no later file uses."""
    return [pid for pid in pids_marked(os.environ[MARK]) if not is_kept(pid)]


def is_kept(pid: int) -> bool:
    """True for what this process, or a kept process of it, has started. If its parent has died it is left behind."""
    return any(word in whole_command(pid) for word in KEPT_COMMANDS) and os.getpid() in ancestors(pid)


def is_last(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """True if no later test of the same group follows."""
    root = item.config.rootpath
    return nextitem is None or group_of(item.path, root) != group_of(nextitem.path, root)
