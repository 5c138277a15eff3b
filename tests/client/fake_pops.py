"""POP at a fake cluster: a rule that gives messages, holds polls and notes what becomes of the messages.

It serves one client. Messages that are given back (invisible time 0) are ready at once; no time brings others back.
"""

import asyncio
import base64
import json
from collections import defaultdict, deque
from dataclasses import dataclass, field

from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.message import MessageExt, encode_message
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, ok, refuse

POP_TIME_MS = 1_700_000_000_000
REVIVE_QUEUE = 3
Place = tuple[str, int, int]
"""Topic, queue, offset."""


@dataclass
class FakePops:
    """The rule. `serves_batches` False is a broker that knows no batches of acknowledgements."""

    cluster: FakeCluster
    serves_batches: bool = True
    ready: dict[tuple[str, str], deque[MessageExt]] = field(default_factory=lambda: defaultdict(deque))
    given: dict[Place, tuple[str, MessageExt]] = field(default_factory=dict)  # with the broker's name
    held: list[tuple[FakeBroker, RemotingCommand]] = field(default_factory=list)
    acked: list[Place] = field(default_factory=list)
    changed: list[tuple[Place, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster.rules.append(self)

    def store(self, body: bytes, topic: str = "T", broker: str = "a", tags: str = "t", queue_id: int = 0) -> MessageExt:
        """Store a message and give it to a poll that waits."""
        stored = self.cluster.brokers[broker].store(MessageExt(topic, body, {"TAGS": tags}, queue_id=queue_id))
        self.put(stored, broker)
        return stored

    def put(self, message: MessageExt, broker: str = "a") -> None:
        self.ready[broker, message.topic].append(message)
        for entry in [entry for entry in self.held if entry[0].name == broker]:
            if (answer := self._found(*entry)) is not None:
                self._end_poll(*entry, answer)

    def __call__(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | NoAnswer | None:
        match request.code:
            case RequestCode.POP_MESSAGE:
                return self._found(broker, request) or self._hold(broker, request)
            case RequestCode.ACK_MESSAGE:
                self.acked.append(_place(request))
                return ok(request)
            case RequestCode.BATCH_ACK_MESSAGE if self.serves_batches:
                self.acked += [place for ack in json.loads(request.body)["acks"] for place in _places(ack)]
                return ok(request)
            case RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
                return self._change(request)
        return None

    def _found(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        fields = request.ext_fields
        ready = self.ready[broker.name, fields["topic"]]
        messages = [ready.popleft() for _ in range(min(len(ready), int(fields["maxMsgNums"])))]
        if not messages:
            return None
        queues: dict[int, list[int]] = {}
        for message in messages:
            queues.setdefault(message.queue_id, []).append(message.queue_offset)
            self.given[message.topic, message.queue_id, message.queue_offset] = broker.name, message
        return ok(
            request, b"".join(map(encode_message, messages)), popTime=POP_TIME_MS, reviveQid=REVIVE_QUEUE, restNum=0,
            invisibleTime=fields["invisibleTime"],
            startOffsetInfo=";".join(f"0 {queue} {min(offsets)}" for queue, offsets in queues.items()),
            msgOffsetInfo=";".join(f"0 {queue} {','.join(map(str, found))}" for queue, found in queues.items()),
        )  # fmt: skip

    def _hold(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | NoAnswer:
        poll_s = int(request.ext_fields["pollTime"]) / 1000
        nothing = refuse(request, ResponseCode.POLLING_TIMEOUT, "nothing")
        nothing.ext_fields = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
        if poll_s <= 0:
            return nothing
        self.held.append((broker, request))
        asyncio.get_running_loop().call_later(poll_s, self._end_poll, broker, request, nothing)
        return NoAnswer.SILENCE

    def _end_poll(self, broker: FakeBroker, request: RemotingCommand, answer: RemotingCommand) -> None:
        if (broker, request) in self.held:
            self.held.remove((broker, request))
            for peer in broker.peers:
                peer.transport.write(encode_frame(answer))

    def _change(self, request: RemotingCommand) -> RemotingCommand:
        place, invisible_ms = _place(request), int(request.ext_fields["invisibleTime"])
        self.changed.append((place, invisible_ms))
        if not invisible_ms:
            broker, message = self.given[place]
            self.put(message, broker)
        return ok(request, popTime=POP_TIME_MS + 5, invisibleTime=invisible_ms, reviveQid=REVIVE_QUEUE + 1)


def _place(request: RemotingCommand) -> Place:
    fields = request.ext_fields
    return fields["topic"], int(fields["queueId"]), int(fields["offset"])


def _places(ack: dict[str, str]) -> list[Place]:
    bits = int.from_bytes(base64.b64decode(ack["b"]), "little")
    start = int(ack["so"])
    return [(ack["t"], int(ack["q"]), start + bit) for bit in range(bits.bit_length()) if bits >> bit & 1]
