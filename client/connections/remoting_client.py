"""Requests to any server by address: connections made on demand, reconnected with backoff, replaced on GO_AWAY."""

import itertools
import logging
import random
import time
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ringmq.client.connections.connection import BrokerConnection, LateAnswer, open_connection
from ringmq.client.errors import BrokerError, ClientClosedError, ConnectError
from ringmq.client.namespaces import WireNames
from ringmq.client.retry import backoff_ms
from ringmq.client.runtimes.runtime import Future, Task, create_future, create_task, gather, shield, sleep, wait
from ringmq.client.settings import ConnectionSettings
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame

log = logging.getLogger("ringmq.client")

OPAQUE_MASK = 0x7FFFFFFF
_COUNTED = (RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE)


class Deferred(Enum):
    """Returned instead of an answer that follows by `RemotingClient.answer`."""

    LATER = 0


ServerRequestHandler = Callable[[str, RemotingCommand], RemotingCommand | Deferred | None]
"""(address, request) of a server -> the client's answer, or None: the code is not supported."""


@dataclass(slots=True)
class _Endpoint:
    """The state of one address."""

    connection: BrokerConnection | None = None
    connecting: Task[BrokerConnection] | None = None
    failures: int = 0
    retry_at: float = 0.0  # loop time before which no new attempt starts

    def note_failure(self) -> None:
        """Lengthen the wait before the next attempt."""
        self.failures += 1
        self.retry_at = time.monotonic() + backoff_ms(self.failures, random.random()) / 1000


def note_seen(task: Task[Any]) -> None:
    """Mark a shared task's failure as seen: all of its waiters may have been cancelled."""
    has_failed(task)


def has_failed(task: Future[Any]) -> bool:
    """True if a finished task or future was cancelled or has an error, which then counts as seen."""
    return task.cancelled() or task.exception() is not None


