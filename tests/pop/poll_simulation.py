"""Polls of the desk over a simulated read worker, clients and deaths, from a seed. Desk and windows are the real ones,
and time passes as it does. What the clients have seen decides.

The desk may not leave a poll waiting while there is a message for it. Read workers drop answers, close connections and
die with what is in their ring. The worker dies between two turns, and its replacement is asked for each held poll.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desk_stage import ACK, POP, READER, Answer, Hold, Stage, Verdict, receipts

from ringmq.native import lib

QUEUES = 3
EXPRESSIONS = {"G": "*", "H": "a"}
"""Of each group."""
TAGS = ("a", "b")
CONNECTIONS = (4, 5, 6)
LONG_MS, SHORT_MS = 600_000, 60
"""A poll ends by itself, or not while the simulation runs."""
Key = tuple[str, bytes]
"""A group and the body of a message."""


class BrokenPromiseError(AssertionError):
    """A client saw what it must not see, or waits in vain."""


@dataclass
class Poll:
    """A pop that a client waits for. `token`: of its ask. `hold`: the read worker holds it."""

    group: str
    fields: dict[str, Any]
    connection: int
    token: int = 0
    hold: Hold | None = None
    serial: int = 0
    is_gone: bool = False

    @property
    def queue_id(self) -> int:
        """The queue that it asks for, -1: all."""
        return int(self.fields["queueId"])


class World:
    """A desk, a read worker and its clients."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = random.Random(seed)
        self.stage = Stage(root)
        self.stage.topic("T", QUEUES)
        for group in EXPRESSIONS:
            self.stage.group(group)
        self.counts = dict.fromkeys(("polls", "given", "in vain", "unsent", "closed", "read workers", "workers"), 0)
        self.polls: list[Poll] = []
        self.groups: dict[tuple[int, int], str] = {}
        """By token and 0, or by the slot and serial of a poll that was held."""
        self.acks: dict[int, Key] = {}
        """Asked for and not answered, by token."""
        self.sent: dict[bytes, tuple[int, str]] = {}
        """Queue and tag of each message."""
        self.held: dict[Key, str] = {}
        """What consumers have, by receipt."""
        self.done: set[Key] = set()
        self.hidden: set[Key] = set()
        """In answers that died with the worker: they come again at their time, which is later than the end."""

    # -- clients ---------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Some messages to one queue."""
        queue_id, tag = self.random.randrange(QUEUES), self.random.choice(TAGS)
        bodies = [b"m%d" % (len(self.sent) + number) for number in range(self.random.choice((1, 1, 2, 5)))]
        self.sent |= dict.fromkeys(bodies, (queue_id, tag))
        properties = b"TAGS\x01%s\x02" % tag.encode()
        self.stage.send("T", len(bodies), queue_id, bodies=bodies, properties=properties)

    def poll(self) -> None:
        """A client waits for messages of one queue, or of all."""
        group = self.random.choice(list(EXPRESSIONS))
        fields = {
            "consumerGroup": group, "topic": "T", "queueId": self.random.choice((-1, -1, 0, 1, 2)),
            "maxMsgNums": self.random.choice((1, 2, 32)), "invisibleTime": LONG_MS,
            "pollTime": self.random.choice((LONG_MS, LONG_MS, LONG_MS, SHORT_MS)),
            "bornTime": time.time_ns() // 1_000_000, "initMode": 0, "expType": "TAG", "exp": EXPRESSIONS[group],
        }  # fmt: skip
        poll = Poll(group, fields, self.random.choice(CONNECTIONS))
        self.put(poll)
        self.polls.append(poll)
        self.counts["polls"] += 1

    def put(self, poll: Poll, held_until_ns: int = 0) -> None:
        """Ask for a poll."""
        poll.token = self.stage.put(POP, poll.fields, connection=poll.connection, held_until_ns=held_until_ns)
        self.groups[poll.token, 0] = poll.group

    def ack(self) -> None:
        """A consumer has worked on a message."""
        if not (keys := [key for key in self.held if key not in self.acks.values()]):
            return
        key = self.random.choice(keys)
        receipt = self.held[key]
        parts = receipt.split(" ")
        fields = {"consumerGroup": key[0], "topic": "T", "queueId": parts[6], "extraInfo": receipt, "offset": parts[7]}
        self.acks[self.stage.put(ACK, fields, connection=99)] = key

    def close(self) -> None:
        """A connection ends, with all that waits for it."""
        connection = self.random.choice(CONNECTIONS)
        self.counts["closed"] += 1
        self.forget([poll for poll in self.polls if poll.connection == connection])
        self.stage.note(lib.RMQ_INBOX_CLOSED, connection=connection)

    def forget(self, polls: list[Poll]) -> None:
        """Nobody waits for these any more."""
        for poll in polls:
            poll.is_gone = True
        self.polls = [poll for poll in self.polls if not poll.is_gone]

    # -- the read worker ---------------------------------------------------------------------------------------

    def take(self) -> bool:
        """Take one verdict. False if there is none."""
        answer = self.stage.verdict()
        if answer is None:
            return False
        verdict = answer.verdict
        if answer.hold is not None:
            self.groups[answer.hold.slot, verdict.serial] = self.groups[verdict.pending, 0]
        is_held = bool(verdict.flags & lib.RMQ_VERDICT_HELD)
        if not is_held and (key := self.acks.pop(verdict.pending, None)) is not None:
            if answer.code == 0:
                self.done.add(key)
                self.held.pop(key, None)
            return True
        poll = self.poll_of(verdict)
        if poll is None or self.random.random() < 0.1:
            self.drop(poll, verdict)
        elif answer.hold is not None:
            poll.hold, poll.serial = answer.hold, verdict.serial
        else:
            self.polls.remove(poll)
            self.receive(poll, answer)
        return True

    def poll_of(self, verdict: Verdict) -> Poll | None:
        """The poll that a verdict is for, if its client still waits."""
        for poll in self.polls:
            if verdict.flags & lib.RMQ_VERDICT_HELD:
                is_it = poll.hold is not None and (poll.hold.slot, poll.serial) == (verdict.pending, verdict.serial)
            else:
                is_it = poll.hold is None and poll.token == verdict.pending
            if is_it:
                return poll
        return None

    def drop(self, poll: Poll | None, verdict: Verdict) -> None:
        """The client has gone. The worker is told if it has to know."""
        if poll is not None:
            self.forget([poll])
        if verdict.type == lib.RMQ_VERDICT_HOLD or verdict.flags & lib.RMQ_VERDICT_TELLS:
            self.counts["unsent"] += 1
            self.tell_unsent(verdict)

    def tell_unsent(self, verdict: Verdict) -> None:
        """Tell the worker that an answer was dropped."""
        self.stage.unsent(verdict)

    def receive(self, poll: Poll, answer: Answer) -> None:
        """A client gets an answer."""
        if answer.code == 210:
            if poll.fields["pollTime"] == LONG_MS:
                raise BrokenPromiseError(f"a poll of {poll.group} ended before its time")
            self.counts["in vain"] += 1
            return
        if answer.code:
            raise BrokenPromiseError(f"a poll of {poll.group} was answered {answer.code}: {answer.command.remark}")
        for message, receipt in zip(answer.messages, receipts(answer), strict=True):
            key = poll.group, bytes(message.body)
            if key in self.held or key in self.done:
                raise BrokenPromiseError(f"{key} was given twice")
            if poll.queue_id not in (-1, self.sent[key[1]][0]) or not self.wants(*key):
                raise BrokenPromiseError(f"{key} was given to a poll that does not want it")
            self.held[key] = receipt
            self.counts["given"] += 1

    def wants(self, group: str, body: bytes) -> bool:
        """True if the expression of the group takes the message."""
        return EXPRESSIONS[group] in ("*", self.sent[body][1])

    # -- deaths ------------------------------------------------------------------------------------------------

    def kill_read_worker(self) -> None:
        """All connections end, and the answers in the ring are taken back."""
        self.counts["read workers"] += 1
        self.stage.turn()
        self.forget(list(self.polls))
        self.acks.clear()
        self.stage.generation += 1
        self.stage.kit.header.roles[READER].generation = self.stage.generation
        self.stage.now_ms += 1000
        self.stage.turn()
        while self.stage.verdict() is not None:
            pass

    def kill_worker(self) -> None:
        """The worker dies with the verdicts that nobody has taken. Its replacement is asked for what has no answer."""
        self.counts["workers"] += 1
        self.stage.turn()
        while (answer := self.stage.verdict()) is not None:
            verdict = answer.verdict
            if answer.hold is not None:
                self.groups[answer.hold.slot, verdict.serial] = self.groups[verdict.pending, 0]
            if verdict.type == lib.RMQ_VERDICT_RECORDS:
                serial = verdict.serial if verdict.flags & lib.RMQ_VERDICT_HELD else 0
                group = self.groups[verdict.pending, serial]
                self.hidden |= {(group, bytes(message.body)) for message in answer.messages}
        self.acks.clear()
        self.stage.restart()
        for poll in self.polls:
            until_ns = poll.hold.until_ns if poll.hold is not None else 0
            poll.hold = None
            self.put(poll, until_ns)

    # -- what must be -------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Turns and verdicts until nothing moves. Then no poll waits while there is a message for it."""
        moves = True
        while moves:
            self.stage.turn()
            moves = False
            while self.take():
                moves = True
        for poll in self.polls:
            if poll.hold is None:
                raise BrokenPromiseError(f"a poll of {poll.group} was neither answered nor held")
            if poll.fields["pollTime"] == LONG_MS and (left := self.left(poll.group, poll.queue_id)):
                raise BrokenPromiseError(f"a poll of {poll.group} and queue {poll.queue_id} waits, and {left} is there")

    def left(self, group: str, queue_id: int = -1) -> list[bytes]:
        """Messages that nobody has got yet."""
        return [
            body for body, (of, _) in self.sent.items()
            if queue_id in (-1, of) and self.wants(group, body)
            and not {(group, body)} & (self.held.keys() | self.done | self.hidden)
        ]  # fmt: skip

    def step(self) -> None:
        """One random event."""
        events = (
            (self.send, 20), (self.poll, 26), (self.ack, 10), (self.stage.turn, 12), (self.take, 12), (self.settle, 12),
            (self.close, 4), (self.kill_read_worker, 2), (self.kill_worker, 2),
        )  # fmt: skip
        (event,) = self.random.choices([event for event, _ in events], [weight for _, weight in events])
        event()

    def finish(self) -> None:
        """Clients that do not wait take what is left. Nothing is lost, and no poll is left."""
        self.settle()
        self.close_all()
        for group, expression in EXPRESSIONS.items():
            while (answer := self.stage.pop(group=group, exp=expression)).code == 0:
                self.receive(Poll(group, {"queueId": -1, "pollTime": 0}, 9), answer)
            if left := self.left(group):
                raise BrokenPromiseError(f"{left} of {group} are lost")
        if waiting := len(self.stage.desk.native.polls):
            raise BrokenPromiseError(f"{waiting} polls wait for no client")

    def close_all(self) -> None:
        """All clients that wait go away."""
        self.polls.clear()
        for connection in CONNECTIONS:
            self.stage.note(lib.RMQ_INBOX_CLOSED, connection=connection)
        self.settle()


def run(seed: int, root: Path, world: type[World] = World, steps: int = 150) -> World:
    """One seed. Raises BrokenPromiseError."""
    played = world(seed, root)
    for _ in range(steps):
        played.step()
    played.finish()
    return played
