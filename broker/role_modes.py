"""The workers and the parts of control that change with the role: steps of `ha/tenure_core.py`, performed.

The workers act by the word of the tenure alone, so a step only looks whether they have. Each step may run twice.
docs/decisions/tenure.md has the order of the stores.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ringmq.broker.core import Broker
from ringmq.broker.replication.missing_queues import MissingQueues
from ringmq.broker.replication.slave_role import SlaveRole
from ringmq.broker.side_words import show_other_side
from ringmq.ha.control_messages import Master
from ringmq.ha.tenure_events import Step, StepDone, StepFailed
from ringmq.ipc.errors import PlaneFullError
from ringmq.ipc.plane import Plane
from ringmq.ipc.tenure import Tenure, TenureState, tenure_of
from ringmq.ipc.workers import WorkerRow
from ringmq.native import lib

log = logging.getLogger(__name__)


class RoleModes:
    """Performs the steps, and holds the part of a slave. `ControlLoop` calls `outcomes` in each turn.

    take_config: gives the configuration in use the role of a master (True), or of a slave.
    """

    def __init__(
        self,
        plane: Plane,
        broker: Broker,
        rows: Iterable[WorkerRow],
        *,
        make_slave: Callable[[], SlaveRole],
        resume_hold: Callable[[], None],
        load_files: Callable[[], None],
        take_config: Callable[[bool], None],
    ) -> None:
        self._plane, self._broker = plane, broker
        self._rows = tuple(row for row in rows if row.ends_when_idle)
        self._make_slave, self._resume_hold, self._load_files = make_slave, resume_hold, load_files
        self._take_config = take_config
        self._step: Step | None = None
        self._state: TenureState | None = None
        """The state that was published last. None until the first change."""
        self._missing = MissingQueues(plane, broker.tables, broker.deletions)
        self._failed: list[StepDone | StepFailed] = []
        self._to_start: dict[int, int] = {}
        """Role of a service -> its generation on the old side."""

    # -- the word ------------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Start the services of the word's side: a dead control may have published it, and not have started them. Those
        without work rest again."""
        state = tenure_of(self._plane.watermarks).state
        if state in (TenureState.MASTER, TenureState.SLAVE):
            self._start_services(is_master=state is TenureState.MASTER)

    def publish(self, tenure: Tenure) -> None:
        """Store the word, with what belongs to it before and behind."""
        before, self._state = self._state, tenure.state
        if tenure.state is TenureState.YIELDING:
            self._take_config(False)  # ha reads it as soon as the journal is its own
        self._plane.publish_tenure(tenure)
        if tenure.state is TenureState.MASTER:
            self._end_slave()
            self._start_services(is_master=True)
        elif tenure.state is TenureState.SLAVE and self._broker.slave is None:
            self._broker.slave = self._make_slave()
            self._start_services(is_master=False)
        log.info("the tenure is %s of epoch %d, before %s", tenure.state.name, tenure.epoch, before and before.name)

    def _end_slave(self) -> None:
        slave, self._broker.slave = self._broker.slave, None
        if slave is not None:
            slave.close(0)
            self._broker.replication.view.show_master(False)
            self._broker.offsets.committed_here.clear()

    def _start_services(self, *, is_master: bool) -> None:
        """Services of the old side end by themselves, and forget the word that starts them: they are started behind
        that."""
        rows = [row for row in self._rows if is_master or not row.needs_master]
        self._to_start = {row.role: int(self._plane.role(row.role).generation) for row in rows}

    # -- steps ---------------------------------------------------------------------------------------------------------

    def order(self, step: Step) -> None:
        """Begin a step. It takes the place of one under way."""
        self._step, self._failed = step, []
        try:
            self._begin(step)
        except OSError as error:
            self._step, self._failed = None, [StepFailed(step, str(error))]

    def _begin(self, step: Step) -> None:
        if step is Step.STAND:
            self._plane.activate(lib.RMQ_ROLE_HA)
        elif step is Step.WRITE:
            self._missing.begin()
        elif step is Step.SERVE:
            self._take_config(True)
            show_other_side(self._plane, self._broker.config, follows=False)
            self._resume_hold()
            self._broker.admission.take()
        elif step is Step.RECEIVE:
            self._broker.replication.yield_()
            self._broker.admission.yield_()
            show_other_side(self._plane, self._broker.config, follows=True)

    def outcomes(self) -> list[StepDone | StepFailed]:
        """Steps that have ended since the last call."""
        self._start_due()
        found, self._failed = self._failed, []
        step = self._step
        if step is None:
            return found
        try:
            if self._is_done(step):
                self._step = None
                found.append(StepDone(step, int(self._plane.watermarks.append_offset)))
        except (OSError, PlaneFullError) as error:
            self._step = None
            found.append(StepFailed(step, str(error)))
        return found

    def _is_done(self, step: Step) -> bool:
        plane = self._plane
        match step:
            case Step.STAND:
                return bool(lib.rmq_journal_has_passed(plane.struct))
            case Step.WRITE:
                return self._missing.are_made() and bool(lib.rmq_journal_has_opened(plane.struct))
            case Step.CLOSE:
                if any(row.needs_master and plane.role(row.role).pid for row in self._rows):
                    return False
                self._load_files()
            case Step.RECEIVE:
                # in TAKING write has the journal until the word says SLAVE
                is_taking = self._broker.live.follows_master
                return is_taking or bool(lib.rmq_journal_has_opened(plane.struct))
        return True

    def _start_due(self) -> None:
        """Start services whose process of the old side has ended."""
        for role, generation in list(self._to_start.items()):
            block = self._plane.role(role)
            if not block.pid or int(block.generation) != generation:
                del self._to_start[role]
                self._plane.activate(role)

    # -- the connection to a master ------------------------------------------------------------------------------------

    def follow(self, master: Master) -> None:
        """See `tenure_role.MasterLink`. A master has no such connection."""
        if self._broker.slave is not None:
            self._broker.slave.follow(master)

    def unfollow(self) -> None:
        """See `tenure_role.MasterLink`."""
        if self._broker.slave is not None:
            self._broker.slave.unfollow()
