"""A delayed message to a topic that is not there yet, in a running broker with a published rule."""

from pathlib import Path

import pytest

from ringmq.ipc.admission import QueueFrom, Rule, RuleKind, RulePair, ValueFrom, When, publish_rules
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message import decode_messages
from tests.raw_client import RawClient
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
SCHEDULE, LEVELS = "SCHEDULE_TOPIC_XXXX", 18
DELAYED = {"KEYS": "k", "DELAY": "3"}


def test_the_first_delayed_message_to_a_new_topic_is_redirected(tmp_path: Path) -> None:
    with (
        RunningBroker(tmp_path / "store", {"mappedFileSizeCommitLog": 4 << 20}) as broker,
        RawClient(broker.address) as client,
    ):
        assert client.send("Fresh", b"early", pairs=DELAYED).code == ResponseCode.MESSAGE_ILLEGAL
        plane = Plane.open(plane_name(broker.store))
        topic_id = plane.topic_find(SCHEDULE)
        assert topic_id is not None
        pairs = (RulePair(b"REAL_TOPIC", ValueFrom.TOPIC), RulePair(b"DELAY", ValueFrom.LEVEL))
        rule = Rule(
            RuleKind.REDIRECT,
            b"DELAY",
            When.POSITIVE,
            topic_id=topic_id,
            queue_from=QueueFrom.LEVEL,
            queue_id=LEVELS,
            pairs=pairs,
        )
        publish_rules(plane.struct, [rule])
        assert client.send("Newer", b"later", pairs=DELAYED).code == ResponseCode.SUCCESS
        assert plane.topic_find("Newer") is not None
        wait_until(
            lambda: client.pull(SCHEDULE, queue_id=2).code == ResponseCode.SUCCESS, "a message in the schedule topic"
        )
        [message] = decode_messages(client.pull(SCHEDULE, queue_id=2).body)
        assert message.body == b"later"
        assert broker.stop() == 0
