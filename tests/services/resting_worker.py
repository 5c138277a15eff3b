"""`services` that rests after a moment. As a script it is a broker's command line whose row of `services` names this
module: `python resting_worker.py PYTHON -m MODULE ...`.
"""

import runpy
import sys
from dataclasses import replace

from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.workers import WORKERS
from ringmq.services import worker

MODULE = "tests.services.resting_worker"
REST_AFTER_MS = 200


def run_broker(arguments: list[str]) -> None:
    """Exchange the module of the row, then run the command in this process."""
    WORKERS._rows["services"] = replace(WORKERS.row("services"), module=MODULE)
    module = arguments.index("-m") + 1
    sys.argv = arguments[module:]
    runpy.run_module(arguments[module], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == "services":
        worker.REST_AFTER_MS = REST_AFTER_MS
        sys.exit(run_worker(sys.argv[1:], worker.serve))
    run_broker(sys.argv[1:])
