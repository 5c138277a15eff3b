"""The messages that a promotion may lose, the answers that a start waits for, and the records of the file."""

from collections.abc import Mapping
from typing import Any

import pytest

from ringmq.ha import tenure_records
from ringmq.ha.epochs import Position
from ringmq.ha.tenure_events import Accepted, Peer, PromiseAsked
from ringmq.ha.tenure_rules import HOLD, SERVE, copies, group_size, losses, may_serve
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.store.tenure_file import (
    PEERS_MAX,
    PROMISES_MAX,
    Addresses,
    EpochStart,
    Policy,
    Promise,
    TenureRecord,
)

SYNC, ASYNC = Policy("SYNC_MASTER"), Policy("ASYNC_MASTER")
OWN = Position(65537, 1000)
AS_SLAVE = Tenure(TenureState.SLAVE)


@pytest.mark.parametrize(
    ("policy", "count"),
    [
        (ASYNC, 1),
        (SYNC, 2),
        (Policy("SYNC_MASTER", in_sync_replicas=3), 3),
        (Policy("SYNC_MASTER", replica_policy="all", total_replicas=4), 4),
        (Policy("SYNC_MASTER", replica_policy="majority", total_replicas=5), 3),
        (Policy("SYNC_MASTER", replica_policy="rooms"), 3),
        (Policy("SYNC_MASTER", replica_policy="none"), 1),
        (Policy("SYNC_MASTER", replication_policy="flushed"), 2),
        (Policy("SYNC_MASTER", replication_policy="received"), 1),  # a kernel's buffer is no log
        (Policy("SYNC_MASTER", enable_auto_in_sync_replicas=True), 1),
        (Policy("SYNC_MASTER", enable_auto_in_sync_replicas=True, min_in_sync_replicas=2, in_sync_replicas=3), 2),
    ],
)
def test_the_copies_of_an_acknowledged_message(policy: Policy, count: int) -> None:
    assert copies(policy) == count


def test_the_policy_may_know_more_brokers_than_the_file() -> None:
    assert group_size(SYNC, ("a:1",), {}) == 2
    assert group_size(Policy("SYNC_MASTER", total_replicas=3), ("a:1",), {}) == 3


def test_a_broker_with_two_addresses_counts_once() -> None:
    both = {**peer("a:1"), **peer("a:9")}
    assert group_size(SYNC, ("a:1", "a:9", "c:1"), both) == 3
    assert not may_serve(Policy("SYNC_MASTER", total_replicas=4), (), both, "")
    (text,) = losses(OWN, Policy("ASYNC_MASTER", total_replicas=3), tuple(both), both)
    assert "2 of 3 brokers agree" in text
    stock = {**peer("a:1", is_stock=True), **peer("c:1", is_stock=True)}  # their brokerIds are those of name servers
    assert group_size(SYNC, tuple(stock), stock) == 3


def peer(name: str, *, at: Position = OWN, state: TenureState = TenureState.SLAVE, **given: Any) -> dict[str, Peer]:
    return {name: Peer(Addresses(name), 2, Tenure(state, 65537), at, **given)}


