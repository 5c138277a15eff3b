"""The canary: an honest client in threads, one for each kind of request on old and on new connections.

A request counts from its first try until the right answer. After a wrong answer, a closed connection or 2 s of
silence the lane connects again and tries again. Sent and read messages go into the checker of the drills.
"""

import contextlib
import http.client
import itertools
import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence

from ringmq.loadtest.drills.checker import Checker
from ringmq.loadtest.siege.attack import Target
from ringmq.loadtest.siege.figures import CanaryRequest, Lane
from ringmq.loadtest.siege.honest_requests import HONEST, WrongAnswerError
from ringmq.loadtest.siege.requests import consumer, heartbeat, pull, request, send
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import FLAG_RESPONSE, RemotingCommand, decode_payload
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.json_text import dump_json
from ringmq.remoting.message import decode_messages

TOPIC = "Canary"
HOST = "127.0.0.1"
KINDS = ("send", "pull", "heartbeat", "cold", "health", "vip", "route")
"""vip: a send on the fast port. cold: a request to control. route: a request to the name server."""
PAUSE_S = 0.05
TRY_TIMEOUT_S = 2.0
RETRY_PAUSE_S = 0.02
BEHIND_MAX_S = 1.0
"""The time after its answer in which a message may not be readable yet."""
_QUEUES = {("send", True): 0, ("send", False): 1, ("vip", True): 2, ("vip", False): 3}
QUEUES = len(_QUEUES)


class Connection:
    """One connection and one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=TRY_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, data: bytes) -> RemotingCommand:
        """Return the answer. Raises OSError if the connection fails or the time is over."""
        self._socket.sendall(data)
        while True:
            (length,) = struct.unpack(">i", self._read(4))
            command = decode_payload(memoryview(self._read(length)))
            if command.flag & FLAG_RESPONSE:  # else a notice from the broker
                return command

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            part = self._socket.recv(min(length, 1 << 20))
            if not part:
                raise ConnectionError("closed")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Record:
    """The client's record of its messages, for all threads."""

    def __init__(self) -> None:
        self.checker = Checker()
        self.guard = threading.Lock()
        self._ends: list[deque[tuple[float, int]]] = [deque([(0.0, 0)], maxlen=4000) for _ in range(QUEUES)]
        self._numbers = itertools.count()

    def began(self, queue_id: int) -> str:
        """Record a message that is about to be sent, and return its id."""
        with self.guard:
            message_id = f"{queue_id}-{next(self._numbers)}"
            self.checker.began(f"queue-{queue_id}", message_id)
        return message_id

    def acknowledged(self, message_id: str, queue_id: int, offset: int) -> None:
        """Record an acknowledgement."""
        with self.guard:
            self.checker.acknowledged(message_id, TOPIC, queue_id, offset)
            self._ends[queue_id].append((time.monotonic(), offset + 1))

    def read(self, queue_id: int, offset: int, message_id: str) -> None:
        """Record that a consumer got the message."""
        with self.guard:
            self.checker.read(TOPIC, queue_id, offset, message_id)

    def readable_end(self, queue_id: int) -> int:
        """Return the offset up to which everything has to be readable by now."""
        latest = time.monotonic() - BEHIND_MAX_S
        return max((end for at, end in list(self._ends[queue_id]) if at < latest), default=0)


class CanaryLane(threading.Thread):
    """Sends one kind of request until `stop`."""

    def __init__(self, lane: Lane, target: Target, record: Record) -> None:
        super().__init__(daemon=True, name=lane.name)
        self.lane = lane
        self._target = target
        self._record = record
        self._ended = threading.Event()
        self._connection: Connection | None = None
        self._http: http.client.HTTPConnection | None = None
        self._offset = 0
        self._beat = heartbeat(f"canary-{lane.kept}", [consumer("canary", TOPIC)], ["canary"])
        self._done: deque[CanaryRequest] = deque()
        self._waiting_since = 0.0
        self._wrong: list[str] = []

    def run(self) -> None:
        """Send, pause, send."""
        while not self._ended.wait(PAUSE_S):
            self._wrong = []
            self._waiting_since = began = time.monotonic()
            while not (answered := self._tried()) and not self._ended.wait(RETRY_PAUSE_S):
                pass
            self._done.append(CanaryRequest(began, time.monotonic(), answered, tuple(self._wrong)))
            self._waiting_since = 0.0
        self._disconnect()

    def asked(self, since_s: float) -> list[CanaryRequest]:
        """Return requests that ended after `since_s` (monotonic clock), and the one in progress."""
        found = [one for one in list(self._done) if one.ended_s > since_s]
        if began := self._waiting_since:
            found.append(CanaryRequest(began, time.monotonic(), False, tuple(self._wrong)))
        return found

    def forget(self, before_s: float) -> None:
        """Forget requests that ended before `before_s`."""
        while self._done and self._done[0].ended_s < before_s:
            self._done.popleft()

    def stop(self) -> None:
        """End soon."""
        self._ended.set()

    def _try(self) -> None:
        getattr(self, f"_{self.lane.kind}")()

    def _tried(self) -> bool:
        try:
            self._try()
        except WrongAnswerError as error:
            self._wrong.append(str(error))
        except TimeoutError:
            self._wrong.append("no answer")
        except (OSError, EOFError, KeyError, ValueError, http.client.HTTPException) as error:
            self._wrong.append(type(error).__name__)
        else:
            if not self.lane.kept:
                self._disconnect()
            return True
        self._disconnect()
        return False

    def _disconnect(self) -> None:
        for connection in (self._connection, self._http):
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.close()
        self._connection = self._http = None

    def _ask(self, data: bytes, port: int, *right: int) -> RemotingCommand:
        if self._connection is None:
            self._connection = Connection(port)
        answer = self._connection.ask(data)
        if answer.code not in (0, *right):
            raise WrongAnswerError(f"code {answer.code}: {answer.remark or ''}"[:160])
        return answer

    # ---- kinds ----

    def _send(self) -> None:
        queue_id = _QUEUES[self.lane.kind, self.lane.kept]
        message_id = self._record.began(queue_id)
        port = self._target.vip_port if self.lane.kind == "vip" else self._target.port
        answer = self._ask(send(message_id.encode(), TOPIC, queue_id), port)
        self._record.acknowledged(message_id, queue_id, int(answer.ext_fields["queueOffset"]))

    _vip = _send

    def _pull(self) -> None:
        queue_id = 0 if self.lane.kept else 1
        answer = self._ask(pull(TOPIC, queue_id, self._offset, group="canary"), self._target.port, 19)
        for message in decode_messages(answer.body) if answer.code == 0 else ():
            self._record.read(queue_id, message.queue_offset, bytes(message.body).decode())
            self._offset = message.queue_offset + 1
        if answer.code == 19 and self._offset < (end := self._record.readable_end(queue_id)):
            raise WrongAnswerError(f"offset {self._offset} of {end} is not readable")

    def _heartbeat(self) -> None:
        self._ask(self._beat, self._target.port)

    def _cold(self) -> None:
        self._ask(request(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0}), self._target.port)

    def _route(self) -> None:
        self._ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}), self._target.name_server_port)

    def _health(self) -> None:
        if self._http is None:
            self._http = http.client.HTTPConnection(HOST, self._target.http_port, timeout=TRY_TIMEOUT_S)
        self._http.request("GET", "/health")
        answer = self._http.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise WrongAnswerError(f"HTTP {answer.status}: {body[:100]!r}")
        json.loads(body)


