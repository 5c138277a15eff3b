"""What this source asks of the Python process that runs it, one that Spark keeps for the next task or plan."""

import functools
import gc
import signal
from collections.abc import Iterator
from typing import Any


@functools.cache
def keep_imports() -> None:
    """Take what lives now out of the garbage collector's sight; to be called once everything is imported.

    Spark's daemon collects after each task: with Spark and Arrow imported that is 25 ms, in which the worker does not
    take its next task.
    """
    gc.freeze()


def given_to_spark(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches of one task, in its worker's main thread.

    While Spark has one, a broken pipe ends the process without a word. Spark closes the socket only when it wants no
    more (`limit`, a cancelled task) and does not use the worker again; Spark's own handling prints two stack traces.
    """
    batch = next(batches, None)
    while batch is not None:
        before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            yield batch
        finally:
            signal.signal(signal.SIGPIPE, before)
        batch = next(batches, None)
    keep_imports()
