"""Entry point of the replication worker: `python -m ringmq.ha.worker NAME SPEC`.

The worker sends the log to slaves while this broker is the master, and appends what a master sends while it follows
one. Between the sides it waits.
"""

import json
import sys
from pathlib import Path

from ringmq.ipc.exit_status import EXIT_CLEAN
from ringmq.ipc.journal import await_journal
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.tenure import is_master
from ringmq.ipc.worker import STATE_STOPPING, StopFlag, WorkerSpec


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Serve the side of the moment until the clean stop, or until the store has to be closed. Returns the exit
    status."""
    status = None
    while status is None:
        if is_master(plane.watermarks):
            from ringmq.ha.master_shell import send_log

            status = send_log(spec, plane, _properties(spec))
        elif await_journal(plane, spec.role, or_master=True):
            from ringmq.ha.slave_shell import follow

            status = follow(spec, plane, _properties(spec))
        elif not is_master(plane.watermarks):
            status = EXIT_CLEAN
    plane.role(spec.role).state = STATE_STOPPING
    return status


def _properties(spec: WorkerSpec) -> dict[str, str]:
    properties: dict[str, str] = json.loads(Path(spec.config_path).read_text())
    return properties


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
