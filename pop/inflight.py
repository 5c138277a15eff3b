"""The open messages of a group, for operators (270007): sums, the oldest pops, shares of queues and of connections.

C looks at the entries in steps (`native/src/pop/pop_view.h`), one a turn: other requests wait for one step at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ringmq.broker.requests.request import Answer, Outbox, Request, Wait
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.pop.attempts import attempts_of
from ringmq.pop.look_frames import checked_name
from ringmq.pop.window_names import WindowNames
from ringmq.remoting import names
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.remoting.pop_bodies import ROWS_MAX, ClientShare, OpenPop, PopInflight, PopInflightRequestHeader, QueueShare
from ringmq.services.kit.clocks import wall_ms
from ringmq.store.queue_reader import QueueReader

ROWS = 10
"""Rows of a list without a number in the request."""
STEP_ENTRIES = 16_384
"""Entries of a step, some 0.2 ms."""
LOOKS_MAX = 8
"""Requests that wait for their looks, one after another."""
_ENDED = ("", -1)
"""Topic and queue of a window that has ended meanwhile."""


class _Look:
    """A look for one request."""

    def __init__(self, request: Request, view: Any, rows: int) -> None:
        self.request, self.view, self.rows = request, view, rows
        self.queues, self.clients = _shares(), _shares()
        view.queues, view.clients, view.oldest_max = self.queues, self.clients, rows
        lib.rmq_pop_view_begin(view)


class PopOpenMessages:
    """Implements HostedService. `address_of`: HOST:PORT of a connection by its hash, None if it is not known."""

    name = "open messages of pop"
    codes = frozenset({int(RequestCode.POP_INFLIGHT)})
    has_news = False
    is_polling = False

    def __init__(
        self, plane: Plane, windows: Any, window_names: WindowNames, reader: QueueReader, outbox: Outbox,
        address_of: Callable[[int], str | None],
    ) -> None:  # fmt: skip
        self._plane, self._windows, self._names, self._reader = plane, windows, window_names, reader
        self._outbox, self._address_of = outbox, address_of
        self._looks: deque[_Look] = deque()

    # ---- HostedService ----

    def on_request(self, request: Request) -> Answer:
        """See HostedService. Raises RequestError."""
        header = PopInflightRequestHeader.decode(request.command.ext_fields)
        rows = ROWS if header.max_rows is None else header.max_rows
        if not 0 <= rows <= ROWS_MAX:
            remark = f"maxRows = {rows} is not in 0..{ROWS_MAX}"
            raise RequestError(remark, field="maxRows", code=ResponseCode.INVALID_PARAMETER, limit=ROWS_MAX)
        group = checked_name(header.consumer_group, "consumerGroup", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        topics = self._topics(group, header.topic) if header.topic else []
        group_id = self._plane.group_find(group)
        if group_id is None or not self._plane.group(group_id).config & lib.RMQ_GROUP_LIVE:
            remark = f"the group {group} does not exist"
            raise RequestError(remark, field="consumerGroup", code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        if len(self._looks) >= LOOKS_MAX:
            remark = f"{LOOKS_MAX} looks at open messages are under way, try again"
            return request.reply(ResponseCode.SYSTEM_BUSY, remark)
        self._looks.append(_Look(request, self._view(group_id, topics), rows))
        return Wait()

    @property
    def is_idle(self) -> bool:
        """See HostedService."""
        return not self._looks

    def turn(self, now_ms: int) -> bool:
        """See HostedService. A step of the first look."""
        if not self._looks:
            return False
        if not lib.rmq_pop_view_step(self._looks[0].view, STEP_ENTRIES):
            look = self._looks.popleft()
            self._outbox.reply(look.request, look.request.reply(body=self._result(look).encode()))
        return True

    def save_if_due(self, now_ms: int) -> None:
        """See HostedService. There is nothing to save."""

    def close(self) -> None:
        """See HostedService."""
        remark = "service not available now: the broker is shutting down, try again"
        while self._looks:
            request = self._looks.popleft().request
            self._outbox.reply(request, request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark))

    # ---- one look ----

    def _topics(self, group: str, name: str) -> list[int]:
        """The ids of a topic, and of those in which its messages come again for the group. Raises RequestError."""
        topic = checked_name(name, "topic", ResponseCode.TOPIC_NOT_EXIST)
        wanted = [topic, *(names.pop_retry_topic(group, topic, is_v2=is_v2) for is_v2 in (False, True))]
        found = [self._plane.topic_find(each) for each in wanted]
        if found[0] is None:
            remark = f"the topic {topic} does not exist"
            raise RequestError(remark, field="topic", code=ResponseCode.TOPIC_NOT_EXIST)
        return [topic_id for topic_id in found if topic_id is not None]

    def _view(self, group_id: int, topics: list[int]) -> Any:
        view = ffi.new("struct rmq_pop_view *")
        view.windows, view.index, view.plane = self._windows, self._names.index, self._plane.struct
        view.now_ms, view.group_id = wall_ms(), group_id
        view.topic_count, view.topics = len(topics), topics
        return view

    def _result(self, look: _Look) -> PopInflight:
        view, now_ms = look.view, int(look.view.now_ms)
        queues, clients = _top(look.queues, look.rows), _top(look.clients, look.rows)
        return PopInflight(
            messages=int(view.messages), due=int(view.due), returned=int(view.returned), pops=int(view.entries),
            queue_count=int(view.queue_count), client_count=int(view.client_count),
            oldest=tuple(self._open_pop(each, now_ms) for each in view.oldest[0 : view.oldest_count]),
            queues=tuple(
                QueueShare(*self._queue(place), count, now_ms - ms, due_ms - now_ms)
                for place, count, ms, due_ms in queues
            ),
            clients=tuple(
                ClientShare(self._client(number), count, now_ms - ms, due_ms - now_ms)
                for number, count, ms, due_ms in clients
            ),
        )  # fmt: skip

    def _open_pop(self, each: Any, now_ms: int) -> OpenPop:
        return OpenPop(
            *self._queue(int(each.place)), int(each.queue_offset), int(each.messages), now_ms - int(each.pop_time_ms),
            int(each.due_ms) - now_ms, self._client(int(each.client)), self._attempts(each),
        )  # fmt: skip

    def _attempts(self, each: Any) -> int:
        window = self._names.at(int(each.place))
        if each.attempts or window is None or not names.is_retry_topic(self._queue(int(each.place))[0]):
            return int(each.attempts) or 1
        return attempts_of(self._reader, window.queue_slot, int(each.queue_offset))

    def _queue(self, place: int) -> tuple[str, int]:
        window = self._names.at(place)
        named = None if window is None else self._names.named(window.window_id)
        return _ENDED if named is None else (named[0].topic, named[0].queue_id)

    def _client(self, number: int) -> str:
        return self._address_of(number) or (f"{number:08x}" if number else "")


def _shares() -> Any:
    return ffi.new("struct rmq_pop_view_row[]", lib.RMQ_POP_VIEW_ROWS)


def _top(shares: Any, rows: int) -> list[tuple[int, int, int, int]]:
    """(key, messages, time of the oldest one, time at which the next one comes again) of those with the most."""
    found = ffi.new("struct rmq_pop_view_row[]", max(rows, 1))
    count = lib.rmq_pop_view_top(shares, found, rows)
    return [(int(row.key) - 1, int(row.messages), int(row.oldest_ms), int(row.next_due_ms)) for row in found[0:count]]
