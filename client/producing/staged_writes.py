"""Exactly-once writes, the client's side: the staging area of a broker, and the one request that publishes chunks.

For writers that work in tasks (Spark's sink). Blocking functions, each with connections of its own: they are called
once per task or micro-batch. docs/staged-writes.md has the protocol. Brokers other than RingMQ do not know it.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ringmq.client.connections.name_servers import NameServers, parse_name_servers
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.connections.routes import TopicRoute
from ringmq.client.errors import BrokerError, ConnectError, RequestTimeoutError, RingmqError, RouteError
from ringmq.client.producing.send_request import SendRequest
from ringmq.client.retry import backoff_ms
from ringmq.remoting import json_body, staged_writes
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.message_id import decode_offset_id
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.properties import WAIT, encode_properties
from ringmq.remoting.staged_writes import CommitRequest, StagedChunk

__all__ = [
    "BATCH_PROPERTIES",
    "CommitRequest",
    "StagedChunk",
    "StagingArea",
    "commit_staged",
    "describe_staging",
    "find_route",
    "place_of_message",
    "staging_request",
]

REQUEST_TIMEOUT_MS = 3000
COMMIT_ATTEMPT_MS = 25_000
"""The time-out of one attempt, longer than a broker delays a commit's answer."""
BATCH_PROPERTIES = encode_properties({WAIT: "true"}).encode()
"""The properties of a ready-made batch body, whose elements have UNIQ_KEYs of their own."""
TIMEOUT_MS = 30_000
UNKNOWN_TOPIC_MS = 3000
_ASK_AGAIN = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SERVICE_NOT_AVAILABLE})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StagingArea:
    """The staging area of a broker, and its limits."""

    broker_name: str
    topic: str
    queues: int
    chunk_bytes_max: int
    element_bytes_max: int
    chunks_max: int

    def queue(self, number: int) -> MessageQueue:
        """Return a staging queue. Callers take them in turn."""
        return MessageQueue(self.topic, self.broker_name, number % self.queues)


def find_route(namesrv: str | Sequence[str], topic: str, timeout_ms: int = TIMEOUT_MS) -> TopicRoute:
    """Return the topic's route. Raises RouteError for an unknown topic, RingmqError without an answer in time.

    Name servers forget a broker while it restarts, so the request for an unknown topic is repeated a little later.
    """

    async def find(client: RemotingClient) -> TopicRoute:
        name_servers = NameServers(client, parse_name_servers(namesrv))
        began = time.monotonic()
        while True:
            route = await name_servers.fetch_route(topic)
            if route is not None:
                return route
            if time.monotonic() - began > UNKNOWN_TOPIC_MS / 1000:
                raise RouteError(f"no broker has topic {topic}: create it first")
            await asyncio.sleep(UNKNOWN_TOPIC_MS / 10_000)

    return _run(find, timeout_ms)


def describe_staging(address: str, timeout_ms: int = TIMEOUT_MS) -> StagingArea | None:
    """Return the staging area of the broker at `address`, None if the broker has none. Raises RingmqError."""

    async def describe(client: RemotingClient) -> StagingArea | None:
        fields = {staged_writes.OPERATION: staged_writes.DESCRIBE}
        try:
            answer = await client.call(address, RequestCode.STAGED_WRITES, fields, timeout_ms=REQUEST_TIMEOUT_MS)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        value = json_body.read_object(answer.body, "staging place")
        return StagingArea(
            json_body.text(value, "brokerName"),
            json_body.text(value, "topic"),
            max(1, json_body.integer(value, "queues")),
            json_body.integer(value, "chunkBytesMax"),
            json_body.integer(value, "elementBytesMax"),
            json_body.integer(value, "chunksMax"),
        )

    return _run(describe, timeout_ms)


def commit_staged(namesrv: str | Sequence[str], broker_name: str, request: CommitRequest, timeout_ms: int) -> None:
    """Publish the chunks that the request names, exactly once, by this request or an earlier one.

    The request is repeated while the broker restarts or is busy. Raises BrokerError for a refusal, RingmqError at the
    end of the time. After a RingmqError the same request may be repeated safely.
    """
    deadline = time.monotonic() + timeout_ms / 1000

    async def commit(client: RemotingClient) -> None:
        name_servers = NameServers(client, parse_name_servers(namesrv))
        await _commit_once(client, name_servers, broker_name, request, deadline)

    _run(commit, timeout_ms)


async def _commit_once(
    client: RemotingClient, name_servers: NameServers, broker_name: str, request: CommitRequest, deadline: float
) -> None:
    route = await name_servers.fetch_route(staged_writes.STAGED_TOPIC)
    address = None if route is None else route.master_address(broker_name)
    if address is None:
        raise RouteError(f"broker {broker_name} is not registered now", may_pass=True)
    timeout_ms = max(100, min(COMMIT_ATTEMPT_MS, int((deadline - time.monotonic()) * 1000)))
    fields = {staged_writes.OPERATION: staged_writes.COMMIT}
    await client.call(address, RequestCode.STAGED_WRITES, fields, request.encode(), timeout_ms)


def _may_pass(error: RingmqError) -> bool:
    match error:
        case BrokerError():
            return error.code in _ASK_AGAIN
        case RouteError():
            return error.may_pass
    return True


def staging_request(
    area: StagingArea, number: int, body: bytes | bytearray | memoryview, properties: dict[str, str], now_ms: int
) -> SendRequest:
    """Return the send that stages one chunk."""
    encoded = encode_properties({**properties, WAIT: "true"}).encode()
    return SendRequest(area.topic, body, encoded, 0, 0, now_ms, (), queue=area.queue(number))


def place_of_message(offset_message_id: str) -> int:
    """Return the commit-log offset of a stored message. Raises ValueError for an invalid id."""
    return decode_offset_id(offset_message_id)[2]


def _run(work: Callable[[RemotingClient], Coroutine[Any, Any, T]], timeout_ms: int) -> T:
    """Do `work`, repeated while servers are busy or away, until the time is over."""
    deadline = time.monotonic() + timeout_ms / 1000

    async def with_client() -> T:
        client, failures = RemotingClient(), 0
        try:
            while True:
                try:
                    return await work(client)
                except (ConnectError, RequestTimeoutError, RouteError, BrokerError) as error:
                    failures += 1
                    pause_s = backoff_ms(failures, random.random(), max_ms=1000) / 1000
                    if not _may_pass(error) or time.monotonic() + pause_s >= deadline:
                        raise
                    await asyncio.sleep(pause_s)
        finally:
            await client.close()

    return asyncio.run(with_client())
