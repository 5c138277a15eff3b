"""Control's steps of a change of the role, on a plane whose workers are played."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.role_modes import RoleModes
from ringmq.ha.control_messages import Master
from ringmq.ha.tenure_events import Step, StepDone, StepFailed
from ringmq.ipc.plane import Plane
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.ipc.workers import WORKERS
from ringmq.native import lib
from tests.broker.test_first_replication_state import first_plane

WRITE, HA = lib.RMQ_ROLE_WRITE, lib.RMQ_ROLE_HA
END = 4096
SERVICES = (lib.RMQ_ROLE_SERVICES, lib.RMQ_ROLE_DELAY, lib.RMQ_ROLE_TRANSACTIONS, lib.RMQ_ROLE_POP)


class Stage:
    """The steps, with parts of control that note their calls in `calls`."""

    def __init__(self, plane: Plane, config: Any) -> None:
        self.plane, self.journal, self.calls = plane, plane.header.ports.journal, list[str]()

        def noting(*names: str) -> Any:
            return SimpleNamespace(**{name: self._noting(name) for name in names})

        live = LiveConfig(config, plane.watermarks)
        self.broker: Any = SimpleNamespace(
            slave=None, config=config, live=live, tables=noting("publish_queue"), deletions=(),
            admission=noting("take", "yield_"),
            replication=SimpleNamespace(yield_=self._noting("no hold"), view=noting("show_master")),
            offsets=SimpleNamespace(committed_here={("G", "T", 0)}),
        )  # fmt: skip
        self._noting_all = noting
        self.replace_control()

    def replace_control(self) -> None:
        """A process of control that has begun nothing."""
        self.modes = RoleModes(
            self.plane, self.broker, WORKERS,
            make_slave=lambda: self._noting_all("close", "follow", "unfollow"),
            resume_hold=self._noting("hold"), load_files=self._noting("files"),
            take_config=lambda is_master: self.calls.append("config of a " + ("master" if is_master else "slave")),
        )  # fmt: skip

    def _noting(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)

    def publish(self, state: TenureState, epoch: int = 1) -> None:
        self.modes.publish(Tenure(state, epoch))

    def give(self, role: int) -> None:
        """The role gets the journal, and opens the log."""
        self.journal.owner = role
        lib.rmq_journal_opened(self.plane.struct)

    def taken(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls

    @property
    def words(self) -> tuple[int, int, int]:
        return (
            int(self.plane.watermarks.confirm_policy), int(self.plane.header.settings.sync_replication),
            int(self.plane.watermarks.replication_state),
        )  # fmt: skip


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with first_plane(tmp_path, {"brokerRole": "SYNC_MASTER"}) as (plane, config):
        plane.watermarks.append_offset = plane.watermarks.flushed_offset = END
        plane.watermarks.dispatched_offset = END
        yield Stage(plane, config)


def become_slave(stage: Stage) -> None:
    stage.publish(TenureState.YIELDING)
    stage.modes.order(Step.RECEIVE)
    stage.give(HA)
    stage.modes.outcomes()
    stage.publish(TenureState.SLAVE)
    stage.taken()


def test_a_demotion(stage: Stage) -> None:
    plane, modes = stage.plane, stage.modes
    as_master = stage.words
    stage.publish(TenureState.YIELDING)
    assert stage.taken() == ["config of a slave"], "ha reads it as soon as the journal is its own"
    modes.order(Step.STAND)
    assert plane.role(HA).activation_requested and modes.outcomes() == []
    stage.give(HA)
    assert modes.outcomes() == [StepDone(Step.STAND, END)] and modes.outcomes() == []
    plane.role(lib.RMQ_ROLE_POP).pid = 1
    modes.order(Step.CLOSE)
    assert modes.outcomes() == [], "it may still save"
    plane.role(lib.RMQ_ROLE_POP).pid = 0
    assert modes.outcomes() == [StepDone(Step.CLOSE, END)] and stage.taken() == ["files"]
    stage.journal.opened = 0
    modes.order(Step.RECEIVE)
    assert stage.taken() == ["no hold", "yield_"]
    assert stage.words[:2] == (lib.RMQ_CONFIRM_LIMITED, 0) != as_master[:2]
    assert plane.watermarks.confirm_limit == END, "what was readable stays so"
    assert modes.outcomes() == []
    stage.give(HA)
    assert modes.outcomes() == [StepDone(Step.RECEIVE, END)]
    stage.publish(TenureState.SLAVE)
    assert stage.taken() == [] and stage.broker.slave is not None
    modes.follow(Master("h:1"))
    modes.unfollow()
    assert stage.taken() == ["follow", "unfollow"]


def test_a_promotion(stage: Stage) -> None:
    plane, modes, as_master = stage.plane, stage.modes, stage.words
    become_slave(stage)
    plane.watermarks.replicated_offset = END
    plane.role(lib.RMQ_ROLE_TIMER).pid, plane.role(lib.RMQ_ROLE_TIMER).activation_requested = 1, 0
    stage.publish(TenureState.TAKING, 2)
    modes.order(Step.STAND)
    assert modes.outcomes() == []
    stage.journal.owner = WRITE
    assert modes.outcomes() == [StepDone(Step.STAND, END)]
    assert not lib.rmq_journal_may_open(plane.struct, WRITE), "queues may have no entry yet"
    modes.order(Step.WRITE)
    assert modes.outcomes() == [] and lib.rmq_journal_may_open(plane.struct, WRITE)
    stage.give(WRITE)
    assert modes.outcomes() == [StepDone(Step.WRITE, END)] and stage.taken() == []
    modes.order(Step.SERVE)
    assert stage.taken() == ["config of a master", "hold", "take"], "before a send can come"
    assert stage.words == as_master and plane.watermarks.replicated_offset == 0
    assert plane.header.first_append == END
    assert modes.outcomes() == [StepDone(Step.SERVE, END)]
    stage.publish(TenureState.MASTER, 2)
    assert stage.taken() == ["close", "show_master"] and stage.broker.slave is None
    assert not stage.broker.offsets.committed_here
    modes.outcomes()
    assert all(plane.role(role).activation_requested for role in SERVICES)
    assert not plane.role(lib.RMQ_ROLE_TIMER).activation_requested, "its process of a slave has to end"
    plane.role(lib.RMQ_ROLE_TIMER).pid = 0
    modes.outcomes()
    assert plane.role(lib.RMQ_ROLE_TIMER).activation_requested
    modes.follow(Master("h:1"))
    modes.unfollow()
    assert stage.taken() == [], "a master follows none"


@pytest.mark.parametrize("state", [TenureState.MASTER, TenureState.SLAVE])
def test_a_replacement_starts_services_that_a_dead_control_has_not(stage: Stage, state: TenureState) -> None:
    plane, timer = stage.plane, stage.plane.role(lib.RMQ_ROLE_TIMER)
    for role in (*SERVICES, lib.RMQ_ROLE_TIMER):
        plane.role(role).activation_requested = 0
    timer.pid = 1
    plane.publish_tenure(Tenure(state, 2))
    stage.replace_control()
    stage.modes.resume()
    stage.modes.outcomes()
    is_master = state is TenureState.MASTER
    assert [bool(plane.role(role).activation_requested) for role in SERVICES] == [is_master] * len(SERVICES)
    assert not timer.activation_requested, "its process may be that of the old side"
    timer.pid = 0
    stage.modes.outcomes()
    assert timer.activation_requested


@pytest.mark.parametrize("state", [TenureState.TAKING, TenureState.YIELDING])
def test_a_replacement_within_a_change_starts_nothing_yet(stage: Stage, state: TenureState) -> None:
    timer = stage.plane.role(lib.RMQ_ROLE_TIMER)
    timer.activation_requested = 0
    stage.plane.publish_tenure(Tenure(state, 2))
    stage.replace_control()
    stage.modes.resume()
    stage.modes.outcomes()
    assert not timer.activation_requested


def test_a_promotion_that_is_given_up_has_the_words_of_a_slave_again(stage: Stage) -> None:
    become_slave(stage)
    as_slave = stage.words
    stage.publish(TenureState.TAKING, 2)
    stage.give(WRITE)
    for step in (Step.STAND, Step.SERVE):
        stage.modes.order(step)
        assert stage.modes.outcomes() == [StepDone(step, END)]
    assert stage.words != as_slave
    stage.taken()
    stage.modes.order(Step.RECEIVE)
    assert stage.taken() == ["no hold", "yield_"]
    assert stage.modes.outcomes() == [StepDone(Step.RECEIVE, END)], "write gives the journal back behind the word"
    assert stage.words[:2] == as_slave[:2]
    slave = stage.broker.slave
    stage.publish(TenureState.SLAVE, 1)
    assert stage.broker.slave is slave


def test_a_log_that_cannot_be_read_fails_the_step(stage: Stage) -> None:
    become_slave(stage)
    stage.publish(TenureState.TAKING, 2)
    stage.journal.owner = WRITE
    stage.plane.watermarks.dispatched_offset = 0
    stage.modes.order(Step.WRITE)
    [failed] = stage.modes.outcomes()
    assert isinstance(failed, StepFailed) and "the log cannot be read at 0" in failed.why
    assert stage.modes.outcomes() == []
