"""Requests of consumers that take single messages: those that C serves in batches, and the others, one by one.

Both take the same road (rmq_pop_serve). C leaves to Python a window or a filter that is missing, a group that control
may make, and the text of a refusal.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.reply_queue import ReplyQueues
from ringmq.broker.requests.request import Answer, Outbox, Request, Wait
from ringmq.ipc.plain_requests import Record, text_at
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.pop.batch_acks import AckGroup, checked_flag, read_batch_ack
from ringmq.pop.filter_queue import Expression, FilterQueue, Found
from ringmq.pop.filters import Filters
from ringmq.pop.native_desk import OF_RECEIPTS, TABLES, NativeDesk
from ringmq.pop.questions import PopAsk, PopAsks
from ringmq.pop.refusals import Refused, refusal, zero_fields
from ringmq.pop.role_words import Counter
from ringmq.pop.window_names import WindowNames
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RequestError
from ringmq.remoting.names import is_retry_topic, pop_retry_topic
from ringmq.services.kit.serving import Serving
from ringmq.store.config_files import ConfigFileError

BATCH = 64
"""Asks that one call of C serves. It wakes the read workers behind them."""
TRIES = 4
"""Times that a request is served again after something was made for it."""
ORDERLY: int = lib.RMQ_POP_ORDERLY
RETRY_V2 = 2
"""Topic flag of a receipt."""


class _Later(NamedTuple):
    """A request that is served again in a later turn.

    `has_waited`: for a group, a window or a filter. It is not late for that.
    """

    request: Request
    record: Record
    has_waited: bool = False


class PopRequests:
    """Implements HostedService, PlainRequests of the intake, and ServedWaiting. `cause`: the reason why POP has
    stopped, if it has. `is_draining`: no message is given. `config_version`: of `config`."""

    name = "pop"
    codes = frozenset({*TABLES, int(RequestCode.BATCH_ACK_MESSAGE)})

    def __init__(
        self, plane: Plane, desk: NativeDesk, names: WindowNames, filters: Filters, config: Callable[[], BrokerConfig],
        control: PopAsks, outbox: Outbox, replies: ReplyQueues, cause: Callable[[], str | None],
        is_draining: Callable[[], bool], serving: Serving, config_version: Callable[[], int],
    ) -> None:  # fmt: skip
        self._plane, self._desk, self._names, self._config = plane, desk, names, config
        self._control, self._outbox, self._replies, self._cause = control, outbox, replies, cause
        self._is_draining, self._serving, self._config_version = is_draining, serving, config_version
        self._reader_of: Callable[[int, int], int | None] = lambda role, generation: None
        self._now_ms = 0
        self._later: deque[_Later] = deque()
        """Requests for whose answers there was no room."""
        self._asking: dict[PopAsk, list[_Later]] = {}
        """Requests of groups that control is making, or has to have on disk."""
        self._compiling: FilterQueue[_Later] = FilterQueue(filters)
        self._saved: PopAsk | None = None
        """The question that control has answered, while the requests that have asked it are served."""

    # ---- HostedService and PlainRequests ----

    def take(self, room: int, reader_of: Callable[[int, int], int | None], now_ms: int) -> tuple[int, list[Request]]:
        """See PlainRequests. The requests that it returns are slow."""
        self._reader_of = reader_of
        if self._later:
            return 0, []
        self._begin(now_ms)
        taken, slow = 0, list[Request]()
        while taken < room:
            why, count = self._desk.turn(batch := min(BATCH, room - taken))
            taken += count
            if why == lib.RMQ_POP_SLOW:
                slow += self._slow()
            elif why != lib.RMQ_POP_SERVED or count < batch:
                break  # a request that lacks something waits for it when it is taken alone
        return taken, slow

    def on_request(self, request: Request) -> Answer:
        """See HostedService. Raises RequestError."""
        self._begin(self._now_ms)
        if request.command.code == RequestCode.BATCH_ACK_MESSAGE:
            return self._batch_ack(request)
        table = TABLES[request.command.code]
        return self._serve(_Later(request, table.decode(request.command.ext_fields, request.command.version)))

    @property
    def has_news(self) -> bool:
        """See HostedService."""
        return self._desk.polls.has_more

    @property
    def is_polling(self) -> bool:
        """See HostedService. Room in a ring of answers rings no bell."""
        return bool(self._later) or self._desk.lacks_room

    @property
    def is_idle(self) -> bool:
        """See HostedService."""
        has_waiting = self._later or self._asking or self._compiling or len(self._desk.polls)
        return not has_waiting and self._desk.is_idle

    def turn(self, now_ms: int) -> bool:
        """See HostedService."""
        self._begin(now_ms)
        self._desk.polls.turn()
        self._desk.log_turn(now_ms)
        self._on_compiled(self._compiling.turn())
        waiting, self._later = self._later, deque()
        for one in waiting:
            self._serve_again(one)
        return len(self._later) < len(waiting) or bool(self._compiling) or self._desk.polls.has_more

    def save_if_due(self, now_ms: int) -> None:
        """See HostedService. The windows are saved elsewhere."""

    def close(self) -> None:
        """See HostedService."""
        remark = "service not available now: the broker is shutting down, try again"
        waiting = [*self._later, *(one for asking in self._asking.values() for one in asking), *self._compiling.clear()]
        self._later.clear()
        self._asking.clear()
        for one in waiting:
            self._outbox.reply(one.request, one.request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark))

    # ---- ServedWaiting ----

    @property
    def is_blocked(self) -> bool:
        """See ServedWaiting."""
        return self._serving.is_blocked

    @property
    def has_left(self) -> bool:
        """See ServedWaiting."""
        return self._serving.has_left

    @property
    def may_serve(self) -> bool:
        """See ServedWaiting."""
        return not self._later

    def wait(self, timeout_ms: int) -> Sequence[Request]:
        """See ServedWaiting."""
        self._begin(self._now_ms)
        why = self._serving.wait(self._config_version(), timeout_ms)
        return self._slow() if why == lib.RMQ_POP_SLOW else ()

    # ---- one request ----

    def _begin(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._desk.begin(self._config(), stopped=self._cause() is not None, draining=self._is_draining())

    def _serve(self, one: _Later) -> Answer:
        role = self._replies.role_of(one.request.connection.reader)
        for _ in range(TRIES):
            why = self._desk.serve(one.request, role, one.record, has_waited=one.has_waited)
            if why not in _MISSING:
                break
            one = one._replace(has_waited=True)
            if why == lib.RMQ_POP_NEEDS_NOTICE:
                if (refused := self._extend_notice(one.request)) is not None:
                    return refused
                continue
            if why == lib.RMQ_POP_NEEDS_FILTER:
                return self._compile(one)
            if (asked := self._needed()) != self._saved:
                return self._ask(asked, one)
            if (error := self._make_windows()) is not None:
                self._desk.count(Counter.BOUND, int(error.limit is not None))
                return one.request.reply(error.code, str(error), zero_fields(one.request.command.code))
        if why == lib.RMQ_POP_SERVED:
            return Wait()  # C has put the answer
        if why in _MISSING or why == lib.RMQ_POP_NO_ROOM:
            self._later.append(one._replace(has_waited=one.has_waited or why in _MISSING))  # its client may not read
            return Wait()
        if why == lib.RMQ_POP_NO_GROUP and self._config().auto_create_subscription_group:
            return self._ask(PopAsk(self._asked(one.request).group), one._replace(has_waited=True))
        return self._refuse(one.request, why)

    def _serve_again(self, one: _Later) -> None:
        answer = self._serve(one)
        if isinstance(answer, RemotingCommand):
            self._outbox.reply(one.request, answer)

    def _refuse(self, request: Request, why: int) -> Answer:
        code, remark, fields = refusal(why, self._asked(request))
        return request.reply(code, remark, fields)

    def _asked(self, request: Request) -> Refused:
        """The parts of the row, which C has refused."""
        row, code = self._desk.struct.row, request.command.code
        has_receipt = code in OF_RECEIPTS
        fields = row.ack if has_receipt else row.pop
        texts = bytes(ffi.buffer(row.text, fields.head.text_bytes))
        topic, queues, bounds = text_at(fields.topic, texts), 0, (0, 0)
        topic_id = self._plane.topic_find(topic)
        if topic_id is not None:
            queues = int(self._plane.topic(topic_id).config) >> 8 & 0xFFFF
            slot = self._plane.queue_find(topic_id, fields.queue_id) if fields.queue_id >= 0 else None
            if slot is not None:
                bounds = int(self._plane.queue(slot).min_offset), int(self._plane.queue(slot).max_offset)
        receipt = text_at(fields.receipt, texts) if has_receipt and fields.head.present & _RECEIPT else None
        return Refused(
            code, text_at(fields.group, texts), topic, int(fields.queue_id), request.connection.address,
            self._config().broker_ip1, queues, bounds, int(fields.offset) if has_receipt else 0,
            int(self._desk.struct.committed_offset), int(fields.invisible_ms), receipt, self._cause() or "",
        )  # fmt: skip

    def _slow(self) -> list[Request]:
        ask = self._desk.struct.row.ask
        reader = self._reader_of(ask.role, ask.role_generation)
        return [] if reader is None else [self._desk.request_of_row(reader, self._now_ms)]

    # ---- what is missing ----

    def _make_windows(self) -> RequestError | None:
        """Make the windows that the row needs. Returns the reason why they cannot be made."""
        d = self._desk.struct
        try:
            from_min = d.row.pop.init_mode == lib.RMQ_POP_INIT_MIN
            self._names.make_all(int(d.wanted_group), int(d.wanted_topic), from_min=from_min)
        except RequestError as error:
            return error
        except (OSError, ConfigFileError) as error:
            return RequestError(f"POP cannot begin: {error}", field="consumerGroup", code=ResponseCode.SYSTEM_ERROR)
        return None

    def _extend_notice(self, request: Request) -> RemotingCommand | None:
        """Have the next start look for the check point of the row's change. Returns the answer if it cannot."""
        try:
            self._desk.extend_notice(time.time_ns() // 1_000_000 + int(self._desk.struct.row.ack.invisible_ms))
        except OSError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"the message keeps its time: {error}")
        return None

    def _compile(self, one: _Later) -> Answer:
        """Have the expression of the row compiled."""
        request = one.request
        if self._compiling.is_full:
            remark = f"{len(self._compiling)} pops wait for their expressions to be compiled, try again"
            return request.reply(ResponseCode.SYSTEM_BUSY, remark, zero_fields(request.command.code))
        row = self._desk.struct.row
        texts = bytes(ffi.buffer(row.text, row.pop.head.text_bytes))
        expression = Expression(text_at(row.pop.expression_type, texts), text_at(row.pop.expression, texts))
        self._compiling.add(expression, one)
        return Wait()

    def _on_compiled(self, found: Found[_Later]) -> None:
        for one in found.requests:
            if not found.refusal:
                self._serve_again(one)
                continue
            request, remark = one.request, f"POP cannot begin: {found.refusal}"
            reply = request.reply(ResponseCode.SYSTEM_ERROR, remark, zero_fields(request.command.code))
            self._outbox.reply(request, reply)

    def _needed(self) -> PopAsk:
        """The group and topic of the row's windows, to be saved first. A start that does not know them ends the
        windows, and the plane may have them before they are on disk."""
        d = self._desk.struct
        group, topic = (_name(self._plane.group(d.wanted_group)), _name(self._plane.topic(d.wanted_topic)))
        return PopAsk(group, (topic,) if is_retry_topic(topic) else ())

    def _ask(self, asked: PopAsk, one: _Later) -> Answer:
        """Have control make the group and its topic, and save them. Requests share one question."""
        asking = self._asking.setdefault(asked, [])
        asking.append(one)
        if len(asking) == 1:
            self._control.make(asked, self._now_ms, lambda error: self._on_made(asked, error))
        return Wait()

    def _on_made(self, asked: PopAsk, error: RequestError | None) -> None:
        self._saved, group = asked, asked.group
        for one in self._asking.pop(asked, ()):
            if error is not None:
                reply = one.request.reply(error.code, str(error), zero_fields(one.request.command.code))
                self._outbox.reply(one.request, reply)
            elif self._plane.group_find(group) is None:
                self._outbox.reply(one.request, self._no_group(one.request, group))
            else:
                self._begin(self._now_ms)
                self._serve_again(one)
        self._saved = None

    def _no_group(self, request: Request, group: str) -> Any:
        asked = Refused(request.command.code, group, "", 0, request.connection.address, self._config().broker_ip1)
        code, remark, fields = refusal(lib.RMQ_POP_NO_GROUP, asked)
        return request.reply(code, remark, fields)

    # ---- batches of acknowledgements ----

    def _batch_ack(self, request: Request) -> Answer:
        if (cause := self._cause()) is not None:
            asked = Refused(request.command.code, "", "", 0, "", "", cause=cause)
            code, remark, fields = refusal(lib.RMQ_POP_STOPPED, asked)
            return request.reply(code, remark, fields)
        batch = read_batch_ack(request.command.body)
        if not batch.acks:
            return request.reply(ResponseCode.NO_MESSAGE)
        flags = [checked_flag(ack) for ack in batch.acks]  # all of them before any of them counts
        is_own = batch.broker == self._config().broker_name
        if not is_own:
            self._desk.count(Counter.ACKS_FOREIGN, len(batch.acks))
        if not self._desk.begin_batch_ack(request, self._replies.role_of(request.connection.reader)):
            return request.reply(ResponseCode.SYSTEM_BUSY, "too many acknowledgements wait for the log, try again")
        reply = request.reply()
        for ack, flag in zip(batch.acks, flags, strict=True) if is_own else ():
            names = ack.group, ack.topic, flag, ack.queue_id, ack.start_offset, ack.pop_time_ms, ack.bits
            if ack.revive_queue != ORDERLY:
                self._desk.ack_bits(*names)
            elif (illegal := self._desk.ack_order_bits(*names)) is not None:
                reply = self._not_of_batch(request, ack, flag, *illegal)
        is_success = reply.code == ResponseCode.SUCCESS
        waits = self._desk.end_batch_ack(reply.code if is_success else -1)
        return Wait() if waits and is_success else reply

    def _not_of_batch(self, request: Request, ack: AckGroup, flag: int, offset: int, committed: int) -> RemotingCommand:
        topic = ack.topic if not flag else pop_retry_topic(ack.group, ack.topic, is_v2=flag == RETRY_V2)
        asked = Refused(
            request.command.code, ack.group, topic, ack.queue_id, request.connection.address, "", offset=offset,
            committed=committed,
        )  # fmt: skip
        code, remark, fields = refusal(lib.RMQ_POP_NOT_OF_BATCH, asked)
        return request.reply(code, remark, fields)


def _name(entry: Any) -> str:
    return bytes(ffi.buffer(entry.name, entry.name_length)).decode()


_MISSING = (lib.RMQ_POP_NEEDS_WINDOWS, lib.RMQ_POP_NEEDS_FILTER, lib.RMQ_POP_NEEDS_NOTICE)
_RECEIPT = 1 << [field.name for field in TABLES[int(RequestCode.ACK_MESSAGE)].fields].index("extraInfo")
