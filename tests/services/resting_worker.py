"""`services` and `delay` that rest after a moment. As a script it is a broker's command line whose rows of the two name
this module: `python resting_worker.py PYTHON -m MODULE ...`.
"""

import runpy
import sys

from msgspec.structs import replace

from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.workers import WORKERS
from ringmq.services import worker as services_worker
from ringmq.services.delay import worker as delay_worker

MODULE = "tests.services.resting_worker"
REST_AFTER_MS = 200
HOSTED = {"services": services_worker, "delay": delay_worker}


def run_broker(arguments: list[str]) -> None:
    """Exchange the modules of the rows, then run the command in this process."""
    for name in HOSTED:
        WORKERS._rows[name] = replace(WORKERS.row(name), module=MODULE)
    module = arguments.index("-m") + 1
    sys.argv = arguments[module:]
    runpy.run_module(arguments[module], run_name="__main__")


if __name__ == "__main__":
    if worker := HOSTED.get(sys.argv[1]):
        worker.REST_AFTER_MS = REST_AFTER_MS
        sys.exit(run_worker(sys.argv[1:], worker.serve))
    run_broker(sys.argv[1:])
