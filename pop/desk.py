"""The desk: the part of the worker `pop` that answers consumers. It owns the C struct and all that this points to.

The windows lie in memory that outlives the process; the desk is made anew at each start.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.reply_queue import ReplyQueues
from ringmq.broker.requests.request import Connection, Outbox
from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.pop.drain import PopDrain
from ringmq.pop.filters import Filters
from ringmq.pop.inflight import PopOpenMessages
from ringmq.pop.log_acks import LogAcks
from ringmq.pop.looks import PopLooks
from ringmq.pop.native_desk import NativeDesk
from ringmq.pop.questions import PopAsks
from ringmq.pop.requests import PopRequests
from ringmq.pop.role_words import Counter
from ringmq.pop.window_names import NamesFile, Window, WindowNames
from ringmq.services.answering import Answering
from ringmq.services.hosted_service import HostedService
from ringmq.services.kit.loop import Part
from ringmq.services.kit.serving import Serving
from ringmq.services.log_view import LogView
from ringmq.store.queue_reader import QueueReader
from ringmq.store.topic_start_offsets import read_start_offsets

log = logging.getLogger(__name__)

LOG_FILES = 64
QUEUE_FILES = 4096
LOOK_MS = 1000
"""Time between two looks at deleted topics and files."""
ENDED_PER_TURN = 64
"""Windows of deleted topics and groups that a turn ends, 5 to 15 us each."""
LOOK_STEP_MS = 10
"""Time between two such turns: they take less than a tenth of the worker's time."""
LINE_MS = 60_000
"""Time between two log lines about the same thing."""


class Memory(Protocol):
    """The memory of the windows (`ringmq.pop.memory.PopMemory`)."""

    @property
    def root(self) -> Path:
        """Root of the store."""

    @property
    def layout(self) -> Any:
        """struct rmq_pop_layout"""

    @property
    def header(self) -> Any:
        """struct rmq_pop_header"""


