"""A name server and brokers in one, on the test's own event loop: frames by the sans-IO codec, rules by the test.

`FakeCluster` serves routes, keeps messages in memory and answers what the SDK asks. A test changes answers by `rules`:
functions that get (broker, request) and return an answer, a `NoAnswer`, or None for the normal answer.
"""

import asyncio
import errno
import itertools
import ssl
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from ringmq.loadtest.stock.ports import free_port
from ringmq.remoting.batch import decode_batch
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.flags import PullSysFlag
from ringmq.remoting.frame import FrameDecoder
from ringmq.remoting.heartbeat import HeartbeatData, LockBatch, encode_consumer_ids, encode_locked
from ringmq.remoting.message import MessageExt, encode_message
from ringmq.remoting.message_id import encode_offset_id
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.properties import decode_properties
from ringmq.remoting.route import BrokerData, QueueData, TopicRouteData

PORT_TRIES = 20
SEND_FIELDS = dict(zip("abcdefghijklmn", (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname",
), strict=True))  # fmt: skip


class NoAnswer(Enum):
    """Outcome of a rule that does not answer."""

    SILENCE = "no answer"
    CLOSE = "close the connection"


Rule = Callable[["FakeBroker", RemotingCommand], RemotingCommand | NoAnswer | None]


@dataclass(eq=False)
class Peer:
    """One connection of a client."""

    transport: asyncio.Transport
    client_id: str = ""
    groups: set[str] = field(default_factory=set)


