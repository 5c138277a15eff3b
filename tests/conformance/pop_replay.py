"""Plays the recorded pops to a broker, and lists where its answers differ from the recorded ones but in times."""

import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt, decode_messages
from tests.conformance.pop_recording import PAUSE_MS, SENDS, Answer, Ask, LookAtOffsets, Sends, Step, properties_of
from tests.raw_client import RawClient
from tests.waiting import TIMEOUT_S, pause_s, wait_until

POPS = (RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE)
A_TIME, A_REVIVE_QUEUE = "a time", "a revive queue"
ORDERLY = "999"
REVIVE_QUEUES = 8
SETTLED_S = 3.0
"""A broker moves offsets some time after the request that is the reason."""
STALE = "err-born-stale"
BORN_AHEAD_MS = 20_000
_PEER = re.compile(r"/127\.0\.0\.1:\d+")
_OF_TOPIC = {"1": "%RETRY%{group}_{topic}", "2": "%RETRY%{group}+{topic}"}
_CHANGED_BY_CLOCK = "order-change-3s"
"""Its invisible time counts from the pop, so it holds the time between two requests."""


@dataclass(frozen=True)
class Difference:
    """One answer that is not the recorded one."""

    scenario: str
    what: str
    recorded: object
    seen: object


def _info(text: str) -> list[str]:
    """Entries of an info string. Their order is that of the queues, which a broker draws by lot."""
    return sorted(text.split(";"))


def _receipt(text: str) -> list[str]:
    fields = text.split()
    fields[1] = A_TIME
    fields[3] = fields[3] if fields[3] == ORDERLY else A_REVIVE_QUEUE
    return fields


def _message(message: MessageExt) -> dict[str, Any]:
    properties: dict[str, Any] = dict(message.properties)
    if "1ST_POP_TIME" in properties:
        properties["1ST_POP_TIME"] = A_TIME
    if "POP_CK" in properties:
        properties["POP_CK"] = _receipt(properties["POP_CK"])
    return {
        "topic": message.topic, "queue": message.queue_id, "offset": message.queue_offset,
        "body": message.body.decode(), "reconsumeTimes": message.reconsume_times, "flag": message.flag,
        "sysFlag": message.sys_flag, "properties": properties,
    }  # fmt: skip


def comparable(scenario: str, code: int, answer: RemotingCommand) -> dict[str, Any]:
    """An answer to a request of a code, without what differs from run to run."""
    seen: dict[str, Any] = {"code": answer.code, "remark": _PEER.sub("/a peer", answer.remark or "")}
    for name, value in answer.ext_fields.items():
        match name:
            case "popTime":
                seen[name] = A_TIME if value != "0" else value
            case "reviveQid" if value != ORDERLY:
                seen[name] = A_REVIVE_QUEUE if 0 <= int(value) < REVIVE_QUEUES else value
            case "invisibleTime" if scenario == _CHANGED_BY_CLOCK:
                seen[name] = A_TIME
            case "startOffsetInfo" | "msgOffsetInfo":
                seen[name] = _info(value)
            case "msgId":  # a place in the log
                pass
            case _:
                seen[name] = value
    if code in POPS and answer.code == ResponseCode.SUCCESS:
        messages = [_message(message) for message in decode_messages(answer.body)]
        seen["messages"] = sorted(messages, key=lambda message: (message["queue"], message["offset"]))
    return seen


