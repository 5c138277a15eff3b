"""The bodies by which brokers show each other their tenure: what is sent is read, and bounds hold."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from ringmq.ha.control_messages import MessageError
from ringmq.ha.epochs import Position
from ringmq.ha.tenure_events import Peer
from ringmq.ha.tenure_messages import (
    ANSWER_BYTES_MAX,
    PROMISE,
    QUESTION_BYTES_MAX,
    RELEASE,
    SHOW,
    Group,
    Question,
    Showing,
    answer_body,
    answer_of,
    question_body,
    question_of,
)
from ringmq.ipc.tenure import EPOCH_MAX, Tenure, TenureState
from ringmq.store.tenure_file import HISTORY_MAX, PEERS_MAX, Addresses, EpochStart, Policy

LARGEST = Peer(
    Addresses("b" * 300, "h" * 300), (1 << 63) - 1, Tenure(TenureState.YIELDING, EPOCH_MAX),
    Position(EPOCH_MAX, 1 << 62), EPOCH_MAX, EPOCH_MAX, True,
)  # fmt: skip
PEER = Peer(Addresses("b:1", "b:2"), 1, Tenure(TenureState.SLAVE, 65536), Position(65536, 4096), promised=131072)

GROUP = Group("c", "b")
SHOWING = Showing(GROUP, PEER, Policy("SYNC_MASTER"), ("b:3",), (EpochStart(65536, 4096),))


def test_the_largest_answer_fits() -> None:
    policy = Policy(ha_allowed_networks="n" * 16_384)
    history = tuple(EpochStart(EPOCH_MAX, 1 << 62) for _ in range(HISTORY_MAX))
    largest = Showing(Group("c" * 255, "b" * 255), LARGEST, policy, ("p" * 300,) * PEERS_MAX, history)
    assert len(answer_body(largest)) < ANSWER_BYTES_MAX
    assert answer_of(answer_body(largest)) == largest


@pytest.mark.parametrize(
    "peer", [PEER, LARGEST, *(Peer(Addresses(), 0, Tenure(s), Position(0, 0)) for s in TenureState)]
)
def test_bodies_are_read_as_they_were_written(peer: Peer) -> None:
    assert answer_of(answer_body(Showing(GROUP, peer))) == Showing(GROUP, peer)
    for operation, epoch in ((SHOW, 0), (PROMISE, 65537), (RELEASE, 65537)):
        question = Question(operation, epoch, GROUP, peer)
        assert question_of(question_body(question)) == question
        assert len(question_body(question)) < QUESTION_BYTES_MAX


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda body: body.update(operation="vote"), r"'vote' - at `\$\.operation`"),
        (lambda body: body.update(epoch=0), "operation promise has epoch 0"),
        (lambda body: body.update(operation="show"), "operation show has epoch 65537"),
        (lambda body: body.update(epoch=EPOCH_MAX + 1), r"Expected `int` <= 72057594037927935 - at `\$\.epoch`"),
        (lambda body: body["peer"].update(epoch=-1), r"Expected `int` >= 0 - at `\$\.peer\.epoch`"),
        (lambda body: body["peer"].update(state="MASTER"), r"'MASTER' - at `\$\.peer\.state`"),
        (lambda body: body["peer"].update(broker="b" * 301), r"length <= 300 - at `\$\.peer\.broker`"),
        (lambda body: body["peer"].update(isLinked=1), r"Expected `bool`, got `int` - at `\$\.peer\.isLinked`"),
        (lambda body: body["peer"].pop("endOffset"), "missing required field `endOffset`"),
        (lambda body: body["peer"].update(endOffset=1 << 70), r"\$\.peer\.endOffset"),
        (lambda body: body["peer"].update(more="x" * 4096), "bytes, at most 4096 are read"),
    ],
)
def test_a_bad_field_is_named(change: Callable[[dict[str, Any]], object], why: str) -> None:
    body = json.loads(question_body(Question(PROMISE, 65537, GROUP, PEER)))
    change(body)
    with pytest.raises(MessageError, match=why):
        question_of(json.dumps(body).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'{"a":"\xff"}', b"[" * 4000])
def test_other_bytes_are_refused(data: bytes) -> None:
    for read in (question_of, answer_of):
        with pytest.raises(MessageError):
            read(data)


def test_a_field_of_a_later_build_is_ignored() -> None:
    body = json.loads(answer_body(SHOWING))
    assert answer_of(json.dumps({**body, "later": 1}).encode()) == SHOWING
