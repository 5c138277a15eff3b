"""Clients of the test worker: many connections with many polls each, in one thread, and what they see."""

import contextlib
import heapq
import random
import selectors
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from ringmq.remoting.message import decode_messages
from tests.polls.poll_checker import Closing, PollChecker
from tests.polls.poll_core import lane_number
from tests.polls.poll_wire import FOUND, NOTHING, ack_request, poll_request, read_answer

SELECT_S = 0.005
STALL_NS = 50_000_000
"""A round of this thread that takes longer delays what it measures."""
PAUSE_NS = 100_000_000
"""Before a poll that was answered before its time is asked again."""
RECEIVE_BYTES = 1 << 18
ABORT = struct.pack("ii", 1, 0)
"""SO_LINGER: the connection is reset."""
NOBODY = 0, 0
SO_TIMESTAMPNS = 35
"""asm-generic/socket.h; Python has no name for it."""
_TIMESPEC = struct.Struct("=qq")
TOLD_BYTES = 64


def arrived_ns(told: list[tuple[int, int, bytes]]) -> int:
    """When the kernel has received the last bytes of a read, by the monotonic clock: the answer was there then, however
    long this thread has been busy."""
    now_ns = time.monotonic_ns()
    for _, kind, data in told:
        if kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(data[: _TIMESPEC.size])
            return min(now_ns, now_ns - (time.time_ns() - seconds * 1_000_000_000 - nanoseconds))
    return now_ns


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """So many polls wait on so many connections, each for a time between the two."""

    topic: str
    connections: int
    depth: int
    groups: int = 2
    queues: int = 8
    wait_ms: tuple[int, int] = (1000, 4000)
    probes_per_s: int = 100
    first_group: int = 0
    asks_per_s: int = 8000
    """Of all connections, when they begin: the test worker holds some 40,000 polls a second."""


