"""The table of answerers: roles that answer asks of other roles, and the requests of clients that go to each of them.

The supervisor fills it (native/src/plane/asks_layout.h) from the worker table when it makes the plane. Read workers
look up the answerer of a request in it, so a new answerer adds no code to them.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from ringmq.native import lib

INBOX_BYTES = 16 << 20
"""Bytes of control's inbox. Pages take memory only once they are used."""
CLIENT_INBOX_BYTES_MIN = 16 << 20
"""Half of an inbox holds the largest frame of a client. In a smaller inbox a read worker would answer such a frame with
"busy" for ever.
"""
ANSWER_BYTES = 4 << 20
"""Bytes of each ring of answers."""


class AnswererPlan(Struct, frozen=True):
    """A row of the table that the supervisor fills. Sizes in bytes are powers of two."""

    role: int
    askers: frozenset[int]
    """The roles that may ask it."""
    inbox_bytes: int = INBOX_BYTES
    answer_bytes: int = ANSWER_BYTES
    codes: tuple[int, ...] = ()
    """Codes of the client requests that read workers forward to it."""
    cold_max: int = 0
    """Requests of one read worker that it may have at a time. 0: the read worker's share for it."""


class AnswerRow(Struct, frozen=True):
    """The asks and requests that a worker answers, as its row in the worker table (ipc/workers.py) declares them."""

    codes: tuple[int, ...] = ()
    inbox_bytes: int = INBOX_BYTES
    answer_bytes: int = ANSWER_BYTES
    shares_codes: bool = False
    """True if other rows have the same codes. Each pair of a consumer group and a topic then has one of these workers,
    the same at each start (`rmq_answerer_choose`)."""
    cold_max: int = 0
    """Requests of one read worker that may be with it at a time, at most half of the read worker's places. 0: an eighth
    of them, for control the half. More of them are answered 2."""
    control_asks: bool = False
    """True if control asks it, too (broker/worker_asks.py). Control's row cannot name it: it is in the table before."""

    def plan(self, role: int, askers: Iterable[int]) -> AnswererPlan:
        """The row of the table of answerers."""
        return AnswererPlan(role, frozenset(askers), self.inbox_bytes, self.answer_bytes, self.codes, self.cold_max)

    @property
    def problem(self) -> str:
        """Reason why the row cannot be in the table. Empty if it can."""
        if len(self.codes) > lib.RMQ_ANSWERER_CODES_MAX:
            return f"it answers {len(self.codes)} request codes, over the limit of {lib.RMQ_ANSWERER_CODES_MAX}"
        for name, size in (("inbox_bytes", self.inbox_bytes), ("answer_bytes", self.answer_bytes)):
            if size < 4096 or size & (size - 1) or size > 1 << 30:
                return f"{name} = {size} is not a power of two in 4096..{1 << 30}"
        if self.codes and self.inbox_bytes < CLIENT_INBOX_BYTES_MIN:
            return f"inbox_bytes = {self.inbox_bytes} is below {CLIENT_INBOX_BYTES_MIN}, which requests of clients need"
        if self.cold_max < 0 or self.cold_max >> 20:
            return f"cold_max = {self.cold_max} is outside 0..{(1 << 20) - 1}"
        return ""


def fill_answerer_plans(sizes: Any, plans: Iterable[AnswererPlan]) -> None:
    """Write the table into a struct rmq_plane_capacity. Raises ValueError if there are more rows than it takes."""
    rows = tuple(plans)
    if len(rows) > lib.RMQ_ANSWERERS_MAX:
        raise ValueError(f"{len(rows)} workers have an inbox, over the limit of {lib.RMQ_ANSWERERS_MAX}")
    sizes.answerer_count = len(rows)
    for to, plan in zip(sizes.answerers, rows, strict=False):
        to.role, to.inbox_bytes, to.answer_bytes = plan.role, plan.inbox_bytes, plan.answer_bytes
        to.askers = sum(1 << role for role in plan.askers)
        to.code_count, to.cold_max = len(plan.codes), plan.cold_max
        for number, code in enumerate(plan.codes):
            to.codes[number] = code
