"""`STAGED_WRITES`: the operations describe (where writers may stage their chunks) and commit (the chunks to
publish).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import NamedTuple

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Answer, Connection, Outbox, Request, Wait
from ringmq.broker.requests.turns import SLICE_MS, Steps, TurnClock
from ringmq.remoting import json_body, staged_writes
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import Perm
from ringmq.remoting.staged_writes import COMMITS_TOPIC, STAGED_TOPIC, CommitRequest
from ringmq.services.fair_queue import FairQueue
from ringmq.services.staged.commit_records import pieces_max
from ringmq.services.staged.commits import ANSWER_WITHIN_MS
from ringmq.services.staged.events import CommitRequested
from ringmq.services.topic_creator import TopicCreator
from ringmq.services.topics import Topics

STAGED_QUEUES = 4
SEGMENT_SHARE = 8
"""Part of a log file that a chunk may take. Small messages need several times the bytes of their chunk."""
WAITING_MAX = 256
"""Requests `describe` that may wait until control has made the topics."""
COMMITS_MAX, HOST_COMMITS_MAX, CONNECTION_COMMITS_MAX = 32, 24, 16
"""Commits that may wait undecoded: all, those of one host, those of one connection. A body has up to 2 MiB."""
OWN_TOPICS = (
    TopicConfig(STAGED_TOPIC, STAGED_QUEUES, STAGED_QUEUES, int(Perm.WRITE)),
    TopicConfig(COMMITS_TOPIC, 1, 1, 0),
)
"""The topics of staged writes. Consumers get no record of them (`names.STAGED_TOPICS`), and only the broker writes
decisions."""


class CommitBody(NamedTuple):
    """A commit that is not decoded yet. `wall_ms`: the wall clock when it came."""

    request: Request
    body: bytes
    wall_ms: int


class _Decoding(NamedTuple):
    of: CommitBody
    steps: Steps[CommitRequest]


class StagedRequests:
    """Reads requests. Commits wait undecoded; `next_commit` decodes them in slices, one after the other, hosts and
    connections in turn.

    `log_line` logs the trace of a defect. `clock` measures the slices.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        topics: Topics,
        topic_creator: TopicCreator,
        outbox: Outbox,
        wall_ms: Callable[[], int],
        log_line: Callable[[str], None],
        clock: TurnClock | None = None,
    ) -> None:
        self._config = config
        self._topics = topics
        self._topic_creator = topic_creator
        self._outbox = outbox
        self._wall_ms = wall_ms
        self._log_line = log_line
        self._clock = clock or TurnClock()
        self._commits: FairQueue[CommitBody] = FairQueue()
        self._decoding: _Decoding | None = None
        self._describing: list[Request] = []
        """Requests that wait until control has made the topics."""
        self._is_making = False

    @property
    def has_topics(self) -> bool:
        """True if both topics exist."""
        return all(self._topics.find(topic.topic_name) is not None for topic in OWN_TOPICS)

    @property
    def has_decisions(self) -> bool:
        """True if the topic of the decisions exists. An open commit needs no other."""
        return self._topics.find(COMMITS_TOPIC) is not None

    @property
    def has_commits(self) -> bool:
        """True if a commit can be decoded now."""
        return not self._is_making and (bool(self._commits) or self._decoding is not None)

    @property
    def is_idle(self) -> bool:
        """True if no request waits in this object."""
        return not (self._commits or self._decoding or self._describing)

    def on_request(self, request: Request) -> Answer:
        """Answer either operation. The first request has control make the two topics. Raises RequestError."""
        config = self._config()
        if not config.broker_permission & Perm.WRITE:
            remark = f"the broker[{config.broker_ip1}] sending message is forbidden"
            return request.reply(ResponseCode.NO_PERMISSION, remark)
        operation = (request.command.ext_fields or {}).get(staged_writes.OPERATION, "")
        match operation:
            case staged_writes.DESCRIBE:
                return self._describe(request, config)
            case staged_writes.COMMIT:
                return self._add_commit(request)
        remark = f"{staged_writes.OPERATION} = {operation[:64]!r} is not known, accepted: describe, commit"
        return request.reply(ResponseCode.INVALID_PARAMETER, remark)

    # ---- commits ----

    def _add_commit(self, request: Request) -> Answer:
        connection, body = request.connection, request.command.body
        if remark := self._make_room(connection):
            return request.reply(ResponseCode.SYSTEM_BUSY, remark)
        staged_writes.check_commit_size(body)
        request.command.body = b""
        self._commits.add(connection, CommitBody(request, body, self._wall_ms()))
        if not self.has_topics:
            self._make_topics(request.now_ms)
        return Wait()

    def _make_room(self, connection: Connection) -> str:
        """The reason why one more commit of the connection cannot wait. Empty if it can: there is room, or a commit of
        a connection with more of them has made room."""
        if self._commits.of_connection(connection) >= CONNECTION_COMMITS_MAX:
            return _overload(CONNECTION_COMMITS_MAX, " of this connection")
        if self._commits.of_host(connection) >= HOST_COMMITS_MAX:
            remark, of_own_host = _overload(HOST_COMMITS_MAX, f" of host {connection.host}"), True
        elif len(self._commits) >= COMMITS_MAX:
            remark, of_own_host = _overload(COMMITS_MAX, ""), False
        else:
            return ""
        pushed_out = self._commits.push_out(connection, of_own_host=of_own_host)
        if pushed_out is None:
            return remark
        self._reply(pushed_out.request, ResponseCode.SYSTEM_BUSY, remark)
        return ""

    def next_commit(self) -> CommitRequested | None:
        """Decode for a slice. The commit, once it is decoded; one that cannot be decoded is answered."""
        if self._decoding is None:
            waiting = self._commits.take()
            if waiting is None:
                return None
            self._decoding = _Decoding(waiting, CommitRequest.decode_steps(waiting.body, _chunks_max(self._config())))
        of, steps = self._decoding
        try:
            commit = self._clock.advance(steps, SLICE_MS)
        except RequestError as error:
            self._decoding = None
            self._reply(of.request, error.code, str(error))
            return None
        except Exception as error:  # a defect that a client's bytes have shown costs one commit
            self._decoding = None
            self._log_line(f"a commit of staged writes could not be decoded:\n{traceback.format_exc()}")
            self._reply(of.request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
            return None
        if commit is None:
            return None
        self._decoding = None
        return CommitRequested(of.request, commit, of.request.now_ms, of.wall_ms)

    def refuse_late(self, now_ms: int, why: str) -> None:
        """Refuse commits that have waited for ANSWER_WITHIN_MS."""
        for late in self._commits.take_all(lambda waiting: now_ms - waiting.request.now_ms > ANSWER_WITHIN_MS):
            self._reply(late.request, ResponseCode.SYSTEM_BUSY, f"{why}: ask again")

    def refuse_all(self, code: int, remark: str) -> None:
        """Refuse the waiting commits, and the one that is decoded in part."""
        waiting = self._commits.take_all()
        if self._decoding is not None:
            waiting.insert(0, self._decoding.of)
            self._decoding = None
        for one in waiting:
            self._reply(one.request, code, remark)

    def refuse_without_topic(self) -> None:
        """Refuse the waiting commits, because the topic of the decisions is gone."""
        if not self._is_making:
            remark = f"[OVERLOAD]topic {COMMITS_TOPIC} was deleted just now, try again"
            self.refuse_all(ResponseCode.SYSTEM_BUSY, remark)

    # ---- topics ----

    def _describe(self, request: Request, config: BrokerConfig) -> Answer:
        request.command.body = b""  # frees the memory of a body that is not used
        if self.has_topics:
            return request.reply(body=json_body.write_body(_place(config)))
        if len(self._describing) >= WAITING_MAX:
            remark = f"[OVERLOAD]{WAITING_MAX} requests wait for topic {COMMITS_TOPIC} already, try again later"
            return request.reply(ResponseCode.SYSTEM_BUSY, remark)
        self._describing.append(request)
        self._make_topics(request.now_ms)
        return Wait()

    def _make_topics(self, now_ms: int) -> None:
        if not self._is_making:
            self._is_making = True
            self._topic_creator.create(OWN_TOPICS, now_ms, self._on_made)

    def _on_made(self, refusal: RequestError | None) -> None:
        self._is_making = False
        describing, self._describing = self._describing, []
        for request in describing:
            if refusal is None:
                self._outbox.reply(request, request.reply(body=json_body.write_body(_place(self._config()))))
            else:
                self._reply(request, refusal.code, str(refusal))
        if refusal is not None:
            self.refuse_all(refusal.code, str(refusal))

    def _reply(self, request: Request, code: int, remark: str) -> None:
        self._outbox.reply(request, request.reply(code, remark))


def _place(config: BrokerConfig) -> dict[str, object]:
    share = config.mapped_file_size_commit_log // SEGMENT_SHARE
    return {
        "brokerName": config.broker_name,
        "topic": STAGED_TOPIC,
        "queues": STAGED_QUEUES,
        "chunkBytesMax": min(staged_writes.CHUNK_BYTES, config.max_message_size, share),
        "elementBytesMax": min(config.max_message_size, share),
        "chunksMax": _chunks_max(config),
    }


def _overload(limit: int, whose: str) -> str:
    return f"[OVERLOAD]{limit} commits{whose} wait already, try again later"


def _chunks_max(config: BrokerConfig) -> int:
    """Chunks of one commit. Its decision has to fit into one message."""
    return min(staged_writes.CHUNKS_MAX, pieces_max(config.max_message_size))
