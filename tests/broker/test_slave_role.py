"""A slave's part of control: finding the master, telling ha, taking its tables over, handing offsets back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.control_wiring import saved_by, slave_role_of, slave_tables_of
from ringmq.broker.core import Broker
from ringmq.broker.outbound_calls import Outcome
from ringmq.broker.replication.master_finder import MasterFinder
from ringmq.broker.replication.view import FREE, READY, TRANSFER
from ringmq.broker.tables.persistence import Persistence
from ringmq.ha.control_messages import Master
from ringmq.ipc.audit import Actor, Kind
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting import names
from ringmq.remoting.assignment_bodies import RequestMode
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import DataVersion, SubscriptionGroupConfig, TopicConfig, TopicConfigTable
from ringmq.remoting.json_body import write_body
from ringmq.store.config_files import ConfigFileError, load_config, persist_text
from ringmq.timer.timer_checkpoint import TimerCheckpoint
from tests.broker.fakes import START_MS, Harness, make_harness

MASTER_HA, MASTER = "10.0.0.1:10912", "10.0.0.1:10911"
FOUND = {"haServerAddr": MASTER_HA, "masterAddr": MASTER}


class ScriptedCalls:
    """Calls to the master; the test answers them with another broker's core."""

    def __init__(self) -> None:
        self.made: list[tuple[str, RemotingCommand]] = []
        self.ended: list[Outcome] = []

    def call(self, address: str, command: RemotingCommand, timeout_ms: int, *, if_connected: bool = False) -> None:
        self.made.append((address, command))

    def outcomes(self) -> list[Outcome]:
        ended, self.ended = self.ended, []
        return ended

    def close(self, timeout_s: float) -> None:
        pass


class Pair:
    """A slave's core with its role, beside a master's core that answers it."""

    def __init__(self, root: Path) -> None:
        self.master = make_harness()
        self.slave = make_harness({"brokerRole": "SLAVE", "brokerId": "1"})
        self.calls = ScriptedCalls()
        self.root = root
        self.role = slave_role_of(self.broker, root, self.calls)  # type: ignore[arg-type]
        self.now_ms = START_MS
        self.link_is(TRANSFER)

    def link_is(self, state: int) -> None:
        self.slave.plane.header.replication.link.state = state

    @property
    def broker(self) -> Broker:
        return self.slave.broker

    def registered(self, ext: dict[str, str] | None = None, error: str | None = None) -> None:
        reply = RemotingCommand.response_to(RemotingCommand.request(103), 0, None, FOUND if ext is None else ext)
        self.role.on_registration(Outcome("ns:1", error, None if error else reply, 103))

    def turn(self, generation: int = 1) -> None:
        self.role.turn(self.now_ms, generation)

    def answer_all(self) -> list[int]:
        """Let the master answer until the slave asks no more; the codes but 60, with its 907, and 270006, which have
        other rhythms."""
        codes, previous = [], 0
        self.turn()
        while self.calls.made:
            address, command = self.calls.made.pop(0)
            if command.code != RequestCode.POP_PROGRESS:
                if RequestCode.GET_TIMER_CHECK_POINT not in (command.code, previous):
                    codes.append(command.code)
                previous = command.code
            reply = self.master.ask(command.code, dict(command.ext_fields or {}))
            error = None if reply.code == 0 else f"answered {reply.code}: {reply.remark}"
            self.calls.ended.append(Outcome(address, error, reply, command.code))
            self.turn()
        return codes

    def sync(self) -> list[int]:
        """One whole pass."""
        self.now_ms += 10_000
        return self.answer_all()

    def orders(self) -> list[dict[str, str]]:
        orders, self.slave.plane.ha_commands = self.slave.plane.ha_commands, []
        return [json.loads(order) for order in orders]

    def commit(self, harness: Harness, topic: str, offset: int) -> None:
        fields = {"consumerGroup": "G", "topic": topic, "queueId": "0", "commitOffset": str(offset)}
        assert harness.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    pair = Pair(tmp_path)
    pair.master.make_topic("T")
    pair.master.broker.groups.put(SubscriptionGroupConfig("G"), START_MS)
    return pair


# ---- the master's address ----


