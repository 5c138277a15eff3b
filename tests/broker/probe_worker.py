"""A worker that is no part of RingMQ: a test registers it, gives it orders by files, and reads what it has written.

As a script it is a broker's command line with rows of its own: `python probe_worker.py ROWS PYTHON -m MODULE ...`.
"""

import os
import pickle
import runpy
import socket
import sys
import time
from pathlib import Path
from typing import Any

from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_RESTART_STORE, EXIT_RESTED
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING, StopFlag, WorkerSpec
from ringmq.ipc.workers import WORKERS

FOLDER = "PROBE_WORKER_FOLDER"
TURN_S = 0.01


def folder() -> Path:
    """Orders and notes of all probes of one test."""
    return Path(os.environ[FOLDER])


def listen_for_probe(config: Any, request: Any) -> socket.socket:
    """What a row names as `listener`."""
    listener = socket.create_server(("127.0.0.1", 0))
    (folder() / "port").write_text(str(listener.getsockname()[1]))
    return listener


def has_open_work(config: Any, store_root: Path) -> bool:
    """What a row names as `needed_at_once`."""
    assert (store_root / "commitlog").is_dir(), "the store is open"
    if (folder() / "unknown").exists():
        raise PermissionError("nobody may look")
    return (folder() / "open-work").exists()


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Turn until SIGTERM, or until an order says otherwise."""
    role = plane.role(spec.role)
    order = folder() / f"{spec.name}-order"
    if order.exists() and order.read_text() == "die before it serves":
        return 3
    role.state = STATE_SERVING
    while not stop.is_set:
        role.progress += 1
        words = order.read_text().split() if order.exists() else []
        match words:
            case ["die"]:
                return 3
            case ["reopen"]:
                order.unlink()
                return EXIT_RESTART_STORE
            case ["want", other]:
                order.unlink()
                plane.activate(int(other))
            case ["rest"]:
                order.unlink()
                plane.deactivate(spec.role)
                return EXIT_RESTED
            case ["rest", "slowly"]:
                plane.deactivate(spec.role)
                order.unlink()
                while not (folder() / "end").exists():
                    time.sleep(TURN_S)  # poll
                return EXIT_RESTED
        time.sleep(TURN_S)  # poll
    with (folder() / "stops").open("a") as notes:
        notes.write(f"{spec.name} {plane.watermarks.stop_requested}\n")
    role.state = STATE_STOPPING
    return EXIT_CLEAN


def run_broker(arguments: list[str]) -> None:
    """Register rows, then run the command behind them in this process."""
    for row in pickle.loads(Path(arguments[0]).read_bytes()):
        WORKERS.add(row)
    module = arguments.index("-m") + 1
    sys.argv = arguments[module:]
    runpy.run_module(arguments[module], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1].endswith(".rows"):
        run_broker(sys.argv[1:])
    else:
        sys.exit(run_worker(sys.argv[1:], serve))
