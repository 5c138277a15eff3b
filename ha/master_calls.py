"""Requests of a slave to its master beside the stream, on a thread of its own: the HA connection, the private
handshake, and the confirm offset.

One job runs at a time. A job belongs to an attempt. The outcome of an abandoned attempt is dropped.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator

from msgspec import Struct

from ringmq.ha import handshake
from ringmq.ha.broker_client import BrokerClient, peer_host
from ringmq.ha.handshake import PeerClaim
from ringmq.ha.slave_core import CONFIRM_TIMEOUT_MS, CONNECT_TIMEOUT_MS, HANDSHAKE_TIMEOUT_MS
from ringmq.ha.slave_events import (
    Answered,
    Confirmed,
    ConfirmFailed,
    Connected,
    ConnectFailed,
    Event,
    HandshakeFailed,
    NotSupported,
)
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError

CALL_ERRORS = (OSError, RemotingError, ValueError, OverflowError)
"""Errors of a call: no answer, an invalid answer, an invalid address."""


class _Outcome(Struct, frozen=True):
    attempt: int
    event: Event
    link: socket.socket | None = None


class MasterCalls:
    """The calls. One thread begins them and takes their outcomes; it calls `close`."""

    def __init__(self, on_outcome: Callable[[], None]) -> None:
        """`on_outcome`: called on the thread of the calls, to ring the owner's bell."""
        self._on_outcome = on_outcome
        self._attempt = 0
        self._jobs: queue.SimpleQueue[tuple[int, Callable[[], _Outcome]] | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        self._client: BrokerClient | None = None
        self._link: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True, name="master")
        self._thread.start()

    # -- the owner's side ----------------------------------------------------------------------------------------------

    def connect(self, address: str) -> None:
        """Begin an attempt: connect to the HA port. The outcome is Connected or ConnectFailed."""
        self.give_up()
        attempt = self._attempt
        self._jobs.put((attempt, lambda: _connect(attempt, address)))

    def shake_hands(self, address: str, claim: Callable[[], PeerClaim]) -> None:
        """Begin the handshake. The outcome is Answered, NotSupported or HandshakeFailed.

        `claim` is called on the thread of the calls, because it may take long.
        """
        attempt = self._attempt
        self._jobs.put((attempt, lambda: _Outcome(attempt, self._shake_hands(address, claim))))

    def ask_confirm(self, address: str, claim: Callable[[], PeerClaim]) -> None:
        """Ask for the confirm offset. The outcome is Confirmed or ConfirmFailed."""
        attempt = self._attempt
        self._jobs.put((attempt, lambda: _Outcome(attempt, self._ask_confirm(address, claim))))

    def take_link(self) -> socket.socket | None:
        """The connection of this attempt. The caller owns it from now on."""
        link, self._link = self._link, None
        return link

    def give_up(self) -> None:
        """Abandon this attempt and close its connection."""
        self._attempt += 1
        link = self.take_link()
        if link is not None:
            link.close()

    def outcomes(self) -> Iterator[Event]:
        """The outcomes for the current attempt so far."""
        while True:
            try:
                outcome = self._outcomes.get_nowait()
            except queue.Empty:
                return
            if outcome.attempt == self._attempt:
                self._link = outcome.link or self._link
                yield outcome.event
            elif outcome.link is not None:
                outcome.link.close()

    def close(self) -> None:
        """End the thread. A running call is not awaited."""
        self.give_up()
        self._jobs.put(None)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            attempt, work = job
            if attempt == self._attempt:
                self._outcomes.put(work())
                self._on_outcome()
        if self._client is not None:
            self._client.close()

    def _shake_hands(self, address: str, claim: Callable[[], PeerClaim]) -> Event:
        try:
            answer = self._ask(address, claim(), HANDSHAKE_TIMEOUT_MS)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return NotSupported()
            if answer.code:
                return HandshakeFailed(f"{answer.code} {answer.remark or ''}".rstrip())
            return Answered(handshake.answer_of(bytes(answer.body)), self._client.peer_host if self._client else "")
        except CALL_ERRORS as error:
            return HandshakeFailed(str(error) or type(error).__name__)

    def _ask_confirm(self, address: str, claim: Callable[[], PeerClaim]) -> Event:
        try:
            answer = self._ask(address, claim(), CONFIRM_TIMEOUT_MS)
            if answer.code:
                return ConfirmFailed(f"{answer.code} {answer.remark or ''}".rstrip())
            said = handshake.answer_of(bytes(answer.body))
        except CALL_ERRORS as error:
            return ConfirmFailed(str(error) or type(error).__name__)
        return Confirmed(said.confirm_offset, said.start_id)

    def _ask(self, address: str, claim: PeerClaim, timeout_ms: int) -> RemotingCommand:
        if self._client is None or self._client.address != address:
            if self._client is not None:
                self._client.close()
            self._client = BrokerClient(address)
        command = RemotingCommand.request(RequestCode.HA_HANDSHAKE, {}, handshake.body(claim))
        return self._client.ask(command, timeout_ms)


def _connect(attempt: int, address: str) -> _Outcome:
    host, _, port = address.rpartition(":")
    try:
        link = socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_MS / 1000)
    except CALL_ERRORS as error:
        return _Outcome(attempt, ConnectFailed(str(error) or type(error).__name__))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setblocking(False)
    return _Outcome(attempt, Connected(link.getsockname()[1], peer_host(link)), link)
