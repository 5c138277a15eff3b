"""Calls to other servers (name servers, a slave's master) on threads, so that a slow server never delays control.

Control submits (address, request) and collects the outcomes. Other modules (`registration`, `slave_role`) decide the
time and content of each call.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct, field

from ringmq.ha.broker_client import BrokerClient
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError


class Outcome(Struct, frozen=True):
    """The end of a call. `error` is None if the server has answered 0. `answer` is None if it has not answered.

    A call of several requests has the outcome of the last one that was sent.
    """

    address: str
    error: str | None
    answer: RemotingCommand | None = None
    request_code: int = 0


class _Job(Struct, frozen=True):
    commands: Sequence[RemotingCommand]
    timeout_ms: int
    if_connected: bool


class _Lane(Struct):
    """The jobs of one address, and the bell of its thread."""

    jobs: queue.SimpleQueue[_Job | None] = field(default_factory=queue.SimpleQueue)
    bell: int = field(default_factory=lambda: os.eventfd(0))

    def put(self, job: _Job | None) -> None:
        self.jobs.put(job)
        os.eventfd_write(self.bell, 1)


class OutboundCalls:
    """One thread and one connection per address. The calls to one address run one after another, and between them the
    thread watches the connection."""

    def __init__(self, on_outcome: Callable[[], None]) -> None:
        """`on_outcome`: called on a thread of this object after each call and each loss, to ring the owner's bell."""
        self._on_outcome = on_outcome
        self._lanes: dict[str, tuple[_Lane, threading.Thread]] = {}
        self._ending: list[tuple[_Lane, threading.Thread]] = []
        """Lanes that have no address any more, until their threads have ended."""
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._lost: dict[str, None] = {}

    def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        """Send `command` and wait for its answer, on the address's own thread."""
        self._put(address, _Job([command], timeout_ms, if_connected=False))

    def call_if_connected(self, address: str, commands: Sequence[RemotingCommand], timeout_ms: int) -> None:
        """Send `commands` one after another over the open connection of earlier calls only. The first error ends the
        call.

        A restarted name server would ignore the topic of a broker that it does not know. `timeout_ms` is for each
        command; there is at least one.
        """
        self._put(address, _Job(commands, timeout_ms, if_connected=True))

    def _put(self, address: str, job: _Job) -> None:
        known = self._lanes.get(address)
        if known is None:
            lane = _Lane()
            thread = threading.Thread(target=self._serve, args=(address, lane), daemon=True, name=f"to {address}")
            known = self._lanes[address] = (lane, thread)
            thread.start()
        known[0].put(job)

    def keep(self, addresses: Collection[str]) -> None:
        """End the threads and connections of all other addresses. Calls that are under way end first."""
        for address in self._lanes.keys() - set(addresses):
            lane, thread = self._lanes.pop(address)
            lane.put(None)
            self._ending.append((lane, thread))
        ending, self._ending = self._ending, []
        for lane, thread in ending:
            if thread.is_alive():
                self._ending.append((lane, thread))
            else:
                os.close(lane.bell)

    def outcomes(self) -> list[Outcome]:
        """Calls that have ended since the last call of this method."""
        ended = []
        while True:
            try:
                ended.append(self._outcomes.get_nowait())
            except queue.Empty:
                return ended

    def lost(self) -> list[str]:
        """Addresses whose connection has ended between two calls, since the last call of this method."""
        addresses = []
        while self._lost:
            addresses.append(self._lost.popitem()[0])
        return addresses

    def close(self, timeout_s: float) -> None:
        """Wait for the submitted jobs, at most `timeout_s` for each address."""
        self.keep(())
        for _, thread in self._ending:
            thread.join(timeout_s)
        self.keep(())

    def _serve(self, address: str, lane: _Lane) -> None:
        client = BrokerClient(address)
        while True:
            if lane.jobs.empty():
                self._watch(client, lane.bell)
                continue
            job = lane.jobs.get()
            if job is None:
                break
            self._outcomes.put(_call(client, job))
            self._on_outcome()
        client.close()

    def _watch(self, client: BrokerClient, bell: int) -> None:
        """Wait for a job, or for the end of the connection."""
        poll = select.poll()
        poll.register(bell, select.POLLIN)
        if client.descriptor is not None:
            poll.register(client.descriptor, select.POLLRDHUP)  # bytes without a request wait for the next call
        ready = dict(poll.poll())
        if ready.pop(bell, 0):
            os.eventfd_read(bell)
        if ready:
            client.close()
            self._lost[client.address] = None
            self._on_outcome()


def _call(client: BrokerClient, job: _Job) -> Outcome:
    for command in job.commands:
        outcome = _ask(client, command, job)
        if outcome.error is not None:
            break
    return outcome


def _ask(client: BrokerClient, command: RemotingCommand, job: _Job) -> Outcome:
    try:
        answer = client.ask(command, job.timeout_ms, if_connected=job.if_connected)
    except (OSError, RemotingError, ValueError) as error:  # ValueError: a host that is no name
        return Outcome(client.address, str(error) or type(error).__name__, None, command.code)
    error_text = f"answered {answer.code}: {answer.remark}" if answer.code else None
    return Outcome(client.address, error_text, answer, command.code)