@pytest.mark.parametrize(
    ("policy", "others", "answers", "epoch", "found"),
    [
        (SYNC, {"a:1"}, {}, 0, []),  # each message of two brokers is here
        (SYNC, {"a:1"}, peer("a:1"), 0, []),
        (ASYNC, {"a:1"}, peer("a:1"), 0, []),  # the old master was demoted, and has nothing more
        (ASYNC, set(), {}, 0, []),
        (ASYNC, {"a:1"}, {}, 0, ["1 of 2 brokers agree, and ASYNC_MASTER keeps a message on 1: .* 1000 .* (a:1)"]),
        (SYNC, {"a:1", "c:1"}, {}, 0, ["1 of 3 brokers agree, and SYNC_MASTER keeps a message on 2: .* (a:1, c:1)"]),
        (SYNC, {"a:1", "c:1"}, peer("c:1"), 0, []),
        (SYNC, {"a:1", "c:1"}, peer("c:1"), 9, ["1 of 3 brokers agree"]),
        (SYNC, {"a:1", "c:1"}, peer("c:1", promised=9), 9, []),
        (SYNC, {"a:1", "c:1"}, peer("c:1", promised=8), 9, ["1 of 3 brokers agree"]),
        (SYNC, {"a:1", "c:1"}, peer("c:1", at=Position(65537, 1001)), 0, ["slave c:1 has the log up to 1001 of epoch"]),
        (SYNC, {"a:1", "c:1"}, peer("c:1", at=Position(131074, 1)), 0, ["slave c:1 has .* up to 1 of epoch 131074"]),
        (SYNC, {"a:1", "c:1"}, peer("c:1", at=Position(0, 9999)), 0, []),
        (SYNC, {"a:1", "c:1"}, peer("c:1", is_linked=True), 0, ["slave c:1 follows a master that lives"]),
        (SYNC, {"a:1"}, peer("a:1", state=TenureState.MASTER), 0, ["master a:1 lives: .* behind offset 1000"]),
        (SYNC, {"a:1"}, peer("a:1", state=TenureState.MASTER, is_stock=True), 0, ["stock master a:1 lives"]),
        (
            SYNC, {"a:1", "c:1"}, {**peer("a:1", state=TenureState.MASTER), **peer("c:1", is_linked=True)}, 0,
            ["master a:1 lives", "slave c:1 follows a master"],
        ),
        (Policy("SYNC_MASTER", total_replicas=3), set(), {}, 0, ["1 of 3 .* (brokers that are not known)"]),
    ],
)  # fmt: skip
def test_what_a_promotion_may_lose(
    policy: Policy, others: set[str], answers: Mapping[str, Peer], epoch: int, found: list[str]
) -> None:
    told = losses(OWN, policy, others, answers, epoch)
    assert len(told) == len(found)
    for text, wanted in zip(told, found, strict=True):
        position = 0
        for part in wanted.split(".*"):
            assert part.strip() in text[position:], text
            position = text.index(part.strip(), position)


@pytest.mark.parametrize(
    ("policy", "others", "answered", "start_alone", "serves"),
    [
        (SYNC, (), 0, "", True),  # the first start of a group
        (SYNC, (), 0, HOLD, True),
        (Policy("SYNC_MASTER", total_replicas=3), (), 0, "", False),  # no name server answers
        (SYNC, ("b:1",), 0, "", False),
        (SYNC, ("b:1",), 1, "", True),
        (SYNC, ("b:1", "c:1"), 1, "", True),
        (SYNC, ("b:1", "c:1", "d:1"), 1, "", False),
        (SYNC, ("b:1", "c:1", "d:1"), 2, "", True),
        (SYNC, ("b:1",), 0, SERVE, True),
        (ASYNC, ("b:1", "c:1"), 0, "", True),
        (ASYNC, ("b:1", "c:1"), 1, HOLD, False),
        (ASYNC, ("b:1", "c:1"), 2, HOLD, True),
    ],
)
def test_the_answers_that_a_start_waits_for(
    policy: Policy, others: tuple[str, ...], answered: int, start_alone: str, serves: bool
) -> None:
    answers = {name: Peer(Addresses(name), number, AS_SLAVE, OWN) for number, name in enumerate(others[:answered], 5)}
    assert may_serve(policy, others, answers, start_alone) == serves


RECORD = TenureRecord(
    is_master=False, epoch=65537, master=Addresses("b:1", "b:2"), peers=("b:1",), history=(EpochStart(65537, 50),)
)


def test_a_new_epoch_begins_at_the_end_of_the_log() -> None:
    promised = tenure_records.with_promise(RECORD, PromiseAsked(131072, "c:1", is_linked=False))
    taken = tenure_records.as_master(promised, SYNC, ("b:1",), 131073, 900)
    assert (taken.is_master, taken.epoch, taken.policy, taken.promises) == (True, 131073, SYNC, ())
    assert taken.history == (EpochStart(65537, 50), EpochStart(131073, 900))
    assert tenure_records.as_master(taken, ASYNC, (), 131073, 2000).history == taken.history


