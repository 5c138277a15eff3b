"""An example service: it publishes each record of one topic into another a second later.

Each record comes once and in order, whichever processes die. `docs/adding-a-service.md` walks through this file.
"""

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from ringmq.broker.requests.turns import Steps
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import PortRow
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import StopFlag, WorkerSpec
from ringmq.ipc.workers import CpuClass, StopPhase, WorkerRow
from ringmq.native import lib
from ringmq.services.kit.clocks import wall_ms
from ringmq.services.kit.loop import Part, ServiceLoop
from ringmq.services.republisher import Republisher, find_target, following_copies
from ringmq.store.queue_reader import QueueReader

log = logging.getLogger(__name__)

SOURCE, TARGET = "EchoSource", "EchoTarget"
DELAY_MS = 1000
IDLE_MS = 500
"""Longest sleep. Shorter than the delay: a record that comes meanwhile is seen before it is due."""
RETRY_MS = 10
"""Sleep while nothing can be published."""

# -- the row ---------------------------------------------------------------------------------------------------

ECHO = WorkerRow(
    "echo", 24, __name__, StopPhase.CONTROL, CpuClass.SERVICE, is_optional=True, needs_master=True,
    port=PortRow("ringmq.services.arenas:republisher_bytes", lib.RMQ_PORT_ORDERED, weight=1, parked_max=4096),
)  # fmt: skip

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


# -- the shell: reads and submits --------------------------------------------------------------------------------


class Echo(Part):
    """The service between its start and its stop."""

    def __init__(self, plane: Plane, role: int) -> None:
        self._plane, self._role = plane, role
        self._republisher = Republisher(plane, role, self._recover, log.warning)
        self._pause_ms = RETRY_MS

    def turn(self, now_ms: int) -> bool:
        """Take completions, look at the source, do what the core says."""
        plane, republisher = self._plane, self._republisher
        source, target = find_target(plane, SOURCE), find_target(plane, TARGET)
        self._pause_ms = RETRY_MS if source and target else IDLE_MS
        if not source or not target or not republisher.collect():  # or it is behind a death or a refusal
            return False
        count = republisher.read(source.queue_slot)
        stored_ms = [republisher.batch.store_time_ms(number) for number in range(count)]
        match step(Looked(stored_ms), wall_ms()):
            case Publish(due):
                return republisher.publish(due, target) > 0  # 0: ring or arena is full
            case Sleep(wait_ms):
                self._pause_ms = wait_ms
        return False

    def sleep_ms(self, now_ms: int) -> int:
        """A completion rings the bell."""
        return 0 if self._republisher.port.has_answers else self._pause_ms

    def _recover(self, reader: QueueReader, lane: int) -> Steps[int]:
        """The plane is new: the copies on disk say where to go on."""
        target = find_target(self._plane, TARGET)
        assert target is not None, "turn has found it"
        return following_copies(self._plane, reader, target.queue_slot, self._role, lane)


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Echo until SIGTERM."""
    return ServiceLoop(plane, spec.role, [Echo(plane, spec.role)]).run(stop)


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
