"""Entry point of the replication worker: `python -m ringmq.ha.worker NAME SPEC`.

NAME is `ha` on a master, which sends its log to slaves, and `ha-slave` on a slave, which appends what its master sends.
"""

import sys

from ringmq.ipc.exit_status import EXIT_USAGE
from ringmq.ipc.role_loop import RoleError
from ringmq.ipc.worker import WorkerSpec, open_worker


def main(arguments: list[str]) -> int:
    """Run the worker that the arguments describe; the exit status is for the supervisor."""
    spec = WorkerSpec.from_json(arguments[1])
    plane, stop = open_worker(spec)
    try:
        match spec.name:
            case "ha":
                from ringmq.ha.master_shell import serve_master

                serve_master(spec, plane)
            case "ha-slave":
                from ringmq.ha.slave_shell import serve_slave

                return serve_slave(spec, plane, stop)
            case _:
                print(f"ringmq: there is no worker {spec.name}", file=sys.stderr)
                return EXIT_USAGE
    except RoleError as error:
        print(f"ringmq: {error}", file=sys.stderr, flush=True)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
