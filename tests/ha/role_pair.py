"""A pair of brokers whose roles an operator changes while they run."""

from __future__ import annotations

import contextlib
import time

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.role_bodies import DEMOTE, LOOK, PROMOTE, HaRoleRequestHeader, RoleState
from tests.raw_client import RawClient
from tests.waiting import wait_until


def order(broker: RunningBroker, choice: str, *, accepts_loss: bool = False) -> RoleState:
    """Send an order, and wait for its end."""
    with RawClient(broker.address) as client:

        def ask(what: str) -> RoleState:
            header = HaRoleRequestHeader(choice=what, accepts_loss=accepts_loss)
            answer = client.ask(RequestCode.HA_ROLE, header.encode())
            assert answer.code == 0, answer.remark
            return RoleState.decode(answer.body)

        first = ask(choice)
        return wait_until(
            lambda: next((state for state in [ask(LOOK)] if state.is_done), None), f"order {first.order} is done"
        )


def settle(broker: RunningBroker, tenure: str) -> None:
    """Order a change until the broker has this tenure, over deaths of the worker that takes orders."""
    choice = {"master": PROMOTE, "slave": DEMOTE}[tenure]
    next_order_s = 0.0

    def is_settled() -> bool:
        nonlocal next_order_s
        with contextlib.suppress(AssertionError, OSError), RawClient(broker.address) as client:
            answer = client.ask(RequestCode.HA_ROLE, HaRoleRequestHeader(choice=LOOK).encode())
            state = RoleState.decode(answer.body) if answer.code == 0 else None
            if state is None or not state.is_done or state.tenure == tenure:
                return state is not None and state.is_done
            if time.monotonic() >= next_order_s:
                next_order_s = time.monotonic() + 0.5
                client.ask(RequestCode.HA_ROLE, HaRoleRequestHeader(choice=choice, accepts_loss=True).encode())
        return False

    wait_until(is_settled, f"the broker has become {tenure}", timeout_s=120)
