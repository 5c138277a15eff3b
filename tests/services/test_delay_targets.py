"""Delayed messages whose topic is not there: which are passed over, and which wait for control to make it."""

from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.remoting.config_beans import TopicConfig
from ringmq.services.delay import delivery as shell
from ringmq.services.missing_targets import MissingTarget
from ringmq.services.topic_creator import Then
from ringmq.store.record_copy import Cause

DUE, NUMBER = 5, 2
"""Records of a batch, and the one that has no target."""


class AimingDelivery(shell.Delivery):
    """A delivery with one missing target. `is_there`: the topic is there when the delivery looks at it again."""

    def __init__(self, target: MissingTarget, *, is_there: bool) -> None:
        self._republisher: Any = SimpleNamespace(aim_each=lambda due, excluded: [target])
        self._plane: Any = SimpleNamespace(topic_find=lambda name: 7 if is_there else None)
        self._topics: Any = SimpleNamespace(create=self._create)
        self._half_id, self._creating, self._refused = None, set(), set()
        self.asked: list[str] = []
        self.lines: list[str] = []
        self._log_line: Any = self.lines.append

    def _create(self, topics: list[TopicConfig], now_ms: int, then: Then) -> None:
        self.asked += [topic.topic_name for topic in topics]


@pytest.mark.parametrize(
    ("cause", "topic", "is_there", "may_go", "asks"),
    [
        pytest.param(Cause.NO_TOPIC, "T", False, DUE, False, id="deleted"),
        pytest.param(Cause.NO_TOPIC, "%RETRY%g", False, NUMBER, True, id="a retry topic is made"),
        pytest.param(Cause.NO_TOPIC, "%DLQ%g", False, NUMBER, True, id="a topic of dead letters is made"),
        pytest.param(Cause.NO_TOPIC, "%RETRY%g", True, NUMBER, False, id="control has made it meanwhile"),
        pytest.param(Cause.NO_QUEUE, "%RETRY%g", True, DUE, False, id="the topic has no such queue"),
        pytest.param(Cause.NO_PAIR, "%RETRY%g", False, DUE, False, id="they name no queue"),
    ],
)
def test_a_record_waits_for_a_topic_that_control_makes(
    cause: Cause, topic: str, is_there: bool, may_go: int, asks: bool
) -> None:
    delivery = AimingDelivery(MissingTarget(NUMBER, cause, topic), is_there=is_there)
    assert delivery._with_targets(DUE, 1) == may_go
    assert delivery.asked == ([topic] if asks else [])
    assert bool(delivery.lines) is (may_go == DUE), "who passes over records says so"
