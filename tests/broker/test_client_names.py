"""Half of each shared table is the administrator's: names of clients stop there, also over a restart."""

import json
from pathlib import Path

import pytest

from ringmq.broker.control_wiring import saved_by
from ringmq.broker.requests.request import Run
from ringmq.broker.tables.client_names import FILE
from ringmq.broker.tables.persistence import Persistence
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.json_body import write_body
from ringmq.store.config_files import ConfigFileError
from tests.broker.fakes import FakePlane, Harness, make_harness


def send(harness: Harness, topic: str, queues: int = 1) -> str:
    """Send to a topic that is not there: "" when it is made."""
    ext = {"a": "P", "b": topic, "c": "TBW102", "d": str(queues), "e": "0", "f": "0", "g": "1", "h": "0"}
    answer = harness.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x")
    return "" if isinstance(answer, Run) else str(answer.remark)


def make_group(harness: Harness, group: str) -> int:
    body = write_body(SubscriptionGroupConfig(group).to_json())
    return int(harness.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code)


def test_topics_of_clients_fill_half_and_the_rest_is_the_administrators() -> None:
    harness = make_harness(plane=FakePlane(topics_max=60))
    assert [send(harness, f"T{number}") for number in range(30)] == [""] * 30
    assert send(harness, "T30") == (
        "topic T30 is not created: clients have created 30 of at most 30 topics, "
        "half of ringmqTopicsMax; an administrator can create it"
    )
    assert send(harness, "T7") == "", "what is there goes on"
    harness.make_topic("T30")
    harness.make_topic("T7", queues=2)
    assert send(harness, "T31") == "", "T7 has become the administrator's"
    assert send(harness, "T32") != ""
    harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T31"})
    assert send(harness, "T32") != "", "a deleted topic keeps its place until the next start"


def test_queues_of_clients_topics_fill_half() -> None:
    harness = make_harness(plane=FakePlane(queues_max=4000))
    harness.make_topic("Own", queues=500)
    assert [send(harness, f"T{number}", queues=8) for number in range(250)] == [""] * 250
    assert "2000 of at most 2000 queues, half of ringmqQueuesMax" in send(harness, "T250", queues=8)
    assert "queues" in send(harness, "T251", queues=1)


def test_groups_of_clients_fill_half_with_their_retry_topics() -> None:
    harness = make_harness(plane=FakePlane(groups_max=40, topics_max=100))
    assert {harness.join(f"G{number}", {}).code for number in range(20)} == {0}
    answer = harness.join("G20", {})
    assert (answer.code, "20 of at most 20 groups, half of ringmqGroupsMax" in answer.remark) == (1, True)
    assert harness.join("G3", {}).code == 0
    assert make_group(harness, "G20") == 0
    assert harness.join("G20", {}).code == 0
    assert harness.broker.client_names.topics_used == 20, (
        "the retry topic of an administrator's group is the administrator's"
    )
    assert make_group(harness, "G3") == 0
    assert harness.join("G21", {}).code == 0


def restarted(harness: Harness, root: Path) -> Harness:
    """The same names after a start."""
    fresh = make_harness(plane=FakePlane(topics_max=60, groups_max=60))
    for config in harness.broker.topics:
        fresh.broker.topics.put(config, fresh.now_ms)
    for group in harness.broker.groups:
        fresh.broker.groups.put(group, fresh.now_ms)
    Persistence(root, saved_by(fresh.broker)).load_client_names()
    return fresh


def test_a_start_knows_whose_names_are(tmp_path: Path) -> None:
    harness = make_harness(plane=FakePlane(topics_max=60, groups_max=60))
    for number in range(20):
        send(harness, f"T{number}")
        harness.join(f"G{number}", {})
    harness.make_topic("Own")
    harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T0"})
    harness.broker.deletions.done("T0")
    names = harness.broker.client_names
    assert (names.topics_used, names.groups_used) == (30, 15), "five topics and five groups found no room"
    Persistence(tmp_path, saved_by(harness.broker)).save_offsets()
    assert not names.dirty
    again = restarted(harness, tmp_path)
    assert (again.broker.client_names.topics_used, again.broker.client_names.groups_used) == (29, 15)
    assert send(again, "T40") == ""
    assert send(again, "T41") != ""
    again.make_topic("T41")
    old = restarted(harness, tmp_path / "without the file")
    assert old.broker.client_names.topics_used == 0, "names of older stores are the administrator's"


@pytest.mark.parametrize("text", ["{", "[]", '{"topics":7}'])
def test_a_file_that_is_none_of_ours_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / FILE).write_text(text)
    with pytest.raises(ConfigFileError, match=FILE):
        Persistence(tmp_path, saved_by(make_harness().broker)).load_client_names()


def test_nothing_is_written_when_nothing_was_made(tmp_path: Path) -> None:
    harness = make_harness()
    harness.make_topic("Own")
    persistence = Persistence(tmp_path, saved_by(harness.broker))
    persistence.save_offsets()
    assert not (tmp_path / "config" / FILE).exists()
    send(harness, "Theirs")
    persistence.save_offsets()
    assert json.loads((tmp_path / "config" / FILE).read_text()) == {"groups": [], "topics": ["Theirs"]}
