"""Events and effects of a broker's role (`tenure_core`).

Addresses are host:port of broker ports, offsets are of the CommitLog. Peers are brokers of the group that
haAllowedNetworks names: the shell gives the core no others, because a peer can end a mastership.
"""

from __future__ import annotations

from enum import Enum
from logging import INFO

from msgspec import Struct

from ringmq.ha.epochs import History, Position
from ringmq.ipc.tenure import Tenure
from ringmq.store.tenure_file import Addresses, Policy, TenureRecord


class Step(Enum):
    """A part of a change of the role, which the shell has workers and control's parts perform. Each may be repeated."""

    STAND = "write, ha and flush end their turns, the journal is stored, parked sends are given up"
    WRITE = "write opens the journal"
    SERVE = "services start, the replication port takes slaves"
    CLOSE = "services end, the connections of slaves are closed"
    RECEIVE = "ha opens the journal for the log of a master"


class Peer(Struct, frozen=True):
    """A broker of the group, as it describes itself.

    tenure: the one that its file has, which may be older than its word. taking: the epoch for which it tries to be
    promoted, 0 = it does not. promised: the highest epoch below which it follows no master. is_linked: a slave that
    streams from a master.
    """

    addresses: Addresses
    broker_id: int
    tenure: Tenure
    position: Position
    taking: int = 0
    promised: int = 0
    is_linked: bool = False
    is_stock: bool = False


# -- events ------------------------------------------------------------------------------------------------------------


class Began(Struct, frozen=True):
    """The store is open, and control runs. word: the tenure that is published, None: none is yet. is_first: the first
    control of this start, so no dead one has seen a failed sync."""

    word: Tenure | None = None
    is_first: bool = False


class Promote(Struct, frozen=True):
    """An operator's order. obstacles: reasons why this store cannot be a master's now, such as a failed fsync.
    is_linked: the stream from a master runs. names_peers: haAllowedNetworks is not empty."""

    accepts_loss: bool = False
    is_dry_run: bool = False
    is_linked: bool = False
    names_peers: bool = True
    obstacles: tuple[str, ...] = ()


class Demote(Struct, frozen=True):
    """An operator's order."""


class PeerSeen(Struct, frozen=True):
    """A peer has described itself: in its own question, or in the answer to a question of this number."""

    peer: Peer
    round: int = 0


class RoundEnded(Struct, frozen=True):
    """All peers have answered the questions of this number, or their time is over. end: of the own log.

    asked: peers that name servers have added to those of the effect.
    """

    round: int
    end: int = 0
    asked: tuple[str, ...] = ()


class PromiseAsked(Struct, frozen=True):
    """A peer wants to be promoted and asks this slave to follow no master below its epoch. is_linked: the stream from
    a master runs."""

    epoch: int
    address: str
    is_linked: bool


class Released(Struct, frozen=True):
    """The peer that has asked for a promise has given its promotion up."""

    epoch: int


class Accepted(Struct, frozen=True):
    """A master has accepted this slave: the log is a beginning of the master's. Nothing was reported yet, and Stream or
    Reject follows.

    history: of the master's log. peers: the other slaves of the master.
    """

    master: Addresses
    epoch: int = 0
    history: History = ()
    policy: Policy = Policy()
    peers: tuple[str, ...] = ()
    is_stock: bool = False


class StepDone(Struct, frozen=True):
    """The step is done. end: of the own log."""

    step: Step
    end: int = 0


class StepFailed(Struct, frozen=True):
    """A worker has died in the step, or could not perform it."""

    step: Step
    why: str


class FileWritten(Struct, frozen=True):
    """The record of the last WriteFile is on the disk."""


class FileFailed(Struct, frozen=True):
    """The record of the last WriteFile is not on the disk. is_old_kept: the old one certainly is."""

    why: str
    is_old_kept: bool


class Stop(Struct, frozen=True):
    """The broker shall stop. MayStop follows."""


class Tick(Struct, frozen=True):
    """Time has passed."""


EVENTS = (
    Began, Promote, Demote, PeerSeen, RoundEnded, PromiseAsked, Released, Accepted, StepDone, StepFailed, FileWritten,
    FileFailed, Stop, Tick,
)  # fmt: skip
Event = (
    Began
    | Promote
    | Demote
    | PeerSeen
    | RoundEnded
    | PromiseAsked
    | Released
    | Accepted
    | StepDone
    | StepFailed
    | FileWritten
    | FileFailed
    | Stop
    | Tick
)


# -- effects, to be performed in their order ---------------------------------------------------------------------------


class Publish(Struct, frozen=True):
    """Store the word into the watermark page."""

    tenure: Tenure


class Order(Struct, frozen=True):
    """Perform a step. StepDone or StepFailed follows. A newer order takes the place of one under way."""

    step: Step


class WriteFile(Struct, frozen=True):
    """Write and sync the tenure file. FileWritten or FileFailed follows."""

    record: TenureRecord


class Ask(Struct, frozen=True):
    """Ask peers to describe themselves. PeerSeen follows for each answer, then RoundEnded.

    epoch: they shall promise it, 0 = they shall not. The questions of an earlier round are given up. uses_name_servers:
    also ask the brokers of the group that name servers know.
    """

    round: int
    peers: tuple[str, ...]
    epoch: int = 0
    uses_name_servers: bool = False


class AnswerPromise(Struct, frozen=True):
    """Answer the peer that asks for a promise, with the description of this broker. why_not: "" = it is promised."""

    address: str
    epoch: int
    why_not: str = ""


class Release(Struct, frozen=True):
    """Tell peers that this broker gives up its promotion."""

    epoch: int
    peers: tuple[str, ...]


class Follow(Struct, frozen=True):
    """Look for a master and follow it. master: "" in it is unknown, the name servers know it."""

    master: Addresses = Addresses()


class Stream(Struct, frozen=True):
    """Report the log's end to the master that has accepted this slave."""


class Reject(Struct, frozen=True):
    """Leave the master that has accepted this slave. The next attempt comes after a pause."""

    why: str


class Unfollow(Struct, frozen=True):
    """Close the connection to the master, or give the attempt up. No Accepted of it follows. Follow begins anew."""

    why: str


class Register(Struct, frozen=True):
    """Register at the name servers, with the epoch as stateVersion. is_master: with brokerId 0."""

    is_master: bool
    epoch: int


class Refuse(Struct, frozen=True):
    """Answer an operator's order, which changes nothing."""

    why: str


class Plan(Struct, frozen=True):
    """Answer a dry run: the epoch of the promotion, and the messages that may be lost by it."""

    epoch: int
    losses: tuple[str, ...]


class Ended(Struct, frozen=True):
    """Answer an operator's order that has been taken. failure: "" = it is done."""

    failure: str = ""


class Changed(Struct, frozen=True):
    """Note the new role for the audit."""

    after: Tenure


class MayStop(Struct, frozen=True):
    """The broker may stop: the role is settled, or the next start settles it."""


class Log(Struct, frozen=True):
    """Write a log line. level: of the module logging."""

    text: str
    level: int = INFO


Effect = (
    Publish
    | Order
    | WriteFile
    | Ask
    | AnswerPromise
    | Release
    | Follow
    | Stream
    | Reject
    | Unfollow
    | Register
    | Refuse
    | Plan
    | Ended
    | Changed
    | MayStop
    | Log
)
