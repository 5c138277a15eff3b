"""`STAGED_WRITES`: where writers may stage their chunks (describe), and which of them become messages (commit)."""

from __future__ import annotations

from ringmq.broker.core import Broker
from ringmq.broker.requests.request import Answer, Request, Wait
from ringmq.broker.staged.commit_records import pieces_max
from ringmq.broker.staged.events import Asked
from ringmq.remoting import json_body, staged_writes
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.flags import Perm
from ringmq.remoting.staged_writes import COMMITS_TOPIC, STAGED_TOPIC, CommitRequest

ON_SLAVE = "service not available now: staged writes are put to the slave, its master takes them"
STAGED_QUEUES = 4
SEGMENT_SHARE = 8
"""A chunk takes at most this part of a log file: its messages need several times its bytes when they are small."""


def staged(broker: Broker, request: Request) -> Answer:
    """Both operations; the first of them makes the two topics."""
    if broker.config.broker_role == "SLAVE":
        return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, ON_SLAVE)
    if not broker.config.broker_permission & Perm.WRITE:
        remark = f"the broker[{broker.identity.host}] sending message is forbidden"
        return request.reply(ResponseCode.NO_PERMISSION, remark)
    operation = (request.command.ext_fields or {}).get(staged_writes.OPERATION, "")
    match operation:
        case staged_writes.DESCRIBE:
            _make_topics(broker, request.now_ms)
            return request.reply(body=json_body.write_body(_description(broker)))
        case staged_writes.COMMIT:
            if remark := broker.staged_commits.overload(len(broker.staged_asked)):
                return request.reply(ResponseCode.SYSTEM_BUSY, remark)  # unread: a large one takes a while to decode
            commit = CommitRequest.decode(request.command.body, chunks_max=_chunks_max(broker))
            _make_topics(broker, request.now_ms)
            broker.staged_asked.append(Asked(request, commit, request.now_ms))
            return Wait()
    remark = f"{staged_writes.OPERATION} = {operation[:64]!r} is not known, accepted: describe, commit"
    return request.reply(ResponseCode.INVALID_PARAMETER, remark)


def _make_topics(broker: Broker, now_ms: int) -> None:
    """Hidden from consumers by their permission; only the broker writes decisions."""
    for topic, queues, perm in ((STAGED_TOPIC, STAGED_QUEUES, Perm.WRITE), (COMMITS_TOPIC, 1, Perm.READ)):
        if topic not in broker.topics:
            broker.topics.put(TopicConfig(topic, queues, queues, int(perm)), now_ms)


def _description(broker: Broker) -> dict[str, object]:
    config = broker.config
    share = config.mapped_file_size_commit_log // SEGMENT_SHARE
    return {
        "brokerName": config.broker_name,
        "topic": STAGED_TOPIC,
        "queues": STAGED_QUEUES,
        "chunkBytesMax": min(staged_writes.CHUNK_BYTES, config.max_message_size, share),
        "elementBytesMax": min(config.max_message_size, share),
        "chunksMax": _chunks_max(broker),
    }


def _chunks_max(broker: Broker) -> int:
    """Chunks of one commit: its decision has to fit into one message."""
    return min(staged_writes.CHUNKS_MAX, pieces_max(broker.config.max_message_size))