def test_the_answer_to_a_registration_says_where_the_master_is() -> None:
    finder = MasterFinder("10.0.0.2:10911")
    assert not finder.on_answer("ns:1", {})
    assert not finder.is_registered
    assert finder.on_answer("ns:1", FOUND)
    assert finder.master == Master(MASTER_HA, MASTER)
    assert not finder.on_answer("ns:1", FOUND), "nothing new"
    assert finder.on_answer("ns:1", {"haServerAddr": "10.0.0.3:10912", "masterAddr": "10.0.0.3:10911"}), (
        "another master"
    )


def test_a_master_that_is_gone_stays_the_address_to_try() -> None:
    finder = MasterFinder("10.0.0.2:10911")
    finder.on_answer("ns:1", FOUND)
    assert not finder.on_answer("ns:1", {})
    assert not finder.is_registered
    assert finder.master == Master(MASTER_HA, MASTER)


def test_one_name_server_that_has_a_master_is_enough() -> None:
    finder = MasterFinder("10.0.0.2:10911")
    finder.on_answer("ns:1", {})
    finder.on_answer("ns:2", FOUND)
    assert finder.is_registered
    finder.lost("ns:2")
    assert not finder.is_registered


def test_a_master_that_a_peer_has_shown_is_tried_until_a_name_server_answers() -> None:
    finder = MasterFinder("10.0.0.2:10911")
    finder.suggest(Master("10.0.0.3:10912", "10.0.0.3:10911"))
    assert finder.master.broker == "10.0.0.3:10911"
    finder.suggest(Master(""))
    finder.suggest(Master("10.0.0.2:10912", "10.0.0.2:10911"))
    assert finder.master.broker == "10.0.0.3:10911", "an unknown one and the broker itself are none"
    finder.on_answer("ns:1", FOUND)
    assert finder.master == Master(MASTER_HA, MASTER)
    fixed = MasterFinder("10.0.0.2:10911", "10.9.9.9:1")
    fixed.suggest(Master("10.0.0.3:10912", "10.0.0.3:10911"))
    assert fixed.master == Master("10.9.9.9:1")


def test_a_master_is_withdrawn_and_ordered_again(pair: Pair) -> None:
    pair.registered()
    pair.turn()
    assert [order["ha"] for order in pair.orders()] == [MASTER_HA]
    pair.role.unfollow()
    for generation in (1, 1):
        pair.turn(generation)
    assert [order["ha"] for order in pair.orders()] == [""]
    pair.turn(2)
    assert pair.orders() == [], "the next ha knows no master"
    pair.role.follow(Master(""))
    pair.turn(2)
    assert [order["ha"] for order in pair.orders()] == [MASTER_HA]


def test_a_master_that_shows_itself_is_tried_at_once(pair: Pair) -> None:
    """It may have refused this slave a moment before it was promoted."""
    pair.registered()
    pair.turn()
    assert [order["ha"] for order in pair.orders()] == [MASTER_HA]
    pair.role.follow(Master(MASTER_HA, MASTER))
    pair.turn()
    pair.turn()
    assert [order["ha"] for order in pair.orders()] == [MASTER_HA]


def test_ha_master_address_wins_for_the_log_alone() -> None:
    finder = MasterFinder("10.0.0.2:10911", "10.9.9.9:1")
    assert finder.master == Master("10.9.9.9:1")
    assert finder.on_answer("ns:1", {"masterAddr": MASTER})
    assert finder.master == Master("10.9.9.9:1", MASTER)
    assert MasterFinder("a:1", "x:1").master == Master(""), "too short counts as none, as in stock"


def test_a_broker_is_not_its_own_master() -> None:
    finder = MasterFinder(MASTER)
    assert not finder.on_answer("ns:1", FOUND)
    assert not finder.is_registered


# ---- what ha and the readers are told ----


def test_ha_is_told_once_and_again_after_a_restart_of_its_worker(pair: Pair) -> None:
    pair.turn()
    assert pair.orders() == []
    pair.registered()
    pair.turn()
    pair.turn()
    assert pair.orders() == [{"order": "master", "ha": MASTER_HA, "broker": MASTER}]
    pair.turn(generation=2)
    assert len(pair.orders()) == 1
    pair.registered({"haServerAddr": "10.0.0.3:10912", "masterAddr": "10.0.0.3:10911"})
    pair.turn(generation=2)
    assert pair.orders() == [{"order": "master", "ha": "10.0.0.3:10912", "broker": "10.0.0.3:10911"}]


