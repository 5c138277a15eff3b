"""The bodies of request 270010, by which brokers of a group show each other their tenure.

    question   {"operation": "show", "epoch": 0, "peer": {...}}          the answer is the other broker's peer
               {"operation": "promise", "epoch": 65537, "peer": {...}}   the same, once it has promised or refused
               {"operation": "release", "epoch": 65537, "peer": {...}}   the promise of this epoch is not needed
    answer     {"broker": "10.0.0.2:10911", "ha": "10.0.0.2:10912", "brokerId": 1, "state": "slave", ...}

The promise is made if `promised` of the answer is the epoch of the question.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from ringmq.ha.control_messages import MessageError
from ringmq.ha.epochs import Position
from ringmq.ha.tenure_events import Peer
from ringmq.ipc.tenure import EPOCH_MAX, Tenure, TenureState
from ringmq.store.tenure_file import Addresses

BODY_BYTES_MAX = 4096
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


class _Question(Struct, frozen=True, rename="camel"):
    operation: Literal["show", "promise", "release"]
    epoch: _Epoch
    peer: _Shown


class Question(Struct, frozen=True):
    """A question of a peer. operation: SHOW, PROMISE or RELEASE. epoch: of the promise, else 0."""

    operation: Literal["show", "promise", "release"]
    epoch: int
    peer: Peer


def question_body(question: Question) -> bytes:
    """The body of the request."""
    return msgspec.json.encode(_Question(question.operation, question.epoch, _shown(question.peer)))


def question_of(data: bytes) -> Question:
    """Decode the body of the request. Raises MessageError, which names field and limit."""
    found = _decoded(data, _Question)
    if bool(found.epoch) is (found.operation == SHOW):
        raise MessageError(f"operation {found.operation} has epoch {found.epoch}")
    return Question(found.operation, found.epoch, _peer(found.peer))


def answer_body(peer: Peer) -> bytes:
    """The body of the answer."""
    return msgspec.json.encode(_shown(peer))


def answer_of(data: bytes) -> Peer:
    """Decode the body of an answer. Raises MessageError, which names field and limit."""
    return _peer(_decoded(data, _Shown))


def _decoded(data: bytes, kind: type[Body]) -> Body:
    if len(data) > BODY_BYTES_MAX:
        raise MessageError(f"a body of {len(data)} bytes, at most {BODY_BYTES_MAX} are read")
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
