"""The smallest service: it copies one queue into another, each record once and in order, whichever process dies."""

import sys

from ringmq.broker.requests.turns import Steps
from ringmq.ipc.exit_status import EXIT_CLEAN
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import PortRow
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING, StopFlag, WorkerSpec
from ringmq.ipc.workers import CpuClass, StopPhase, WorkerRow
from ringmq.native import lib
from ringmq.services.republisher import Republisher, find_target, following_copies
from ringmq.store.queue_reader import QueueReader

SOURCE, TARGET = "Source", "Target"
WAIT_MS, BATCH = 10, 32
COPY = WorkerRow(
    "copy", 24, __name__, StopPhase.CONTROL, CpuClass.SERVICE, is_optional=True,
    port=PortRow("ringmq.services.arenas:republisher_bytes", lib.RMQ_PORT_ORDERED, weight=1),
)  # fmt: skip


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Copy until SIGTERM."""
    role = plane.role(spec.role)
    role.state = STATE_SERVING
    while not stop.is_set and None in (found := [find_target(plane, topic) for topic in (SOURCE, TARGET)]):
        role.progress += 1
        plane.wait(spec.role, WAIT_MS)
    if not stop.is_set:
        source, target = found
        assert source and target

        def recover(reader: QueueReader, lane: int) -> Steps[int]:
            return following_copies(plane, reader, target.queue_slot, spec.role, lane)

        copier = Republisher(plane, spec.role, recover, lambda text: print(f"copy: {text}", flush=True), batch=BATCH)
        while not stop.is_set:
            role.progress += 1
            if not (copier.collect() and copier.publish(copier.read(source.queue_slot), target)):
                copier.wait(WAIT_MS)
    role.state = STATE_STOPPING
    return EXIT_CLEAN


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