class HonestLane(CanaryLane):
    """Does one kind of `honest_requests` until `stop`."""

    def __init__(self, lane: Lane, target: Target, record: Record) -> None:
        super().__init__(lane, target, record)
        self._work = HONEST[lane.kind](f"{lane.kind}-{'old' if lane.kept else 'new'}", target.broker_name)

    def _try(self) -> None:
        self._work(self._ask_broker)

    def _ask_broker(self, data: bytes, *right: int) -> RemotingCommand:
        return self._ask(data, self._target.port, *right)


class Canary:
    """Lanes of all KINDS, or of kinds of `honest_requests`. The topics must exist."""

    def __init__(self, target: Target, beside: Sequence[str] = ()) -> None:
        self.record = Record()
        lanes = [Lane(kind, kept) for kind in beside or KINDS for kept in (True, False)]
        make = HonestLane if beside else CanaryLane
        self._lanes = [make(lane, target, self.record) for lane in lanes]
        for lane in self._lanes:
            lane.start()

    def asked(self, since_s: float) -> dict[str, list[CanaryRequest]]:
        """Return by lane all requests that ended after `since_s`."""
        return {lane.lane.name: lane.asked(since_s) for lane in self._lanes}

    @property
    def is_served(self) -> bool:
        """True if each lane has had a right answer, since the last `forget`."""
        return all(any(one.answered for one in lane.asked(0.0)) for lane in self._lanes)

    def forget(self, before_s: float) -> None:
        """Drop requests that ended before `before_s`."""
        for lane in self._lanes:
            lane.forget(before_s)

    def stop(self) -> None:
        """End all threads."""
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.join(timeout=2 * TRY_TIMEOUT_S)


def make_group(port: int, group: str) -> None:
    """Make a group as an administrator does, for brokers that make none for clients."""
    body = dump_json(SubscriptionGroupConfig(group).to_json())
    with contextlib.closing(Connection(port)) as connection:
        answer = connection.ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
    if answer.code != 0:
        raise RuntimeError(f"group {group}: code {answer.code}: {answer.remark}")


def make_topic(port: int, topic: str) -> None:
    """Make a topic with a queue for each lane that sends."""
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    with contextlib.closing(Connection(port)) as connection:
        answer = connection.ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
    if answer.code != 0:
        raise RuntimeError(f"topic {topic}: code {answer.code}: {answer.remark}")


def read_back(port: int, record: Record) -> str:
    """Read all queues of the canary from the first offset to the last, for the checker.

    Return the fault, "" without one.
    """
    with contextlib.closing(Connection(port)) as connection:
        for queue_id in range(QUEUES):
            asked = {"topic": TOPIC, "queueId": queue_id}
            end = int(connection.ask(request(RequestCode.GET_MAX_OFFSET, asked)).ext_fields["offset"])
            at = int(connection.ask(request(RequestCode.GET_MIN_OFFSET, asked)).ext_fields["offset"])
            while at < end:
                answer = connection.ask(pull(TOPIC, queue_id, at, group="canary-end"))
                if answer.code != 0:
                    return f"queue {queue_id} offset {at} of {end}: code {answer.code}: {answer.remark}"
                for message in decode_messages(answer.body):
                    text = bytes(message.body).decode(errors="replace")
                    record.checker.final_read(TOPIC, queue_id, message.queue_offset, text)
                    at = message.queue_offset + 1
    return ""
