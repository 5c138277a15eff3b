"""The states of an orderly group's queue as data: native/src/pop/pop_orders.c in Python. Tests compare both.

`core` of an action is `OrderTwin`. An event names the place of a window, which has one batch at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from msgspec import Struct

from ringmq.ipc.transitions import Cell, ignored, impossible, transitions


class OrderState(Enum):
    """The state of the batch of a window."""

    NONE = "the window has no batch: no orderly pop has found a message, or another batch has taken its slot"
    OUT = "a consumer has messages of the batch that are not done. The queue is blocked until their time is over"
    DONE = "no message of the batch is open. It is kept to tell a late acknowledgement"
    RETURNED = "no consumer has received the batch, or not yet: the next pop counts it as never given"


class OrderEvent(Struct, frozen=True):
    """An event of the batch of one window."""

    place: int


class BatchAdopted(OrderEvent, frozen=True):
    """Another broker has given a batch."""

    give: Any
    attempt: bytes
    offsets: Sequence[int]
    visible_ms: Sequence[int]
    consumed: Sequence[int]
    acked: int


class BatchGiven(BatchAdopted, frozen=True):
    """A pop gives a batch."""


class AnswerLeaves(OrderEvent, frozen=True):
    """The answer with the batch is put behind this."""


class MessageAcked(OrderEvent, frozen=True):
    """This message of the batch is done."""

    number: int


class TimeChanged(OrderEvent, frozen=True):
    """A message of the batch gets another time, in ms behind the pop."""

    number: int
    visible_ms: int


class NotReceived(OrderEvent, frozen=True):
    """The answer with the batch was not sent."""


class PoppedOver(OrderEvent, frozen=True):
    """The next offset of the window has moved behind the batch: a normal pop has taken the messages, or somebody has
    set the consumer offset."""


class SlotWanted(OrderEvent, frozen=True):
    """Another batch needs a slot, and this one blocks no queue."""


class QueueCutBelow(OrderEvent, frozen=True):
    """The queue ends before the last message of the batch."""


class OrderWindowEnded(OrderEvent, frozen=True):
    """The window is dropped."""


ORDER_EVENTS = (
    BatchAdopted, BatchGiven, AnswerLeaves, MessageAcked, TimeChanged, NotReceived, PoppedOver, SlotWanted,
    QueueCutBelow, OrderWindowEnded,
)  # fmt: skip
Effects = Sequence[object]


def _adopt(core: Any, event: BatchAdopted, now_ms: int) -> Effects:
    core.publish_order(event, returned=0)
    return ()


def _give(core: Any, event: BatchGiven, now_ms: int) -> Effects:
    core.publish_order(event, returned=1)
    return ()


def _show(core: Any, event: AnswerLeaves, now_ms: int) -> Effects:
    core.memory.store(core.order_at(event.place), "returned", 0)
    core.arm_order(event.place)
    return ()


def _ack(core: Any, event: MessageAcked, now_ms: int) -> Effects:
    order = core.order_at(event.place)
    core.memory.store(order, "acked", order.acked | 1 << event.number)
    core.skip_to(event.place, core.order_next(event.place))
    core.arm_order(event.place)
    return ()


def _change(core: Any, event: TimeChanged, now_ms: int) -> Effects:
    core.memory.store_at(core.order_at(event.place).visible_ms, event.number, event.visible_ms)
    core.arm_order(event.place)
    return ()


def _return(core: Any, event: NotReceived, now_ms: int) -> Effects:
    core.memory.store(core.order_at(event.place), "returned", 1)
    core.arm_order(event.place)
    return ()


def _nothing(core: Any, event: OrderEvent, now_ms: int) -> Effects:
    return ()


def _end(core: Any, event: OrderEvent, now_ms: int) -> Effects:
    core.end_order(event.place)
    return ()


_S = OrderState
_HAS = (_S.OUT, _S.DONE, _S.RETURNED)
_NO_BATCH = impossible("a receipt names a batch, and so do slots")
ORDER_TRANSITIONS = transitions(
    (
        BatchAdopted,
        (_S.NONE, _S.DONE, _S.RETURNED),
        Cell(_adopt, "fill a slot, then store its number: the batch before it ends", (_S.OUT,)),
    ),
    (BatchAdopted, _S.OUT, Cell(_adopt, "the other broker has given a later one")),
    (BatchGiven, (_S.NONE, _S.DONE), Cell(_give, "the same: a death before the answer frees it", (_S.RETURNED,))),
    (BatchGiven, _S.RETURNED, Cell(_give, "the same")),
    (
        BatchGiven,
        _S.OUT,
        Cell(_give, "its time is over, or it is the same attempt: the messages come again", (_S.RETURNED,)),
    ),
    (AnswerLeaves, _S.RETURNED, Cell(_show, "the queue is blocked", (_S.OUT,))),
    (AnswerLeaves, (_S.OUT, _S.DONE), impossible("the pop gives the batch before, in the same turn")),
    (MessageAcked, _S.OUT, Cell(_ack, "store the bit, then the next offset", (_S.DONE,))),
    (MessageAcked, _S.RETURNED, Cell(_ack, "a consumer has it after all: the same", (_S.DONE,))),
    (MessageAcked, _S.DONE, Cell(_ack, "told twice, and a normal pop has taken those before it: the same")),
    (TimeChanged, (_S.OUT, _S.RETURNED, _S.DONE), Cell(_change, "store the time")),
    (NotReceived, _S.OUT, Cell(_return, "the queue is free at once", (_S.RETURNED,))),
    (NotReceived, _S.RETURNED, ignored("it was said before")),
    (NotReceived, _S.DONE, ignored("nothing of it is open")),
    (PoppedOver, (_S.OUT, _S.RETURNED), Cell(_nothing, "its messages count as done", (_S.DONE,))),
    (PoppedOver, _S.DONE, ignored("nothing of it is open")),
    (SlotWanted, _HAS, Cell(_end, "store 0: counts of the messages are forgotten", (_S.NONE,))),
    (QueueCutBelow, _HAS, Cell(_end, "store 0: new messages have the same offsets", (_S.NONE,))),
    (OrderWindowEnded, _HAS, Cell(_end, "the slot is free", (_S.NONE,))),
    *((event, _S.NONE, _NO_BATCH) for event in ORDER_EVENTS if not issubclass(event, BatchAdopted)),
)
"""Each pair of a state and an event of a batch."""
