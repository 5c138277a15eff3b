"""`STAGED_WRITES`: the operations describe (where writers may stage their chunks) and commit (the chunks to
publish).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Answer, Outbox, Request, Wait
from ringmq.remoting import json_body, staged_writes
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import Perm
from ringmq.remoting.staged_writes import COMMITS_TOPIC, STAGED_TOPIC, CommitRequest
from ringmq.services.staged.commit_records import pieces_max
from ringmq.services.staged.events import CommitRequested
from ringmq.services.topic_creator import TopicCreator
from ringmq.services.topics import Topics

STAGED_QUEUES = 4
SEGMENT_SHARE = 8
"""Part of a log file that a chunk may take. Small messages need several times the bytes of their chunk."""
WAITING_MAX = 256
"""Requests that may wait until control has made the topics."""
OWN_TOPICS = (
    TopicConfig(STAGED_TOPIC, STAGED_QUEUES, STAGED_QUEUES, int(Perm.WRITE)),
    TopicConfig(COMMITS_TOPIC, 1, 1, 0),
)
"""The topics of staged writes. Consumers get no record of them (`names.STAGED_TOPICS`), and only the broker writes
decisions."""


class StagedRequests:
    """Reads requests. `asked`: commits for the core, in order. `overload`: the reason why a commit behind so many
    cannot wait."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        topics: Topics,
        topic_creator: TopicCreator,
        outbox: Outbox,
        overload: Callable[[int], str],
        wall_ms: Callable[[], int],
    ) -> None:
        self.asked: deque[CommitRequested] = deque()
        self._config = config
        self._topics = topics
        self._topic_creator = topic_creator
        self._outbox = outbox
        self._overload = overload
        self._wall_ms = wall_ms
        self._waiting: list[tuple[Request, Callable[[], Answer]]] = []
        """Requests that wait until control has made the topics, and the functions that answer them then."""

    @property
    def has_topics(self) -> bool:
        """True if both topics exist."""
        return all(self._topics.find(topic.topic_name) is not None for topic in OWN_TOPICS)

    @property
    def has_decisions(self) -> bool:
        """True if the topic of the decisions exists. An open commit needs no other."""
        return self._topics.find(COMMITS_TOPIC) is not None

    def refuse_asked(self) -> None:
        """Refuse the waiting commits, because the topic of the decisions is gone."""
        while self.asked:
            request = self.asked.popleft().token
            remark = f"[OVERLOAD]topic {COMMITS_TOPIC} was deleted just now, try again"
            self._outbox.reply(request, request.reply(ResponseCode.SYSTEM_BUSY, remark))

    @property
    def is_idle(self) -> bool:
        """True if no request waits in this object."""
        return not (self.asked or self._waiting)

    def on_request(self, request: Request) -> Answer:
        """Answer either operation. The first request has control make the two topics. Raises RequestError."""
        config = self._config()
        if not config.broker_permission & Perm.WRITE:
            remark = f"the broker[{config.broker_ip1}] sending message is forbidden"
            return request.reply(ResponseCode.NO_PERMISSION, remark)
        operation = (request.command.ext_fields or {}).get(staged_writes.OPERATION, "")
        match operation:
            case staged_writes.DESCRIBE:
                request.command.body = b""  # frees the memory of a body that is not used
                if len(self._waiting) >= WAITING_MAX:
                    remark = f"[OVERLOAD]{WAITING_MAX} requests wait for topic {COMMITS_TOPIC} already, try again later"
                    return request.reply(ResponseCode.SYSTEM_BUSY, remark)
                return self._behind_topics(request, lambda: request.reply(body=json_body.write_body(_place(config))))
            case staged_writes.COMMIT:
                if remark := self._overload(len(self.asked) + len(self._waiting)):
                    return request.reply(ResponseCode.SYSTEM_BUSY, remark)  # before the slow decoding of the body
                commit = CommitRequest.decode(request.command.body, chunks_max=_chunks_max(config))
                request.command.body = b""
                return self._behind_topics(request, lambda: self._ask(request, commit))
        remark = f"{staged_writes.OPERATION} = {operation[:64]!r} is not known, accepted: describe, commit"
        return request.reply(ResponseCode.INVALID_PARAMETER, remark)

    def _ask(self, request: Request, commit: CommitRequest) -> Answer:
        self.asked.append(CommitRequested(request, commit, request.now_ms, self._wall_ms()))
        return Wait()

    def _behind_topics(self, request: Request, answer: Callable[[], Answer]) -> Answer:
        """The answer, now or when control has made the topics."""
        if self.has_topics:
            return answer()
        self._waiting.append((request, answer))
        if len(self._waiting) == 1:
            self._topic_creator.create(OWN_TOPICS, request.now_ms, self._on_made)
        return Wait()

    def _on_made(self, refusal: RequestError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for request, answer in waiting:
            made = answer() if refusal is None else request.reply(refusal.code, str(refusal))
            if isinstance(made, RemotingCommand):
                self._outbox.reply(request, made)


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


def _chunks_max(config: BrokerConfig) -> int:
    """Chunks of one commit. Its decision has to fit into one message."""
    return min(staged_writes.CHUNKS_MAX, pieces_max(config.max_message_size))