@dataclass(eq=False)
class FakeBroker:
    """One broker (or the name server) with its connections and all requests so far."""

    cluster: "FakeCluster"
    name: str
    server: asyncio.Server | None = None
    port: int = 0
    peers: list[Peer] = field(default_factory=list)
    requests: list[RemotingCommand] = field(default_factory=list)
    queues: dict[tuple[str, int], list[MessageExt]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    parked: list[tuple[Peer, RemotingCommand]] = field(default_factory=list)
    locks: dict[tuple[str, MessageQueue], str] = field(default_factory=dict)  # (group, queue) -> client id
    answers: list[RemotingCommand] = field(default_factory=list)  # what clients answered to `ask`
    opaques: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def address(self) -> str:
        assert self.port, "it has never listened"
        return f"127.0.0.1:{self.port}"

    def asked(self, code: int) -> list[RemotingCommand]:
        """The requests of one code, in order."""
        return [request for request in self.requests if request.code == code]

    def notify(self, group: str) -> None:
        """Notify the members of a group that the members changed."""
        for peer in self.peers:
            if group in peer.groups:
                request = RemotingCommand.request(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    {"consumerGroup": group},
                    opaque=next(self.opaques),
                    oneway=True,
                )
                peer.transport.write(encode_frame(request))

    def ask(self, group: str, code: int, ext_fields: dict[str, str], body: bytes = b"") -> None:
        """Send a request to a group's members. Their answers go to `answers`."""
        for peer in self.peers:
            if group in peer.groups:
                request = RemotingCommand.request(code, ext_fields, body, opaque=next(self.opaques))
                peer.transport.write(encode_frame(request))

    def close_connections(self) -> None:
        """Close every connection."""
        for peer in list(self.peers):
            peer.transport.abort()

    def store(self, message: MessageExt) -> MessageExt:
        """Append a message and wake parked pulls."""
        queue = self.queues[message.topic, message.queue_id]
        message.queue_offset = len(queue)
        message.store_host = message.born_host = ("127.0.0.1", 10911)
        queue.append(message)
        parked, self.parked = self.parked, []
        for peer, request in parked:
            self.cluster.serve(self, peer, request, hold=True)
        return message


class _Protocol(asyncio.Protocol):
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.peer = Peer(transport)
        self.broker.peers.append(self.peer)

    def data_received(self, data: bytes) -> None:
        for command in self.decoder.feed(data):
            if command.is_response:
                self.broker.answers.append(command)
            else:
                self.broker.requests.append(command)
                self.broker.cluster.serve(self.broker, self.peer, command)

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.peers.remove(self.peer)
        self.broker.parked = [entry for entry in self.broker.parked if entry[0] is not self.peer]
        for group in self.peer.groups:
            self.broker.notify(group)


class FakeCluster:
    """A name server and one or more brokers. Use `async with FakeCluster(...) as cluster`."""

    def __init__(
        self,
        broker_names: tuple[str, ...] = ("a",),
        topics: dict[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.topics = dict(topics or {})  # topic -> queues on each broker
        self.tls = tls
        self.auto_create = True
        self.young_queues = True
        self.rules: list[Rule] = []
        self.name_server = FakeBroker(self, "name-server")
        self.brokers = {name: FakeBroker(self, name) for name in broker_names}

    @property
    def namesrv(self) -> str:
        return self.name_server.address

    @property
    def broker(self) -> FakeBroker:
        """The first broker."""
        return next(iter(self.brokers.values()))

    async def __aenter__(self) -> "FakeCluster":
        for broker in (self.name_server, *self.brokers.values()):
            await self.open(broker)
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in (self.name_server, *self.brokers.values()):
            await self.shut(broker)

    async def open(self, broker: FakeBroker) -> None:
        """Listen, again on the broker's port if it was there before.

        The port is below the range of outgoing connections. One of that range could become a client's own while the
        broker is away, and a client that tries to reach the broker could even connect to itself.
        """
        loop = asyncio.get_running_loop()
        for tries_left in reversed(range(PORT_TRIES)):
            port = broker.port or free_port()
            try:
                broker.server = await loop.create_server(lambda: _Protocol(broker), "127.0.0.1", port, ssl=self.tls)
                broker.port = port
                return
            except OSError as error:  # another test's listener was faster
                if broker.port or not tries_left or error.errno != errno.EADDRINUSE:
                    raise

    async def shut(self, broker: FakeBroker) -> None:
        if broker.server is not None:
            broker.server.close()
            broker.close_connections()

    def members(self, broker: FakeBroker, group: str) -> list[str]:
        return sorted({peer.client_id for peer in broker.peers if group in peer.groups})

    # ---- answers ----

    def serve(self, broker: FakeBroker, peer: Peer, request: RemotingCommand, *, hold: bool = True) -> None:
        """Answer one request, or park it."""
        answer: RemotingCommand | NoAnswer | None = None
        for rule in self.rules:
            answer = rule(broker, request)
            if answer is not None:
                break
        if answer is None:
            answer = self._answer(broker, peer, request, hold)
        if answer is NoAnswer.CLOSE:
            peer.transport.abort()
        elif isinstance(answer, RemotingCommand) and not request.is_oneway:
            answer.opaque = request.opaque
            peer.transport.write(encode_frame(answer))

    def _answer(
        self, broker: FakeBroker, peer: Peer, request: RemotingCommand, hold: bool
    ) -> RemotingCommand | NoAnswer:
        handlers = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.GET_MAX_OFFSET: lambda b, r: ok(r, offset=len(b.queues[_queue(r)])),
            RequestCode.GET_MIN_OFFSET: lambda b, r: ok(r, offset=0),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }
        code = request.code
        if code == RequestCode.HEART_BEAT:
            return self._heartbeat(broker, peer, request)
        if code == RequestCode.UNREGISTER_CLIENT:
            peer.groups.discard(request.ext_fields.get("consumerGroup", ""))
            broker.notify(request.ext_fields.get("consumerGroup", ""))
            return ok(request)
        if code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            members = self.members(broker, request.ext_fields["consumerGroup"])
            return ok(request, encode_consumer_ids(members)) if members else refuse(request, 1, "no consumer")
        if code == RequestCode.PULL_MESSAGE:
            return self._pull(broker, peer, request, hold)
        if code in handlers:
            return handlers[RequestCode(code)](broker, request)
        return refuse(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")

    def _route(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand:
        topic = request.ext_fields["topic"]
        if topic not in self.topics and not (topic == "TBW102" and self.auto_create):
            return refuse(request, ResponseCode.TOPIC_NOT_EXIST, "no topic route info")
        count = self.topics.get(topic, 8)
        live = {name: b for name, b in self.brokers.items() if b.server is not None and b.server.is_serving()}
        route = TopicRouteData(
            [QueueData(name, count, count, 6) for name in live],
            [BrokerData("c", name, {0: b.address}) for name, b in live.items()],
        )
        return ok(request, route.encode(standard_json=True))

    def _send(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand:
        fields = {SEND_FIELDS.get(letter, letter): value for letter, value in request.ext_fields.items()}
        topic, queue_id = fields["topic"], int(fields["queueId"])
        if topic not in self.topics:
            self.topics[topic] = int(fields["defaultTopicQueueNums"])
        if fields.get("batch") == "true":
            of_batch = fields["properties"]  # behind those of a message, so they count: RocketMQ up to 5.3.3
            elements = [(e.body, e.flag, e.properties.decode() + of_batch) for e in decode_batch(request.body)]
        else:
            elements = [(request.body, int(fields["flag"]), fields["properties"])]
        stored = [
            broker.store(
                MessageExt(
                    topic, body, decode_properties(text), flag, queue_id=queue_id, sys_flag=int(fields["sysFlag"])
                )
            )
            for body, flag, text in elements
        ]
        ids = ",".join(encode_offset_id("127.0.0.1", 10911, m.queue_offset) for m in stored)
        return ok(request, msgId=ids, queueId=queue_id, queueOffset=stored[0].queue_offset)

    def _heartbeat(self, broker: FakeBroker, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        data = HeartbeatData.decode(request.body)
        peer.client_id = data.client_id
        new = {consumer.group_name for consumer in data.consumers} - peer.groups
        peer.groups |= new
        for group in new:
            broker.notify(group)
        return ok(request)

    def _query_offset(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        offset = broker.committed.get((fields["consumerGroup"], *_queue(request)))
        if offset is None and self._is_young(broker, request) and fields.get("setZeroIfNotFound") != "false":
            offset = 0
        if offset is None:
            return refuse(request, ResponseCode.QUERY_NOT_FOUND, "no offset")
        return ok(request, offset=offset)

    def _is_young(self, broker: FakeBroker, request: RemotingCommand) -> bool:
        """As stock: the queue begins at 0 and its first message is still in memory."""
        return self.young_queues and bool(broker.queues[_queue(request)])

    def _update_offset(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        broker.committed[fields["consumerGroup"], *_queue(request)] = int(fields["commitOffset"])
        return ok(request)

    def _lock(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand:
        batch = LockBatch.decode(request.body)
        held = [
            queue
            for queue in batch.queues
            if broker.locks.setdefault((batch.consumer_group, queue), batch.client_id) == batch.client_id
        ]
        return ok(request, encode_locked(held))

    def _unlock(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand:
        batch = LockBatch.decode(request.body)
        for queue in batch.queues:
            if broker.locks.get((batch.consumer_group, queue)) == batch.client_id:
                del broker.locks[batch.consumer_group, queue]
        return ok(request)

    def _search(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand:
        queue = broker.queues[_queue(request)]
        wanted = int(request.ext_fields["timestamp"])
        found = (m.queue_offset for m in queue if m.store_timestamp_ms >= wanted)
        return ok(request, offset=next(found, len(queue)))

    def _pull(self, broker: FakeBroker, peer: Peer, request: RemotingCommand, hold: bool) -> RemotingCommand | NoAnswer:
        fields = request.ext_fields
        own = int(fields["sysFlag"]) & PullSysFlag.SUBSCRIPTION
        if fields["consumerGroup"] not in peer.groups and not own:
            return refuse(request, ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        queue, offset = broker.queues[_queue(request)], int(fields["queueOffset"])
        if offset > len(queue):
            return pulled(request, ResponseCode.PULL_OFFSET_MOVED, len(queue), len(queue))
        found = queue[offset : offset + int(fields["maxMsgNums"])]
        if found:
            body = b"".join(encode_message(message) for message in found)
            return pulled(request, ResponseCode.SUCCESS, offset + len(found), len(queue), body)
        if hold and int(fields["sysFlag"]) & PullSysFlag.SUSPEND:
            broker.parked.append((peer, request))
            return NoAnswer.SILENCE
        return pulled(request, ResponseCode.PULL_NOT_FOUND, offset, len(queue))


def ok(request: RemotingCommand, body: bytes = b"", **fields: object) -> RemotingCommand:
    """A successful answer with these ext fields."""
    return RemotingCommand.response_to(request, 0, None, {k: str(v) for k, v in fields.items()}, body)


def refuse(request: RemotingCommand, code: int, remark: str) -> RemotingCommand:
    """An error answer."""
    return RemotingCommand.response_to(request, code, remark)


def pulled(
    request: RemotingCommand, code: int, next_offset: int, max_offset: int, body: bytes = b""
) -> RemotingCommand:
    """The answer to a pull."""
    fields = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": "0",
        "maxOffset": str(max_offset),
    }
    return RemotingCommand.response_to(request, code, None, fields, body)


def _queue(request: RemotingCommand) -> tuple[str, int]:
    return request.ext_fields["topic"], int(request.ext_fields["queueId"])
