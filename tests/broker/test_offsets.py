"""Consumer offsets, bounds and times, resets, and consumerOffset.json."""

from typing import Any

import pytest

from ringmq.broker.requests.turns import finish
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.publication import PlaneTables
from ringmq.fastjson.reader import read_config
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.remoting import names
from ringmq.remoting.admin_bodies import decode_queue_offsets
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.message_queue import MessageQueue
from tests.broker.fakes import START_MS, Harness, make_harness


def query(harness: Harness, queue: int = 0, **ext: str) -> Any:
    ext = {"consumerGroup": "G", "topic": "T", "queueId": str(queue), **ext}
    return harness.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)


def commit(harness: Harness, offset: int, queue: int = 0, **ext: str) -> Any:
    ext = {"consumerGroup": "G", "topic": "T", "queueId": str(queue), "commitOffset": str(offset), **ext}
    return harness.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)


@pytest.fixture
def harness() -> Harness:
    harness = make_harness()
    harness.make_topic("T")
    harness.broker.groups.put(SubscriptionGroupConfig("G"), START_MS)
    return harness


def test_an_offset_that_a_slave_hands_over_does_not_set_the_group_back(harness: Harness) -> None:
    for offset, expected in ((5, 5), (3, 5), (8, 8)):
        assert commit(harness, offset, ringmqOnlyForward="true").code == 0
        assert query(harness).ext_fields["offset"] == str(expected)
    assert commit(harness, 3).code == 0 and query(harness).ext_fields["offset"] == "3", "a consumer may go back"


def test_a_committed_offset_comes_back_smaller_ones_too(harness: Harness) -> None:
    for offset in (7, 3):
        assert commit(harness, offset).code == 0
        assert query(harness).ext_fields == {"offset": str(offset)}


def test_an_empty_queue_that_begins_at_0_is_answered_0(harness: Harness) -> None:
    answer = query(harness)
    assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})
    assert query(harness, setZeroIfNotFound="true").code == 0
    assert query(harness, setZeroIfNotFound="false").code == 22


def test_a_queue_without_its_beginning_has_no_first_offset(harness: Harness) -> None:
    harness.plane.set_bounds("T", 0, 5, 9)
    assert query(harness).code == 22
    assert query(harness, queue=99).code == 22
    assert query(harness, topic="Unknown").code == 22


def test_an_old_first_message_is_not_in_memory_any_more(harness: Harness) -> None:
    harness.plane.set_bounds("T", 0, 0, 9)
    assert query(harness).code == 0
    harness.plane.confirm = (1 << 62) + 1000
    assert query(harness).code == 22


def test_offsets_of_queues_that_do_not_exist_are_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is kept, and saved, for ever; a client can name two thousand million."""
    monkeypatch.setattr("ringmq.broker.tables.offsets.STRAYS_MAX", 10)
    codes = [commit(harness, 1, queue=number).code for number in range(100, 120)]
    assert codes[:10] == [0] * 10
    assert 0 not in codes[10:]
    assert commit(harness, 2, queue=105).code == 0, "a known one is still changed"
    assert commit(harness, 1, queue=0).code == 0


def test_a_file_may_have_any_number_of_offsets_of_queues_that_are_gone(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of another broker is taken over however many topics it has lost; requests add none to so many."""
    monkeypatch.setattr("ringmq.broker.tables.offsets.STRAYS_MAX", 10)
    harness.broker.offsets.load(
        {"offsetTable": {"Gone@G": {str(n): n for n in range(8)}, "T@G": {"5": 1, "6": 2, "7": 3}}},
        START_MS,
        into_plane=True,
    )
    assert len(harness.broker.offsets.table()["Gone", "G"]) == 8
    assert commit(harness, 1, queue=100).code != 0
    harness.make_topic("T", queues=6)
    assert harness.broker.offsets.table()["T", "G"] == {5: 1, 6: 2, 7: 3}, "some of them are of queues now, others stay"
    assert commit(harness, 1, queue=100).code != 0
    harness.make_topic("T", queues=7)
    assert commit(harness, 1, queue=100).code == 0
    assert commit(harness, 1, queue=101).code != 0
    harness.broker.offsets.forget_topics(["Gone"])
    assert [commit(harness, 1, queue=number).code for number in range(101, 109)] == [0] * 8
    assert commit(harness, 1, queue=109).code != 0


