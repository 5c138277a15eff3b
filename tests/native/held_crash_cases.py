"""A read worker with held polls, or their answerer, dies at any crash point; test_crash_points.py runs this.

The test is the answerer and the clients. The read worker is a process of its own. At most one answer is under way, so
of each message that a poll was given the test knows whether the client has it or it is free again.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from crash_kit import REPEATS, SEED, in_child, points
from plane_kit import SHORT_SLICE_NS, die_with_parent
from reader_kit import Client, request
from test_asks import CODE, PLAN
from test_reader_held import INBOX_BYTES, READ, REDO, SEND, Holder, frame
from test_reader_unsent import every_notice
from waiting import wait_until

from ringmq.ipc.asks import Ask
from ringmq.ipc.held_polls import Poll, first_ask
from ringmq.native import ffi, lib

READER_POINTS = points("reader-poll", "reader-verdicts", "inbox-claimed", "inbox-filled")
ANSWERER_POINTS = points("verdict-", "inbox-given-up", "inbox-padded", "inbox-cleared", "inbox-zeroed", "inbox-taken")


class DeadError(Exception):
    """The read worker has died at its point."""


class Scene(Holder):
    """An answerer that gives numbered messages to polls, and one read worker after the other."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, answerers=(PLAN,), inbox_bytes=INBOX_BYTES)
        self.header.roles[READ].generation = 0
        self.begin()
        self.clients: list[Client] = []
        self.opaque = 0
        self.message = 0
        self.given: tuple[Client, int] | None = None
        """The client and the serial of the answer that is under way."""
        self.reader = 0
        self.supervisor = os.getpid()

    # -- the read worker ---------------------------------------------------------------------------------------------

    def start_reader(self, point: str | None = None, arm: Path | None = None) -> None:
        """The next process of the read worker. `arm`: the file that may name its point later."""
        self.header.roles[READ].generation += 1
        self.reader = os.fork()
        if self.reader:
            return
        die_with_parent()
        os.environ.pop("RINGMQ_CRASH_POINT", None)
        if point:
            os.environ["RINGMQ_CRASH_POINT"] = point
        if arm:
            os.environ["RINGMQ_CRASH_FILE"] = str(arm)
        for client in self.clients:
            client.close()  # in this process
        reader = lib.rmq_reader_open(self.plane, 0, *(one.fileno() for one in self.listeners), ffi.new("int *"))
        while reader != ffi.NULL and lib.rmq_reader_run(reader, SHORT_SLICE_NS) >= 0:
            pass
        os._exit(1)

    def bury_reader(self) -> None:
        """What the supervisor leaves of a dead one."""
        os.kill(self.reader, signal.SIGKILL)
        os.waitpid(self.reader, 0)
        self.header.roles[READ].state = 0
        self.header.roles[READ].claim_position = 2**64 - 1

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for what the read worker does. A process that dies for the answerer does not look after it."""

        def look() -> bool:
            if condition():
                return True
            look_only = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.getpid() == self.supervisor and os.waitid(os.P_PID, self.reader, look_only) is not None:
                raise DeadError
            return False

        wait_until(look, what)

    # -- the answerer and its clients ----------------------------------------------------------------------------------

    def join(self) -> Client:
        """A client comes."""
        client = Client(self.listeners[0].getsockname())
        self.clients.append(client)
        return client

    def ask(self, kind: int = lib.RMQ_INBOX_COLD_FRAME) -> Ask:
        """The next ask; others' ends are passed over."""
        found: list[Ask] = []

        def look() -> bool:
            while not found and (ask := self.inbox.take()) is not None:
                found.extend([ask] if ask.type == kind else [])
            return bool(found)

        self.until(look, "an ask")
        return found[0]

    def poll(self, client: Client) -> Poll:
        """The client polls, and the poll is held."""
        self.opaque += 1
        client.send(request(CODE, {}, opaque=self.opaque))
        poll = self.hold(self.ask(), opaque=self.opaque)
        self.until(self.is_heard, "HOLD is taken")
        return poll

    def is_heard(self) -> bool:
        """The read worker has taken all verdicts."""
        ring = self.row.answers[READ]
        return bool(ring.head == ring.tail)

    def give(self, client: Client, poll: Poll) -> None:
        """The poll gets a message, and its client has it."""
        self.message += 1
        self.given = client, poll.serial
        self.end(poll, payload=frame(1, f"message {self.message}"))
        self.receive(client)

    def receive(self, client: Client) -> None:
        """The message that was given last."""
        self.until(lambda: not client.is_quiet(0), "the client has its answer")
        try:
            assert client.answer().remark == f"message {self.message}"
        except EOFError:
            self.until(lambda: False, "the read worker is dead")
        self.given = None

    def script(self) -> None:
        """Every way of a held poll."""
        one, two, three = self.join(), self.join(), self.join()
        polls = {client: self.poll(client) for client in (one, two, one, three)}
        self.give(one, polls[one])
        three.close()
        self.clients.remove(three)
        closed = self.ask(lib.RMQ_INBOX_CLOSED)
        self.end(polls[three], payload=frame(1, "nobody"))
        assert not self.polls.closed(closed), "it has been answered"
        notices: list[Any] = []

        def is_told() -> bool:
            notices.extend(every_notice(self))
            return bool(notices)

        self.until(is_told, "the answerer is told")
        assert [said.serial for said in notices] == [polls[three].serial]
        self.end(polls[two], REDO)
        polls[two] = self.again()
        self.replace_answerer()
        again = [self.again(), self.again()]
        for poll in again:
            client = two if poll.ask.payload == polls[two].ask.payload else one
            self.give(client, poll)
        assert one.is_quiet(0) and two.is_quiet(0)

    def again(self) -> Poll:
        """A poll that is asked for again, and held."""
        ask, deadline_ns = first_ask(self.ask(lib.RMQ_INBOX_HELD))
        assert deadline_ns
        poll = self.hold(ask, deadline_ns)
        self.until(self.is_heard, "HOLD is taken")
        return poll

    def replace_answerer(self) -> None:
        """Another process of it."""
        self.die()
        self.begin()


