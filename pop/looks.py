"""Looks of consumers: PEEK_MESSAGE (200052) shows the next messages of a group, POLLING_INFO (200055) the number of its
polls that wait.

A look opens no message and makes no window: the next pop gives what a look has shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import randrange
from typing import NamedTuple

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Answer, Outbox, Request, Slices, Wait
from ringmq.broker.requests.turns import Steps
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.pop.look_frames import HEADER_BYTES, Asked, Seen, asked_of, nothing_found, peeked, polling_info
from ringmq.pop.questions import PopAsk, PopAsks
from ringmq.pop.refusals import Refused, refusal, zero_fields
from ringmq.pop.window_names import WindowNames
from ringmq.remoting import names
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import Perm
from ringmq.services.topics import Topic, Topics
from ringmq.store.queue_reader import DeletedError, QueueReader, QueueReadError

MESSAGES_MAX: int = lib.RMQ_POP_MESSAGES_MAX
RETRY_FIRST_OF = 5
"""One look of so many begins with the topic of retries, as in RocketMQ."""


class _Target(NamedTuple):
    """A topic and a group that may be looked at."""

    topic: Topic
    group_id: int


class PopLooks:
    """Implements HostedService. `cause`: the reason why POP has stopped, if it has. `polls_waiting(group, topic,
    queue id)`: the number of polls that wait for messages of the queue, or of all queues (-1). `unreadable` is called
    for a queue that cannot be read now. `run_again` gets a request that has waited for its group."""

    name = "looks of pop"
    codes = frozenset({int(RequestCode.PEEK_MESSAGE), int(RequestCode.POLLING_INFO)})
    has_news = False
    is_polling = False

    def __init__(
        self, plane: Plane, windows: WindowNames, reader: QueueReader, config: Callable[[], BrokerConfig],
        control: PopAsks, outbox: Outbox, cause: Callable[[], str | None],
        polls_waiting: Callable[[str, str, int], int], unreadable: Callable[[], None],
        run_again: Callable[[Request], None],
    ) -> None:  # fmt: skip
        self._plane, self._windows, self._reader, self._config = plane, windows, reader, config
        self._control, self._outbox, self._cause = control, outbox, cause
        self._polls_waiting, self._unreadable, self._run_again = polls_waiting, unreadable, run_again
        self._topics = Topics(plane)
        self._asking: dict[str, list[Request]] = {}
        """Requests of groups that control is making."""

    # ---- HostedService ----

    def on_request(self, request: Request) -> Answer | Slices:
        """See HostedService. Raises RequestError."""
        asked = asked_of(request)
        target = self._target(asked)
        if isinstance(target, int):
            if target == lib.RMQ_POP_NO_GROUP and self._config().auto_create_subscription_group:
                return self._ask(request, asked.group)
            return self._refused(request, asked, target)
        if request.command.code == RequestCode.PEEK_MESSAGE:
            return Slices(self._peek(request, asked, target), is_reading=True)
        return polling_info(request, self._polls_waiting(asked.group, asked.topic, max(asked.queue_id, -1)))

    @property
    def is_idle(self) -> bool:
        """See HostedService."""
        return not self._asking

    def turn(self, now_ms: int) -> bool:
        """See HostedService."""
        return False

    def save_if_due(self, now_ms: int) -> None:
        """See HostedService. There is nothing to save."""

    def close(self) -> None:
        """See HostedService."""
        remark = "service not available now: the broker is shutting down, try again"
        asking, self._asking = self._asking, {}
        for request in (one for requests in asking.values() for one in requests):
            self._outbox.reply(request, request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark))

    # ---- checks ----

    def _target(self, asked: Asked) -> _Target | int:
        """The topic and the group, or RMQ_POP_*: the first check of stock that fails."""
        if self._cause() is not None:
            return int(lib.RMQ_POP_STOPPED)
        if not self._config().broker_permission & Perm.READ:
            return int(lib.RMQ_POP_BROKER_UNREADABLE)
        topic = self._topics.find(asked.topic)
        if topic is None:
            return int(lib.RMQ_POP_NO_TOPIC)
        if not topic.perm & Perm.READ:
            return int(lib.RMQ_POP_TOPIC_UNREADABLE)
        if asked.queue_id >= topic.read_queues:
            return int(lib.RMQ_POP_NO_QUEUE)
        group_id = self._plane.group_find(asked.group)
        settings = 0 if group_id is None else int(self._plane.group(group_id).config)
        if group_id is None or not settings & lib.RMQ_GROUP_LIVE:
            return int(lib.RMQ_POP_NO_GROUP)
        return _Target(topic, group_id) if settings & lib.RMQ_GROUP_CONSUME_ENABLE else int(lib.RMQ_POP_GROUP_DISABLED)

    def _refused(self, request: Request, asked: Asked, why: int) -> RemotingCommand:
        topic = self._topics.find(asked.topic)
        code, remark, fields = refusal(why, Refused(
            request.command.code, asked.group, asked.topic, asked.queue_id, request.connection.address,
            self._config().broker_ip1, topic.read_queues if topic else 0, cause=self._cause() or "",
        ))  # fmt: skip
        return request.reply(code, remark, fields)

    # ---- groups that are missing ----

    def _ask(self, request: Request, group: str) -> Answer:
        """Have control make the group. Requests of a group share one question."""
        asking = self._asking.setdefault(group, [])
        asking.append(request)
        if len(asking) == 1:
            self._control.make(PopAsk(group), request.now_ms, lambda error: self._on_made(group, error))
        return Wait()

    def _on_made(self, group: str, error: RequestError | None) -> None:
        for request in self._asking.pop(group, ()):
            if error is not None:
                reply = request.reply(error.code, str(error), zero_fields(request.command.code))
                self._outbox.reply(request, reply)
            elif self._plane.group_find(group) is None:  # no client may make it
                self._outbox.reply(request, self._refused(request, asked_of(request), lib.RMQ_POP_NO_GROUP))
            else:
                self._run_again(request)

    # ---- messages ----

    def _peek(self, request: Request, asked: Asked, target: _Target) -> Steps[Answer]:
        group_id, turn, seen = target.group_id, randrange(100), Seen(min(asked.wanted, MESSAGES_MAX))
        is_v2 = self._config().enable_retry_topic_v2
        retry = self._topics.find(names.pop_retry_topic(asked.group, asked.topic, is_v2=is_v2))
        is_retry_first = turn % RETRY_FIRST_OF == 0
        if retry is not None and is_retry_first:
            yield from self._look(seen, group_id, retry, turn)
        yield from self._look(seen, group_id, target.topic, turn, asked.queue_id)
        if retry is not None and not is_retry_first and not seen.is_full:
            yield from self._look(seen, group_id, retry, turn)
        if not seen.messages:
            return nothing_found(request, seen.rest)
        self._outbox.records(request, peeked(request, seen))
        return Wait()

    def _look(self, seen: Seen, group_id: int, topic: Topic, turn: int, queue_id: int = -1) -> Steps[None]:
        """Look at the queues of a topic in rotation, or at one of them."""
        count = topic.read_queues
        queues: Iterable[int] = (queue_id,) if queue_id >= 0 else ((turn + number) % count for number in range(count))
        for number in queues:
            self._look_at_queue(seen, group_id, topic, number)
            yield

    def _look_at_queue(self, seen: Seen, group_id: int, topic: Topic, queue_id: int) -> None:
        slot = self._plane.queue_find(topic.topic_id, queue_id)
        if slot is None:
            return  # it has never had a message
        queue = self._plane.queue(slot)
        returned, next_offset = self._windows.ahead(group_id, slot, MESSAGES_MAX)
        returned = [offset for offset in returned if offset >= queue.min_offset]
        seen.rest += len(returned) + max(0, int(queue.max_offset) - next_offset)
        for offset in returned:
            self._add(seen, slot, offset, 1)
        begin = self._add(seen, slot, next_offset, MESSAGES_MAX)
        if begin is not None:
            self._add(seen, slot, begin, MESSAGES_MAX)

    def _add(self, seen: Seen, slot: int, offset: int, count: int) -> int | None:
        """Add messages of a queue from an offset on, at most `count`. Returns the first offset that is left, if
        retention has deleted this one."""
        room = min(count, seen.wanted - seen.messages)
        if not room:
            return None
        try:
            found = self._reader.ranges(slot, offset, room, seen.messages, HEADER_BYTES + seen.size)
        except DeletedError as error:
            return error.next_offset if error.next_offset > offset else None
        except (QueueReadError, ValueError):
            self._unreadable()
            return None
        seen.pieces.append(found.pieces)
        seen.messages += found.messages
        seen.size += found.size
        return None
