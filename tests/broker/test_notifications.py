"""Notifications to groups (40) have a budget: a notice beyond it waits, is not lost, and is sent once."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from ringmq.broker.requests.request import Outbox
from ringmq.broker.requests.turns import finish
from ringmq.broker.tables import notifications
from ringmq.broker.tables.consumers import ConsumerTable, Member
from ringmq.broker.tables.notifications import Notifications
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.heartbeat import BROADCASTING, ConsumerData
from tests.broker.fakes import START_MS, Harness, make_harness, peer


@pytest.fixture
def table() -> Iterator[ConsumerTable]:
    yield ConsumerTable(Outbox())


def join(table: ConsumerTable, group: str, count: int, **data: Any) -> None:
    for number in range(count):
        member = Member(f"c{number}", "JAVA", 0, START_MS)
        finish(table.register(peer(number), member, ConsumerData(group, **data), with_subscriptions=False))


def told(table: ConsumerTable) -> Counter[tuple[str, int]]:
    """(group, member) -> notifications."""
    effects: list[Any] = table._outbox.take()
    return Counter((effect.command.ext_fields["consumerGroup"], effect.connection.number) for effect in effects)


def test_changes_beyond_the_budget_share_one_notice(table: ConsumerTable) -> None:
    join(table, "G", 600)
    subject = Notifications(table)
    assert subject.may_notify("G", START_MS)
    for _ in range(50):
        assert not subject.may_notify("G", START_MS)
    assert subject.is_waiting
    at_ms, turns = START_MS, 0
    while subject.is_waiting:
        at_ms += notifications.PAUSE_MS
        subject.turn(at_ms)
        turns += 1
    assert told(table) == {("G", number): 1 for number in range(600)}
    assert turns * notifications.PAUSE_MS * notifications.PER_MS <= 600


def test_a_turn_and_a_second_have_their_bounds(table: ConsumerTable) -> None:
    for group in range(20):
        join(table, f"G{group}", 100)
    subject = Notifications(table)
    sent = 0
    for at_ms in range(START_MS, START_MS + 1000):
        for group in range(20):
            if subject.may_notify(f"G{group}", at_ms):
                sent += 100
        subject.turn(at_ms)
        a_turn = sum(told(table).values())
        assert a_turn <= notifications.A_TURN
        sent += a_turn
    assert notifications.PER_MS * 990 <= sent <= notifications.AT_ONCE + notifications.PER_MS * 1000


def test_a_group_larger_than_the_budget_is_told_and_a_change_meanwhile_is_told_after_it(table: ConsumerTable) -> None:
    size = notifications.AT_ONCE + 500
    join(table, "G", size)
    subject = Notifications(table)
    assert not subject.may_notify("G", START_MS)
    subject.turn(START_MS)
    first = told(table)
    assert sum(first.values()) == notifications.A_TURN
    assert not subject.may_notify("G", START_MS)
    table.unregister("G", peer(size - 1))
    at_ms, seen = START_MS, first
    while subject.is_waiting:
        at_ms += notifications.PAUSE_MS
        subject.turn(at_ms)
        seen += told(table)
    assert seen == {("G", number): 2 for number in range(size - 1)}, "a member that has left is not told"


@pytest.mark.parametrize("model", [BROADCASTING, "CLUSTERING"])
def test_groups_that_want_no_notice_cost_nothing(table: ConsumerTable, model: str) -> None:
    join(table, "G", 600, message_model=model)
    subject = Notifications(table)
    allowed = [subject.may_notify("G", START_MS) for _ in range(5)]
    assert all(allowed) is (model == BROADCASTING)
    assert subject.may_notify("gone", START_MS)


def test_members_that_leave_one_by_one_are_not_worth_a_square_of_notices() -> None:
    harness: Harness = make_harness()
    count = 300
    for number in range(count):
        harness.join("G", {"T": "*"}, peer(number), f"c{number}")
    sent = 0
    for number in range(count):
        harness.broker.now.ms += 1
        harness.broker.on_close(peer(number))
        harness.broker.notifications.turn(harness.broker.now.ms)
        effects: list[Any] = harness.broker.outbox.take()
        sent += sum(effect.command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for effect in effects)
    assert sent <= notifications.AT_ONCE + notifications.PER_MS * count
