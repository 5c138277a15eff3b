"""native/src/pop/pop_orders.c and pop_order_batches.c in Python: batches of orderly groups, and the times at which
their queues are free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringmq.native import ffi, lib
from ringmq.pop import order_states as orders
from ringmq.pop.entry_twin import EntryTwin, Give, NoRoomError
from ringmq.pop.order_states import ORDER_TRANSITIONS, OrderState
from ringmq.pop.window_memory import WindowMemory, order_check

DONE, KNOWN, UNKNOWN, ILLEGAL = lib.RMQ_POP_DONE, lib.RMQ_POP_KNOWN, lib.RMQ_POP_UNKNOWN, lib.RMQ_POP_ILLEGAL
COUNT_MAX, VISIBLE_MS_MAX = 65_535, 2**32 - 1
ASKED_A_CALL = 4096


class OrderTwin(EntryTwin):
    """Batches of the windows of one memory."""

    def __init__(self, memory: WindowMemory, mono_ms: int) -> None:
        super().__init__(memory, mono_ms)
        self.order_places: dict[int, int] = {}
        """The place of the window of each slot in use."""
        self.spare_orders: list[int] = []
        self.orders_end = self.order_hand = 0
        self.given_ms: dict[int, int] = {}
        """The moment of the pop of each slot, by the monotonic clock."""
        self.order_wheel: dict[int, tuple[int, int]] = {}
        """Time at which the queue of a slot is free, and a number in the order of additions."""
        self.order_wheel_ms, self._orders_added = mono_ms, 0

    # -- what the actions of order_states.py stand on ----------------------------------------------------------

    def step_order(self, event: orders.OrderEvent) -> None:
        """Let the batch of a window take an event."""
        self.take_order_event(event, self.order_state(event.place))

    def take_order_event(self, event: orders.OrderEvent, state: OrderState) -> None:
        """Let a batch that is in this state take an event."""
        ORDER_TRANSITIONS[state, type(event)].act(self, event, self.mono_ms)

    def order_state(self, place: int) -> OrderState:
        """The state of the batch of a window."""
        order = self.order_at(place)
        if order is None:
            return OrderState.NONE
        if not self.open_numbers(place):
            return OrderState.DONE
        return OrderState.RETURNED if order.returned else OrderState.OUT

    def order_at(self, place: int) -> Any:
        """`rmq_pop_order_at`."""
        number = self.memory.window(place).order
        return self.memory.order(number - 1) if self.order_places.get(number - 1) == place else None

    def publish_order(self, event: orders.BatchAdopted, returned: int) -> None:
        """Fill a slot, and store its number in the window."""
        slot, window, store = self._take_order(event), self.memory.window(event.place), self.memory.store
        order, give, base = self.memory.order(slot), event.give, event.offsets[0]
        self.memory.before_store()
        ffi.memmove(ffi.addressof(order), bytes(ffi.sizeof("struct rmq_pop_order")), ffi.sizeof("struct rmq_pop_order"))
        store(order, "base_offset", base)
        store(order, "pop_time_ms", give.pop_time_ms)
        store(order, "window", window.id)
        store(order, "invisible_ms", give.invisible_ms)
        store(order, "start_delta", base - give.start_offset)
        store(order, "count", len(event.offsets))
        store(order, "attempt_bytes", len(event.attempt))
        store(order, "client", give.client)
        store(order, "acked", event.acked)
        store(order, "returned", returned)
        ffi.memmove(order.attempt, event.attempt, len(event.attempt))
        for number, offset in enumerate(event.offsets):
            order.deltas[number], order.visible_ms[number] = offset - base, event.visible_ms[number]
            order.consumed[number] = event.consumed[number]
        store(order, "check", order_check(order))
        before = window.order
        store(window, "order", slot + 1)
        if before:
            self._forget_order(before - 1)
        store(window, "last_pop_ms", give.pop_time_ms)
        self.arm_order(event.place)

    def arm_order(self, place: int) -> None:
        """The time has changed at which the queue is free."""
        slot, until_ms = self.memory.window(place).order - 1, self.order_blocked_ms(place)
        self.order_wheel.pop(slot, None)
        if until_ms is not None:
            self._orders_added += 1
            self.order_wheel[slot] = (max(until_ms, self.order_wheel_ms), self._orders_added)

    def end_order(self, place: int) -> None:
        """The batch does not count any more."""
        window = self.memory.window(place)
        slot = window.order - 1
        if window.id:
            self.memory.store(window, "order", 0)
        self._forget_order(slot)

    def _forget_order(self, slot: int) -> None:
        self.order_wheel.pop(slot, None)
        del self.order_places[slot]
        self.spare_orders.append(slot)

    def _take_order(self, event: orders.BatchAdopted) -> int:
        if self.spare_orders:
            slot = self.spare_orders.pop()
        else:
            slot, self.orders_end = self.orders_end, self.orders_end + 1
        self.order_places[slot] = event.place
        self.given_ms[slot] = event.give.mono_ms
        return slot

    def skip_to(self, place: int, next_offset: int) -> None:
        """`rmq_pop_skip_to`."""
        window, before = self.memory.window(place), self.order_state(place)
        if next_offset <= window.next_offset:
            return
        self.memory.store(window, "next_offset", next_offset)
        if before in (OrderState.OUT, OrderState.RETURNED) and self.order_state(place) is OrderState.DONE:
            self.take_order_event(orders.PoppedOver(place), before)

    # -- a start -----------------------------------------------------------------------------------------------

    def start_orders(self, now_ms: int) -> int:
        """Find the batches of all windows. Returns the number of damaged ones."""
        damaged = 0
        for place in sorted(self.places.values()):
            window = self.memory.window(place)
            if not window.order:
                continue
            if not self._is_order(window):
                damaged += 1
                self.memory.store(window, "order", 0)
                continue
            slot = window.order - 1
            passed_ms = min(max(now_ms - self.memory.order(slot).pop_time_ms, 0), VISIBLE_MS_MAX)
            self.order_places[slot], self.given_ms[slot] = place, self.mono_ms - passed_ms
            self.arm_order(place)
        self.orders_end = max(self.order_places, default=-1) + 1
        self.spare_orders = [slot for slot in reversed(range(self.orders_end)) if slot not in self.order_places]
        return damaged

    def _is_order(self, window: Any) -> bool:
        if window.order > self.memory.orders_max:
            return False
        order = self.memory.order(window.order - 1)
        count = int(order.count)
        return bool(
            order.window == window.id
            and order.check == order_check(order)
            and 0 < count <= lib.RMQ_POP_ORDER_MESSAGES
            and order.attempt_bytes <= lib.RMQ_POP_ATTEMPT_BYTES_MAX
            and order.returned <= 1
            and order.start_delta <= order.base_offset <= 2**63 - 1 - VISIBLE_MS_MAX
            and not order.acked >> count
            and not order.deltas[0]
            and all(order.deltas[i] > order.deltas[i - 1] for i in range(1, count))
        )

    # -- looks -------------------------------------------------------------------------------------------------

    def _offsets(self, place: int) -> list[int]:
        order = self.order_at(place)
        return [] if order is None else [order.base_offset + order.deltas[i] for i in range(order.count)]

    def open_numbers(self, place: int) -> list[int]:
        """The bits of `rmq_pop_order_open`."""
        order, next_offset = self.order_at(place), self.memory.window(place).next_offset
        offsets = enumerate(self._offsets(place))
        return [number for number, offset in offsets if not order.acked >> number & 1 and offset >= next_offset]

    def order_next(self, place: int) -> int:
        """`rmq_pop_order_next`."""
        order, offsets = self.order_at(place), self._offsets(place)
        if order is None:
            return 0
        return next((offset for number, offset in enumerate(offsets) if not order.acked >> number & 1), offsets[-1] + 1)

    def order_blocked_ms(self, place: int) -> int | None:
        """`rmq_pop_order_blocked_ms`. None: the queue is free."""
        if self.order_state(place) is not OrderState.OUT:
            return None
        order, given_ms = self.order_at(place), self.given_ms[self.memory.window(place).order - 1]
        return max(given_ms + int(order.visible_ms[number]) for number in self.open_numbers(place))

    def _is_same(self, place: int, attempt: bytes) -> bool:
        order = self.order_at(place)
        return bool(attempt) and order is not None and bytes(order.attempt[0 : order.attempt_bytes]) == attempt

    def order_blocks(self, place: int, attempt: bytes, mono_ms: int) -> bool:
        """`rmq_pop_order_blocks`."""
        until_ms = self.order_blocked_ms(place)
        return until_ms is not None and until_ms > mono_ms and not self._is_same(place, attempt)

    def order_time_for(self, places: Sequence[int], pop_time_ms: int) -> int:
        """`rmq_pop_order_time_for`."""
        taken = {int(order.pop_time_ms) for place in places if (order := self.order_at(place)) is not None}
        while pop_time_ms in taken:
            pop_time_ms += 1
        return pop_time_ms

    def orders_next_ms(self) -> int | None:
        """The exact time of the next free queue; `rmq_pop_orders_next_ms` may be earlier."""
        return min((due_ms for due_ms, _ in self.order_wheel.values()), default=None)

    # -- calls -------------------------------------------------------------------------------------------------

    def orders_ready(self, count: int, mono_ms: int) -> None:
        """`rmq_pop_orders_ready`. Raises NoRoomError."""
        while len(self.spare_orders) + self.memory.orders_max - self.orders_end < count:
            self._order_gives_way(mono_ms)

    def _order_gives_way(self, mono_ms: int) -> None:
        for _ in range(min(ASKED_A_CALL, self.memory.orders_max)):
            slot, self.order_hand = self.order_hand, (self.order_hand + 1) % self.memory.orders_max
            place = self.order_places.get(slot)
            if place is None:
                continue
            until_ms = self.order_blocked_ms(place)
            if until_ms is None or until_ms <= mono_ms:
                self.step_order(orders.SlotWanted(place))
                return
        raise NoRoomError

    def order_give(self, place: int, give: Give, attempt: bytes, offsets: Sequence[int]) -> None:
        """`rmq_pop_order_give`. Raises NoRoomError: nothing changed."""
        self.orders_ready(1, give.mono_ms)
        before, known = self.order_at(place), dict[int, int]()
        is_same = before is not None and (before.returned or self._is_same(place, attempt))
        for number, offset in enumerate(self._offsets(place)):
            count = int(before.consumed[number])
            known[offset] = count if is_same else min(count + 1, COUNT_MAX)
        consumed = [known.get(offset, 0) for offset in offsets]
        visible_ms = [give.invisible_ms] * len(offsets)
        self.step_order(orders.BatchGiven(place, give, attempt, offsets, visible_ms, consumed, 0))

    def order_show(self, place: int) -> None:
        """`rmq_pop_order_show`."""
        self.step_order(orders.AnswerLeaves(place))

    def order_adopt(
        self, place: int, give: Give, attempt: bytes, offsets: Sequence[int], visible_ms: Sequence[int],
        consumed: Sequence[int], acked: int,
    ) -> None:  # fmt: skip
        """`rmq_pop_order_adopt`. Raises NoRoomError: nothing changed."""
        self.orders_ready(1, give.mono_ms)
        self.step_order(orders.BatchAdopted(place, give, attempt, offsets, visible_ms, consumed, acked))

    def _find_order(self, place: int, pop_time_ms: int, offset: int) -> tuple[int, int]:
        order = self.order_at(place)
        if offset < self.memory.window(place).next_offset:
            return int(KNOWN), 0
        if order is None or order.pop_time_ms != pop_time_ms:
            return int(UNKNOWN), 0
        offsets = self._offsets(place)
        return (int(DONE), offsets.index(offset)) if offset in offsets else (int(ILLEGAL), 0)

    def order_ack(self, place: int, pop_time_ms: int, offset: int) -> int:
        """`rmq_pop_order_ack`."""
        result, number = self._find_order(place, pop_time_ms, offset)
        if result == DONE:
            self.step_order(orders.MessageAcked(place, number))
        return result

    def order_change(self, place: int, pop_time_ms: int, offset: int, due_ms: int) -> int:
        """`rmq_pop_order_change`."""
        result, number = self._find_order(place, pop_time_ms, offset)
        if result == DONE:
            visible_ms = due_ms - self.given_ms[self.memory.window(place).order - 1]
            visible_ms = min(max(visible_ms, 0), VISIBLE_MS_MAX)
            self.step_order(orders.TimeChanged(place, number, visible_ms))
        return result

    def order_unsent(self, place: int, start: int, pop_time_ms: int) -> bool:
        """`rmq_pop_order_unsent`."""
        order = self.order_at(place)
        if order is None or (order.pop_time_ms, order.base_offset - order.start_delta) != (pop_time_ms, start):
            return False
        self.step_order(orders.NotReceived(place))
        return True

    def orders_due(self, mono_ms: int, room: int) -> list[int]:
        """`rmq_pop_orders_due`."""
        found: list[int] = []
        while len(found) < room:
            slot = min(self.order_wheel, key=self.order_wheel.__getitem__, default=None)
            if slot is None or self.order_wheel[slot][0] > mono_ms:
                self.order_wheel_ms = max(self.order_wheel_ms, mono_ms)
                break
            self.order_wheel_ms = max(self.order_wheel_ms, self.order_wheel.pop(slot)[0])
            found.append(self.order_places[slot])
        return found

    def clamp_order(self, place: int, end_offset: int) -> None:
        """`rmq_pop_order_clamp`."""
        offsets = self._offsets(place)
        if offsets and offsets[-1] >= end_offset:
            self.step_order(orders.QueueCutBelow(place))
