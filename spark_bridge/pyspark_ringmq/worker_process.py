"""Settings of the Python process that runs this source, which Spark reuses for later tasks and plans."""

import functools
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

SPARK_DAEMON = "pyspark.daemon"


@functools.cache
def freeze_imports() -> None:
    """Take what lives now out of the garbage collector's sight; to be called once everything is imported.

    Spark's daemon collects after each task. With Spark and Arrow imported that takes 25 ms, in which the worker
    cannot start its next task.
    """
    gc.freeze()


def task_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches of one task, in its worker's main thread.

    While Spark reads a batch, a broken pipe ends the process silently. Spark closes the socket only if it wants no
    more (`limit`, a cancelled task), and does not reuse the worker. Spark's own handling would print two stack
    traces.
    """
    batch = next(batches, None)
    while batch is not None:
        before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            yield batch
        finally:
            signal.signal(signal.SIGPIPE, before)
        batch = next(batches, None)
    freeze_imports()


def exit_quietly() -> None:
    """Have this process, if Spark's daemon has forked it, end without a word once it waits for work and none comes.

    A session that stops closes the sockets of idle workers before it ends them. Spark's daemon takes that for a
    broken task and prints its stack traces. Errors within a task are reported as ever.
    """
    daemon = sys.modules["__main__"]
    take_task = getattr(daemon, "worker", None)
    if getattr(getattr(daemon, "__spec__", None), "name", None) != SPARK_DAEMON or take_task is None:
        return

    def wait_for_task(sock: socket.socket, authenticated: bool) -> Any:
        try:
            closed = not sock.recv(1, socket.MSG_PEEK)  # Spark always speaks first
        except ConnectionResetError:
            closed = True
        if closed:
            os._exit(0)
        return take_task(sock, authenticated)

    daemon.worker = wait_for_task  # type: ignore[attr-defined]