def test_readers_know_a_master_as_long_as_a_name_server_has_one(pair: Pair) -> None:
    header = pair.slave.plane.header
    pair.link_is(FREE)
    pair.registered()
    pair.turn()
    assert header.replication.master_known == 1
    pair.registered({})
    pair.turn()
    assert header.replication.master_known == 0
    pair.registered(error="refused")
    pair.link_is(TRANSFER)
    pair.turn()
    assert header.replication.master_known == 1, "no name server answers: the link says that there is one"
    assert not pair.role.is_searching


# ---- tables ----


def test_a_pass_makes_the_tables_the_masters(pair: Pair, log_text: Callable[[], str]) -> None:
    pair.broker.topics.put(TopicConfig("OnlyHere"), START_MS)
    pair.broker.groups.put(SubscriptionGroupConfig("OldGroup"), START_MS)
    pair.master.broker.groups.set_forbidden("G", "T", True, START_MS)
    pair.commit(pair.master, "T", 11)
    pair.master.broker.modes.put(RequestMode("T", "G", "POP", 3))
    pair.broker.modes.put(RequestMode("T", "OldGroup", "POP", 1))
    for log_offset in (1, 2):  # the second one makes a .bak
        persist_text(pair.root, "ringmqDelayOffset.json", f'{{"logOffset":{log_offset}}}')
    pair.registered()
    assert pair.answer_all() == [907, 21, 43, 201, 402, 45, 61]
    assert "T" in pair.broker.topics
    assert "OnlyHere" not in pair.broker.topics
    assert "OldGroup" not in pair.broker.groups
    assert pair.broker.groups.is_forbidden("G", "T")
    assert list(pair.broker.modes) == [RequestMode("T", "G", "POP", 3)]
    assert pair.broker.offsets.get("G", "T", 0) == 11
    assert pair.broker.topics.data_version == pair.master.broker.topics.data_version
    assert pair.broker.groups.data_version == pair.master.broker.groups.data_version
    for code, file in ((45, "delayOffset.json"), (61, "timermetrics")):
        assert (pair.root / "config" / file).read_text() == pair.broker.copied_files.states[code].text
    assert not load_config(pair.root, "ringmqDelayOffset.json"), "a checkpoint of its time as a master is gone"
    assert load_config(pair.root, "timermetrics")["timingCount"] == {}
    Persistence(pair.root, saved_by(pair.broker)).save_tables()
    assert "T" in load_config(pair.root, "topics.json")["topicConfigTable"]
    assert load_config(pair.root, "messageRequestMode.json")["messageRequestModeMap"].keys() == {"T"}
    assert log_text() == ""
    (role,) = [change for change in pair.broker.audit.changes if change.kind is Kind.ROLE]
    assert (role.name, role.actor) == ("master of this slave", Actor("ns:1", "REGISTER_BROKER"))
    assert (role.before, role.after) == ({"ha": "", "broker": ""}, {"ha": MASTER_HA, "broker": MASTER})
    made = next(change for change in pair.broker.audit.changes if (change.kind, change.name) == (Kind.TOPIC, "T"))
    assert (made.actor, made.before) == (Actor(MASTER, "GET_ALL_TOPIC_CONFIG"), None)


@pytest.mark.parametrize("state", [FREE, READY])
def test_a_master_whose_log_does_not_come_takes_nothing_away(pair: Pair, state: int) -> None:
    """It came back with an empty disk, and holds this slave off: what the slave has is all that is left."""
    pair.commit(pair.master, "T", 11)
    pair.registered()
    pair.answer_all()
    pair.master = make_harness()
    pair.link_is(state)
    assert (pair.sync(), pair.sync()) == ([], [])
    assert "T" in pair.broker.topics
    assert "G" in pair.broker.groups
    assert pair.broker.offsets.get("G", "T", 0) == 11
    assert not len(pair.broker.deletions)
    pair.link_is(TRANSFER)
    assert pair.answer_all() == [907, 21, 43, 201, 402, 45, 61], "at once, as it is due"


def test_a_stock_master_with_an_empty_disk_takes_nothing_away(pair: Pair, log_text: Callable[[], str]) -> None:
    """It lets the slave connect and sends nothing."""
    pair.registered()
    pair.answer_all()
    pair.master = make_harness()
    pair.slave.plane.watermarks.append_offset = 4096
    assert (pair.sync(), pair.sync()) == ([907], [907])
    assert "T" in pair.broker.topics
    lines = [line for line in log_text().splitlines() if "the master's log ends at 0, this slave's at 4096" in line]
    assert [line.partition("4096: ")[2][:12] for line in lines] == ["topics, grou", "its progress"], "once each"


