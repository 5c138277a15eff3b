"""Receiving: pops of the masters in turn, until one of them has messages or the time is over.

With one target a pop waits there for the whole time. With several, each round asks all of them without a wait, and then
waits at one for a part of the time. So a message at any master waits for `PART_MS` at most, and no pop that this client
has given up holds messages elsewhere.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.offsets import ConsumeFrom
from ringmq.client.consuming.pull_decoding import unpacked_front
from ringmq.client.errors import BrokerError, RequestTimeoutError, RingmqError, RouteError, TlsError
from ringmq.client.popping.masters import Masters
from ringmq.client.popping.pop_decoding import PopTarget, read_popped
from ringmq.client.popping.pop_requests import pop_fields, with_numbers
from ringmq.client.popping.popped_message import PoppedMessage
from ringmq.client.popping.settling import Settling
from ringmq.client.retry import backoff_ms
from ringmq.client.runtimes.waiting import Signal
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.subscription import SubscriptionData

log = logging.getLogger("ringmq.client")

PART_MS = 500
"""The longest wait at one master while others are not asked."""
HELD_SHARE = 0.5  # of the time of a wait: a broker that answers "nothing" sooner does not hold the request
UNHELD_MS = 50  # the first pause after such an answer
UNHELD_MS_MAX = 1000
EARLY_S = 0.06  # brokers end a wait 50 ms before its time
UNPACKED_BYTES_MAX = 256 << 20
"""Decompressed bodies of one answer. Messages behind it are given back."""
WARN_AGAIN_S = 30.0
TIMEOUT_STEP_MS = 1000
PASSING_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.FLOW_CONTROL,
    }
)
"""Refusals that may end by themselves. Others, as of an expression, are told to the caller at once."""


@dataclass(frozen=True, slots=True)
class _Ask:
    """One call of `receive`. `ends_at` is in monotonic seconds."""

    count: int
    invisible_ms: int
    attempt_id: str | None
    ends_at: float

    def left_ms(self) -> int:
        return max(0, int((self.ends_at - time.monotonic()) * 1000))


@dataclass(slots=True)
class _Round:
    """The outcome of a question to all masters."""

    messages: list[PoppedMessage] = field(default_factory=list)
    errors: list[RingmqError] = field(default_factory=list)
    is_answered: bool = False
    wait_ms: int = 0
    """The time of the last wait that was asked for."""


class Receiving:
    """The pops of one consumer. Many calls of `receive` may run at once: they share connections.

    `timeout_ms` is the time for an answer beside the wait of the pop.
    """

    def __init__(
        self,
        client: RemotingClient,
        masters: Masters,
        settling: Settling,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        consume_from: ConsumeFrom,
        timeout_ms: int,
        *,
        ordered: bool,
    ) -> None:
        self._client = client
        self._masters = masters
        self._settling = settling
        self._group = group
        self._subscriptions = subscriptions
        self._timeout_ms = timeout_ms
        self._ordered = ordered
        self._fields = {
            topic: pop_fields(group, wanted, consume_from, ordered=ordered) for topic, wanted in subscriptions.items()
        }
        self._warned: dict[str, float] = {}
        self._closing = Signal()
        self.is_closed = False

    def close(self) -> None:
        """End the waits. Messages of pops under way are given back."""
        self.is_closed = True
        self._closing.wake()

    async def receive(self, count: int, wait_ms: int, invisible_ms: int) -> list[PoppedMessage]:
        """Return up to `count` messages of one topic and master, none after `wait_ms`, or if `close` is called.

        Others get a message again `invisible_ms` after its pop, unless it is acknowledged. Raises the last error if no
        master has answered. A cancelled call gives back the messages of its last pop.
        """
        attempt_id = uuid.uuid4().hex if self._ordered else None
        ask = _Ask(count, invisible_ms, attempt_id, time.monotonic() + wait_ms / 1000)
        failures = unheld = 0
        while not self.is_closed:
            began = time.monotonic()
            round_ = await self._ask_round(ask)
            if self.is_closed:
                self._settling.begin_give_back(round_.messages)
                break
            if round_.messages:
                return round_.messages
            if not round_.is_answered or self._masters.has_no_route:
                failed = await self._masters.fetch()
                round_.errors += [] if failed is None else [failed]
            now = time.monotonic()
            is_over = ask.ends_at - now <= EARLY_S
            if not round_.is_answered and round_.errors and (is_over or not any(map(_may_pass, round_.errors))):
                raise round_.errors[-1]
            if is_over:
                break
            failures = 0 if round_.is_answered else failures + 1
            unheld = unheld + 1 if now - began < round_.wait_ms * HELD_SHARE / 1000 else 0
            pause_ms = max(
                backoff_ms(failures, random.random()), backoff_ms(unheld, random.random(), UNHELD_MS, UNHELD_MS_MAX)
            )
            if pause_ms:
                await self._closing.wait(min(pause_ms / 1000, ask.ends_at - now))
        return []

    # ---- inside ----

    async def _ask_round(self, ask: _Ask) -> _Round:
        """Ask the targets until one has messages."""
        round_ = _Round()
        targets = self._masters.in_turn()
        if len(targets) == 1:
            wait_ms = ask.left_ms() if self._masters.is_one else min(ask.left_ms(), PART_MS)
            await self._try(targets[0], ask, wait_ms, round_)
            return round_
        answering: list[PopTarget] = []
        for target in targets:
            if await self._try(target, ask, 0, round_):
                answering.append(target)
            if round_.messages or self.is_closed:
                return round_
        if answering and (left_ms := ask.left_ms()):
            await self._try(answering[0], ask, min(left_ms, PART_MS), round_)
        return round_

    async def _try(self, target: PopTarget, ask: _Ask, poll_ms: int, round_: _Round) -> bool:
        """Ask one target. False if it has failed."""
        round_.wait_ms = poll_ms
        try:
            round_.messages = await self._pop(target, ask, poll_ms)
        except RingmqError as error:
            if not self.is_closed:
                self._note_failure(target, error)
            round_.errors.append(error)
            return False
        round_.is_answered = True
        return True

    async def _pop(self, target: PopTarget, ask: _Ask, poll_ms: int) -> list[PoppedMessage]:
        fields = with_numbers(self._fields[target.topic], ask.count, ask.invisible_ms, poll_ms, ask.attempt_id)
        request = RemotingCommand.request(RequestCode.POP_MESSAGE, fields)
        # few distinct time-outs: a connection has a list for each
        timeout_ms = self._timeout_ms + -(-poll_ms // TIMEOUT_STEP_MS) * TIMEOUT_STEP_MS
        answer = await self._client.invoke(
            target.address, request, timeout_ms, on_late=lambda late: self._give_back_late(late, target)
        )
        found = read_popped(answer, target, self._group, time.monotonic(), ordered=self._ordered)
        return self._unpacked(self._wanted(found, self._subscriptions[target.topic])) if found else []

    def _wanted(self, found: list[PoppedMessage], subscription: SubscriptionData) -> list[PoppedMessage]:
        """Leave out messages whose tags are unlike those of the expression. The broker compares hashes."""
        unwanted = [message for message in found if not subscription.matches_tags(message.tags)]
        if not unwanted:
            return found
        self._settling.begin_ack(unwanted)
        return [message for message in found if subscription.matches_tags(message.tags)]

    def _unpacked(self, messages: list[PoppedMessage]) -> list[PoppedMessage]:
        front = unpacked_front(messages, UNPACKED_BYTES_MAX)
        self._settling.begin_give_back(messages[len(front) :])
        return front

    def _give_back_late(self, answer: RemotingCommand, target: PopTarget) -> None:
        try:
            late = read_popped(answer, target, self._group, time.monotonic(), ordered=self._ordered)
        except RingmqError as error:
            log.debug("an answer that came late: %s", error)
            return
        self._settling.begin_give_back(late)

    def _note_failure(self, target: PopTarget, error: RingmqError) -> None:
        if isinstance(error, RequestTimeoutError):
            self._masters.note_silent(target.address)
        text, now = str(error), time.monotonic()
        if now - self._warned.get(text, float("-inf")) >= WARN_AGAIN_S:
            self._warned = {known: at for known, at in self._warned.items() if now - at < WARN_AGAIN_S}
            self._warned[text] = now
            log.warning("group %s: a pop of %s at %s: %s", self._group, target.topic, target.broker_name, error)


def _may_pass(error: RingmqError) -> bool:
    if isinstance(error, BrokerError):
        return error.code in PASSING_CODES
    return not isinstance(error, TlsError) and (not isinstance(error, RouteError) or error.may_pass)
