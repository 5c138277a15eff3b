"""What a start publishes before any worker runs: it is what control publishes, because other workers serve earlier."""

import json
from pathlib import Path

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.first_tenure import first_tenure
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.tables.admission import AdmissionRules
from ringmq.broker.tables.loading import load_into
from ringmq.broker.tables.protocols import TOPIC_PULL_COLD, TOPIC_SEND_COLD
from ringmq.ipc.admission import Rule, RuleKind
from ringmq.store.recovery import RecoveredStore
from tests.broker.fakes import FakePlane

FAR_MS = 1 << 60


def published(folder: Path, **settings: str) -> FakePlane:
    """The plane of a start with one topic."""
    topic = {"topicName": "T", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": topic}}))
    plane = FakePlane()
    config = changed(BrokerConfig(), {"storePathRootDir": str(folder)} | settings)
    plane.watermarks.tenure = first_tenure(config).word
    load_into(plane, config, RecoveredStore("clean"))  # type: ignore[arg-type]
    return plane


def of_control(plane: FakePlane, config: BrokerConfig) -> tuple[Rule, ...]:
    before, plane.rules = plane.rules, ()
    AdmissionRules(plane, LiveConfig(config, plane.watermarks)).publish()  # type: ignore[arg-type]
    made, plane.rules = plane.rules, before
    return made


def test_the_rules_of_sends_are_there(tmp_path: Path) -> None:
    plane = published(tmp_path)
    assert plane.rules == of_control(plane, BrokerConfig())
    assert {rule.kind for rule in plane.rules} == {RuleKind.REDIRECT, RuleKind.TIMER, RuleKind.REFUSE}
    assert published(tmp_path, brokerRole="SLAVE", brokerId="1").rules == ()


@pytest.mark.parametrize(
    ("settings", "cold"),
    [
        ({}, 0),
        ({"brokerPermission": "4"}, TOPIC_SEND_COLD),
        ({"brokerPermission": "2"}, TOPIC_PULL_COLD),
        ({"startAcceptSendRequestTimeStamp": str(FAR_MS)}, TOPIC_SEND_COLD),
    ],
)
def test_the_gates_are_closed(tmp_path: Path, settings: dict[str, str], cold: int) -> None:
    plane = published(tmp_path, **settings)
    topic_id = plane.topic_find("T")
    assert topic_id is not None
    assert plane.topic(topic_id).config >> 40 & (TOPIC_SEND_COLD | TOPIC_PULL_COLD) == cold