def retry_topic(harness: Harness) -> Any:
    return harness.broker.topics.get("%RETRY%G")


def test_a_group_of_commits_alone_has_the_retry_topic_by_which_consoles_find_it(harness: Harness) -> None:
    harness.broker.groups.put(SubscriptionGroupConfig("G", retry_queue_nums=3), START_MS)
    assert commit(harness, 5).code == 0
    assert retry_topic(harness).queue_count == 3
    assert harness.plane.topic_find("%RETRY%G") is not None and harness.broker.topics.dirty


def test_a_group_that_an_operator_sets_to_an_offset_has_its_retry_topic(harness: Harness) -> None:
    assert reset(harness).code == 0
    assert retry_topic(harness) is not None


@pytest.mark.parametrize("why", ["no retries", "slave", "memory", "deletion", "full", "long name"])
def test_a_commit_counts_without_a_retry_topic(harness: Harness, why: str) -> None:
    group = "G"
    match why:
        case "no retries":
            harness.broker.groups.put(SubscriptionGroupConfig("G", retry_queue_nums=0), START_MS)
        case "slave":
            harness.plane.watermarks.tenure = Tenure(TenureState.SLAVE).word
        case "memory":
            harness.plane.header.memory.level = 1
        case "deletion":
            harness.broker.deletions.add("%RETRY%G", START_MS)
        case "full":
            harness.plane.header.tables.queue_capacity = len(harness.plane.queues)
        case "long name":
            group = "g" * 250
            harness.broker.groups.put(SubscriptionGroupConfig(group), START_MS)
    assert commit(harness, 5, consumerGroup=group).code == 0
    assert harness.broker.offsets.get(group, "T", 0) == 5
    assert f"%RETRY%{group}" not in harness.broker.topics


def test_commits_are_checked(harness: Harness) -> None:
    assert commit(harness, 1, consumerGroup="Unknown").code == 26
    assert commit(harness, 1, topic="Unknown").code == 17
    assert harness.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "G", "topic": "T"}).code == 29
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    assert harness.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 29
    assert commit(harness, 1, commitOffset="x").code == 1


def test_offsets_of_queues_that_do_not_exist_are_kept_and_adopted(harness: Harness) -> None:
    assert commit(harness, 5, queue=6).code == 0
    assert query(harness, queue=6).ext_fields["offset"] == "5"
    assert harness.plane.offset_table == {}
    harness.make_topic("T", queues=8)
    assert query(harness, queue=6).ext_fields["offset"] == "5"
    assert list(harness.plane.offset_table.values()) == [5]


def test_pull_commits_are_drained_and_found_by_name(harness: Harness) -> None:
    group, slot = harness.plane.group_find("G"), harness.broker.tables.slot("T", 2)
    assert group is not None
    assert slot is not None
    harness.plane.commits.append((group, slot, 11))
    assert harness.broker.offsets.drain(START_MS) == 1
    assert harness.broker.offsets.dirty
    assert harness.broker.offsets.table() == {("T", "G"): {2: 11}}
    assert harness.broker.offsets.topics_of("G") == ["T"]
    assert harness.broker.offsets.groups_on("T") == ["G"]


def test_no_client_moves_the_progress_with_transactions(harness: Harness) -> None:
    """A start passes over half messages below it: their acknowledged commits would be lost."""
    group = names.TRANSACTION_GROUP
    ask = {"consumerGroup": group, "topic": names.HALF_TOPIC}
    for known in (0, 7):
        if known:
            harness.broker.offsets.put(group, names.HALF_TOPIC, 0, known, START_MS)
        assert commit(harness, 99, **ask).code == 16
        fields = {"topic": names.HALF_TOPIC, "group": group, "timestamp": "-1", "isForce": "true"}
        assert harness.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields).code == 16
        slot = harness.broker.tables.slot(names.HALF_TOPIC, 0)
        assert slot is not None
        harness.plane.commits.append((harness.broker.tables.group_id(group), slot, 99))
        assert query(harness, **ask).ext_fields == {"offset": str(known)}