def test_impossible_progress_with_timers_changes_nothing_and_is_told_once(
    pair: Pair, log_text: Callable[[], str]
) -> None:
    pair.registered()
    pair.answer_all()
    path = pair.root / "config" / "ringmqMasterTimers.json"
    before = path.read_bytes()
    for _ in range(3):
        pair.now_ms += 3000
        pair.turn()
        address, command = pair.calls.made.pop(0)
        assert command.code == RequestCode.GET_TIMER_CHECK_POINT
        body = TimerCheckpoint(-1, master_queue_offset=7).encode()
        reply = RemotingCommand.response_to(command, 0, body=body)
        pair.calls.ended.append(Outcome(address, None, reply, command.code))
        pair.answer_all()
    assert path.read_bytes() == before
    assert log_text().count("lastReadTimeMs -1 is not between 0") == 1


def test_an_answer_that_comes_when_the_link_is_lost_is_not_taken(pair: Pair) -> None:
    pair.registered()
    pair.answer_all()
    pair.master = make_harness()
    pair.now_ms += 10_000
    pair.turn()
    pair.link_is(FREE)
    assert pair.answer_all() == [907]
    assert "T" in pair.broker.topics
    assert pair.sync() == []
    pair.link_is(TRANSFER)
    assert pair.answer_all() == [907, 21, 43, 201, 402, 45, 61]
    assert "T" not in pair.broker.topics


def test_a_topic_that_goes_on_the_master_goes_on_the_slave_and_may_come_back(pair: Pair) -> None:
    pair.registered()
    pair.answer_all()
    assert pair.master.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    pair.sync()
    assert "T" not in pair.broker.topics
    assert pair.slave.plane.topic_find("T") is None
    pair.master.broker.deletions.done("T")
    pair.master.make_topic("T", queues=2)
    pair.sync()
    assert "T" not in pair.broker.topics, "its old queues are still on disk"
    pair.broker.deletions.done("T")
    pair.sync()
    assert pair.slave.plane.word("T")[1] == 2


def test_own_system_topics_stay_and_what_has_no_room_is_told(pair: Pair) -> None:
    before = {topic.topic_name for topic in pair.broker.topics}
    impossible = TopicConfig("Wide", 70_000, 70_000)
    lines = slave_tables_of(pair.broker).take_topics(
        TopicConfigTable({"Wide": impossible}, DataVersion(1, 0, 1)), START_MS
    )
    assert {topic.topic_name for topic in pair.broker.topics} == before
    (line,) = lines
    assert "Wide" in line
    assert "70000" in line


def answers_instead(pair: Pair, code: int, table: dict[str, Any]) -> None:
    """The master answers requests of this code with the table, as a stock master does with what its file holds."""
    ask = pair.master.ask

    def answer(asked: int, ext: dict[str, str]) -> RemotingCommand:
        if asked != code:
            found: RemotingCommand = ask(asked, ext)
            return found
        body = write_body({"dataVersion": DataVersion(9, 0, 1).to_json(), **table})
        return RemotingCommand.response_to(RemotingCommand.request(code), 0, body=body)

    pair.master.ask = answer  # type: ignore[method-assign,assignment]


LONG = "g" * 256


def test_offsets_that_no_table_can_hold_do_not_keep_the_others_away(pair: Pair, log_text: Callable[[], str]) -> None:
    table = {
        f"T@{LONG}": {0: 5}, "T@": {0: 6}, "nobody": {0: 1}, "T@odd": {"first": 1},
        "T@G": {0: 11, 70_000: 3, 1: -9, 2: 12},
    }  # fmt: skip
    answers_instead(pair, RequestCode.GET_ALL_CONSUMER_OFFSET, {"offsetTable": table})
    pair.registered()
    assert pair.answer_all() == [907, 21, 43, 201, 402, 45, 61]
    assert [pair.broker.offsets.get("G", "T", queue) for queue in range(4)] == [11, -1, 12, -1]
    assert pair.broker.offsets.table().keys() == {("T", "G")}
    pair.sync()
    (line,) = log_text().splitlines()
    for words in ("'nobody' is left out", "'T@odd' is left out", "1 to 255 bytes of UTF-8", "'T@'", "1 more"):
        assert words in line


