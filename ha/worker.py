"""Entry point of the replication worker: `python -m ringmq.ha.worker NAME SPEC`.

NAME is `ha` on a master, which sends its log to slaves, and `ha-slave` on a slave, which appends what its master sends.
"""

import sys

from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import no_worker, run_worker
from ringmq.ipc.worker import StopFlag, WorkerSpec


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Run the worker of that name. Returns the exit status."""
    match spec.name:
        case "ha":
            from ringmq.ha.master_shell import serve_master

            serve_master(spec, plane)
        case "ha-slave":
            from ringmq.ha.slave_shell import serve_slave

            return serve_slave(spec, plane, stop)
        case _:
            raise no_worker(spec.name)
    return 0


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
