"""Chains that a power cut or a failover has parted, and their completion.

Write stores tied requests as a whole over deaths of processes (native/src/plane/layout.h, 3). A power cut may leave the
first records of a chain without the others, and so may the loss of a master with the tail of its log. So each record
before the last carries the pair CHAIN_PAIR, which names the last record by its mark. A mark
(native/src/plane/ports_layout.h) names the source record of the chain. From that source the service makes the missing
records again.

A service that uses chains follows these rules:

- Every record of a chain has a prepared transaction offset that is not 0: its mark, or the offset of its half message.
  Read workers store 0 there, so a client that sends CHAIN_PAIR begins no chain.
- A copy of a client's message must not keep the pair, because the copy has a mark. `Republisher` takes the pair off
  every copy.
- The scan skips records with the mark of another service. The mark of a staged write has the role of a log offset, so
  a commit of messages with the pair is refused.
- The last record has the chain's mark and not the pair.
- Every request of a chain is a single message. The records of a batch share the pair, so part of a batch would look
  like the whole.
- A starting service waits until its port is answered. Then it feeds a scan with the records from its checkpoint on, up
  to the end of the log. It submits `missing` as chains, and feeds the scan with new records until no chain is open.
- A checkpoint is never behind `scan_from`.

The pair is a property of a stored message, so consumers see it, as they see the pairs of a delayed message.
"""

import re

from msgspec import Struct

from ringmq.ipc.ports import parts_of_mark
from ringmq.native import lib

CHAIN_PAIR = "RINGMQ_CHAIN"
CHAIN_MAX: int = lib.RMQ_CHAIN_MAX
PAIR_BYTES_MAX = len(CHAIN_PAIR) + len("63/64/0123456789abcdef") + 2
"""Bytes that the pair adds to the properties of a record, separators included."""
PLACE_IN_LOG = 0
"""The role in the offset of a half message, read as a mark."""
_VALUE = re.compile(r"([0-9]{1,2})/([0-9]{1,2})/([0-9a-f]{16})")


class Link(Struct, frozen=True):
    """The position of a record in its chain: `index` of `length` requests, and the mark of the last one."""

    index: int
    length: int
    mark: int

    @property
    def value(self) -> str:
        """The value of CHAIN_PAIR."""
        return f"{self.index}/{self.length}/{self.mark:016x}"


def links(mark: int, length: int, first: int = 0) -> list[Link | None]:
    """The links of the requests `first` .. `length` - 1. The last request has none.

    Raises ValueError if no chain can have this length or this mark.
    """
    if not 0 <= first < length <= CHAIN_MAX or not 0 < mark < 1 << 63:
        raise ValueError(f"no chain has the requests {first} to {length - 1} and mark {mark}")
    return [*(Link(index, length, mark) for index in range(first, length - 1)), None]


def link_of(value: str | None) -> Link | None:
    """The link in a value of CHAIN_PAIR. None if the value holds none."""
    found = _VALUE.fullmatch(value) if value else None
    if not found:
        return None
    link = Link(int(found[1]), int(found[2]), int(found[3], 16))
    return link if link.index + 1 < link.length <= CHAIN_MAX and 0 < link.mark < 1 << 63 else None


class IncompleteChain(Struct, frozen=True):
    """A chain without its end. The service has to submit the requests `following` .. `length` - 1, tied."""

    mark: int
    following: int
    length: int


class _Open(Struct):
    position: int
    following: int
    length: int


class ChainScan:
    """The chains of the service `role` that lack their end, found from the records of the log in order."""

    def __init__(self, role: int) -> None:
        self._role = role
        self._open: dict[int, _Open] = {}
        self._end = 0
        self.unsound = 0
        """Links that do not follow the previous link: the log has lost records in its middle, or has a record twice."""

    def feed(self, position: int, end: int, prepared_transaction_offset: int, value: str | None) -> None:
        """Add the record at [position, end) of the log. `value`: the value of its CHAIN_PAIR."""
        self._end = end
        link = link_of(value)
        of_role = parts_of_mark(prepared_transaction_offset)[0]
        if not prepared_transaction_offset or of_role not in (PLACE_IN_LOG, self._role):
            return
        if link and parts_of_mark(link.mark)[0] != self._role:
            return
        if not link:
            self._open.pop(prepared_transaction_offset, None)
            return
        chain = self._open.setdefault(link.mark, _Open(position, 0, link.length))
        self.unsound += link.index != chain.following or link.length != chain.length
        chain.following = max(chain.following, link.index + 1)

    @property
    def missing(self) -> list[IncompleteChain]:
        """The chains to complete, in the order of the log."""
        return [IncompleteChain(mark, chain.following, chain.length) for mark, chain in self._open.items()]

    @property
    def scan_from(self) -> int:
        """First position of the next start's scan: the first record of the oldest open chain, or the end of the records
        fed."""
        return min((chain.position for chain in self._open.values()), default=self._end)
