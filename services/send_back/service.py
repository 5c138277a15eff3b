"""The service of messages that consumers send back (36): each request is answered when its copy is stored.

A turn takes the answers of write, and submits copies in batches. Each case of a batch is decided once: its rows are
copied, or each row is answered or waits for control. A death between a submit and its answer leaves the client without
an answer. The client sends the request again, as to stock, and the message is stored twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.reply_queue import ReplyQueues
from ringmq.broker.requests.request import Answer, Outbox, Request, Wait
from ringmq.broker.requests.retry_ask import RetryAsk
from ringmq.ipc.asks import Inbox
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.remoting import names
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import Perm
from ringmq.services.control_asks import ControlAsks
from ringmq.services.kit.flight import IN_THE_LOG
from ringmq.services.log_view import LogView
from ringmq.services.send_back.batches import SLOT_MASK, SPREAD, CopyBatches
from ringmq.services.send_back.cases import (
    Make,
    Outcome,
    Refuse,
    RetryTopic,
    Seen,
    SendBack,
    Source,
    Store,
    decide,
)
from ringmq.services.send_back.rows import ROWS, TABLE, Rows, Tried, asked_of_row, made_of, request_of_row
from ringmq.services.send_back.targets import Targets
from ringmq.services.topics import Topics
from ringmq.store.record_copy import Cause

BATCHES = 4
"""Batches of one turn."""
HIDDEN_TOPICS = frozenset(
    (
        names.SCHEDULE_TOPIC, names.HALF_TOPIC, names.OP_HALF_TOPIC, names.WHEEL_TIMER_TOPIC, *names.STAGED_TOPICS,
    )
)  # fmt: skip
"""Topics whose records no consumer gets. A position that a client names must not show them to one."""
STATUS = {
    lib.RMQ_CAUSE_IN_SYNC_REPLICAS: "IN_SYNC_REPLICAS_NOT_ENOUGH",
    lib.RMQ_CAUSE_SEGMENT_LATE: "CREATE_MAPPED_FILE_FAILED",
    lib.RMQ_FAULT_CREATE_FILE: "CREATE_MAPPED_FILE_FAILED",
    lib.RMQ_CAUSE_MESSAGE_SIZE: "MESSAGE_ILLEGAL",
}
"""Stock's name of the status (`PutMessageStatus`) by the cause of a refusal."""
NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
COPY_STATUS = {Cause.PROPERTIES: "PROPERTIES_SIZE_EXCEEDED", Cause.BODY: "MESSAGE_ILLEGAL"}