def test_an_earlier_pull_commit_never_comes_behind_a_later_commit(harness: Harness) -> None:
    """A member that leaves commits by 15 last; the pulls before it may still stand in their ring."""
    group, slot = harness.plane.group_find("G"), harness.broker.tables.slot("T", 0)
    assert group is not None
    assert slot is not None
    harness.plane.commits.append((group, slot, 12))
    assert query(harness).ext_fields["offset"] == "12"
    harness.plane.commits.append((group, slot, 12))
    commit(harness, 25)
    harness.broker.offsets.drain(START_MS)
    assert query(harness).ext_fields["offset"] == "25"


def test_the_file_is_stocks_byte_for_byte(harness: Harness) -> None:
    commit(harness, 10, 0)
    commit(harness, 20, 1)
    text = finish(harness.broker.offsets.file_text())
    head = '{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":NOW\n\t},\n'
    rest = '\t"groupTopicMap":{\n\t\t"G":["T"]\n\t},\n\t"offsetTable":{\n\t\t"T@G":{0:10,1:20\n\t\t}\n\t}\n}'
    assert text == head.replace("NOW", str(START_MS)) + rest


def test_a_loaded_file_loses_nothing(harness: Harness) -> None:
    value = {
        "dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": 1},
        "offsetTable": {"T@G": {"0": 4}, "Gone@G": {"1": 9}, "T@Unknown": {"3": 2}, "odd": {"0": 1}},
    }
    table = OffsetTable(harness.plane, PlaneTables(harness.plane))
    table.load(value, START_MS, into_plane=True)
    assert table.table() == {("T", "G"): {0: 4}, ("Gone", "G"): {1: 9}, ("T", "Unknown"): {3: 2}}
    assert table.data_version.counter == 3
    assert not table.dirty


def test_after_a_restart_of_control_the_plane_knows_better(harness: Harness) -> None:
    commit(harness, 50)
    table = OffsetTable(harness.plane, PlaneTables(harness.plane))
    table.load({"offsetTable": {"T@G": {"0": 4}, "Gone@G": {"1": 9}}}, START_MS, into_plane=False)
    assert table.table() == {("T", "G"): {0: 50}, ("Gone", "G"): {1: 9}}
    assert table.dirty, "nobody else saves what the predecessor had taken"


def test_a_deleted_topic_takes_its_offsets_along(harness: Harness) -> None:
    commit(harness, 50)
    harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert harness.broker.offsets.table() == {}
    assert harness.broker.offsets.dirty


def test_bounds_and_times(harness: Harness) -> None:
    harness.plane.set_bounds("T", 1, 3, 8)
    harness.store.times["T", 1] = [0, 0, 0, 10, 20, 20, 30, 40]
    ext = {"topic": "T", "queueId": "1"}
    assert harness.ask(RequestCode.GET_MAX_OFFSET, ext).ext_fields == {"offset": "8"}
    assert harness.ask(RequestCode.GET_MIN_OFFSET, ext).ext_fields == {"offset": "3"}
    assert harness.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, ext).ext_fields == {"timestamp": "10"}
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert harness.ask(search, ext | {"timestamp": "20"}).ext_fields == {"offset": "4"}
    assert harness.ask(search, ext | {"timestamp": "20", "boundaryType": "upper"}).ext_fields == {"offset": "5"}
    unknown = {"topic": "Nope", "queueId": "1"}
    assert harness.ask(RequestCode.GET_MAX_OFFSET, unknown).ext_fields == {"offset": "0"}
    assert harness.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, unknown).ext_fields == {"timestamp": "-1"}
    assert harness.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T"}).code == 1


