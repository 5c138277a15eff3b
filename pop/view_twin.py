"""A look at open messages, in Python: the same sums as `native/src/pop/pop_view.c`. Tests run both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from ringmq.native import lib
from ringmq.pop.order_twin import COUNT_MAX


class Share(Struct):
    """The share of a queue or of a client."""

    messages: int
    oldest_ms: int
    next_due_ms: int


class View(Struct):
    """The results of a look."""

    entries: int = 0
    messages: int = 0
    returned: int = 0
    due: int = 0
    oldest_ms: int | None = None
    oldest_due_ms: int | None = None
    oldest: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(pop time, place, first open offset, open messages, attempts of a batch), the earliest pop time first."""
    queues: dict[int, Share] = field(default_factory=dict)
    """By place."""
    clients: dict[int, Share] = field(default_factory=dict)


def look(
    entries: Iterable[tuple[int, Any, int]], orders: Iterable[tuple[int, Any, Sequence[int]]], wanted: Sequence[int],
    now_ms: int, oldest_max: int,
) -> View:  # fmt: skip
    """Look at (place, struct rmq_pop_entry, bits of messages with a copy in the log) and at (place, struct
    rmq_pop_order, numbers of its messages that are not done) of the memory. `wanted`: places."""
    view = View()
    for place, entry, stored in entries:
        bits = int(entry.present) & ~int(entry.acked) & ~int(entry.copied) & ~stored
        if not entry.state or not bits or place not in wanted:
            continue
        count, pop_ms = bits.bit_count(), int(entry.pop_time_ms)
        if entry.state == lib.RMQ_POP_RETURNED:
            view.returned += count
            continue
        due_ms = pop_ms + int(entry.invisible_ms)
        if entry.state == lib.RMQ_POP_REVIVING or due_ms < now_ms:
            view.due += count
            view.oldest_due_ms = due_ms if view.oldest_due_ms is None else min(view.oldest_due_ms, due_ms)
        first = int(entry.base_offset) + (bits & -bits).bit_length() - 1
        _count(view, (pop_ms, place, first, count, 0), int(entry.client), due_ms)
    for place, order, numbers in orders:
        if order.returned or not numbers or place not in wanted:
            continue
        pop_ms, first = int(order.pop_time_ms), numbers[0]
        due_ms = pop_ms + max(int(order.visible_ms[number]) for number in numbers)
        if due_ms >= now_ms:
            attempts = min(int(order.consumed[first]) + 1, COUNT_MAX)
            one = (pop_ms, place, int(order.base_offset) + int(order.deltas[first]), len(numbers), attempts)
            _count(view, one, int(order.client), due_ms)
    view.oldest = sorted(view.oldest, key=lambda open_: open_[0])[:oldest_max]
    return view


def _count(view: View, one: tuple[int, int, int, int, int], client: int, due_ms: int) -> None:
    pop_ms, place, _, count, _ = one
    view.entries += 1
    view.messages += count
    view.oldest_ms = pop_ms if view.oldest_ms is None else min(view.oldest_ms, pop_ms)
    view.oldest.append(one)
    for shares, key in ((view.queues, place), (view.clients, client)):
        share = shares.setdefault(key, Share(0, pop_ms, due_ms))
        share.messages += count
        share.oldest_ms, share.next_due_ms = min(share.oldest_ms, pop_ms), min(share.next_due_ms, due_ms)


def top(shares: dict[int, Share], room: int) -> list[tuple[int, Share]]:
    """The keys with the most messages, of equals the smaller key first."""
    return sorted(shares.items(), key=lambda pair: (-pair[1].messages, pair[0]))[:room]