class SendBackService:
    """Implements HostedService, and PlainRequests of the intake. `on_gone` is called for each refused message that
    retention has deleted. `slow_ms`: the time from which on a request is slow."""

    name = "send-back"
    codes = frozenset({int(RequestCode.CONSUMER_SEND_MSG_BACK)})

    def __init__(
        self, *, plane: Plane, role: int, inbox: Inbox, rows: Rows, batches: CopyBatches, log: LogView, topics: Topics,
        targets: Targets, config: Callable[[], BrokerConfig], control: ControlAsks, outbox: Outbox,
        replies: ReplyQueues, on_gone: Callable[[], None],
    ) -> None:  # fmt: skip
        self._plane, self._inbox, self._rows, self._batches = plane, inbox, rows, batches
        self._latency = ffi.addressof(plane.header.latency[role][lib.RMQ_SERVICES_LATENCY_ANSWERED])
        self._log, self._topics, self._targets, self._config = log, topics, targets, config
        self._control, self._outbox, self._replies, self._on_gone = control, outbox, replies, on_gone
        self._now_config = config()
        self._reader_of: Callable[[int, int], int | None] = lambda role, generation: None
        self._now_ms = 0
        self._oldest_ns = ffi.new("uint64_t *")
        self._asking: dict[RetryAsk, list[int]] = {}
        """The slots of the rows for which control makes something."""

    # ---- requests ----

    def take(self, room: int, reader_of: Callable[[int, int], int | None], now_ms: int) -> tuple[int, list[Request]]:
        """See PlainRequests. The requests that it returns are slow."""
        self._reader_of, self._now_ms = reader_of, now_ms
        rows = self._rows.native
        count = lib.rmq_send_backs_take(self._plane.struct, self._inbox.answerer, rows, max(0, room), self._oldest_ns)
        return count, self._measure(count) if count else []

    def _measure(self, count: int) -> list[Request]:
        """Count the times of the rows that were taken just now, or return them all if one is slow."""
        rows, now_ns, slow_ms = self._rows.native, time.monotonic_ns(), self._config().slow_request_ms
        received_ns = int(self._oldest_ns[0])
        if not (slow_ms and received_ns and now_ns - received_ns >= slow_ms * 1_000_000):
            lib.rmq_send_backs_measure(rows, count, self._latency, now_ns)
            return []
        taken = (self._request(slot) for slot in rows.ready[rows.ready_count - count : rows.ready_count])
        return [request for request in taken if request is not None]

    def on_request(self, request: Request) -> Answer:
        """See HostedService. Raises RequestError."""
        record = TABLE.decode(request.command.ext_fields, request.command.version)
        if not self._rows.add(request, self._replies.role_of(request.connection.reader), record):
            remark = f"[OVERLOAD]{ROWS} messages that are sent back wait already, try again later"
            return request.reply(ResponseCode.SYSTEM_BUSY, remark)
        return Wait()

    @property
    def has_news(self) -> bool:
        """See HostedService."""
        return self._batches.has_answers

    @property
    def is_polling(self) -> bool:
        """See HostedService. Ready rows that are left by a turn wait for files, or for room in the port."""
        return bool(self._rows.native.ready_count)

    @property
    def is_idle(self) -> bool:
        """See HostedService."""
        return not len(self._rows)

    def turn(self, now_ms: int) -> bool:
        """See HostedService."""
        self._now_ms = now_ms
        self._batches.tick(now_ms)
        worked = self._take_answers()
        for _ in range(BATCHES):
            if not self._batches.begin():
                break
            self._now_config = self._config()
            outcomes = self._decide()
            count, left = self._batches.submit()
            for slot in left:
                self._settle(slot, outcomes)
            if not count:
                break
            worked = True
        return worked

    def save_if_due(self, now_ms: int) -> None:
        """See HostedService. There is nothing to save."""

    def close(self) -> None:
        """See HostedService. Copies that write has taken may be stored without an answer."""
        remark = "service not available now: the broker is shutting down, try again"
        waiting = [*self._rows.take_ready(), *(slot for asking in self._asking.values() for slot in asking)]
        self._asking.clear()
        for slot in waiting:
            self._reply(slot, ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        self._batches.close()

    # ---- a batch ----

    def _decide(self) -> list[Outcome | None]:
        """Decide about each case. None: its read worker has died."""
        rows, outcomes = self._rows.native, list[Outcome | None]()
        for number in range(rows.cases_count):
            case = rows.cases[number]
            row = rows.rows[case.first]
            outcome: Outcome | None = None
            if self._reader_of(row.record.role, row.record.role_generation) is None:
                case.action = lib.RMQ_SEND_BACK_DROP
            else:
                asked, source = asked_of_row(row), Source(row.reconsume_times)
                outcome = decide(asked, self._seen(asked.group, source, made_of(row.tried)))
            if isinstance(outcome, Store):
                targets = self._targets.of(outcome, min(case.rows, SPREAD))
                if isinstance(targets, Refuse):
                    outcome = targets
                else:
                    self._batches.store(case, targets)
            outcomes.append(outcome)
        return outcomes

    def _seen(self, group: str, source: Source | None, made: frozenset[Make]) -> Seen:
        config = self._now_config
        retry = self._topics.find(names.retry_topic(group))
        return Seen(
            config.broker_ip1,
            bool(config.broker_permission & Perm.WRITE),
            self._topics.group_retry(group),
            None if retry is None else RetryTopic(bool(retry.perm & Perm.WRITE)),
            self._topics.find(names.dlq_topic(group)) is not None,
            source,
            made,
            config.auto_create_subscription_group and _is_group_name(group),
        )

    def _settle(self, slot: int, outcomes: list[Outcome | None]) -> None:
        """Answer a row that gets no copy, or have control make what it needs."""
        row = self._rows.native.rows[slot]
        if row.cause:
            cause = Cause(row.cause)
            remark = COPY_STATUS.get(cause, f"MESSAGE_ILLEGAL: the record cannot be copied ({cause.name})")
            self._reply(slot, ResponseCode.SYSTEM_ERROR, remark)
            return
        asked = asked_of_row(row)
        is_sound = row.case_number != lib.RMQ_SEND_BACK_NO_CASE
        outcome = outcomes[row.case_number] if is_sound else decide(asked, self._seen(asked.group, None, frozenset()))
        match outcome:
            case Make() as make:
                self._make(slot, asked, make)
            case Refuse(code, remark, has_no_record):
                if has_no_record and 0 <= asked.offset < self._log.bounds().min_offset:
                    self._on_gone()
                self._reply(slot, code, remark)
            case _:
                self._reply(slot)

    # ---- control ----

    def _make(self, slot: int, asked: SendBack, make: Make) -> None:
        """Have control make what is missing. Requests of a group share one ask."""
        row = self._rows.native.rows[slot]
        row.tried |= Tried.MADE_DEAD if make.dead else Tried.MADE
        ask = RetryAsk(asked.group, asked.unit_mode, make.dead)
        asking = self._asking.setdefault(ask, [])
        asking.append(slot)
        if len(asking) == 1:
            self._control.retry(ask, self._now_ms, lambda refusal: self._on_made(ask, refusal))

    def _on_made(self, ask: RetryAsk, refusal: RequestError | None) -> None:
        for slot in self._asking.pop(ask, ()):
            if refusal is None:
                lib.rmq_send_backs_ready(self._rows.native, slot)
            else:
                self._reply(slot, refusal.code, str(refusal))

    # ---- answers ----

    def _take_answers(self) -> bool:
        if self._batches.is_idle:
            return False
        before = len(self._rows)
        worked = False
        for found in self._batches.answers(may_answer=not self._replies.is_waiting):
            self._answer_completed(found)
            worked = True
        return worked or len(self._rows) < before

    def _answer_completed(self, found: Any) -> None:
        slot = int(found.token) & SLOT_MASK
        row = self._rows.native.rows[slot]
        if found.code in IN_THE_LOG:  # stock waits for neither disk nor replicas here
            self._reply(slot)
        elif found.cause == lib.RMQ_CAUSE_QUEUE_SLOT and not row.tried & Tried.STORED:
            row.tried = Tried.STORED  # the topic was deleted just now: it is made again, once
            lib.rmq_send_backs_ready(self._rows.native, slot)
        else:
            self._reply(slot, ResponseCode.SYSTEM_ERROR, STATUS.get(found.cause, NOT_AVAILABLE))

    def _request(self, slot: int) -> Request | None:
        """None if its read worker has died."""
        row = self._rows.native.rows[slot]
        reader = self._reader_of(row.record.role, row.record.role_generation)
        return None if reader is None else request_of_row(row, reader, self._now_ms)

    def _reply(self, slot: int, code: int = ResponseCode.SUCCESS, remark: str | None = None) -> None:
        """Answer the row, and end it."""
        request = self._request(slot)
        lib.rmq_send_backs_release(self._rows.native, slot)
        if request is not None:
            self._outbox.reply(request, request.reply(code, remark))


def _is_group_name(group: str) -> bool:
    """True if clients may make a group of this name."""
    try:
        names.check_group(group)
    except RequestError:
        return False
    return True