def test_request_modes_that_no_table_can_hold_are_named(pair: Pair, log_text: Callable[[], str]) -> None:
    good = {"mode": "POP", "popShareQueueNum": 2}
    table = {"T": {"G": good, "odd": {"mode": "PUSH"}, LONG: good}, "a/b": {"G": good}, "none": 7}
    answers_instead(pair, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {"messageRequestModeMap": table})
    pair.registered()
    pair.answer_all()
    assert list(pair.broker.modes) == [RequestMode("T", "G", "POP", 2)]
    text = log_text()
    assert "'T@odd' is left out: field mode = 'PUSH' is not known" in text
    assert "topic 'none' are left out: wanted an object" in text
    assert "'a/b@G' is left out" in text
    assert "a name is 1 to 255 bytes" in text


def test_a_full_table_keeps_no_other_offsets_away(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    put = pair.slave.plane.offset_put

    def full_at_queue_1(group_id: int, slot: int, offset: int) -> None:
        if offset == 6:
            raise PlaneFullError("consumer offsets: the table is full (1 entries)")
        put(group_id, slot, offset)

    monkeypatch.setattr(pair.slave.plane, "offset_put", full_at_queue_1)
    answers_instead(pair, RequestCode.GET_ALL_CONSUMER_OFFSET, {"offsetTable": {"T@G": {0: 5, 1: 6, 2: 7}}})
    pair.registered()
    pair.answer_all()
    assert [pair.broker.offsets.get("G", "T", queue) for queue in range(3)] == [5, -1, 7]


def test_groups_and_topics_that_no_table_can_hold_are_named(pair: Pair, log_text: Callable[[], str]) -> None:
    table = {
        "subscriptionGroupTable": {LONG: {"groupName": LONG}, "": {}, "G": {"groupName": "Other", "retryMaxTimes": 3}},
        "forbiddenTable": {LONG: {"T": 4}, "G": {"T": 4}},
    }
    answers_instead(pair, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, table)
    topic = TopicConfig("Other", 2, 2).to_json()
    answers_instead(pair, RequestCode.GET_ALL_TOPIC_CONFIG, {"topicConfigTable": {"../X": topic, "T": topic}})
    pair.registered()
    pair.answer_all()
    assert "T" in pair.broker.topics and "Other" not in pair.broker.topics
    assert [group for group in pair.broker.groups.names() if group not in names.SYSTEM_GROUPS] == ["G"]
    assert pair.broker.groups.is_forbidden("G", "T") and not pair.broker.groups.has_forbidden(LONG)
    pair.sync()
    topics, groups = log_text().splitlines()
    assert "topic ../X of the master" in topics
    assert groups.count("1 to 255 bytes of UTF-8") == 3 and "forbidden topics of the master" in groups


def test_offsets_committed_here_without_a_master_are_handed_to_it(pair: Pair) -> None:
    pair.commit(pair.master, "T", 10)
    pair.registered()
    pair.answer_all()
    pair.commit(pair.slave, "T", 25)  # the master is away, its consumers commit here
    assert pair.sync() == [907, 21, 43, 15, 201, 402, 45, 61]
    assert pair.master.broker.offsets.get("G", "T", 0) == 25
    assert pair.broker.offsets.get("G", "T", 0) == 25
    pair.commit(pair.master, "T", 12)  # an operator has set it back since
    assert pair.sync() == [907, 21, 43, 201, 402, 45, 61]
    assert pair.broker.offsets.get("G", "T", 0) == 12


def test_a_group_that_its_consumer_has_just_made_stays(pair: Pair) -> None:
    """The consumer makes it at both brokers, and the answer about groups that is under way is older."""
    pair.registered()
    pair.broker.groups.put(SubscriptionGroupConfig("New"), START_MS)
    pair.broker.groups.put(SubscriptionGroupConfig("Idle"), START_MS)
    pair.slave.join("New", {"T": "*"})
    pair.answer_all()
    assert pair.broker.groups.get("New") and not pair.broker.groups.get("Idle")
    fields = {"consumerGroup": "New", "topic": "T", "queueId": "0", "commitOffset": "7"}
    assert pair.slave.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    pair.slave.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "New"})
    assert pair.broker.consumers.get("New") is None
    pair.master.broker.groups.put(SubscriptionGroupConfig("New"), START_MS)
    pair.sync()
    assert pair.master.broker.offsets.get("New", "T", 0) == 7


