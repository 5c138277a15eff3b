"""Orders for the role of a broker: answers, one order at a time, and the line of the audit."""

from collections.abc import Sequence

import pytest

from ringmq.broker.replication.role_desk import RoleBusyError, RoleDesk, Standing
from ringmq.ha.tenure_core import TenureCore
from ringmq.ha.tenure_events import (
    Accepted,
    Began,
    Changed,
    Effect,
    Ended,
    Event,
    FileWritten,
    PeerSeen,
    Plan,
    Refuse,
    RoundEnded,
    Step,
    StepDone,
)
from ringmq.ha.tenure_memory import Own
from ringmq.ipc.audit import Actor, AuditTrail
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.remoting.role_bodies import DEMOTE, LOOK, PLAN, PROMOTE
from ringmq.store.tenure_file import Addresses, Found, Policy
from tests.ha.test_tenure_transitions import peer

PLAIN = Standing()
OPERATOR = Actor("127.0.0.1:5000", "HA_ROLE")
TAKES = [
    RoundEnded(1), RoundEnded(2), StepDone(Step.STAND), StepDone(Step.WRITE), StepDone(Step.SERVE), FileWritten(),
]  # fmt: skip


def slave() -> RoleDesk:
    core = TenureCore.of(Own("b:1", 1, is_master=False, policy=Policy("SYNC_MASTER")), Found())
    core.step(Began(), 0)
    core.step(Accepted(Addresses("a:1"), policy=Policy("SYNC_MASTER")), 0)
    return RoleDesk("broker-a", core, AuditTrail(), Tenure(TenureState.SLAVE))


def heard(desk: RoleDesk, effects: Sequence[Effect]) -> None:
    for effect in effects:
        if isinstance(effect, Refuse | Plan | Ended | Changed):
            desk.hear(effect)


def happen(desk: RoleDesk, *events: Event) -> None:
    for event in events:
        heard(desk, desk.core.step(event, 0))


def order(desk: RoleDesk, choice: str, standing: Standing = PLAIN) -> None:
    heard(desk, desk.take_order(choice, OPERATOR, standing, 0))


def test_a_promotion_is_seen_step_by_step() -> None:
    desk = slave()
    assert (desk.state().tenure, desk.state().order, desk.state().is_done) == ("slave", 0, True)
    order(desk, PROMOTE)
    seen = []
    for event in TAKES:
        seen.append((desk.state().tenure, desk.state().is_done))
        happen(desk, event)
    assert seen == [("slave", False)] * 2 + [("taking", False)] * 4
    state = desk.state()
    assert (state.tenure, state.epoch, state.order, state.is_done, state.failure) == ("master", 65537, 1, True, "")
    assert state.step == "it takes requests"


def test_one_order_goes_on_at_a_time() -> None:
    desk = slave()
    order(desk, PROMOTE)
    with pytest.raises(RoleBusyError, match="order 1 goes on: a promotion asks the peers"):
        order(desk, DEMOTE)
    order(desk, LOOK)
    happen(desk, *TAKES)
    assert desk.state().is_done
    order(desk, DEMOTE)
    assert (desk.state().order, desk.state().is_done, desk.state().tenure) == (2, False, "yielding")


def test_a_plan_has_its_losses_until_the_next_order() -> None:
    desk = slave()
    order(desk, PLAN)
    happen(desk, PeerSeen(peer("a:1", TenureState.MASTER, 0), 1), RoundEnded(1, 4096))
    state = desk.state()
    assert (state.is_done, state.tenure, state.epoch, state.planned_epoch) == (True, "slave", 0, 65537)
    assert state.losses == ("master a:1 lives: it may acknowledge messages behind offset 4096",)
    order(desk, PROMOTE, Standing(obstacles=("an fsync has failed",)))
    state = desk.state()
    assert (state.order, state.is_done, state.failure, state.losses, state.planned_epoch) == (
        2,
        True,
        "an fsync has failed",
        (),
        0,
    )


def test_a_running_stream_is_told() -> None:
    desk = slave()
    order(desk, PLAN, Standing(is_linked=True))
    happen(desk, RoundEnded(1, 4096))
    assert "follows a master that lives" in desk.state().losses[0]


def test_an_empty_list_is_told() -> None:
    desk = slave()
    order(desk, PLAN, Standing(names_peers=False))
    happen(desk, RoundEnded(1, 4096))
    assert "haAllowedNetworks is empty" in desk.state().losses[-1]


def test_the_audit_names_the_operator_or_the_broker_itself() -> None:
    desk = slave()
    order(desk, PROMOTE)
    happen(desk, *TAKES)
    newer = PeerSeen(peer("c:1", TenureState.MASTER, 9 << 16))
    happen(desk, newer, StepDone(Step.STAND), FileWritten(), StepDone(Step.CLOSE), StepDone(Step.RECEIVE))
    lines = [change.fields() for change in desk.audit.changes]
    assert lines == [
        {
            "kind": "role", "name": "role of this broker", "peer": "127.0.0.1:5000", "request": "HA_ROLE",
            "before": {"role": "slave", "epoch": 0}, "after": {"role": "master", "epoch": 65537},
        },
        {
            "kind": "role", "name": "role of this broker", "peer": "broker", "request": "none",
            "before": {"role": "master", "epoch": 65537}, "after": {"role": "slave", "epoch": 9 << 16},
        },
    ]  # fmt: skip
    assert desk.core.record.master == Addresses("c:1", "ha-c:1")
