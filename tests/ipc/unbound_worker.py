"""A worker that prints its process id and never binds itself to its supervisor.

`python -m tests.ipc.unbound_worker supervisor` is a supervisor that has started one.
"""

import os
import signal
import sys
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from ringmq.ipc.supervisor import Supervisor
from ringmq.ipc.worker import WorkerSpec
from ringmq.ipc.workers import WORKERS, WorkerTable

MODULE = "tests.ipc.unbound_worker"


def supervise() -> None:
    words = SimpleNamespace(
        generation=0, bell=SimpleNamespace(sleeping=0), state=0, activation_requested=0, cpu=0, pid=0
    )
    plane: Any = SimpleNamespace(role=lambda number: words)
    table = WorkerTable(WORKERS.row("read-0"), (replace(WORKERS.row("flush"), module=MODULE),))
    supervisor = Supervisor(plane, [WorkerSpec("flush", 0, "plane", (0,), 0, 0, {})], (), table=table)
    supervisor._spawn("flush")
    signal.pause()


if __name__ == "__main__":
    if sys.argv[1] == "supervisor":
        supervise()
    print(os.getpid(), flush=True)
    signal.pause()
