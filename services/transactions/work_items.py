"""Makes the items of a chain: the record that the work for a half stores, and its queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from ringmq.remoting import names
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError
from ringmq.services.control_asks import ControlAsks
from ringmq.services.log_view import LogView
from ringmq.services.topics import Topics
from ringmq.services.transactions import core, records
from ringmq.services.transactions.chain_port import Item
from ringmq.services.transactions.core import Work
from ringmq.services.transactions.halves import HalfReader
from ringmq.store.record_copy import RecordCopy

NO_TARGET = "the topic or the queue of the message is gone"
UNREAD = "[OVERLOAD]the half message cannot be read now, try again later"


class Lost(Enum):
    """The reason why a half never has an item."""

    DELETED = "was deleted before its transaction ended"
    DAMAGED = "is damaged, and its transaction cannot end"


class Refusal(Struct, frozen=True):
    """The work cannot be done: code and remark of the answer."""

    code: int
    remark: str


class WorkItems:
    """`half_queue`: topic id, queue slot and queue id."""

    def __init__(
        self, halves: HalfReader, log: LogView, topics: Topics, half_queue: tuple[int, int, int], asks: ControlAsks,
        log_line: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._halves, self._log, self._topics, self._half_queue = halves, log, topics, half_queue
        self._asks, self._log_line = asks, log_line
        self._creating = False

    def of(self, submit: core.Submit) -> Item | Refusal | Lost:
        """The item of a piece of work."""
        half = submit.half
        if submit.work is Work.ROLLBACK:
            return Item(half.first, half.newest)
        copy = self._copy(submit)
        return Item(half.first, half.newest, copy) if isinstance(copy, RecordCopy) else copy

    def _copy(self, submit: core.Submit) -> RecordCopy | Refusal | Lost:
        half = submit.half
        position = submit.position if submit.position >= 0 else self._halves.position(half.newest)
        found = None if position is None else self._halves.at(position)
        if found is None:
            return self._unread(half.newest, position)
        data, record = found
        if submit.work is Work.COMMIT:
            target = self._halves.target(record)
            if target is None:
                return Refusal(ResponseCode.SYSTEM_ERROR, NO_TARGET)
            return records.commit_copy(data, record.physical_offset, target)
        if submit.work is Work.EXPIRE:
            target = self.expired_queue()
            if target is None:
                return Refusal(ResponseCode.SYSTEM_BUSY, NO_TARGET)
            return records.expired_copy(data, half.first, target)
        return records.half_copy(data, half.first, self._half_queue, is_check=submit.work is Work.CHECK)

    def _unread(self, newest: int, position: int | None) -> Refusal | Lost:
        if newest < self._halves.first:
            return Lost.DELETED
        if position is not None and self._halves.is_damaged(position):
            return Lost.DAMAGED
        return Refusal(ResponseCode.SYSTEM_BUSY, UNREAD)

    def expired_topic(self) -> tuple[int, int, int] | None:
        """The queue of expired halves, if its topic has been made."""
        return self._topics.queue(names.TRANS_CHECK_MAX_TIME_TOPIC, 0)

    def expired_queue(self) -> tuple[int, int, int] | None:
        """The queue of expired halves. None while control makes its topic."""
        target = self.expired_topic()
        if target is None and not self._creating:
            self._creating = True

            def then(refusal: RequestError | None) -> None:
                self._creating = False
                if refusal is not None:
                    self._log_line(f"cannot make topic {names.TRANS_CHECK_MAX_TIME_TOPIC}: {refusal}")

            topic = TopicConfig(names.TRANS_CHECK_MAX_TIME_TOPIC, 1, 1)
            self._asks.create([topic], time.monotonic_ns() // 1_000_000, then)
        return target
