"""The open messages of a group, for operators (270007): sums, the oldest pops, shares of queues and of connections.

C looks at the entries in steps (`native/src/pop/pop_view.h`), between which other requests are served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmq.broker.requests.request import Answer, Request, Slices
from ringmq.broker.requests.turns import Steps
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.pop.look_frames import checked_name
from ringmq.pop.window_names import WindowNames
from ringmq.remoting import names
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.remoting.pop_bodies import ROWS_MAX, ClientShare, OpenPop, PopInflight, PopInflightRequestHeader, QueueShare
from ringmq.services.kit.clocks import wall_ms

ROWS = 10
"""Rows of a list without a number in the request."""
STEP_ENTRIES = 16_384
"""Entries of a step, at most 1 ms."""
_ENDED = ("", -1)
"""Topic and queue of a window that has ended meanwhile."""


class PopOpenMessages:
    """Implements HostedService. `address_of`: HOST:PORT of a connection by its hash, None if it is not known."""

    name = "open messages of pop"
    codes = frozenset({int(RequestCode.POP_INFLIGHT)})
    has_news = False
    is_polling = False
    is_idle = True

    def __init__(
        self, plane: Plane, windows: Any, window_names: WindowNames, address_of: Callable[[int], str | None]
    ) -> None:
        self._plane, self._windows, self._names, self._address_of = plane, windows, window_names, address_of

    # ---- HostedService ----

    def on_request(self, request: Request) -> Answer | Slices:
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
        return Slices(self._look(request, group_id, topics, rows), is_large=True, is_reading=True)

    def turn(self, now_ms: int) -> bool:
        """See HostedService."""
        return False

    def save_if_due(self, now_ms: int) -> None:
        """See HostedService. There is nothing to save."""

    def close(self) -> None:
        """See HostedService."""

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

    def _look(self, request: Request, group_id: int, topics: list[int], rows: int) -> Steps[Answer]:
        view, shares = ffi.new("struct rmq_pop_view *"), [_shares(), _shares()]
        view.windows, view.index, view.plane = self._windows, self._names.index, self._plane.struct
        view.now_ms, view.group_id, view.oldest_max = wall_ms(), group_id, rows
        view.topic_count, view.topics = len(topics), topics
        view.queues, view.clients = shares
        lib.rmq_pop_view_begin(view)
        while lib.rmq_pop_view_step(view, STEP_ENTRIES):
            yield
        return request.reply(body=self._result(view, shares, rows).encode())

    def _result(self, view: Any, shares: list[Any], rows: int) -> PopInflight:
        now_ms = int(view.now_ms)
        queues, clients = (_top(each, rows) for each in shares)
        return PopInflight(
            messages=int(view.messages), due=int(view.due), returned=int(view.returned), pops=int(view.entries),
            queue_count=int(view.queue_count), client_count=int(view.client_count),
            oldest=tuple(self._open_pop(each, now_ms) for each in view.oldest[0 : view.oldest_count]),
            queues=tuple(QueueShare(*self._queue(place), count, now_ms - ms) for place, count, ms in queues),
            clients=tuple(ClientShare(self._client(number), count, now_ms - ms) for number, count, ms in clients),
        )  # fmt: skip

    def _open_pop(self, each: Any, now_ms: int) -> OpenPop:
        return OpenPop(
            *self._queue(int(each.place)), int(each.queue_offset), int(each.messages), now_ms - int(each.pop_time_ms),
            int(each.due_ms) - now_ms, self._client(int(each.client)),
        )  # fmt: skip

    def _queue(self, place: int) -> tuple[str, int]:
        window = self._names.at(place)
        named = None if window is None else self._names.named(window.window_id)
        return _ENDED if named is None else (named[0].topic, named[0].queue_id)

    def _client(self, number: int) -> str:
        return self._address_of(number) or f"{number:08x}"


def _shares() -> Any:
    return ffi.new("struct rmq_pop_view_row[]", lib.RMQ_POP_VIEW_ROWS)


def _top(shares: Any, rows: int) -> list[tuple[int, int, int]]:
    """(key, messages, time of the oldest one) of those with the most messages."""
    found = ffi.new("struct rmq_pop_view_row[]", max(rows, 1))
    count = lib.rmq_pop_view_top(shares, found, rows)
    return [(int(row.key) - 1, int(row.messages), int(row.oldest_ms)) for row in found[0:count]]