@contextmanager
def scene(root: Path) -> Iterator[Scene]:
    """A scene, and its end."""
    made = Scene(root)
    try:
        yield made
    finally:
        if made.reader:
            made.bury_reader()
        for client in made.clients:
            client.close()
        made.close()


def died(made: Scene) -> None:
    """The read worker is dead: every connection is closed. A message under way was received, or is free again."""
    made.bury_reader()
    generation = int(made.header.roles[READ].generation)
    left = {said.serial for said in made.inbox.unconsumed(READ, generation)}
    received = []
    for client in made.clients:
        try:
            while True:
                received.append(client.answer().remark)
        except (EOFError, ConnectionError):
            client.close()
    if made.given is not None:
        serial, message = made.given[1], f"message {made.message}"
        assert (message in received) != (serial in left), "received, or free again"
        received = [remark for remark in received if remark != message]
    assert not received, "no poll has another answer"
    made.given, made.clients = None, []
    made.start_reader()
    made.polls.see_reader(READ, generation + 1)
    assert made.polls.is_idle
    while made.inbox.take() is not None or made.inbox.unblock():
        pass


@pytest.mark.parametrize("point", READER_POINTS)
def test_polls_of_a_reader_that_dies_end_with_it(tmp_path: Path, point: str) -> None:
    """Its replacement holds polls as if nothing had been."""
    chance, hits = random.Random(f"{SEED}-{point}"), 0
    for repeat in range(REPEATS):
        with scene(tmp_path / str(repeat)) as made:
            made.start_reader(f"{point}:{1 + chance.randrange(8) * bool(repeat)}")
            try:
                made.script()
            except DeadError:
                hits += 1
                died(made)
                made.script()
    assert hits, f"{point} was never reached"