def _end(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class RemotingClient:
    """Connections of one client, by address. Runs on one event loop until `close`."""

    def __init__(
        self,
        settings: ConnectionSettings | None = None,
        *,
        on_server_request: ServerRequestHandler | None = None,
    ) -> None:
        self.settings = settings = settings or ConnectionSettings()
        self.before_request = settings.request_hook()
        self._names = WireNames(settings.namespace) if settings.namespace else None
        self._tls = None if settings.tls is None else settings.tls.context()
        self._on_server_request = on_server_request
        self._endpoints: dict[str, _Endpoint] = {}
        self._draining: set[BrokerConnection] = set()
        self._opaques = itertools.count(1)
        self._closed = False
        # addresses whose connection broke, or that the last attempt did not reach; another object after each change
        self.lost: frozenset[str] = frozenset()
        self.on_connected: Callable[[str], None] | None = None
        self.on_disconnected: Callable[[str], None] | None = None

    def next_opaque(self) -> int:
        """Return a request id, unique among those in flight."""
        return next(self._opaques) & OPAQUE_MASK

    def open_connection_to(self, address: str) -> BrokerConnection | None:
        """Return the open connection to `address`, None if there is none."""
        endpoint = self._endpoints.get(address)
        if endpoint is None or endpoint.connection is None or not endpoint.connection.is_open:
            return None
        return endpoint.connection

    def connected_addresses(self) -> list[str]:
        """Return the addresses with an open connection."""
        return [a for a, e in self._endpoints.items() if e.connection is not None and e.connection.is_open]

    async def connection(self, address: str) -> BrokerConnection:
        """Return an open connection to `address`, made if needed. Raises `ConnectError`.

        After a failure, or a connection on which the peer sent nothing, the next attempt waits for its backoff.
        Callers in that time share one attempt.
        """
        if self._closed:
            raise ClientClosedError("the client is closed")
        found = self.open_connection_to(address)
        if found is not None:
            return found
        attempt = self._begin_connecting(address)
        try:
            return await shield(attempt)  # a caller that gives up must not take it away from the others
        except CancelledError:
            if self._closed and attempt.cancelled():  # by `close`, not by the caller
                raise ClientClosedError("the client is closed") from None
            raise

    async def connection_in_time(self, address: str, until: float, others: Set[str]) -> BrokerConnection:
        """Return `connection`.

        Raises `ConnectError` at monotonic time `until`, or if a connection to one of `others` exists.
        """
        if (found := self.open_connection_to(address)) is not None:
            return found
        if self._closed:
            raise ClientClosedError("the client is closed")
        over: Future[None] = create_future()
        attempt = self._begin_connecting(address)
        attempt.add_done_callback(lambda _: _end(over))
        for other in others - {address}:
            self._end_when_reached(other, over)
        try:
            await wait([over], until - time.monotonic())
        finally:
            reached = not over.cancel()
        if attempt.done() and not attempt.cancelled():
            return attempt.result()
        if self._closed:
            raise ClientClosedError("the client is closed")
        raise ConnectError(address, "another broker is back first" if reached else "not in the time that was left")

    def _end_when_reached(self, address: str, over: Future[None]) -> None:
        """Connect to `address` in repeated attempts, until one succeeds or `over` is done."""
        if not over.done() and not self._closed:
            self._begin_connecting(address).add_done_callback(
                lambda task: self._end_when_reached(address, over) if has_failed(task) else _end(over)
            )

    def try_again(self, addresses: Set[str]) -> None:
        """Reconnect to the addresses as soon as their backoffs allow, without waiting."""
        for address in () if self._closed else addresses:
            self._begin_connecting(address)

    async def invoke(
        self,
        address: str,
        request: RemotingCommand,
        timeout_ms: int = 3000,
        *,
        on_late: LateAnswer | None = None,
    ) -> RemotingCommand:
        """Send `request` (its opaque is set here) and return the answer, whatever its code.

        After GO_AWAY the request is sent once more over a new connection. `on_late` is called with an answer that
        comes after the caller was cancelled. Raises `ConnectError`, `RequestTimeoutError`.
        """
        answer = await self._invoke_once(address, request, timeout_ms, on_late)
        if answer.code == ResponseCode.GO_AWAY:
            self.go_away(address)
            answer = await self._invoke_once(address, request, timeout_ms, on_late)
        return answer

    async def call(
        self,
        address: str,
        code: RequestCode,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout_ms: int = 3000,
    ) -> RemotingCommand:
        """Send a request that must end in SUCCESS. Raises `BrokerError` for any other code."""
        request = RemotingCommand.request(code, ext_fields, body)
        answer = await self.invoke(address, request, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(address, answer.code, answer.remark)
        return answer

    async def send_oneway(self, address: str, request: RemotingCommand) -> None:
        """Send without waiting for an answer. Only the connection can fail. `request` must carry the one-way flag."""
        connection = await self.connection(address)
        connection.write(self.encode(address, request))
        await connection.wait_writable()

    def encode(self, address: str, request: RemotingCommand) -> bytes:
        """Return the frame of `request` for `address`, with a new opaque and the additions of the hooks."""
        request.opaque = self.next_opaque()
        if self._names is not None:
            self._names.to_wire(request)
        if self.before_request is not None:
            self.before_request(address, request)
        return encode_frame(request)

    def answer(self, address: str, response: RemotingCommand) -> None:
        """Answer a request of the server at `address`. Does nothing if the connection is closed."""
        connection = self.open_connection_to(address)
        if connection is not None:
            connection.write(encode_frame(response))

    def go_away(self, address: str) -> None:
        """Give new requests to a leaving server a new connection, and wait for those in flight."""
        endpoint = self._endpoints.get(address)
        if endpoint is not None and endpoint.connection is not None:
            leaving, endpoint.connection = endpoint.connection, None
            self._draining.add(leaving)
            leaving.drain_and_close()

    async def close(self) -> None:
        """Close every connection. Requests in flight fail."""
        self._closed = True
        connecting = [e.connecting for e in self._endpoints.values() if e.connecting is not None]
        for task in connecting:
            task.cancel()
        for connection in [e.connection for e in self._endpoints.values() if e.connection] + list(self._draining):
            connection.close()
        await gather(*connecting, return_exceptions=True)
        await sleep(0)  # lets the transports report their end

    async def _invoke_once(
        self,
        address: str,
        request: RemotingCommand,
        timeout_ms: int,
        on_late: LateAnswer | None,
    ) -> RemotingCommand:
        connection = await self.connection(address)
        if connection.writing_paused:
            await connection.wait_writable(time.monotonic() + timeout_ms / 1000)
        topic = request.ext_fields.get("topic", "")  # before it goes out under the name of its namespace
        frame = self.encode(address, request)
        waiting = connection.request(request.opaque, frame, timeout_ms)
        try:
            answer = await waiting
        except CancelledError:
            if on_late is not None:
                if waiting.cancelled():
                    connection.when_late(request.opaque, on_late)
                elif waiting.done() and not has_failed(waiting):  # it had come just before
                    on_late(waiting.result())
            raise
        if self.settings.metrics is not None and request.code in _COUNTED:
            self.settings.metrics.count_pull(topic, answer.code, len(answer.body))
        if self._names is not None:
            self._names.from_wire(request.code, answer)
        return answer

    def _begin_connecting(self, address: str) -> Task[BrokerConnection]:
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            endpoint = self._endpoints[address] = _Endpoint()
        if endpoint.connecting is None:
            endpoint.connecting = create_task(self._connect(address, endpoint))
            endpoint.connecting.add_done_callback(note_seen)
        return endpoint.connecting

    async def _connect(self, address: str, endpoint: _Endpoint) -> BrokerConnection:
        try:
            await sleep(max(0.0, endpoint.retry_at - time.monotonic()))
            connection = await open_connection(
                address, self._handle_server_request, self._forget, self.settings, self._tls
            )
        except ConnectError:
            endpoint.note_failure()
            self._note_lost(address)
            raise
        finally:
            endpoint.connecting = None
        endpoint.connection = connection
        if address in self.lost:
            self.lost -= {address}
        if self.on_connected is not None:
            self.on_connected(address)
        return connection

    def _note_lost(self, address: str) -> None:
        if address not in self.lost:
            self.lost |= {address}

    def _forget(self, connection: BrokerConnection) -> None:
        """Forget a lost connection: the next request makes a new one."""
        self._draining.discard(connection)
        endpoint = self._endpoints.get(connection.address)
        if endpoint is None:
            return
        if connection.heard:
            endpoint.failures = 0
        else:  # accepted and closed without an answer, as by a balancer with nothing behind it
            endpoint.note_failure()
        if endpoint.connection is connection:
            endpoint.connection = None
            self._note_lost(connection.address)
            if self.on_disconnected is not None and not self._closed:
                self.on_disconnected(connection.address)

    def _handle_server_request(self, connection: BrokerConnection, request: RemotingCommand) -> RemotingCommand | None:
        if self._names is not None:
            self._names.request_from_wire(request)
        if self._on_server_request is not None:
            answer = self._on_server_request(connection.address, request)
            if answer is not None:
                return None if answer is Deferred.LATER else answer
        return RemotingCommand.response_to(
            request,
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {request.code} not supported",
        )
