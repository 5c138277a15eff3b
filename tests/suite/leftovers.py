"""A plugin of pytest: a file of tests ends all processes that it starts.

If a process is left 20 s after the last test of a file, that test fails. Its output names the command lines. The
processes are killed, because they would take CPU and ports from later tests.
"""

import os
import time
from collections.abc import Generator

import pytest

from tests.suite.groups import group_of
from tests.suite.processes import MARK, SHARED, ancestors, command_line, end, started_by, whole_command

END_S, POLL_S = 20.0, 0.1
KEPT_COMMANDS = (
    "multiprocessing.resource_tracker",
    "ringmq.ipc.program_image",
    "org.apache.spark.deploy.SparkSubmit",
    "sed --unbuffered /^WARNING: Using incubator modules/d",  # filters what that one says
    "pyspark.daemon",
)
"""Commands that a worker's process starts once. Later files use them, and they end with the worker."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """After the last test of a file, and after all teardowns, nothing runs that the file has started."""
    is_last = nextitem is None or nextitem.path != item.path
    marks = [os.environ[MARK]]
    if is_last_of_group(item, nextitem):
        marks.append(marks[0] + SHARED)
    try:
        yield
    except BaseException:
        if is_last:
            end(left_behind(marks))
        raise
    if is_last:
        wait_for_the_end(marks)


def wait_for_the_end(marks: list[str]) -> None:
    """Return when nothing is left; fail with the commands of what does not end."""
    deadline = time.monotonic() + END_S
    while left := left_behind(marks):
        if time.monotonic() > deadline:
            lines = "\n".join(f"{pid} {command_line(pid)}" for pid in left)
            end(left)
            pytest.fail(f"{len(left)} processes still run {END_S:g} s after the last test:\n{lines}", pytrace=False)
        time.sleep(POLL_S)  # poll


def left_behind(marks: list[str]) -> list[int]:
    """Processes with one of these marks, or without any, that no fixture has ended and no later file uses."""
    found = started_by(os.getpid())
    return [pid for pid, mark in found.items() if (mark in marks or not mark) and not is_kept(pid)]


def is_kept(pid: int) -> bool:
    """True for a kept command that descends from this process. If its parent has died it is left behind."""
    return any(word in whole_command(pid) for word in KEPT_COMMANDS) and os.getpid() in ancestors(pid)


def is_last_of_group(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """True if no later test of the same group follows."""
    root = item.config.rootpath
    return nextitem is None or group_of(item.path, root) != group_of(nextitem.path, root)
