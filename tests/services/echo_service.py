"""An example service: it publishes each record of one topic into another a second later.

Each record comes once and in order, whichever processes die. `docs/adding-a-service.md` walks through this file.
"""

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from ringmq.broker.requests.turns import Steps
from ringmq.ipc.exit_status import EXIT_CLEAN
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import PortRow
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING, StopFlag, WorkerSpec
from ringmq.ipc.workers import CpuClass, StopPhase, WorkerRow
from ringmq.native import lib
from ringmq.services.republisher import QueueTarget, Republisher, find_target, following_copies
from ringmq.store.queue_reader import QueueReader

log = logging.getLogger(__name__)

SOURCE, TARGET = "EchoSource", "EchoTarget"
DELAY_MS = 1000
IDLE_MS = 500
"""Longest sleep. Shorter than the delay: a record that comes meanwhile is seen before it is due."""

# -- the row ---------------------------------------------------------------------------------------------------


ECHO = WorkerRow(
    "echo",
    24,
    __name__,
    StopPhase.CONTROL,
    CpuClass.SERVICE,
    is_optional=True,
    of="master",
    port=PortRow("ringmq.services.arenas:republisher_bytes", lib.RMQ_PORT_ORDERED, weight=1, parked_max=4096),
)

# -- the core: policy without IO -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Looked:
    """Event: when the next records of the source were stored, the oldest first."""

    stored_ms: Sequence[int]


@dataclass(frozen=True, slots=True)
class Publish:
    """Effect: publish so many of them."""

    count: int


@dataclass(frozen=True, slots=True)
class Sleep:
    """Effect: nothing is due for so long."""

    wait_ms: int


def step(event: Looked, now_ms: int) -> Publish | Sleep:
    """The records that were stored a second ago are due. No record overtakes an older one."""
    due = sum(1 for _ in takewhile(lambda stored_ms: stored_ms + DELAY_MS <= now_ms, event.stored_ms))
    if due:
        return Publish(due)
    wait_ms = event.stored_ms[0] + DELAY_MS - now_ms if event.stored_ms else IDLE_MS
    return Sleep(min(wait_ms, IDLE_MS))


# -- the shell: reads, sleeps and submits ----------------------------------------------------------------------


class Shell:
    """The process of the service between its start and its stop."""

    def __init__(self, plane: Plane, role: int, source: QueueTarget, target: QueueTarget) -> None:
        self._plane, self._role, self._source, self._target = plane, role, source, target
        self._republisher = Republisher(plane, role, self._recover, log.warning)

    def turn(self) -> None:
        """Take completions, look at the source, do what the core says."""
        republisher = self._republisher
        if not republisher.collect():  # behind a death or a refusal
            republisher.wait(10)
            return
        self._target = find_target(self._plane, TARGET) or self._target  # it may have been deleted and made again
        count = republisher.read(self._source.queue_slot)
        stored_ms = [republisher.batch.store_time_ms(number) for number in range(count)]
        match step(Looked(stored_ms), time.time_ns() // 1_000_000):
            case Publish(due):
                if not republisher.publish(due, self._target):
                    republisher.wait(10)  # ring or arena is full
            case Sleep(wait_ms):
                republisher.wait(wait_ms)

    def _recover(self, reader: QueueReader, lane: int) -> Steps[int]:
        """The plane is new: the copies on disk say where to go on."""
        return following_copies(self._plane, reader, self._target.queue_slot, self._role, lane)


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Echo until SIGTERM."""
    role, shell = plane.role(spec.role), None
    role.state = STATE_SERVING
    while not stop.is_set:
        role.progress += 1
        if shell is not None:
            shell.turn()
        elif (source := find_target(plane, SOURCE)) and (target := find_target(plane, TARGET)):
            shell = Shell(plane, spec.role, source, target)
        else:
            plane.wait(spec.role, IDLE_MS)
    role.state = STATE_STOPPING
    return EXIT_CLEAN


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
