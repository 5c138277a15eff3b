"""Epochs: the numbers of tenures in a group, and the history of a log, which says under which epoch each byte was
written.

An epoch is term << 16 | brokerId. The brokerId is that of the configuration, which no two brokers of a group share and
no change of a role touches. So two promotions never have one epoch, also without a word between the two brokers. Epoch
0 is the tenure of a master that the configuration has named, and that no promotion has followed yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ringmq.ipc.tenure import EPOCH_MAX
from ringmq.store.tenure_file import HISTORY_MAX, EpochStart

BROKER_BITS = 16
BROKER_ID_MAX = (1 << BROKER_BITS) - 1
"""Largest brokerId of a broker that can be promoted."""
TERM_MAX = EPOCH_MAX >> BROKER_BITS

History = tuple[EpochStart, ...]
"""The epochs of a log, in the order of their offsets. Bytes before the first one count as of epoch 0."""


class Position(NamedTuple):
    """The last byte of a log: its epoch, and the offset behind it. The greater of two logs of one group has all
    acknowledged messages that the other one has."""

    epoch: int
    offset: int


def new_epoch(seen: Iterable[int], broker_id: int) -> int:
    """An epoch of this broker above all that were seen. Raises ValueError if the word cannot hold it."""
    if not 0 <= broker_id <= BROKER_ID_MAX:
        raise ValueError(f"brokerId = {broker_id} cannot be part of an epoch, at most {BROKER_ID_MAX} can")
    term = max((epoch >> BROKER_BITS for epoch in seen), default=0) + 1
    if term > TERM_MAX:
        raise ValueError(f"no promotion can follow term {term - 1}, the last one")
    return term << BROKER_BITS | broker_id


def broker_of(epoch: int) -> int:
    """The brokerId of the promoted broker. 0 for epoch 0, too."""
    return epoch & BROKER_ID_MAX


def slave_id(broker_id: int, epoch: int) -> int:
    """The brokerId under which a slave registers. `broker_id`: that of its configuration. `epoch`: of its master.

    The first master has 0 in its configuration. As a slave it has the brokerId that the promoted broker does not use
    as a master. Without a promoted one it has the highest that is left free for it.
    """
    return broker_id or broker_of(epoch) or BROKER_ID_MAX


def position(history: History, end: int) -> Position:
    """The position of a log with this history that ends at `end`. An epoch that begins there has written nothing."""
    return Position(max((start.epoch for start in history if start.offset < end), default=0), end)


def begun(history: History, epoch: int, offset: int) -> History:
    """The history of a log behind whose end `offset` the records of a new epoch come. The newest ones are kept."""
    return (*(start for start in history if start.offset < offset), EpochStart(epoch, offset))[-HISTORY_MAX:]