class Desk(Part):
    """Answers POP, ACK, BATCH_ACK, CHANGE_INVISIBLE, NOTIFICATION, PEEK, POLLING_INFO, and operators.

    `rings`: see Serving. `config_version`: of `config`. `others`: handlers of records of other workers, by their types.
    `log_acks`: None if no check point can be in the log.
    `drain`: answers operators who end POP. None: messages are always given.
    """

    def __init__(
        self, plane: Plane, inbox: Inbox, memory: Memory, windows: Any, names: NamesFile,
        config: Callable[[], BrokerConfig], control: PopAsks, log_view: LogView, *, role: int = lib.RMQ_ROLE_POP,
        log_acks: LogAcks | None = None,
        log_line: Callable[[str], None] = log.warning, rings: Sequence[Any] = (),
        config_version: Callable[[], int] = lambda: 0,
        others: Mapping[int, Callable[[Ask, int], None]] = MappingProxyType({}), drain: PopDrain | None = None,
    ) -> None:  # fmt: skip
        self._plane, self._inbox, self._config, self._log_line = plane, inbox, config, log_line
        self._reader = QueueReader(plane.struct, LOG_FILES, QUEUE_FILES)
        self._stopped: str | None = None
        self.windows = WindowNames(
            plane, windows, names, self._reader, lambda: read_start_offsets(memory.root), config,
            int(memory.layout.windows_max),
        )  # fmt: skip
        self._filters = Filters()
        broker_name = config().broker_name
        self.native = NativeDesk(
            plane, role, inbox, windows, self.windows, self._filters, self._reader, broker_name,
            int(memory.layout.entries_max), int(memory.header.marks_from), random.getrandbits(64),
            log_acks,
        )  # fmt: skip
        arrived = ffi.addressof(plane.header.ports.port[plane.port_of(role)], "arrived")
        self.serving = Serving(plane, role, inbox.answerer, rings, self.native.serve_waiting, arrived=arrived)
        self._replies = replies = ReplyQueues(plane.readers, inbox)
        outbox = Outbox()
        self._requests = PopRequests(
            plane, self.native, self.windows, self._filters, config, control, outbox, replies, lambda: self._stopped,
            lambda: drain is not None and drain.gives_none, self.serving, config_version,
        )  # fmt: skip
        self._looks = PopLooks(
            plane, self.windows, self._reader, config, control, outbox, lambda: self._stopped, self._polls_of,
            lambda: self.native.count(Counter.UNREADABLE), lambda request: self._answering.run_again(request),
        )  # fmt: skip
        opened = PopOpenMessages(plane, windows, self.windows, self._reader, outbox, self.native.address_of)
        services: list[HostedService] = [self._requests, self._looks, opened, *([] if drain is None else [drain])]
        self._answering = Answering(
            plane, role, inbox, services, control, outbox, config, log_view, log_line,
            replies=replies, plain=self._requests, waiting=self._requests,
            others={lib.RMQ_INBOX_UNSENT: self._on_unsent, **others}, on_reader_restart=self._on_reader_restart,
            on_closed=self._on_closed, keeps_asks=True,
        )  # fmt: skip
        self._generations = {reader.role: int(plane.role(reader.role).generation) for reader in plane.readers}
        self._asks = 0
        """Asks that C had served until the last turn."""
        self._next_look_ms = self._next_step_ms = 0
        self._line_ms: dict[str, int] = {}
        self._bound_told = self.native.counted(Counter.BOUND)

    def stop(self, cause: str) -> None:
        """Refuse all requests and polls from now on: the windows cannot be kept. A later call changes nothing."""
        self._stopped = self._stopped or cause
        self.native.polls.wake_all()

    def resume(self) -> None:
        """Messages are given again: polls look for them."""
        self.native.polls.wake_all()

    def window_of(self, group_id: int, queue_slot: int) -> Window | None:
        """The window of a group's queue, by the numbers of this plane."""
        return self.windows.find(group_id, queue_slot)

    # ---- Part ----

    def begin(self) -> None:
        """See Part."""
        self.native.polls.begin()
        self._answering.begin()

    def turn(self, now_ms: int) -> bool:
        """See Part."""
        worked = self._answering.turn(now_ms)
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + LOOK_MS
            self.windows.begin_look()
            self._look(now_ms)
        if self.windows.is_looking and now_ms >= self._next_step_ms:
            self._next_step_ms = now_ms + LOOK_STEP_MS
            self._end_gone(now_ms)
        self.has_worked = worked or self._answering.has_taken or self.serving.asks != self._asks
        self._asks = self.serving.asks
        return worked

    def wait(self, timeout_ms: int) -> None:
        """Sleep and serve, see `Answering`."""
        self._answering.wait(timeout_ms)

    def sleep_ms(self, now_ms: int) -> int:
        """See Part."""
        due_ms = min(self._next_look_ms, self._next_step_ms) if self.windows.is_looking else self._next_look_ms
        sleep_ms = min(self._answering.sleep_ms(now_ms), self.native.polls.sleep_ms())
        return min(sleep_ms, max(0, due_ms - now_ms))

    @property
    def is_idle(self) -> bool:
        """See Part."""
        return self._answering.is_idle

    def close(self, *, rests: bool) -> None:
        """See Part. The windows can be changed until `free`."""
        self._answering.close(rests=rests)

    def finish(self, now_ms: int) -> None:
        """A turn of the stop: acknowledgements whose records are stored have their effect."""
        self.native.log_turn(now_ms)

    def free(self) -> None:
        """Free what C has allocated. No call may follow."""
        self.native.close()
        self.windows.close()
        self._filters.close()
        self._reader.close()

    # ---- polls ----

    @property
    def polls_waiting(self) -> int:
        """Pops that wait for a message."""
        return self.native.polls.pops

    @property
    def polls_max(self) -> int:
        """Pops that may wait."""
        return self.native.polls.limit

    def wake_group(self, group_id: int) -> None:
        """Windows of a group have begun anew: its polls look for messages once more."""
        self.native.polls.wake_group(group_id)

    def look_for_retries(self) -> None:
        """Topics of retries were made: polls wait for messages there, too. Polls of topics and groups that were deleted
        are refused."""
        self.native.polls.look()

    def _polls_of(self, group: str, topic: str, queue_id: int) -> int:
        topic_id, group_id = self._plane.topic_find(topic), self._plane.group_find(group)
        return 0 if topic_id is None or group_id is None else self.native.polls.count_of(topic_id, group_id, queue_id)

    def _on_closed(self, connection: Connection) -> None:
        self.native.polls.closed(self._replies.role_of(connection.reader), connection)

    # ---- answers that no client has received ----

    def _on_unsent(self, record: Ask, now_ms: int) -> None:
        told = self._inbox.unsent(record)
        if told is not None:
            self.native.unsent(told.serial)

    def _on_reader_restart(self, port: int, generation: int) -> None:
        """Take back the answers that a dead read worker has left in its ring.

        A request of a read worker that had died before this process began makes its replacement look new, too. The
        replacement lives, and still sends what is in its ring.
        """
        role = next(reader.role for reader in self._plane.readers if reader.port == port)
        before = self._generations[role]
        if generation <= before:
            return
        self._generations[role] = generation
        self.native.polls.restarted(role, generation)
        for told in self._inbox.unconsumed(role, before):
            self.native.unsent(told.serial)

    # ---- looks ----

    def _end_gone(self, now_ms: int) -> None:
        for group, topic, queue_id in self.windows.end_gone(ENDED_PER_TURN):
            line = f"pop: the window of {group} in {topic}, queue {queue_id}, ended with its topic or group"
            self._line(now_ms, "gone", line)

    def _look(self, now_ms: int) -> None:
        self._reader.tick()
        self.native.polls.look()
        bound = self.native.counted(Counter.BOUND)
        if bound > self._bound_told and self._line(
            now_ms, "bound", f"pop: {bound - self._bound_told} pops found too many messages "
            "open (ringmqPopOpenMax) or windows there (ringmqOffsetsMax), and wait or were answered empty",
        ):  # fmt: skip
            self._bound_told = bound
        if (trouble := self.native.take_trouble()) is not None:
            slot, offset, error = trouble
            queue = self._plane.queue(slot)
            topic = self._plane.topic(queue.topic_id)
            name = bytes(ffi.buffer(topic.name, topic.name_length)).decode()
            why = os.strerror(error)
            self._line(now_ms, "trouble", f"pop: queue {queue.queue_id} of {name} cannot be read at {offset}: {why}")

    def _line(self, now_ms: int, what: str, line: str) -> bool:
        """Log a line, at most one a minute of its kind. True if it was logged."""
        if now_ms < self._line_ms.get(what, 0):
            return False
        self._line_ms[what] = now_ms + LINE_MS
        self._log_line(line)
        return True
