"""Request frames of attackers, as bytes."""

import struct
from collections.abc import Iterable, Mapping

from ringmq.loadtest.siege.attack import TOPIC
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.json_text import dump_json
from ringmq.remoting.staged_writes import COMMIT, OPERATION, CommitRequest, StagedChunk

HOLD_FLAG, COMMIT_FLAG, SUBSCRIPTION_FLAG = 2, 1, 4
PULL_HOLD_MS = 15_000


def request(
    code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, oneway: bool = False, opaque: int = 1
) -> bytes:
    """Return a request with a JSON header."""
    texts = {name: str(value) for name, value in (fields or {}).items()}
    return encode_frame(RemotingCommand.request(code, texts, body, oneway=oneway, opaque=opaque))


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    """Return a frame of any header under right lengths. `kind`: 0 = JSON, 1 = binary."""
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def send(
    body: bytes,
    topic: str = TOPIC,
    queue_id: int = 0,
    properties: str = "",
    *,
    code: int = RequestCode.SEND_MESSAGE_V2,
    oneway: bool = False,
    **more: object,
) -> bytes:
    """Return a send by the short field names. `more` replaces fields."""
    fields: dict[str, object] = {
        "a": "siege", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 1_700_000_000_000, "h": 0,
        "i": properties, "j": 0, "k": "false", "m": "true" if code == RequestCode.SEND_BATCH_MESSAGE else "false",
    }  # fmt: skip
    return request(code, fields | more, body, oneway=oneway)


def pull(
    topic: str = TOPIC,
    queue_id: int = 0,
    offset: int = 0,
    *,
    hold_ms: int = 0,
    group: str = "siege",
    code: int = RequestCode.PULL_MESSAGE,
    **more: object,
) -> bytes:
    """Return a pull of 32 messages, held at the end of the queue for `hold_ms`."""
    fields: dict[str, object] = {
        "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION_FLAG | (HOLD_FLAG if hold_ms else 0), "commitOffset": 0,
        "suspendTimeoutMillis": hold_ms, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    return request(code, fields | more)


def consumer(group: str, topic: str = TOPIC) -> dict[str, object]:
    """Return a consumer group in a heartbeat's form."""
    subscription = {
        "classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*", "subVersion": 1,
        "tagsSet": [], "topic": topic,
    }  # fmt: skip
    return {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY", "groupName": group,
        "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription], "unitMode": False,
    }  # fmt: skip


def sql_consumer(group: str, subscriptions: Iterable[tuple[str, str]], version: int = 1) -> dict[str, object]:
    """Return a consumer group in a heartbeat's form, with an SQL92 expression for each topic."""
    found = [
        {"classFilterMode": False, "codeSet": [], "expressionType": "SQL92", "subString": expression,
         "subVersion": version, "tagsSet": [], "topic": topic}
        for topic, expression in subscriptions
    ]  # fmt: skip
    return consumer(group) | {"subscriptionDataSet": found}


def lock_body(broker_name: str, topic: str, queue_ids: Iterable[int], group: str, client: str) -> bytes:
    """Return the body of a request for queue locks (41, 42)."""
    queues = [{"brokerName": broker_name, "queueId": queue_id, "topic": topic} for queue_id in queue_ids]
    return dump_json({"clientId": client, "consumerGroup": group, "mqSet": queues})


def heartbeat(client: str, consumers: Iterable[dict[str, object]] = (), producers: Iterable[str] = ()) -> bytes:
    """Return a heartbeat."""
    body = {
        "clientID": client,
        "consumerDataSet": list(consumers),
        "producerDataSet": [{"groupName": name} for name in producers],
    }
    return request(RequestCode.HEART_BEAT, body=dump_json(body))


def staged_commit(
    query: str, batch: int = 0, *, partitions: int = 60, chunks: int = 200, place: int = 1 << 20
) -> bytes:
    """Return a commit of chunks that were never staged. Its refusal costs the broker the whole decoding."""
    named = (
        StagedChunk(partition, 0, sequence, place + 4096 * (partition * chunks + sequence), 1000, 12_345)
        for partition in range(partitions)
        for sequence in range(chunks)
    )
    return request(RequestCode.STAGED_WRITES, {OPERATION: COMMIT}, CommitRequest(query, batch, tuple(named)).encode())
