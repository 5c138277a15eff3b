"""The service of messages that consumers send back (36): each request is answered when its copy is stored.

A turn takes the answers of write, decides about the next requests, and submits their copies in one batch. A death
between a submit and its answer leaves the client without an answer. The client sends the request again, as to stock,
and the message is stored twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Answer, Outbox, Request, Wait
from ringmq.broker.requests.retry_ask import RetryAsk
from ringmq.ipc.admission import Rule
from ringmq.native import lib
from ringmq.remoting import names
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import Perm
from ringmq.services.control_asks import ControlAsks
from ringmq.services.log_view import LogView
from ringmq.services.redirects import Redirect, delay_rule, redirect
from ringmq.services.send_back.batches import TABLE, CopyTarget, asked_of, sound_source
from ringmq.services.send_back.cases import (
    Make,
    Refuse,
    RetryTopic,
    Seen,
    SendBack,
    Source,
    Store,
    StoreNothing,
    decide,
)
from ringmq.services.send_back.copies import Copies
from ringmq.services.shared_port import Completed
from ringmq.services.topics import Topics
from ringmq.store.record_copy import Cause, EditKind, From, PairEdit, RecordCopy

BATCH = 256
"""Requests of one turn."""
REDIRECTS_MAX = 1024
"""Redirects that are kept from batch to batch."""
WAITING_MAX = 8192
"""Requests without an answer. Each keeps its header, which is at most a frame."""
IN_THE_LOG = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
"""Codes of copies that are in the log. Stock waits for neither disk nor replicas here and answers 0."""
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


def edits(level: int) -> tuple[PairEdit, ...]:
    """Edits of the pairs of a message that is sent back."""
    return (
        PairEdit(EditKind.DEFAULT, b"RETRY_TOPIC", From.TOPIC),
        PairEdit(EditKind.SET, b"WAIT", b"false"),
        PairEdit(EditKind.SET, b"DELAY", level),
        PairEdit(EditKind.DEFAULT, b"ORIGIN_MESSAGE_ID", From.MESSAGE_ID),
    )


DEAD_EDITS = edits(0)


class _Waiting(Struct):
    """A request without an answer."""

    request: Request
    asked: SendBack
    is_again: bool = False
    made: set[Make] = field(default_factory=set)


class SendBackService:
    """See HostedService. `random(n)` is a number below n. `on_gone` is called for each
    refused message that retention has deleted."""

    name = "send-back"
    codes = frozenset({int(RequestCode.CONSUMER_SEND_MSG_BACK)})
    is_polling = False

    def __init__(
        self,
        *,
        log: LogView,
        topics: Topics,
        rules: Callable[[], tuple[Rule, ...]],
        config: Callable[[], BrokerConfig],
        copies: Copies[_Waiting],
        control: ControlAsks,
        outbox: Outbox,
        random: Callable[[int], int],
        on_gone: Callable[[], None],
    ) -> None:
        self._log = log
        self._topics = topics
        self._rules = rules
        self._config = config
        self._copies = copies
        self._control = control
        self._outbox = outbox
        self._random = random
        self._on_gone = on_gone
        self._rule: Rule | None = None
        self._redirects: dict[tuple[str, int, int], Redirect] = {}
        self._now_config = config()
        self._next: deque[_Waiting] = deque()
        self._asking: dict[RetryAsk, list[_Waiting]] = {}

    # ---- requests ----

    def on_request(self, request: Request) -> Answer:
        """See HostedService."""
        record = TABLE.decode(request.command.ext_fields, request.command.version)
        if self._waiting_count >= WAITING_MAX:
            remark = f"[OVERLOAD]{WAITING_MAX} messages that are sent back wait already, try again later"
            return request.reply(ResponseCode.SYSTEM_BUSY, remark)
        request.command.body = b""
        self.take(request, asked_of(record))
        return Wait()

    # ---- SendBackPolicy ----

    def take(self, request: Request, asked: SendBack) -> None:
        """Take a request. Its answer follows."""
        self._next.append(_Waiting(request, asked))

    def targets(self, asked: SendBack, source: Source, count: int) -> list[CopyTarget]:
        """Targets for copies of equal requests, at most `count`. Empty if the requests are not simply stored."""
        self._now_config = self._config()
        outcome = decide(asked, self._seen(asked.group, source, frozenset()))
        if not isinstance(outcome, Store):
            return []
        queues = self._queues(outcome)
        found = (
            self._target(outcome, self._random(queues) if queues else 0) for _ in range(min(count, max(1, queues)))
        )
        return [target for target in found if isinstance(target, CopyTarget)]

    def take_completed(self, request: Request, asked: SendBack, completed: Completed) -> None:
        """Answer a request whose copy has this completion, or store another copy."""
        self._answer_completed(_Waiting(request, asked), completed)

    @property
    def _waiting_count(self) -> int:
        return len(self._next) + self._copies.in_flight + sum(map(len, self._asking.values()))

    @property
    def has_news(self) -> bool:
        """See HostedService."""
        return self._copies.has_answers

    @property
    def is_idle(self) -> bool:
        """See HostedService."""
        return self._waiting_count == 0

    def turn(self, now_ms: int) -> bool:
        """See HostedService."""
        self._now_config = self._config() if self._next else self._now_config
        answers = self._copies.answers()
        for waiting, completed in answers:
            self._answer_completed(waiting, completed)
        stored = self._store_next(now_ms) if self._next else 0
        return bool(answers or stored)

    def save_if_due(self, now_ms: int) -> None:
        """See HostedService. There is nothing to save."""

    def close(self) -> None:
        """See HostedService. Copies that write has taken may be stored without an answer."""
        remark = "service not available now: the broker is shutting down, try again"
        waiting = [*self._next, *(one for asking in self._asking.values() for one in asking)]
        self._next.clear()
        self._asking.clear()
        for one in waiting:
            self._reply(one, ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    # ---- a batch ----

    def _store_next(self, now_ms: int) -> int:
        """Decide about the next requests, and submit the copies. Returns the number of requests that got on."""
        batch = list[tuple[_Waiting, RecordCopy]]()
        decided = 0
        for _ in range(min(BATCH, len(self._next))):
            waiting = self._next.popleft()
            decided += 1
            copy = self._decide(waiting, now_ms)
            if copy is not None:
                batch.append((waiting, copy))
        done, refused = self._copies.store(batch)
        for one in refused:
            self._answer_not_copied(one.what, one.cause)
        self._next.extendleft(waiting for waiting, _ in reversed(batch[done:]))
        return decided - len(batch) + done

    def _decide(self, waiting: _Waiting, now_ms: int) -> RecordCopy | None:
        asked = waiting.asked
        raw, source = self._source(asked.offset)
        match decide(asked, self._seen(asked.group, source, frozenset(waiting.made))):
            case Refuse(code, remark, has_no_record):
                if has_no_record and 0 <= asked.offset < self._log.bounds().min_offset:
                    self._on_gone()
                self._reply(waiting, code, remark)
            case StoreNothing():
                self._reply(waiting)
            case Make() as make:
                self._make(waiting, make, now_ms)
            case Store() as store if raw is not None:
                return self._copy(waiting, store, raw)
        return None

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

    def _source(self, offset: int) -> tuple[memoryview | None, Source | None]:
        """The record at the position, which a client names. None if no consumer can have got it."""
        raw = self._log.record(offset)
        if raw is None:
            return None, None
        source = sound_source(raw, offset, HIDDEN_TOPICS)
        return (None, None) if source is None else (raw, source)

    def _copy(self, waiting: _Waiting, store: Store, raw: memoryview) -> RecordCopy | None:
        queues = self._queues(store)
        target = self._target(store, self._random(queues) if queues else 0)
        if isinstance(target, Refuse):
            self._reply(waiting, target.code, target.remark)
            return None
        return RecordCopy(
            raw, *target.queue, edits=target.edits, position=waiting.asked.offset, reconsume_times_added=1,
            check_crc=True,
        )  # fmt: skip

    def _queues(self, store: Store) -> int:
        """Number of queues that the copy may go to."""
        topic = self._topics.find(store.topic)
        return 0 if topic is None else min(store.queues, max(topic.read_queues, topic.write_queues))

    def _target(self, store: Store, queue_id: int) -> CopyTarget | Refuse:
        """The target of the copy, or the answer if it has none."""
        target, pairs = self._topics.queue(store.topic, queue_id), DEAD_EDITS if store.is_dead else None
        if target is not None and store.level > 0:
            moved = self._redirect(store, queue_id)
            if moved is None:
                remark = "[OVERLOAD]the rule for delay levels is not there yet, try again later"
                return Refuse(ResponseCode.SYSTEM_BUSY, remark)
            target, pairs = self._topics.queue_of(moved.topic_id, moved.queue_id), moved.edits
        if target is None:
            return Refuse(ResponseCode.SYSTEM_ERROR, f"topic[{store.topic}] has no queue {queue_id}")
        return CopyTarget(target, edits(store.level) if pairs is None else pairs)

    def _redirect(self, store: Store, queue_id: int) -> Redirect | None:
        """The queue and all edits of a delayed copy. Equal copies share one object, which is compared fast."""
        key = store.topic, queue_id, store.level
        known = self._redirects.get(key)
        if known is not None:
            return known
        self._rule = self._rule or delay_rule(self._rules())
        if self._rule is None:
            return None
        moved = redirect(self._rule, store.level, store.topic, queue_id)
        edited = {pair.name for pair in moved.edits}
        kept = (pair for pair in edits(store.level) if pair.name not in edited)
        if len(self._redirects) >= REDIRECTS_MAX:
            self._redirects.clear()
        self._redirects[key] = known = replace(moved, edits=(*kept, *moved.edits))
        return known

    # ---- control ----

    def _make(self, waiting: _Waiting, make: Make, now_ms: int) -> None:
        """Have control make what is missing. Requests of a group share one ask."""
        waiting.made.add(make)
        asked = RetryAsk(waiting.asked.group, waiting.asked.unit_mode, make.dead)
        asking = self._asking.setdefault(asked, [])
        asking.append(waiting)
        if len(asking) == 1:
            self._control.retry(asked, now_ms, lambda refusal: self._on_made(asked, refusal))

    def _on_made(self, asked: RetryAsk, refusal: RequestError | None) -> None:
        for waiting in self._asking.pop(asked, ()):
            if refusal is None:
                self._next.append(waiting)
            else:
                self._reply(waiting, refusal.code, str(refusal))

    # ---- answers ----

    def _answer_completed(self, waiting: _Waiting, completed: Completed) -> None:
        if completed.code in IN_THE_LOG:
            self._reply(waiting)
        elif completed.cause == lib.RMQ_CAUSE_QUEUE_SLOT and not waiting.is_again:
            waiting.is_again = True  # the topic was deleted just now: it is made again, once
            waiting.made.clear()
            self._next.append(waiting)
        else:
            self._reply(waiting, ResponseCode.SYSTEM_ERROR, STATUS.get(completed.cause, NOT_AVAILABLE))

    def _answer_not_copied(self, waiting: _Waiting, cause: Cause) -> None:
        remark = COPY_STATUS.get(cause, f"MESSAGE_ILLEGAL: the record cannot be copied ({cause.name})")
        self._reply(waiting, ResponseCode.SYSTEM_ERROR, remark)

    def _reply(self, waiting: _Waiting, code: int = ResponseCode.SUCCESS, remark: str | None = None) -> None:
        command: RemotingCommand = waiting.request.reply(code, remark)
        self._outbox.reply(waiting.request, command)


def _is_group_name(group: str) -> bool:
    """True if clients may make a group of this name."""
    try:
        names.check_group(group)
    except RequestError:
        return False
    return True
