"""The tenure: the side of a broker in its group, one word of the watermark page (native/src/plane/watermarks_layout.h).

The word is epoch << 8 | state. The supervisor stores the first one before any worker starts, then control alone changes
it. A reader looks at the word at each decision and keeps no copy. C has the same rules in native/src/plane/plane.c.
This module works without the C core.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from msgspec import Struct

STATE_BITS = 8
EPOCH_MAX = (1 << 64 - STATE_BITS) - 1


class TenureState(IntEnum):
    """The side of a broker, and the two ways between the sides."""

    SLAVE = 1
    TAKING = 2
    """On its way to MASTER: no worker appends."""
    MASTER = 3
    YIELDING = 4
    """On its way to SLAVE: `write` stores what it has taken, and takes no more."""


class Tenure(Struct, frozen=True):
    """One tenure. Its epoch is 0 until the group has given another one."""

    state: TenureState
    epoch: int = 0

    @classmethod
    def of(cls, word: int) -> Tenure:
        """The tenure of a word. Raises ValueError for a word that names no state, such as 0."""
        return cls(TenureState(word & (1 << STATE_BITS) - 1), word >> STATE_BITS)

    @property
    def word(self) -> int:
        """The word. Raises ValueError for an epoch that it cannot hold."""
        if not 0 <= self.epoch <= EPOCH_MAX:
            raise ValueError(f"epoch {self.epoch} is outside 0..{EPOCH_MAX}")
        return self.epoch << STATE_BITS | self.state

    @property
    def follows_master(self) -> bool:
        """True in SLAVE and TAKING."""
        return self.state in _FOLLOWING


class HasTenure(Protocol):
    """The watermark page."""

    @property
    def tenure(self) -> int:
        """The word. 0 = none is published yet."""


AS_MASTER = Tenure(TenureState.MASTER)
_FOLLOWING = frozenset({TenureState.SLAVE, TenureState.TAKING})


def tenure_of(marks: HasTenure) -> Tenure:
    """The tenure that is published."""
    return Tenure.of(int(marks.tenure))


def epoch_of(marks: HasTenure) -> int:
    """The epoch of the tenure."""
    return int(marks.tenure) >> STATE_BITS


def is_master(marks: HasTenure) -> bool:
    """True if the broker takes the requests that a master alone may do."""
    return int(marks.tenure) & (1 << STATE_BITS) - 1 == TenureState.MASTER


def follows_master(marks: HasTenure) -> bool:
    """True if the broker's newest records and tables are those of another master. In YIELDING neither this nor
    `is_master` is true: the records are its own."""
    return int(marks.tenure) & (1 << STATE_BITS) - 1 in _FOLLOWING
