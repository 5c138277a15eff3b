"""An answerer that holds polls: the example of docs/adding-a-service.md. It gives each message of a queue to one poll.

A message here is its offset in the queue, and an answer a text.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ringmq.ipc.asks import Ask, Inbox, Unsent
from ringmq.ipc.held_polls import HeldPolls, Poll, first_ask
from ringmq.native import lib
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.services.arrivals import Arrivals

HOLD_NS = 60_000_000_000
HOLD_BYTES = 512
"""More than HOLD has beside the ask."""
ANSWER_BYTES = 512
"""More than an answer has."""


def answer_of(remark: str) -> bytes:
    """The frame with this text."""
    return encode_frame(RemotingCommand(code=0, opaque=7, flag=1, remark=remark))


class HoldingService:
    """The polls for one queue, and its messages that nobody has. `end`: the end of the queue now."""

    def __init__(
        self, inbox: Inbox, polls: HeldPolls, arrivals: Arrivals, queue_slot: int, end: Callable[[], int]
    ) -> None:
        self.inbox, self.polls, self.arrivals, self.queue_slot, self.end = inbox, polls, arrivals, queue_slot, end
        self.waiting: list[Poll] = []
        self.messages: list[int] = []
        self.seen = 0
        self.given: dict[int, int] = {}
        """Serial of the poll -> its message."""

    def serve(self, ask: Ask) -> bool:
        """A poll. False: the ring of its reader is full, so the ask is for a later turn."""
        asked, deadline_ns = first_ask(ask)
        if self.inbox.room(asked.role) < len(asked.payload) + HOLD_BYTES:
            return False
        self.want()
        self.hold(asked, deadline_ns or time.monotonic_ns() + HOLD_NS)
        self.give()  # a message may have come before the poll was held
        return True

    def want(self) -> None:
        """Dispatch tells of messages from now on."""
        self.arrivals.want(self.queue_slot)

    def hold(self, ask: Ask, deadline_ns: int) -> None:
        """The poll waits. Without a slot it has its answer at once."""
        where, nothing = (ask.connection, ask.connection_generation), answer_of("nothing")
        held = self.polls.hold(ask, deadline_ns, nothing)
        if held is None:
            self.inbox.answer(ask.role, lib.RMQ_VERDICT_SEND, where, ask.pending, ask.role_generation, nothing)
            return
        self.waiting.append(held.poll)
        self.inbox.answer(
            ask.role, lib.RMQ_VERDICT_HOLD, where, ask.pending, ask.role_generation, held.payload,
            serial=held.poll.serial,
        )  # fmt: skip

    def give(self) -> None:
        """Messages go to polls that may still be answered, if there is room for the answer."""
        end = self.end()
        self.messages += range(self.seen, end)
        self.seen = max(self.seen, end)
        now_ns = time.monotonic_ns()
        self.waiting = [poll for poll in self.waiting if self.polls.may_answer(poll, now_ns)]
        for poll in list(self.waiting):
            if self.messages and self.inbox.room(poll.ask.role) >= ANSWER_BYTES:
                self.waiting.remove(poll)
                self.send(poll, self.messages.pop(0))

    def send(self, poll: Poll, message: int) -> None:
        """The poll has the message, unless UNSENT says otherwise."""
        self.given[poll.serial] = message
        where = poll.ask.connection, poll.ask.connection_generation
        self.inbox.answer(
            poll.ask.role, lib.RMQ_VERDICT_SEND, where, poll.slot, poll.ask.role_generation,
            answer_of(f"message {message}"), tells=True, serial=poll.serial, held=True,
        )  # fmt: skip
        self.polls.end(poll)

    def take_back(self, said: Unsent) -> None:
        """Its client has not received the message, so another one may."""
        self.polls.unsent(said)
        if (message := self.given.pop(said.serial, None)) is not None:
            self.messages.insert(0, message)