def test_what_is_to_be_handed_over_is_known_after_a_restart_of_the_slave(pair: Pair) -> None:
    pair.registered()
    pair.answer_all()
    pair.commit(pair.slave, "T", 25)
    Persistence(pair.root, saved_by(pair.broker)).save_offsets()
    pair.broker.offsets.committed_here.clear()  # the next run reads the file
    again = Persistence(pair.root, saved_by(pair.broker))
    again.load_slave_commits()
    assert RequestCode.UPDATE_CONSUMER_OFFSET in pair.sync()
    assert pair.master.broker.offsets.get("G", "T", 0) == 25
    pair.sync()
    again.save_offsets()
    assert json.loads((pair.root / "config" / "ringmqSlaveCommits.json").read_text()) == []


@pytest.mark.parametrize("junk", ["{", "[1]", '[["g", "t", "x"]]', "7"])
def test_a_file_of_commits_that_is_none_is_named(pair: Pair, junk: str) -> None:
    (pair.root / "config").mkdir(exist_ok=True)
    (pair.root / "config" / "ringmqSlaveCommits.json").write_text(junk)
    with pytest.raises(ConfigFileError, match=r"ringmqSlaveCommits\.json"):
        Persistence(pair.root, saved_by(pair.broker)).load_slave_commits()


def test_an_offset_that_the_master_has_passed_already_is_not_handed_over(pair: Pair) -> None:
    pair.registered()
    pair.answer_all()
    pair.commit(pair.slave, "T", 25)
    pair.commit(pair.master, "T", 40)
    assert pair.sync() == [907, 21, 43, 201, 402, 45, 61]
    assert pair.broker.offsets.get("G", "T", 0) == 40


def test_a_commit_that_did_not_arrive_is_handed_over_again(pair: Pair) -> None:
    pair.registered()
    pair.answer_all()
    pair.commit(pair.slave, "T", 25)
    pair.now_ms += 10_000
    pair.turn()
    while True:
        address, command = pair.calls.made.pop(0)
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            pair.calls.ended.append(Outcome(address, "refused", None, command.code))
            break
        reply = pair.master.ask(command.code, dict(command.ext_fields or {}))
        pair.calls.ended.append(Outcome(address, None, reply, command.code))
        pair.turn()
    pair.answer_all()
    assert pair.broker.offsets.get("G", "T", 0) == 25
    assert RequestCode.UPDATE_CONSUMER_OFFSET in pair.sync()
    assert pair.master.broker.offsets.get("G", "T", 0) == 25


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (None, 2),
        (ResponseCode.SYSTEM_BUSY, 2),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0),
        (ResponseCode.SLAVE_NOT_AVAILABLE, 0),
    ],
)
def test_trouble_with_progress_is_told_once_a_minute(
    pair: Pair, log_text: Callable[[], str], code: int | None, lines: int
) -> None:
    """Every other request fails. The pauses grow meanwhile: the fifth one leaves a pass out."""
    take, asked = pair.calls.outcomes, 0

    def outcomes() -> list[Outcome]:
        nonlocal asked
        found = take()
        for index, one in enumerate(found):
            asked += one.request_code == RequestCode.POP_PROGRESS
            if one.request_code == RequestCode.POP_PROGRESS and asked % 2:
                assert one.answer is not None
                answer = None if code is None else RemotingCommand.response_to(one.answer, code)
                found[index] = Outcome(one.address, "it cannot be had", answer, one.request_code)
        return found

    pair.calls.outcomes = outcomes  # type: ignore[method-assign]
    pair.registered()
    for _ in range(12):
        pair.sync()
    assert asked == 11
    wanted = f"request 270006 to the master at {MASTER}: it cannot be had"
    assert [line for line in log_text().splitlines() if "270006" in line] == [wanted] * lines


def test_trouble_is_told_once_until_it_is_over(pair: Pair, log_text: Callable[[], str]) -> None:
    pair.registered()
    pair.turn()
    for _ in range(3):
        pair.calls.ended.append(Outcome(MASTER, "connection refused", None, RequestCode.GET_BROKER_HA_STATUS))
        pair.turn()
        pair.now_ms += 10_000
        pair.turn()
    assert [line for line in log_text().splitlines() if "connection refused" in line] == [
        f"request 907 to the master at {MASTER}: connection refused"
    ]