def reset(harness: Harness, **ext: str) -> Any:
    base = {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true", "queueId": "-1", "offset": "-1"}
    return harness.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, base | ext)


def test_a_reset_is_kept_until_the_pull(harness: Harness) -> None:
    harness.plane.set_bounds("T", 0, 0, 9)
    answer = reset(harness, timestamp="-1")
    expected = {MessageQueue("T", "wire-a", queue): 9 if queue == 0 else 0 for queue in range(4)}
    assert decode_queue_offsets(answer.body) == expected
    assert query(harness).ext_fields == {"offset": "9"}
    assert commit(harness, 3).remark == "Offset has been previously reset"
    assert query(harness).ext_fields == {"offset": "9"}
    assert harness.plane.group_flags("G") & 0x20


def test_resets_are_checked(harness: Harness) -> None:
    assert reset(harness, topic="Unknown").code == 17
    assert reset(harness, group="Unknown").code == 26
    harness.plane.set_bounds("T", 1, 2, 9)
    assert reset(harness, queueId="1", offset="11").code == 1
    assert reset(harness, queueId="1", offset="1").code == 1
    assert reset(harness, queueId="1", offset="10").code == 0
    for ext in ({}, {"offset": "0"}):
        answer = reset(harness, queueId="4", **ext)
        assert (answer.code, "queueId[4] is illegal" in answer.remark) == (29, True)
    assert list(harness.broker.offsets.table()["T", "G"]) == [1], "no stray offset either"


def test_a_reset_that_no_pull_has_taken_outlives_a_restart(harness: Harness) -> None:
    """An operator resets a group that is offline; whatever is started again before the group comes back."""
    harness.plane.set_bounds("T", 0, 0, 9)
    commit(harness, 9)
    assert reset(harness, queueId="0", offset="2").code == 0
    successor = OffsetTable(harness.plane, PlaneTables(harness.plane))
    assert successor.get("G", "T", 0) == 2
    assert harness.broker.offsets.dirty
    assert read_config(finish(harness.broker.offsets.file_text()))["offsetTable"] == {"T@G": {0: 2}}


@pytest.mark.parametrize("request_of", ["topic", "group"])
def test_a_reset_goes_with_its_topic_or_group(harness: Harness, request_of: str) -> None:
    harness.plane.set_bounds("T", 0, 0, 9)
    reset(harness, queueId="0", offset="5")
    if request_of == "topic":
        harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    else:
        harness.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": "true"})
    assert not harness.broker.offsets.has_reset("G", "T", 0), "a topic of this name would begin in its middle"
    assert harness.broker.offsets.resets_of("G") == {}
    assert not harness.plane.group_flags("G") & 0x20, "its pulls of other topics are hot again"


def is_cold(harness: Harness) -> bool:
    return bool(harness.plane.group_flags("G") & 0x20)


def test_a_reset_of_a_queue_that_is_not_read_any_more_keeps_no_group_cold(harness: Harness) -> None:
    """As long as it waited, every pull of the group went through control."""
    assert reset(harness, queueId="3").code == 0
    assert is_cold(harness)
    harness.make_topic("T", queues=2)
    assert not is_cold(harness)
    harness.make_topic("T", queues=4)
    assert is_cold(harness), "it can be pulled again"


def test_a_reset_of_a_topic_that_its_group_does_not_read_keeps_no_group_cold(harness: Harness) -> None:
    harness.make_topic("Other")
    assert reset(harness).code == 0
    assert is_cold(harness), "nobody is online: who knows what they will read"
    harness.join("G", {"Other": "*"})
    assert not is_cold(harness)
    harness.join("G", {"Other": "*", "T": "*"}, version=2)
    assert is_cold(harness)


def test_a_slave_resets_nothing() -> None:
    harness = make_harness({"brokerRole": "SLAVE", "brokerId": "1"})
    answer = reset(harness)
    assert (answer.code, answer.remark) == (1, "Can not reset offset in slave broker")
