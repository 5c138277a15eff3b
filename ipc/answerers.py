"""The table of answerers: the roles that answer others, and the requests of clients that go to each.

The supervisor fills it (native/src/asks_layout.h) from the worker table when it makes the plane. Read workers find the
answerer of a request in it, so that a new one adds no code to them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ringmq.native import lib

INBOX_BYTES = 16 << 20
"""Of control's inbox. Sparse until it is used."""
CLIENT_INBOX_BYTES_MIN = 16 << 20
"""Half of an inbox holds the largest frame of a client. A read worker would refuse a larger one as busy for ever."""
ANSWER_BYTES = 4 << 20
"""Of each ring of answers."""


@dataclass(frozen=True, slots=True)
class AnswererPlan:
    """A row as the supervisor wants it. Bytes are powers of two."""

    role: int
    askers: frozenset[int]
    """Roles that may ask it."""
    inbox_bytes: int = INBOX_BYTES
    answer_bytes: int = ANSWER_BYTES
    codes: tuple[int, ...] = ()
    """Requests of clients that read workers bring to it."""


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """What a worker answers, as its row in the worker table says it (ipc/workers.py)."""

    codes: tuple[int, ...] = ()
    inbox_bytes: int = INBOX_BYTES
    answer_bytes: int = ANSWER_BYTES

    def plan(self, role: int, askers: Iterable[int]) -> AnswererPlan:
        """The row of the table of answerers."""
        return AnswererPlan(role, frozenset(askers), self.inbox_bytes, self.answer_bytes, self.codes)

    @property
    def problem(self) -> str:
        """Why the row cannot be in the table; empty when it can."""
        if len(self.codes) > lib.RMQ_ANSWERER_CODES_MAX:
            return f"it answers {len(self.codes)} request codes, at most {lib.RMQ_ANSWERER_CODES_MAX} have room"
        for name, size in (("inbox_bytes", self.inbox_bytes), ("answer_bytes", self.answer_bytes)):
            if size < 4096 or size & (size - 1) or size > 1 << 30:
                return f"{name} = {size} is no power of two from 4096 to {1 << 30}"
        if self.codes and self.inbox_bytes < CLIENT_INBOX_BYTES_MIN:
            return f"inbox_bytes = {self.inbox_bytes}: requests of clients need {CLIENT_INBOX_BYTES_MIN}"
        return ""


def fill_answerer_plans(sizes: Any, plans: Iterable[AnswererPlan]) -> None:
    """Write the table into a struct rmq_plane_capacity. ValueError when it has no room for all."""
    rows = tuple(plans)
    if len(rows) > lib.RMQ_ANSWERERS_MAX:
        raise ValueError(f"{len(rows)} workers answer others, at most {lib.RMQ_ANSWERERS_MAX} have room")
    sizes.answerer_count = len(rows)
    for to, plan in zip(sizes.answerers, rows, strict=False):
        to.role, to.inbox_bytes, to.answer_bytes = plan.role, plan.inbox_bytes, plan.answer_bytes
        to.askers = sum(1 << role for role in plan.askers)
        to.code_count = len(plan.codes)
        for number, code in enumerate(plan.codes):
            to.codes[number] = code
