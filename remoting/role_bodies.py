"""Header and body of RingMQ's request of operators for the role of one broker (270009): `ringmq ha promote` and
`demote`. Stock brokers do not know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ringmq.remoting import json_body
from ringmq.remoting.headers import Header, header

PROMOTE: Final = "promote"
DEMOTE: Final = "demote"
PLAN: Final = "plan"
"""A promotion is tried, and nothing changes: the answer says what may be lost."""
LOOK: Final = "look"
"""The answer alone, again and again until an order is done."""
CHOICES: Final = (PROMOTE, DEMOTE, PLAN, LOOK)
LINES_MAX: Final = 32
"""Lines of each list in an answer."""


@header
class HaRoleRequestHeader(Header):
    """270009. choice: one of CHOICES. accepts_loss: of a promotion that may lose acknowledged messages."""

    choice: str
    accepts_loss: bool = False


@dataclass(frozen=True, slots=True)
class RoleState:
    """The answer to 270009."""

    broker_name: str
    tenure: str
    """slave, taking, master or yielding."""
    epoch: int
    step: str
    """The state of the role in words."""
    order: int = 0
    """Number of the order that came with this request, or of the last one."""
    is_done: bool = True
    """False while the order of this number goes on."""
    failure: str = ""
    """The reason why it was given up."""
    losses: tuple[str, ...] = ()
    """Sentences about messages that a promotion may lose: in the answer behind a plan."""
    advice: tuple[str, ...] = ()
    """Actions that are left to the operator, such as at a stock peer."""
    planned_epoch: int = 0
    """That of a promotion, in the answer behind a plan. 0 = there is none."""

    def encode(self) -> bytes:
        """The body."""
        return json_body.write_body(
            {
                "brokerName": self.broker_name,
                "tenure": self.tenure,
                "epoch": self.epoch,
                "step": self.step,
                "order": self.order,
                "isDone": self.is_done,
                "failure": self.failure,
                "losses": list(self.losses[:LINES_MAX]),
                "advice": list(self.advice[:LINES_MAX]),
                "plannedEpoch": self.planned_epoch,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> RoleState:
        """Return the value in the body, without the fields of newer brokers. Raises `BadBody`."""
        value = json_body.read_object(body, "RoleState")
        return cls(
            broker_name=json_body.text(value, "brokerName"),
            tenure=json_body.text(value, "tenure"),
            epoch=json_body.integer(value, "epoch"),
            step=json_body.text(value, "step"),
            order=json_body.integer(value, "order"),
            is_done=json_body.boolean(value, "isDone"),
            failure=json_body.text(value, "failure"),
            losses=_lines(value, "losses"),
            advice=_lines(value, "advice"),
            planned_epoch=json_body.integer(value, "plannedEpoch"),
        )


def _lines(value: dict[str, Any], key: str) -> tuple[str, ...]:
    found = json_body.items(value, key)[:LINES_MAX]
    if not all(isinstance(line, str) for line in found):
        raise json_body.bad_body(f"{key} of RoleState holds a line that is no text", key)
    return tuple(found)
