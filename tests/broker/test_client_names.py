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
from tests.broker.fakes import FakePlane, Lab, make_lab


def send(lab: Lab, topic: str, queues: int = 1) -> str:
    """Send to a topic that is not there: "" when it is made."""
    ext = {"a": "P", "b": topic, "c": "TBW102", "d": str(queues), "e": "0", "f": "0", "g": "1", "h": "0"}
    answer = lab.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x")
    return "" if isinstance(answer, Run) else str(answer.remark)


def make_group(lab: Lab, group: str) -> int:
    body = write_body(SubscriptionGroupConfig(group).to_json())
    return int(lab.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code)


def test_topics_of_clients_fill_half_and_the_rest_is_the_administrators() -> None:
    lab = make_lab(plane=FakePlane(topics_max=60))
    assert [send(lab, f"T{number}") for number in range(30)] == [""] * 30
    assert send(lab, "T30") == (
        "topic T30 is not created: clients have created 30 of at most 30 topics, "
        "half of ringmqTopicsMax; an administrator can create it"
    )
    assert send(lab, "T7") == "", "what is there goes on"
    lab.make_topic("T30")
    lab.make_topic("T7", queues=2)
    assert send(lab, "T31") == "", "T7 has become the administrator's"
    assert send(lab, "T32") != ""
    lab.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T31"})
    assert send(lab, "T32") != "", "a deleted topic keeps its place until the next start"


def test_queues_of_clients_topics_fill_half() -> None:
    lab = make_lab(plane=FakePlane(queues_max=4000))
    lab.make_topic("Own", queues=500)
    assert [send(lab, f"T{number}", queues=8) for number in range(250)] == [""] * 250
    assert "2000 of at most 2000 queues, half of ringmqQueuesMax" in send(lab, "T250", queues=8)
    assert "queues" in send(lab, "T251", queues=1)


def test_groups_of_clients_fill_half_with_their_retry_topics() -> None:
    lab = make_lab(plane=FakePlane(groups_max=40, topics_max=100))
    assert {lab.join(f"G{number}", {}).code for number in range(20)} == {0}
    answer = lab.join("G20", {})
    assert (answer.code, "20 of at most 20 groups, half of ringmqGroupsMax" in answer.remark) == (1, True)
    assert lab.join("G3", {}).code == 0
    assert make_group(lab, "G20") == 0
    assert lab.join("G20", {}).code == 0
    assert lab.broker.client_names.topics_used == 20, (
        "the retry topic of an administrator's group is the administrator's"
    )
    assert make_group(lab, "G3") == 0
    assert lab.join("G21", {}).code == 0


def restarted(lab: Lab, root: Path) -> Lab:
    """The same names after a start."""
    fresh = make_lab(plane=FakePlane(topics_max=60, groups_max=60))
    for config in lab.broker.topics:
        fresh.broker.topics.put(config, fresh.now_ms)
    for group in lab.broker.groups:
        fresh.broker.groups.put(group, fresh.now_ms)
    Persistence(root, saved_by(fresh.broker)).load_client_names()
    return fresh


def test_a_start_knows_whose_names_are(tmp_path: Path) -> None:
    lab = make_lab(plane=FakePlane(topics_max=60, groups_max=60))
    for number in range(20):
        send(lab, f"T{number}")
        lab.join(f"G{number}", {})
    lab.make_topic("Own")
    lab.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T0"})
    lab.broker.deletions.done("T0")
    names = lab.broker.client_names
    assert (names.topics_used, names.groups_used) == (30, 20), "ten retry topics found no room"
    Persistence(tmp_path, saved_by(lab.broker)).save_offsets()
    assert not names.dirty
    again = restarted(lab, tmp_path)
    assert (again.broker.client_names.topics_used, again.broker.client_names.groups_used) == (29, 20)
    assert send(again, "T40") == ""
    assert send(again, "T41") != ""
    again.make_topic("T41")
    old = restarted(lab, tmp_path / "without the file")
    assert old.broker.client_names.topics_used == 0, "names of older stores are the administrator's"


@pytest.mark.parametrize("text", ["{", "[]", '{"topics":7}'])
def test_a_file_that_is_none_of_ours_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / FILE).write_text(text)
    with pytest.raises(ConfigFileError, match=FILE):
        Persistence(tmp_path, saved_by(make_lab().broker)).load_client_names()


def test_nothing_is_written_when_nothing_was_made(tmp_path: Path) -> None:
    lab = make_lab()
    lab.make_topic("Own")
    persistence = Persistence(tmp_path, saved_by(lab.broker))
    persistence.save_offsets()
    assert not (tmp_path / "config" / FILE).exists()
    send(lab, "Theirs")
    persistence.save_offsets()
    assert json.loads((tmp_path / "config" / FILE).read_text()) == {"groups": [], "topics": ["Theirs"]}