def test_a_master_that_yields_to_a_master_follows_it() -> None:
    master = tenure_records.as_master(RECORD, SYNC, ("b:1",), 131073, 900)
    (rival,) = peer("c:1", state=TenureState.MASTER).values()
    yielded = tenure_records.as_slave(master, ("b:1",), rival)
    assert (yielded.is_master, yielded.epoch, yielded.master) == (False, 65537, rival.addresses)
    assert yielded.peers == ("c:1", "b:1")
    assert yielded.history == master.history  # its own records stay its own
    (witness,) = peer("d:1").values()
    assert tenure_records.as_slave(master, (), witness).master == Addresses()
    ordered = tenure_records.as_slave(master, ("b:1",), None)
    assert (ordered.epoch, ordered.master) == (131073, Addresses())
    assert tenure_records.as_slave(yielded, (), None) == yielded


def test_a_follower_keeps_promises_above_its_master() -> None:
    record = tenure_records.with_promise(RECORD, PromiseAsked(131072, "c:1", is_linked=False))
    record = tenure_records.with_promise(record, PromiseAsked(196608, "c:1", is_linked=False))
    assert tenure_records.floor(record) == 196608
    event = Accepted(Addresses("c:1", "c:2"), 131072, peers=("own:1", "b:1"))
    follower = tenure_records.as_follower(record, event, "own:1")
    assert follower.promises == (Promise(196608, "c:1"),)
    assert follower.peers == ("c:1", "b:1")


@pytest.mark.parametrize(
    ("record", "event", "why"),
    [
        (RECORD, Accepted(Addresses("b:1"), 65537), ""),
        (RECORD, Accepted(Addresses("b:1"), 65536), "master b:1 has epoch 65536, this broker knows epoch 65537"),
        (RECORD, Accepted(Addresses("b:1"), is_stock=True), "stock master b:1 has no epoch, this broker knows"),
        (TenureRecord(False), Accepted(Addresses("b:1"), is_stock=True), ""),
        (TenureRecord(False, 65538), Accepted(Addresses("b:1"), is_stock=True), ""),  # its own, and it was demoted
        (
            TenureRecord(False, 65538, promises=(Promise(131072, "c:1"),)), Accepted(Addresses("b:1"), is_stock=True),
            "stock master b:1 has no epoch, this broker knows epoch 131072",
        ),
    ],
)  # fmt: skip
def test_the_masters_that_a_slave_follows(record: TenureRecord, event: Accepted, why: str) -> None:
    assert tenure_records.why_not_followed(record, event, 2)[: len(why) or 1] == why


def test_promises_are_few_and_rise() -> None:
    record = RECORD
    for term in range(2, 2 + PROMISES_MAX):
        event = PromiseAsked(term << 16, "c:1", is_linked=False)
        assert tenure_records.why_no_promise(record, event) == ""
        record = tenure_records.with_promise(record, event)
        assert tenure_records.why_no_promise(record, event) == ""  # it is asked again
    more = PromiseAsked(99 << 16, "c:1", is_linked=False)
    assert tenure_records.why_no_promise(record, more) == "8 promotions have its promise already"
    lower = PromiseAsked(65537, "c:1", is_linked=False)
    assert tenure_records.why_no_promise(RECORD, lower) == "epoch 65537 is not above 65537"
    linked = PromiseAsked(2 << 16, "c:1", is_linked=True)
    assert tenure_records.why_no_promise(record, linked) == "it follows a master that lives"


def test_a_promise_is_needless_once_its_broker_has_given_up() -> None:
    record = tenure_records.with_promise(RECORD, PromiseAsked(131074, "c:1", is_linked=False))
    assert [
        tenure_records.needless_promise(record, given)
        for given in (
            *peer("c:1").values(), *peer("c:1", taking=131074).values(), *peer("c:1", taking=196610).values(),
            Peer(Addresses("c:1"), 2, Tenure(TenureState.MASTER, 131074), OWN),
            Peer(Addresses("d:1"), 3, Tenure(TenureState.SLAVE, 0), OWN),
            Peer(Addresses("c:1"), 2, Tenure(TenureState.SLAVE, 196610), OWN),  # it was the master of both epochs
        )
    ] == [131074, 0, 131074, 0, 0, 0]  # fmt: skip


def test_peers_are_few_and_others() -> None:
    names = ["", "own:1", *(f"p:{number % 20}" for number in range(40))]
    assert tenure_records.peers_of(names, "own:1") == tuple(f"p:{number}" for number in range(PEERS_MAX))
