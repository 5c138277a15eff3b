"""The requests in flight of which each succeeds or fails by itself, or as one with those that it is tied to. No IO.

A token is a number that counts up with each request. A death of the owner ends all of them: write drops its requests,
or stores them without an answer. So an item may be stored twice, never lost, if its sender submits it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from ringmq.ipc.invariant import check_invariant
from ringmq.native import lib
from ringmq.remoting.codes import ResponseCode
from ringmq.services.kit.arena import Arena
from ringmq.services.kit.shared_port import TOKENS_MAX

T = TypeVar("T")

AGAIN = -1
"""Code of an item that may be submitted again: another item of its chain is at fault."""
IN_THE_LOG = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
"""Codes of requests whose records are in the log, though disk or replicas may be late. After a failed fsync a record is
there, too, but the disk may have lost it: its code is another one."""
OF_ONE_REQUEST = (lib.RMQ_CAUSE_MESSAGE_SIZE, lib.RMQ_CAUSE_QUEUE_SLOT, lib.RMQ_CAUSE_CHAIN_BYTES)
"""Causes that are in one request of a chain. Without it, the others may be stored."""
OF_ANOTHER_REQUEST = (lib.RMQ_CAUSE_CHAIN_REFUSED, lib.RMQ_CAUSE_BEHIND_REFUSED)
RIDER = -1
"""Instead of the number of its request: the item has none. It is stored with the chain."""


class Result(Struct, Generic[T], frozen=True):
    """The result of an item. If its code is one of IN_THE_LOG, it may be acknowledged."""

    what: T
    code: int
    cause: int
    queue_offset: int = -1
    commit_log_offset: int = -1
    commit_log_end: int = -1
    """End of its record, or of its chain."""

    @property
    def is_stored(self) -> bool:
        """True if the item is in the log."""
        return self.commit_log_end > self.commit_log_offset


class _Batch(Struct, Generic[T]):
    number: int
    first: int
    """The token of its first request."""
    waiting: int
    items: Sequence[T]
    chain: Sequence[tuple[T, int]]
    """Instead of `items`, of tied requests."""
    completed: dict[int, Result[None]] | None
    """Of a chain: the results so far, by the number of the request."""


class Flight(Generic[T]):
    """The requests of one user of a port. Their bytes are those of `arena`."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.first_token = 0
        """Set by the port, before the first request. The user has TOKENS_MAX tokens."""
        self._following = 0
        self._batches: dict[int, _Batch[T]] = {}
        """By token."""
        self._waiting = 0
        """Items without a completion."""
        self.results: deque[Result[T]] = deque()
        """Those that the owner has not taken yet."""

    @property
    def items(self) -> int:
        """Items whose result the owner has not taken yet."""
        return self._waiting + len(self.results)

    def submitted(self, items: Sequence[T], arena_end: int) -> int:
        """Count a request for each item. Returns the first of their tokens. Their bytes end at `arena_end`."""
        self._waiting += len(items)
        return self._submitted(len(items), items, (), None, arena_end)

    def submitted_tied(self, chain: Sequence[tuple[T, int]], count: int, arena_end: int) -> int:
        """Count a chain of `count` requests. Each item has the number of its request, or RIDER."""
        self._waiting += len(chain)
        return self._submitted(count, (), chain, {}, arena_end)

    def _submitted(
        self, count: int, items: Sequence[T], chain: Sequence[tuple[T, int]], completed: dict[int, Result[None]] | None,
        arena_end: int,
    ) -> int:  # fmt: skip
        following = self._following if self._following + count <= TOKENS_MAX else 0
        self._following, first = following + count, self.first_token + following
        batch = _Batch(self.arena.take(arena_end), first, count, items, chain, completed)
        for token in range(first, first + count):
            self._batches[token] = batch
        return first

    def completed(self, found: Any) -> None:
        """Accept a completion (struct rmq_completion). The items that have their result now go to `results`."""
        token = found.token
        batch = self._batches.pop(token, None)
        if batch is None:
            check_invariant(False, "a completion has the token of a request in flight", token=token)
            return
        batch.waiting -= 1
        if not batch.waiting:
            self.arena.free(batch.number)
        number = token - batch.first
        if batch.completed is None:
            self._waiting -= 1
            self.results.append(_result(batch.items[number], found))
            return
        batch.completed[number] = _result(None, found)
        if not batch.waiting:
            self._waiting -= len(batch.chain)
            self.results += _chain_results(batch.chain, batch.completed)


def _result(what: T, found: Any) -> Result[T]:
    size = found.bytes
    if not size:
        return Result(what, found.code, found.cause)
    offset = found.commit_log_offset
    return Result(what, found.code, found.cause, found.queue_offset, offset, offset + size)


def _chain_results(items: Sequence[tuple[T, int]], completed: dict[int, Result[None]]) -> Iterator[Result[T]]:
    """Write has stored the chain as a whole, or nothing of it. After a failed fsync the disk may lack a part of it."""
    refusals = {number: found for number, found in completed.items() if found.code not in IN_THE_LOG}
    if refusals:
        yield from _refused(items, refusals)
        return
    last = max(completed.values(), key=lambda found: found.commit_log_offset)
    for what, number in items:
        found = last if number == RIDER else completed[number]
        queue_offset = -1 if number == RIDER else found.queue_offset
        yield Result(what, found.code, found.cause, queue_offset, found.commit_log_offset, last.commit_log_end)


def _refused(items: Sequence[tuple[T, int]], refusals: dict[int, Result[None]]) -> Iterator[Result[T]]:
    """If one item is at fault, the others may go without it."""
    causes = (number for number, found in refusals.items() if found.cause not in OF_ANOTHER_REQUEST)
    at_fault = next(causes, next(iter(refusals)))
    found = refusals[at_fault]
    is_of_item = found.cause in OF_ONE_REQUEST and any(number == at_fault for _, number in items)
    for what, number in items:
        yield Result(what, AGAIN if is_of_item and number != at_fault else found.code, found.cause)
