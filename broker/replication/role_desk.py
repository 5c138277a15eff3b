"""Orders of operators for the role of this broker (270009), and the answers to `ringmq ha promote` and `demote`.

One order goes on at a time. Its steps need no operator: a command may die.
"""

from __future__ import annotations

from msgspec import Struct

from ringmq.ha.tenure_core import TenureCore
from ringmq.ha.tenure_events import Changed, Demote, Effect, Ended, Plan, Promote, Refuse
from ringmq.ipc.audit import Actor, AuditTrail, Kind
from ringmq.ipc.tenure import Tenure
from ringmq.remoting.role_bodies import DEMOTE, LOOK, PLAN, RoleState

SUBJECT = "role of this broker"


class RoleBusyError(Exception):
    """Another order goes on. The message names its step."""


class Standing(Struct, frozen=True):
    """This broker at the moment of an order. obstacles: reasons why its store cannot be a master's, such as a failed
    fsync. is_linked: the stream from a master runs. names_peers: haAllowedNetworks is not empty."""

    obstacles: tuple[str, ...] = ()
    is_linked: bool = False
    names_peers: bool = True


class RoleDesk(Struct):
    """Takes orders to the core, and gives its answers back."""

    broker_name: str
    core: TenureCore
    audit: AuditTrail
    tenure: Tenure
    """The settled one, for the line of the audit."""
    order: int = 0
    is_done: bool = True
    failure: str = ""
    planned_epoch: int = 0
    """Of the last plan. 0 = the last order was none."""
    losses: tuple[str, ...] = ()
    actor: Actor = Actor("broker", "none")
    """The peer that has sent the last order."""

    def take_order(
        self, choice: str, actor: Actor, standing: Standing, now_ms: int, *, accepts_loss: bool = False
    ) -> list[Effect]:
        """Step the core with an order: PROMOTE, PLAN, DEMOTE. Returns the effects to carry out, of which some go to
        `hear`. LOOK has none. Raises RoleBusyError."""
        if choice == LOOK:
            return []
        if not self.is_done:
            raise RoleBusyError(f"order {self.order} goes on: {self.core.state.value}")
        self.order, self.is_done, self.actor = self.order + 1, False, actor
        self.failure, self.planned_epoch, self.losses = "", 0, ()
        if choice == DEMOTE:
            return self.core.step(Demote(), now_ms)
        event = Promote(
            accepts_loss=accepts_loss,
            is_dry_run=choice == PLAN,
            is_linked=standing.is_linked,
            names_peers=standing.names_peers,
            obstacles=standing.obstacles,
        )
        return self.core.step(event, now_ms)

    def hear(self, effect: Refuse | Plan | Ended | Changed) -> None:
        """Note an answer of the core, and the change for the audit."""
        match effect:
            case Refuse(why=why) | Ended(failure=why):
                self.is_done, self.failure = True, why
            case Plan(epoch=epoch, losses=losses):
                self.is_done, self.planned_epoch, self.losses = True, epoch, losses
            case Changed(after=after):
                actor = Actor("broker", "none") if self.is_done else self.actor
                with self.audit.caused_by(actor.peer, actor.request):
                    self.audit.add(Kind.ROLE, SUBJECT, _shown(self.tenure), _shown(after))
                self.tenure = after

    def state(self, advice: tuple[str, ...] = ()) -> RoleState:
        """The answer to a request. `advice`: actions that are left to the operator."""
        shown = self.core.shown
        return RoleState(
            broker_name=self.broker_name,
            tenure=shown.state.name.lower(),
            epoch=shown.epoch,
            step=self.core.state.value,
            order=self.order,
            is_done=self.is_done,
            failure=self.failure,
            losses=self.losses,
            advice=advice,
            planned_epoch=self.planned_epoch,
        )


def _shown(tenure: Tenure) -> dict[str, object]:
    return {"role": tenure.state.name.lower(), "epoch": tenure.epoch}
