"""Requests and effects of a role that answers clients, without IO.

A handler's answer decides about the frame that a read worker keeps for it. All other effects (frames pushed to other
connections, a registration with the name servers) go into the outbox.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct, field

from ringmq.broker.requests.turns import Steps
from ringmq.ipc.asks import RedoRule
from ringmq.ipc.audit import Actor
from ringmq.remoting.access import BROKER, Access
from ringmq.remoting.codes import ResponseCode, code_name
from ringmq.remoting.command import RemotingCommand

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""The tail of stock's remarks about missing set-up by an operator."""
REJECTED = "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave, send to its master"
"""Remark of a slave that refuses a send or a send-back. The part in front of the colon is stock's. Read workers answer
the same (native/src/reader/routes.c)."""


class Connection(NamedTuple):
    """A client's connection: its slot in its read worker, with the generations that distinguish reused slots."""

    reader: int
    reader_generation: int
    number: int
    generation: int
    host: str
    port: int
    vip: bool = False

    @property
    def address(self) -> str:
        """ip:port, as in remarks and connection lists."""
        return f"{self.host}:{self.port}"


class Now(Struct):
    """The time of the running request or tick, set at its begin."""

    ms: int


class Request(Struct):
    """One cold frame. `body_length`: that of the whole body, even if `command.body` was left out (sends)."""

    command: RemotingCommand
    connection: Connection
    now_ms: int
    pending: int = 0
    body_length: int = 0
    is_again: bool = False
    """True for a held pull in its second run. It may not be held again."""
    received_mono_ns: int = 0
    """Time when its read worker received it. 0 = unknown."""
    frame_bytes: int = 0
    ask: bytes = b""
    """The frame as it came in the inbox, if its read worker may hold it (`Intake`)."""
    held_until_ns: int = 0
    """An earlier process of the answerer has held the request until then, by the monotonic clock. 0: none has."""

    @property
    def actor(self) -> Actor:
        """The cause of the changes that this request makes."""
        code = self.command.code
        return Actor(self.connection.address, code_name(code), BROKER.get(code) is Access.DATA)

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """The answer to this request."""
        return RemotingCommand.response_to(self.command, code, remark, ext_fields, body)


class Redo(Struct, frozen=True):
    """Answer: the reason why the frame was cold is gone, and the read worker runs the frame again.

    `rule`: where the message of a send goes.
    """

    rule: RedoRule = RedoRule.UNCHANGED


class Wait(Struct, frozen=True):
    """Answer: the reply comes later, by `Outbox.reply`."""


class Close(Struct, frozen=True):
    """Answer: close the connection without a reply."""


class Drop(Struct, frozen=True):
    """Answer: the frame needs no reply."""


Answer = RemotingCommand | Redo | Wait | Close | Drop


class Slices(Struct, frozen=True):
    """Answer of a request that takes several slices: `steps` compute it, each of them well below `turns.SLICE_MS`.

    `is_large`: the steps hold a large body, so only some may be open at once. They may be postponed before the first
    step, which reads the body. `is_shared`: the answer is large, and its text is made once for all requests that ask
    for it. `is_reading`: the steps change nothing, so they are dropped when the connection is closed. `awaits`: true
    while the next step has to wait for another worker (broker/worker_asks.py). Only small ones wait so.
    """

    steps: Steps[Answer]
    is_large: bool = False
    is_shared: bool = False
    is_reading: bool = False
    awaits: Callable[[], bool] | None = None


class Reply(Struct, frozen=True):
    """Effect: send `command` and release the kept frame."""

    connection: Connection
    pending: int
    command: RemotingCommand


class Run(Struct, frozen=True):
    """Effect: the read worker runs the kept frame again."""

    connection: Connection
    pending: int
    rule: RedoRule = RedoRule.UNCHANGED


class Release(Struct, frozen=True):
    """Effect: drop the kept frame, which needs no answer."""

    connection: Connection
    pending: int


class Hangup(Struct, frozen=True):
    """Effect: close the connection. `pending` None = no frame of it is kept."""

    connection: Connection
    pending: int | None


class Push(Struct, frozen=True):
    """Effect: send a request of the broker."""

    connection: Connection
    command: RemotingCommand


class Records(Struct, frozen=True):
    """Effect: send a frame that names records of the log, and release the kept frame. `payload`: of records_payload."""

    connection: Connection
    pending: int
    payload: bytes


Effect = Reply | Run | Release | Hangup | Push | Records


OPAQUE_MAX = (1 << 31) - 1
OPAQUE_BITS_OF_PROCESS = 20
"""A process of control makes so many requests, as a power of two, before it comes to the numbers of the next one."""


class Outbox(Struct):
    """Effects beyond the answer, in order. `register` and `changed_topics`: changes for the name servers.

    `lines`: log lines about settings that peers change. The shell throttles them.
    """

    effects: list[Effect] = field(default_factory=list)
    register: bool = False
    changed_topics: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    _opaque: int = 0

    def begin_opaques(self, generation: int) -> None:
        """Number requests of the broker for this process of control: a late answer to an earlier process is the answer
        to none of its requests."""
        self._opaque = generation << OPAQUE_BITS_OF_PROCESS & OPAQUE_MAX

    def push(self, connection: Connection, command: RemotingCommand) -> int:
        """Queue a request of the broker. Returns its opaque."""
        self._opaque = self._opaque + 1 & OPAQUE_MAX
        command.opaque = self._opaque
        self.effects.append(Push(connection, command))
        return self._opaque

    def reply(self, request: Request, response: RemotingCommand) -> None:
        """Queue the late answer to a request that was answered `Wait`. A oneway request gets none."""
        if request.command.is_oneway:
            self.effects.append(Release(request.connection, request.pending))
        else:
            self.effects.append(Reply(request.connection, request.pending, response))

    def records(self, request: Request, payload: bytes) -> None:
        """Queue the answer to a request that was answered `Wait`: a frame that names records of the log
        (ipc/record_answers.py). A oneway request gets none."""
        where = request.connection, request.pending
        self.effects.append(Release(*where) if request.command.is_oneway else Records(*where, payload))

    def take(self) -> list[Effect]:
        """The effects so far. The outbox is empty afterwards."""
        taken, self.effects = self.effects, []
        return taken


def verdict_of(request: Request, answer: Answer) -> Effect | None:
    """The effect for the frame that the read worker keeps. None while the answer is pending."""
    where = request.connection, request.pending
    match answer:
        case RemotingCommand():
            return Release(*where) if request.command.is_oneway else Reply(*where, answer)
        case Redo(rule):
            return Run(*where, rule)
        case Close():
            return Hangup(*where)
        case Drop():
            return Release(*where)
        case Wait():
            return None
