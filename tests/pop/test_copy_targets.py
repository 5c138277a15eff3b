"""The decision about the messages of a window: where they lie, and where their copies go."""

from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.pop.copy_targets import (
    INTERVALS_S,
    Copy,
    CopyTargets,
    Fail,
    Gone,
    Key,
    Make,
    interval_ms,
    origin_topic,
    retry_topic,
)
from ringmq.services.topics import NO_LIMIT, GroupRetry

SLOTS = {("T", 0): 7, ("%RETRY%G_T", 0): 8, ("%RETRY%G+T", 0): 9, ("%DLQ%G", 0): 10}


class FakeTopics:
    """Topics of one queue each. `perm`: of topics of retries."""

    def __init__(self, *names: str, group: GroupRetry | None = None, perm: int = 6) -> None:
        self.names, self.group, self.perm = names, group, perm

    def find(self, name: str) -> Any:
        return SimpleNamespace(perm=self.perm) if name in self.names else None

    def queue(self, name: str, queue_id: int) -> tuple[int, int, int] | None:
        return (1, SLOTS[name, queue_id], queue_id) if name in self.names else None

    def group_retry(self, group: str) -> GroupRetry | None:
        return self.group if group == "G" else None


GROUP = GroupRetry(1, 16)
V1, V2, DEAD = "%RETRY%G_T", "%RETRY%G+T", "%DLQ%G"
NAME = Key("G", "T", 0)


@pytest.mark.parametrize(
    ("topics", "config", "name", "slot", "aim"),
    [
        (("T", V1), {}, NAME, 7, Copy(7, (1, 8, 0), None, NO_LIMIT)),
        (("T", V2), {"enable_retry_topic_v2": True}, NAME, 7, Copy(7, (1, 9, 0), None, NO_LIMIT)),
        ((V1,), {"enable_retry_topic_v2": True}, Key("G", V1, 0), 8, Copy(8, (1, 8, 0), None, NO_LIMIT)),
        (("T",), {}, NAME, 7, Make("G", V1)),
        (("T", V1), {"pop_dead_letter": True}, NAME, 7, Copy(7, (1, 8, 0), None, 16)),
        (("T", V1, DEAD), {"pop_dead_letter": True}, NAME, 7, Copy(7, (1, 8, 0), (1, 10, 0), 16)),
        ((V1,), {}, NAME, 7, Gone()),
        (("T", V1), {}, NAME, 6, Gone()),
        (("T", V1), {}, Key("other", "T", 0), 7, Gone()),
    ],
)
def test_each_case(topics: tuple[str, ...], config: dict[str, Any], name: Key, slot: int, aim: object) -> None:
    found: Any = FakeTopics(*topics, group=GROUP)
    assert CopyTargets(found, lambda: BrokerConfig(**config)).of(name, slot) == aim


def test_copies_that_cannot_be_stored_have_a_reason() -> None:
    closed: Any = FakeTopics("T", V1, group=GROUP, perm=4)
    assert CopyTargets(closed, BrokerConfig).of(NAME, 7) == Fail("topic %RETRY%G_T has no permission to write")


def test_names() -> None:
    assert retry_topic(NAME, is_v2=False) == V1 and retry_topic(NAME, is_v2=True) == V2
    assert [origin_topic(Key("G", topic, 0)) for topic in ("T", V1, V2)] == ["T"] * 3


def test_intervals_are_those_of_stock() -> None:
    assert [interval_ms(attempts) // 1000 for attempts in range(17)] == list(INTERVALS_S)
    assert interval_ms(255) == 7_200_000