class Replay:
    """One run against a broker that has nothing yet."""

    def __init__(self, address: str, answers: Iterable[Answer]) -> None:
        self.differences: list[Difference] = []
        self.compared = 0
        self._address = address
        self._main, self._side = RawClient(address, timeout_s=60), RawClient(address, timeout_s=60)
        self._recorded = {answer.number: answer for answer in answers}
        self._pending: dict[int, tuple[Ask, RawClient, int]] = {}
        self._clients = [self._main, self._side]
        self._times: dict[str, tuple[str, str]] = {}
        self._sent: set[tuple[int, str]] = set()

    def wake(self) -> None:
        """Ask for a topic that does not exist: a broker may start what serves pops only then."""
        fields = {
            "consumerGroup": "CGP", "topic": "NOTOPIC", "queueId": -1, "maxMsgNums": 1, "invisibleTime": 1000,
            "pollTime": 60_000, "bornTime": time.time_ns() // 1_000_000, "initMode": 0,
        }  # fmt: skip
        self._side.ask(RequestCode.POP_MESSAGE, fields)

    def run(self, steps: Iterable[Step]) -> None:
        """Play steps."""
        for step in steps:
            if (step.part, step.scenario) in SENDS and (step.part, step.scenario) not in self._sent:
                self._sent.add((step.part, step.scenario))
                self._send(step.part, SENDS[step.part, step.scenario])
            if step.pause_ms > PAUSE_MS:
                time.sleep(step.pause_ms / 1000)  # span: invisible times and polls of the recording pass
            match step:
                case Ask():
                    self._ask(step)
                case Answer():
                    self._take(step)
                case LookAtOffsets():
                    self._look(step)

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            client.close()

    def _differs(self, scenario: str, recorded: dict[str, Any], seen: dict[str, Any]) -> None:
        self.compared += 1
        for name in recorded.keys() | seen.keys():
            if recorded.get(name) != seen.get(name):
                self.differences.append(Difference(scenario, name, recorded.get(name), seen.get(name)))

    # ---- requests ----

    def _send(self, part: int, sends: Sends) -> None:
        begins = [self._end(sends.topic, queue) for queue in range(sends.queues)]
        for number, body in enumerate(sends.bodies):
            queue = number % sends.queues
            answer = self._side.send(sends.topic, body.encode(), queue, properties_of(part, sends, number))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            begins[queue] += 1
        for queue, end in enumerate(begins):
            wait_until(lambda: self._end(sends.topic, queue) == end, f"{sends.topic} shows its messages")  # noqa: B023

    def _end(self, topic: str, queue: int) -> int:
        """The offset behind the last message of a queue, 0 without the topic."""
        answer = self._side.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue})
        return int(answer.ext_fields["offset"]) if answer.code == ResponseCode.SUCCESS else 0

    def _fields(self, step: Ask) -> dict[str, object]:
        """The recorded fields with times and receipts of this run."""
        fields: dict[str, object] = dict(step.request.ext_fields)
        now = time.time_ns() // 1_000_000
        for name in ("bornTime", "g"):
            if name in fields:
                fields[name] = now + int(str(fields[name])) - step.at_ms
        is_at_once = step.request.ext_fields.get("pollTime") == "0" and step.scenario != STALE
        if "bornTime" in fields and (step.is_repeated or is_at_once):
            # A broker refuses what is older than 500 ms and its poll. A busy machine may take longer.
            fields["bornTime"] = now + BORN_AHEAD_MS
        if "extraInfo" in fields:
            receipt = str(fields["extraInfo"]).split()
            if len(receipt) > 3 and receipt[1] in self._times:
                receipt[1], receipt[3] = self._times[receipt[1]]
            fields["extraInfo"] = " ".join(receipt)
        return fields

    def _body(self, step: Ask) -> bytes:
        if step.request.code != RequestCode.BATCH_ACK_MESSAGE:
            return step.request.body
        body = json.loads(step.request.body)
        for ack in body.get("acks") or []:
            pop_time, revive_queue = self._times.get(str(ack["pt"]), (ack["pt"], ack["rq"]))
            ack["pt"], ack["rq"] = int(pop_time), int(revive_queue)
        return json.dumps(body).encode()

    def _ask(self, step: Ask) -> None:
        if step.is_repeated:
            self._await_redelivery(self._recorded[step.number])
        client = self._main
        if int(step.request.ext_fields.get("pollTime", 0)) > 0:
            client = RawClient(self._address, timeout_s=60)
            self._clients.append(client)
        self._pending[step.number] = step, client, self._request(client, step)

    def _request(self, client: RawClient, step: Ask) -> int:
        return client.send_request(step.request.code, self._fields(step), self._body(step))

    def _await_redelivery(self, recorded: Answer) -> None:
        """Wait until the queue of a retry topic has what the recorder found in the end."""
        for entry in recorded.answer.ext_fields["msgOffsetInfo"].split(";"):
            flag, queue, offsets = entry.split()
            fields = recorded.request.ext_fields
            topic = _OF_TOPIC[flag].format(group=fields["consumerGroup"], topic=fields["topic"])
            last = int(offsets.split(",")[-1])
            wait_until(lambda: self._end(topic, int(queue)) > last, f"{topic} has its message {last}")  # noqa: B023

    # ---- answers ----

    def _take(self, step: Answer) -> None:
        ask, client, opaque = self._pending.pop(step.number)
        answer = client.receive()
        assert answer is not None and answer.opaque == opaque, (step.scenario, answer)
        deadline = time.monotonic() + TIMEOUT_S
        while ask.is_repeated and answer.code == ResponseCode.POLLING_TIMEOUT and time.monotonic() < deadline:
            # With both kinds of retry topics a pop reads one of them, drawn by lot.
            time.sleep(pause_s(0, 0))  # span: the pace of a client that asks again
            self._request(client, ask)
            answer = client.receive()
            assert answer is not None
        code = step.request.code
        if code in (RequestCode.POP_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
            now, then = answer.ext_fields, step.answer.ext_fields
            if now.get("popTime", "0") != "0":
                self._times[then["popTime"]] = now["popTime"], now["reviveQid"]
        self._differs(
            step.scenario,
            comparable(step.scenario, code, step.answer),
            comparable(step.scenario, code, answer),
        )

    def _look(self, step: LookAtOffsets) -> None:
        deadline = time.monotonic() + SETTLED_S
        seen: tuple[int, ...] = ()

        def is_settled() -> bool:
            nonlocal seen
            seen = tuple(self._offset(step.group, step.topic, queue) for queue in range(len(step.offsets)))
            return seen == step.offsets or time.monotonic() > deadline

        wait_until(is_settled, "the offsets are as recorded, or their time is over")
        self._differs(step.scenario, {"offsets": step.offsets}, {"offsets": seen})

    def _offset(self, group: str, topic: str, queue: int) -> int:
        """The consumer offset of a queue, -1 if there is none."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "setZeroIfNotFound": "false"}
        answer = self._side.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        return int(answer.ext_fields["offset"]) if answer.code == ResponseCode.SUCCESS else -1
