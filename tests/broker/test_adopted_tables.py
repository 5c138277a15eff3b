"""What a master takes into its config files from the slave whose log it adopts."""

from pathlib import Path

import pytest

from ringmq.broker.control_wiring import saved_by
from ringmq.broker.replication import adopted_tables
from ringmq.broker.replication.adopted_tables import take_tables
from ringmq.broker.tables.persistence import Persistence
from ringmq.remoting import names
from ringmq.remoting.assignment_bodies import RequestMode
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.store.config_files import load_config
from ringmq.store.pending_deletions import write_deletions
from tests.broker.fakes import START_MS, Harness, make_harness

ADDRESS = "10.0.0.2:10911"


def made(root: Path, topic: str, group: str, offset: int, queues: int) -> Harness:
    """A broker with a topic, a group and its offset, saved in `root`."""
    harness = make_harness()
    harness.make_topic("Both", queues)
    harness.make_topic(topic, queues)
    for name in ("Both", group):
        harness.broker.groups.put(SubscriptionGroupConfig(name), START_MS)
        fields = {"consumerGroup": name, "topic": "Both", "queueId": "0", "commitOffset": str(offset)}
        assert harness.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    harness.broker.modes.put(RequestMode("Both", group, "POP", queues))
    persistence = Persistence(root, saved_by(harness.broker))
    persistence.save_tables()
    persistence.save_offsets()
    return harness


@pytest.fixture
def slave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    harness = made(tmp_path / "slave", "Theirs", "G_theirs", 7, 2)

    class Line:
        def __init__(self, address: str) -> None:
            assert address == ADDRESS

        def ask(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
            answer: RemotingCommand = harness.ask(command.code, dict(command.ext_fields or {}))
            return answer

        def close(self) -> None:
            pass

    monkeypatch.setattr(adopted_tables, "BrokerClient", Line)
    return harness


def test_an_empty_master_gets_everything(slave: Harness, tmp_path: Path) -> None:
    told = take_tables(tmp_path, ADDRESS)
    assert [line.split()[0] for line in told] == ["topics", "offsets", "groups", "request"]
    assert told[3] == f"request modes taken over from {ADDRESS}: Both@G_theirs"
    assert "Theirs" in told[0] and ADDRESS in told[0]
    again = make_harness().broker
    again.topics.load(load_config(tmp_path, "topics.json"), again.config, START_MS)
    again.groups.load(load_config(tmp_path, "subscriptionGroup.json"), START_MS)
    again.offsets.load(load_config(tmp_path, "consumerOffset.json"), START_MS, into_plane=True)
    assert again.topics.get("Theirs") == slave.broker.topics.get("Theirs")
    assert "G_theirs" in again.groups
    assert again.offsets.get("G_theirs", "Both", 0) == 7
    assert take_tables(tmp_path, ADDRESS) == [], "nothing is new the second time"


def test_what_clients_have_made_meanwhile_does_not_hide_what_the_slave_has(slave: Harness, tmp_path: Path) -> None:
    system = names.SELF_TEST_TOPIC
    own = made(tmp_path, "Own", "G_own", 0, 4)
    version = own.broker.topics.data_version.counter
    slave.broker.groups.put(SubscriptionGroupConfig("Both", retry_max_times=3), START_MS)
    slave.broker.topics.put(TopicConfig(system, 9, 9), START_MS)
    told = take_tables(tmp_path, ADDRESS)
    topics = load_config(tmp_path, "topics.json")
    assert {"Own", "Theirs", "Both"} <= topics["topicConfigTable"].keys()
    assert topics["topicConfigTable"]["Both"]["readQueueNums"] == 2
    assert topics["topicConfigTable"][system]["readQueueNums"] != 9, "system topics are as this broker is set up"
    assert topics["dataVersion"]["counter"] == version + 1, "name servers are to look at it"
    assert load_config(tmp_path, "subscriptionGroup.json")["subscriptionGroupTable"]["Both"]["retryMaxTimes"] == 3
    table = load_config(tmp_path, "consumerOffset.json")["offsetTable"]
    assert {name: list(queues.values()) for name, queues in table.items()} == {
        "Both@Both": [7], "Both@G_own": [0], "Both@G_theirs": [7],
    }  # fmt: skip
    modes = load_config(tmp_path, "messageRequestMode.json")
    assert modes.keys() == {"messageRequestModeMap"}, "stock's file has no version"
    assert modes["messageRequestModeMap"]["Both"].keys() == {"G_own", "G_theirs"}
    assert told[0] == f"topics taken over from {ADDRESS}: %RETRY%G_theirs, Both, Theirs"
    assert take_tables(tmp_path, ADDRESS) == [], "nothing is new the second time"


def test_what_groups_may_not_read_they_may_not_read_afterwards(slave: Harness, tmp_path: Path) -> None:
    slave.broker.groups.set_forbidden("G_theirs", "Both", True, START_MS)
    take_tables(tmp_path, ADDRESS)
    again = make_harness().broker
    again.groups.load(load_config(tmp_path, "subscriptionGroup.json"), START_MS)
    assert again.groups.is_forbidden("G_theirs", "Both")


def test_a_deletion_that_was_answered_is_not_undone(slave: Harness, tmp_path: Path) -> None:
    write_deletions(tmp_path, ["Both"])
    take_tables(tmp_path, ADDRESS)
    assert "Both" not in load_config(tmp_path, "topics.json")["topicConfigTable"]
    assert "Theirs" in load_config(tmp_path, "topics.json")["topicConfigTable"]
    assert not load_config(tmp_path, "consumerOffset.json").get("offsetTable")


def test_a_slave_that_does_not_say_all_is_an_error(
    slave: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = slave.ask

    def refuse(code: int, ext: dict[str, str]) -> RemotingCommand:
        if code != RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            answer: RemotingCommand = real(code, ext)
            return answer
        return RemotingCommand.response_to(RemotingCommand.request(code), ResponseCode.SYSTEM_ERROR, "no")

    monkeypatch.setattr(slave, "ask", refuse)
    with pytest.raises(OSError, match="answers request 201 with 1: no"):
        take_tables(tmp_path, ADDRESS)
    assert not (tmp_path / "config").exists()


def test_no_address_at_all(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="host:port"):
        take_tables(tmp_path, "")
