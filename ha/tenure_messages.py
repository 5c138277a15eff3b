"""The bodies of request 270010, by which brokers of a group show each other their tenure.

    question   {"operation": "show", "epoch": 0, "group": {...}, "peer": {...}}   the answer shows the other broker
               {"operation": "promise", "epoch": 65537, ...}                      also, once it has promised or refused
               {"operation": "release", "epoch": 65537, ...}                      the promise is not needed any more
    answer     {"group": {"cluster": "DefaultCluster", "brokerName": "broker-a"},
                "peer": {"broker": "10.0.0.2:10911", "ha": "10.0.0.2:10912", "brokerId": 1, "state": "slave", ...},
                "policy": {...}, "peers": ["10.0.0.1:10911"], "history": [[65537, 4096]]}

The promise is made if `promised` of the answer is the epoch of the question.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from ringmq.ha.control_messages import MessageError
from ringmq.ha.epochs import History, Position
from ringmq.ha.tenure_events import Peer
from ringmq.ipc.tenure import EPOCH_MAX, Tenure, TenureState
from ringmq.store.tenure_file import HISTORY_MAX, PEERS_MAX, Addresses, EpochStart, Policy

QUESTION_BYTES_MAX = 4096
ANSWER_BYTES_MAX = 65_536
"""As of the tenure file."""
SHOW: Literal["show"] = "show"
PROMISE: Literal["promise"] = "promise"
RELEASE: Literal["release"] = "release"

Body = TypeVar("Body", bound=Struct)
_Epoch = Annotated[int, Meta(ge=0, le=EPOCH_MAX)]
_Address = Annotated[str, Meta(max_length=300)]


class _Shown(Struct, frozen=True, rename="camel"):
    broker: _Address
    ha: _Address
    broker_id: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    state: Literal["slave", "taking", "master", "yielding"]
    epoch: _Epoch
    last_epoch: _Epoch
    end_offset: Annotated[int, Meta(ge=0, le=1 << 62)]
    taking: _Epoch = 0
    promised: _Epoch = 0
    is_linked: bool = False


class Group(Struct, frozen=True, rename="camel"):
    """The group of a broker. Brokers of another group have other epochs."""

    cluster: Annotated[str, Meta(max_length=255)]
    broker_name: Annotated[str, Meta(max_length=255)]


class _Question(Struct, frozen=True, rename="camel"):
    operation: Literal["show", "promise", "release"]
    epoch: _Epoch
    group: Group
    peer: _Shown


class _Answer(Struct, frozen=True, rename="camel"):
    group: Group
    peer: _Shown
    policy: Policy
    peers: Annotated[tuple[_Address, ...], Meta(max_length=PEERS_MAX)]
    history: Annotated[tuple[EpochStart, ...], Meta(max_length=HISTORY_MAX)]


class Question(Struct, frozen=True):
    """A question of a peer. operation: SHOW, PROMISE or RELEASE. epoch: of the promise, else 0."""

    operation: Literal["show", "promise", "release"]
    epoch: int
    group: Group
    peer: Peer


class Showing(Struct, frozen=True):
    """A broker as it shows itself. policy: of its last messages. peers: broker ports of its group that it knows.
    history: of its log."""

    group: Group
    peer: Peer
    policy: Policy = Policy()
    peers: tuple[str, ...] = ()
    history: History = ()


def question_body(question: Question) -> bytes:
    """The body of the request."""
    shown = _shown(question.peer)
    return msgspec.json.encode(_Question(question.operation, question.epoch, question.group, shown))


def question_of(data: bytes) -> Question:
    """Decode the body of the request. Raises MessageError, which names field and limit."""
    found = _decoded(data, _Question, QUESTION_BYTES_MAX)
    if bool(found.epoch) is (found.operation == SHOW):
        raise MessageError(f"operation {found.operation} has epoch {found.epoch}")
    return Question(found.operation, found.epoch, found.group, _peer(found.peer))


def answer_body(showing: Showing) -> bytes:
    """The body of the answer."""
    shown = _shown(showing.peer)
    return msgspec.json.encode(_Answer(showing.group, shown, showing.policy, showing.peers, showing.history))


def answer_of(data: bytes) -> Showing:
    """Decode the body of an answer. Raises MessageError, which names field and limit."""
    found = _decoded(data, _Answer, ANSWER_BYTES_MAX)
    return Showing(found.group, _peer(found.peer), found.policy, found.peers, found.history)


def _decoded(data: bytes, kind: type[Body], bytes_max: int) -> Body:
    if len(data) > bytes_max:
        raise MessageError(f"a body of {len(data)} bytes, at most {bytes_max} are read")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(str(error)) from error


def _shown(peer: Peer) -> _Shown:
    return _Shown(
        broker=peer.addresses.broker,
        ha=peer.addresses.ha,
        broker_id=peer.broker_id,
        state=_WORDS[peer.tenure.state],
        epoch=peer.tenure.epoch,
        last_epoch=peer.position.epoch,
        end_offset=peer.position.offset,
        taking=peer.taking,
        promised=peer.promised,
        is_linked=peer.is_linked,
    )


def _peer(shown: _Shown) -> Peer:
    return Peer(
        addresses=Addresses(shown.broker, shown.ha),
        broker_id=shown.broker_id,
        tenure=Tenure(TenureState[shown.state.upper()], shown.epoch),
        position=Position(shown.last_epoch, shown.end_offset),
        taking=shown.taking,
        promised=shown.promised,
        is_linked=shown.is_linked,
    )


_WORDS: dict[TenureState, Literal["slave", "taking", "master", "yielding"]] = {
    TenureState.SLAVE: "slave",
    TenureState.TAKING: "taking",
    TenureState.MASTER: "master",
    TenureState.YIELDING: "yielding",
}
