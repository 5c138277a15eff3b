"""Where a group begins to read."""

import pytest

from ringmq.client import ConsumeFrom, MessageQueue
from ringmq.client.consuming.offsets import (
    LATE_QUEUE_MARGIN_MS,
    FromMinimum,
    QueueFacts,
    SearchFrom,
    StartRule,
    choose_start,
)

QUEUE, RETRY = MessageQueue("T", "b", 0), MessageQueue("%RETRY%g", "b", 0)
STARTED_MS = 10_000_000


def rule(consume_from: ConsumeFrom) -> StartRule:
    return StartRule(consume_from, 77, STARTED_MS)


@pytest.mark.parametrize("consume_from", list(ConsumeFrom))
@pytest.mark.parametrize("late", [False, True])
def test_a_committed_offset_wins(consume_from: ConsumeFrom, late: bool) -> None:
    assert choose_start(QUEUE, QueueFacts(9, 4, late), rule(consume_from)) == 4


@pytest.mark.parametrize(
    ("consume_from", "late", "start"),
    [
        (ConsumeFrom.LAST, False, 9),
        (ConsumeFrom.LAST, True, SearchFrom(STARTED_MS - LATE_QUEUE_MARGIN_MS)),
        (ConsumeFrom.FIRST, False, FromMinimum.MINIMUM),
        (ConsumeFrom.TIMESTAMP, False, SearchFrom(77)),
    ],
)
def test_without_one_the_group_s_wish_holds(consume_from: ConsumeFrom, late: bool, start: object) -> None:
    assert choose_start(QUEUE, QueueFacts(9, None, late), rule(consume_from)) == start


@pytest.mark.parametrize("consume_from", list(ConsumeFrom))
def test_retry_topics_are_read_from_their_beginning(consume_from: ConsumeFrom) -> None:
    assert choose_start(RETRY, QueueFacts(9, None, True), rule(consume_from)) == 0