@dataclass(slots=True)
class _Connection:
    number: int
    socket: socket.socket
    output: bytearray = field(default_factory=bytearray)
    input: bytearray = field(default_factory=bytearray)
    polls: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By opaque: lane and deadline."""
    unsent: list[tuple[int, int]] = field(default_factory=list)
    """Opaque and time in ns of polls that the kernel has not taken."""
    acks: dict[int, int] = field(default_factory=dict)
    """By opaque: when it was sent, 0 if nobody measures it."""
    ending_ns: int = 0
    """When it was half closed."""


class PollLoad(threading.Thread):
    """Begins without polls: `ask` lets it ask, `rest` ends that."""

    def __init__(self, address: str, plan: LoadPlan, checker: PollChecker, seed: int = 1) -> None:
        super().__init__(daemon=True)
        host, port = address.rsplit(":", 1)
        self._address, self._plan, self._checker = (host, int(port)), plan, checker
        self._chance = random.Random(seed)
        self._selector = selectors.EpollSelector()
        self._connections: dict[int, _Connection] = {}
        self._orders: deque[tuple[str, int]] = deque()
        self._later: list[tuple[int, int]] = []
        """Time, and the connection that asks again then."""
        self._numbers = self._opaque = self._turn = 0
        self._asks, self._ends = False, False
        self._probe_ns = self._ask_ns = 0
        self.probes: list[tuple[int, int]] = []
        """When each request that is answered at once was sent, and answered."""
        self.stalls = self.stalled_ns = self.closed_by_broker = self.closing = 0
        self.open_polls = 0
        self.error: BaseException | None = None

    # -- orders of the drill -------------------------------------------------------------------------------

    def ask(self) -> None:
        """Every connection asks at the plan's rate, and asks again when it is answered."""
        self._orders.append(("ask", 0))

    def rest(self) -> None:
        """No new polls."""
        self._orders.append(("rest", 0))

    def vanish(self, count: int, *, is_exact: bool) -> None:
        """End connections and make others: half closed and read to the end, or reset."""
        self._orders.append(("half" if is_exact else "abort", count))

    def end(self) -> None:
        """Close everything."""
        self._ends = True
        self.join()
        if self.error is not None:
            raise self.error

    # -- the thread ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Ask and take answers until `end`."""
        try:
            for _ in range(self._plan.connections):
                self._connect()
            began_ns = time.monotonic_ns()
            while not self._ends:
                self._round()
                now_ns = time.monotonic_ns()
                if now_ns - began_ns > STALL_NS:
                    self.stalls += 1
                    self.stalled_ns += now_ns - began_ns
                    self._checker.disturbed(began_ns, now_ns)
                began_ns = now_ns
        except BaseException as error:
            self.error = error
        for connection in self._connections.values():
            connection.socket.close()

    def _round(self) -> None:
        for key, _ in self._selector.select(SELECT_S):
            self._receive(key.data)
        while self._orders:
            self._obey(*self._orders.popleft())
        now_ns = time.monotonic_ns()
        while self._later and self._later[0][0] <= now_ns:
            number = heapq.heappop(self._later)[1]
            if number in self._connections:
                self._poll(self._connections[number])
        if now_ns >= self._probe_ns and self._plan.probes_per_s:
            self._probe_ns = now_ns + 1_000_000_000 // self._plan.probes_per_s
            self._ack(self._chance.choice(list(self._connections.values())), NOBODY)
        for connection in list(self._connections.values()):
            self._flush(connection)
        self.open_polls = sum(len(connection.polls) for connection in self._connections.values())

    def _obey(self, order: str, count: int) -> None:
        if order in ("ask", "rest"):
            self._asks = order == "ask"
            for connection in self._connections.values() if self._asks else ():
                self._fill(connection)
            return
        usable = [connection for connection in self._connections.values() if not connection.ending_ns]
        for connection in self._chance.sample(usable, min(count, len(usable))):
            if order == "half":
                self._flush(connection)
                connection.ending_ns = time.monotonic_ns()
                with contextlib.suppress(OSError):
                    connection.socket.shutdown(socket.SHUT_WR)
                self.closing += 1
                continue
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
            self._closed(connection, Closing(time.monotonic_ns(), is_exact=False))

    # -- connections ---------------------------------------------------------------------------------------

    def _connect(self) -> None:
        made = socket.create_connection(self._address, timeout=30)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        made.setblocking(False)
        self._numbers += 1
        connection = self._connections[self._numbers] = _Connection(self._numbers, made)
        self._selector.register(made, selectors.EVENT_READ, connection)
        if self._asks:
            self._fill(connection)

    def _closed(self, connection: _Connection, closing: Closing) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        del self._connections[connection.number]
        self._checker.closed(connection.number, closing)
        self._connect()

    def _receive(self, connection: _Connection) -> None:
        if connection.number not in self._connections:
            return
        try:
            data, told, _, _ = connection.socket.recvmsg(RECEIVE_BYTES, TOLD_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data, told = b"", []
        at_ns = arrived_ns(told)
        if not data:
            is_own = connection.ending_ns != 0
            self.closed_by_broker += not is_own
            is_exact = is_own and not connection.input
            self._closed(connection, Closing(connection.ending_ns or at_ns, is_exact, by_broker=not is_own))
            return
        buffer = connection.input
        buffer += data
        at = 0
        while len(buffer) - at >= 4 and len(buffer) - at >= (size := 4 + int.from_bytes(buffer[at : at + 4])):
            self._answer(connection, bytes(buffer[at : at + size]), at_ns)
            at += size
        del buffer[:at]

    def _flush(self, connection: _Connection) -> None:
        if connection.output and not connection.ending_ns:
            with contextlib.suppress(OSError):  # `_receive` sees the end
                del connection.output[: connection.socket.send(connection.output)]
            if not connection.output:
                self._sent(connection)

    def _sent(self, connection: _Connection) -> None:
        """The time of a poll begins when it is sent: thousands at once take this thread a second."""
        now_ns = time.monotonic_ns()
        for opaque, wait_ns in connection.unsent:
            if opaque in connection.polls:
                lane, _ = connection.polls[opaque]
                connection.polls[opaque] = lane, now_ns + wait_ns
                self._checker.sent(opaque, now_ns + wait_ns)
        connection.unsent.clear()

    # -- requests and answers ------------------------------------------------------------------------------

    def _fill(self, connection: _Connection) -> None:
        """Let a new connection ask at the plan's rate: the read worker counts a poll's time from its read on."""
        self._ask_ns = max(self._ask_ns, time.monotonic_ns())
        for _ in range(self._plan.depth):
            heapq.heappush(self._later, (self._ask_ns, connection.number))
            self._ask_ns += 1_000_000_000 // self._plan.asks_per_s

    def _poll(self, connection: _Connection) -> None:
        plan = self._plan
        if not self._asks or connection.ending_ns or len(connection.polls) >= plan.depth:
            return
        self._turn += 1
        self._opaque += 1
        group, queue = f"polls-{plan.first_group + self._turn % plan.groups}", self._turn // plan.groups % plan.queues
        wait_ms = self._chance.randint(*plan.wait_ms)
        deadline_ns = time.monotonic_ns() + wait_ms * 1_000_000
        connection.polls[self._opaque] = lane_number(group, queue), deadline_ns
        self._checker.asked(self._opaque, connection.number, deadline_ns)
        connection.unsent.append((self._opaque, wait_ms * 1_000_000))
        connection.output += poll_request(self._opaque, group, plan.topic, queue, wait_ms, connection.number)

    def _ack(self, connection: _Connection, name: tuple[int, int]) -> None:
        if connection.ending_ns:
            return
        self._opaque += 1
        connection.acks[self._opaque] = time.monotonic_ns() if name == NOBODY else 0
        connection.output += ack_request(self._opaque, name)

    def _answer(self, connection: _Connection, frame: bytes, at_ns: int) -> None:
        answer = read_answer(frame)
        sent_ns = connection.acks.pop(answer.opaque, None)
        if sent_ns is not None:
            if sent_ns:
                self.probes.append((sent_ns, at_ns))
            return
        lane, deadline_ns = connection.polls.pop(answer.opaque, (-1, 0))
        self._checker.answered(answer.opaque, connection.number, at_ns, answer.code)
        if answer.code == FOUND:
            offsets = [message.queue_offset for message in decode_messages(answer.body)]
            self._checker.received(answer.name, at_ns, lane, offsets)
            self._ack(connection, answer.name)
        if answer.code == FOUND or (answer.code == NOTHING and at_ns >= deadline_ns):
            self._poll(connection)
        else:
            heapq.heappush(self._later, (at_ns + PAUSE_NS, connection.number))
