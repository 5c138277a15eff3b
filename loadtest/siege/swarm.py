"""Thousands of sockets of one attacker, each driven by a script: a generator of the socket's next steps.

A script yields bytes to send, a number of seconds to pause, or one of the steps below. When it returns, its
connection is closed. One process and one epoll serve all connections of an attack. Connections come from 200
addresses of the loopback network, so an attacker never uses up the outgoing ports of the canary.
"""

import contextlib
import errno
import heapq
import itertools
import re
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

HOLD = object()
"""Step: leave the connection open and do nothing more."""
ANSWER = object()
"""Step: wait until bytes arrive."""
HALF_CLOSE = object()
"""Step: end the own direction, continue reading."""
RESET = object()
"""Step: close with a RST."""
SOURCES = 200
OPENED_A_TURN = 256
STEPS_A_TURN = 32
READ_BYTES = 262_144
SCANNED_BYTES = 4096
POLL_S = 0.05
_IP_BIND_ADDRESS_NO_PORT = 24
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_CODE = re.compile(rb'"code":(-?\d+)|HTTP/1\.[01] (\d{3})')
_CONNECTING = (0, errno.EINPROGRESS)

Step = bytes | memoryview | float | object
Script = Callable[["Link"], Generator[Step, None, None]]


@dataclass(frozen=True, slots=True)
class Await:
    """Step: wait until bytes arrive, at most so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Take:
    """Step: read at most so many bytes, for waves that do not drain their sockets."""

    size_bytes: int


@dataclass(slots=True)
class Tally:
    """Counts of an attack: connections, bytes and answers."""

    opened: int = 0
    not_opened: Counter[str] = field(default_factory=Counter)
    closed_by_peer: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    """Answers by code, from the first bytes of each read."""


@dataclass(frozen=True, slots=True)
class Wave:
    """Connections with the same script. `port` is their target, or `listen_port` the port that accepts them.

    reads: drain the sockets. again: open a new connection for each one that ends. receive_buffer: SO_RCVBUF in bytes.
    one_host: all connections come from one address.
    """

    script: Script
    connections: int
    port: int = 0
    listen_port: int = 0
    reads: bool = True
    again: bool = True
    receive_buffer: int = 0
    one_host: bool = False


class Link:
    """One connection. `number` counts within its wave. `last` are the bytes of the latest read."""

    __slots__ = ("last", "mask", "number", "out", "script", "sock", "state", "turn", "wave")

    def __init__(self, wave: Wave, sock: socket.socket, number: int) -> None:
        self.wave = wave
        self.sock = sock
        self.number = number
        self.last = b""
        self.mask = 0
        self.out: memoryview | None = None
        self.state: object = None  # None: ready for the next step; ANSWER, HOLD or a pause otherwise
        self.turn = 0  # of steps: the end of an earlier pause means nothing
        self.script = wave.script(self)


class Swarm:
    """Runs waves until their time is over."""

    def __init__(self, waves: Sequence[Wave], host: str = "127.0.0.1") -> None:
        self.tally = Tally()
        self._waves = waves
        self._host = host
        self._epoll = select.epoll()
        self._links: dict[int, Link] = {}
        self._listeners: dict[int, tuple[socket.socket, Wave]] = {}
        self._alive = dict.fromkeys(range(len(waves)), 0)
        self._made = dict.fromkeys(range(len(waves)), 0)
        self._wave_number = {id(wave): number for number, wave in enumerate(waves)}
        self._pauses: list[tuple[float, int, int, Link]] = []
        self._order = itertools.count()

    def run(self, seconds: float, is_done: Callable[[], bool] = lambda: False) -> Tally:
        """Run for `seconds`, or until `is_done`, then close everything."""
        end = time.monotonic() + seconds
        try:
            self._listen()
            while (now := time.monotonic()) < end and not is_done():
                for wave in self._waves:
                    self._open_missing(wave)
                self._end_pauses(now)
                for descriptor, events in self._epoll.poll(self._poll_timeout(now), 1024):
                    self._serve(descriptor, events)
        finally:
            for link in list(self._links.values()):
                link.script.close()
                link.sock.close()
            for listener, _ in self._listeners.values():
                listener.close()
            self._epoll.close()
        return self.tally

    def _poll_timeout(self, now: float) -> float:
        return min(POLL_S, max(0.0, self._pauses[0][0] - now)) if self._pauses else POLL_S

    def _listen(self) -> None:
        for wave in self._waves:
            if wave.listen_port:
                listener = socket.create_server((self._host, wave.listen_port), backlog=128)
                listener.setblocking(False)
                self._listeners[listener.fileno()] = (listener, wave)
                self._epoll.register(listener.fileno(), _IN)

    # ---- opening and closing ----

    def _open_missing(self, wave: Wave) -> None:
        number = self._wave_number[id(wave)]
        if not wave.port or (not wave.again and self._made[number] >= wave.connections):
            return
        for _ in range(min(OPENED_A_TURN, wave.connections - self._alive[number])):
            if not self._connect(wave, number):
                return

    def _connect(self, wave: Wave, number: int) -> bool:
        made = self._made[number]
        try:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            self.tally.not_opened[errno.errorcode.get(error.errno or 0, "?")] += 1
            return False
        if wave.receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wave.receive_buffer)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        sock.bind((f"127.0.0.{2 + (0 if wave.one_host else made % SOURCES)}", 0))
        failed = sock.connect_ex((self._host, wave.port))
        if failed not in _CONNECTING:
            sock.close()
            self.tally.not_opened[errno.errorcode.get(failed, "?")] += 1
            return False
        self._made[number] += 1
        self._add(wave, sock, made, _OUT)
        return True

    def _add(self, wave: Wave, sock: socket.socket, number: int, mask: int) -> None:
        link = Link(wave, sock, number)
        link.mask = mask
        self._alive[self._wave_number[id(wave)]] += 1
        self._links[sock.fileno()] = link
        self._epoll.register(sock.fileno(), mask)

    def _accept(self, listener: socket.socket, wave: Wave) -> None:
        with contextlib.suppress(BlockingIOError):
            sock, _ = listener.accept()
            sock.setblocking(False)
            number = self._made[self._wave_number[id(wave)]]
            self._made[self._wave_number[id(wave)]] += 1
            self.tally.opened += 1
            self._add(wave, sock, number, _IN | _OUT)

    def _close(self, link: Link, *, by_peer: bool = False, reset: bool = False) -> None:
        if self._links.pop(link.sock.fileno(), None) is None:
            return
        self._alive[self._wave_number[id(link.wave)]] -= 1
        self.tally.closed_by_peer += by_peer
        if reset:
            link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.script.close()
        link.sock.close()

    # ---- events ----

    def _serve(self, descriptor: int, events: int) -> None:
        if descriptor in self._listeners:
            self._accept(*self._listeners[descriptor])
            return
        link = self._links.get(descriptor)
        if link is None:
            return
        if events & (select.EPOLLERR | select.EPOLLHUP) and not events & _IN:
            failed = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed == errno.ECONNREFUSED:
                self.tally.not_opened["ECONNREFUSED"] += 1
            self._close(link, by_peer=failed != errno.ECONNREFUSED)
            return
        if events & _OUT and link.mask == _OUT and link.out is None and not link.wave.listen_port:
            self.tally.opened += 1
        if events & _IN and not self._read(link):
            return
        if events & _OUT or link.state is None:
            self._advance(link)

    def _read(self, link: Link) -> bool:
        try:
            data = link.sock.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self._close(link, by_peer=True)
            return False
        link.last = data
        self.tally.received_bytes += len(data)
        for remoting, http in _CODE.findall(data[:SCANNED_BYTES]):
            self.tally.answers[(remoting or b"HTTP " + http).decode()] += 1
        if link.state is ANSWER:
            link.state = None
        return True

    def _end_pauses(self, now: float) -> None:
        while self._pauses and self._pauses[0][0] <= now:
            _, _, turn, link = heapq.heappop(self._pauses)
            if link.sock.fileno() >= 0 and link.turn == turn and link.state is not None:
                link.state = None
                self._advance(link)

    def _advance(self, link: Link) -> None:
        """Run steps of the script until it waits, or others shall have a turn."""
        for _ in range(STEPS_A_TURN):
            if link.out is not None and not self._send(link):
                return
            if link.out is not None or link.state is not None:
                break
            try:
                step = next(link.script)
            except StopIteration:
                self._close(link)
                return
            if not self._take(link, step):
                return
        self._watch(link)

    def _pause(self, link: Link, seconds: float) -> None:
        heapq.heappush(self._pauses, (time.monotonic() + seconds, next(self._order), link.turn, link))

    def _take(self, link: Link, step: Step) -> bool:
        """Begin a step. False if the connection is gone."""
        link.turn += 1
        if isinstance(step, (bytes, memoryview)):
            link.out = memoryview(step)
        elif isinstance(step, (int, float)):
            link.state = step
            self._pause(link, step)
        elif isinstance(step, Await):
            link.state = ANSWER
            self._pause(link, step.seconds)
        elif isinstance(step, Take):
            with contextlib.suppress(OSError):
                self.tally.received_bytes += len(link.sock.recv(step.size_bytes))
        elif step is HALF_CLOSE:
            with contextlib.suppress(OSError):
                link.sock.shutdown(socket.SHUT_WR)
        elif step is RESET:
            self._close(link, reset=True)
            return False
        else:
            link.state = step
        return True

    def _send(self, link: Link) -> bool:
        """Send the waiting bytes, with the rest in `out`. False if the connection is gone."""
        assert link.out is not None
        try:
            sent = link.sock.send(link.out)
        except BlockingIOError:
            return True
        except OSError:
            self._close(link, by_peer=True)
            return False
        self.tally.sent_bytes += sent
        link.out = link.out[sent:] if sent < len(link.out) else None
        return True

    def _watch(self, link: Link) -> None:
        mask = (_IN if link.wave.reads else 0) | (_OUT if link.out is not None or link.state is None else 0)
        if mask != link.mask:
            link.mask = mask
            self._epoll.modify(link.sock.fileno(), mask)