@pytest.mark.parametrize("point", ["inbox-claimed", "inbox-filled", "reader-verdicts-applied"])
@pytest.mark.parametrize("is_held", [True, False], ids=["poll", "ask"])
def test_an_answer_that_a_dying_reader_drops_is_free_again(tmp_path: Path, point: str, is_held: bool) -> None:
    """The reader dies while it tells, or when it has told: the answer is in its ring. The answerer finds it there,
    and the replacement tells of it."""
    armed = tmp_path / "point"
    armed.write_bytes(bytes(64))
    with scene(tmp_path / "store") as made:
        made.start_reader(arm=armed)
        client = made.join()
        client.send(request(CODE, {}, opaque=1))
        ask = made.ask()
        poll = made.hold(ask) if is_held else None
        made.until(made.is_heard, "the reader waits")
        client.close()
        made.clients.remove(client)
        made.ask(lib.RMQ_INBOX_CLOSED)
        with armed.open("r+b") as file:
            file.write(point.encode())
        serial = poll.serial if poll else 77
        if poll:
            made.end(poll, payload=frame(1, "nobody"))
        else:
            made.say(ask, SEND, frame(1, "nobody"), serial, tells=True)
        with pytest.raises(DeadError):
            made.until(lambda: False, "it dies")
        made.bury_reader()
        assert [said.serial for said in made.inbox.unconsumed(READ, 1)] == [serial]
        made.start_reader()
        notices = []

        def is_told() -> bool:
            while (taken := made.inbox.take()) is not None or made.inbox.unblock():
                if taken is not None and taken.type == lib.RMQ_INBOX_UNSENT:
                    notices.append((taken.role_generation, made.inbox.unsent(taken)))
            return any(generation == 2 for generation, _ in notices)

        made.until(is_told, "the replacement tells")
        assert {said.serial for _, said in notices if said} == {serial}
        assert len(notices) == 1 + (point == "reader-verdicts-applied")
        made.until(lambda: not made.inbox.unconsumed(READ, 1), "it is taken")


@pytest.mark.parametrize("point", ANSWERER_POINTS)
def test_polls_of_an_answerer_that_dies_go_to_the_next_one(tmp_path: Path, point: str) -> None:
    """While it holds a poll, while it gives one a message, and while it takes one that it is asked for again. Each poll
    is answered once, by one of the two, or by the reader because the first one had its ask in its hand."""
    hits = 0
    for way in ("hold", "give", "take"):
        with scene(tmp_path / way) as made:
            made.start_reader()
            client = made.join()
            poll = made.poll(client)
            if way == "take":
                made.replace_answerer()
                made.until(made.ask_waits, "it is asked again")
            hits += in_child(_doing(made, way, client, poll), point)
            made.replace_answerer()
            remarks: list[str] = []

            def is_answered(made: Scene = made, client: Client = client, remarks: list[str] = remarks) -> bool:
                while (ask := made.inbox.take()) is not None or made.inbox.unblock():
                    if ask is not None and ask.type == lib.RMQ_INBOX_HELD:
                        made.say(first_ask(ask)[0], SEND, frame(1, "the next one"), 0)
                while not client.is_quiet(0):
                    remarks.append(client.answer().remark or "")
                return len(remarks) >= 1 + (way == "hold")  # noqa: B023

            made.until(is_answered, "every poll is answered")
            known = ("the next one", "message 1", "process restarted")
            assert all(any(text in remark for text in known) for remark in remarks), remarks
            assert client.is_quiet(0) and len(remarks) == 1 + (way == "hold")
    assert hits, f"{point} was never reached"


def _doing(made: Scene, way: str, client: Client, poll: Poll) -> Callable[[], None]:
    def work() -> None:
        if way == "hold":
            made.poll(client)
        elif way == "give":
            made.end(poll, payload=frame(1, "message 1"))
        else:
            made.inbox.take()

    return work
