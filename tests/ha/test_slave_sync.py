"""Slave synchronisation without a network: its rhythm, its pages, and the tables of a recorded stock master."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.ha.slave_sync import PERIOD_MS, Ask, ConsumerOffsets, FileText, RequestModes, SlaveSync, Synced
from ringmq.ipc.guests import CopiedFile, guests
from ringmq.remoting.admin_bodies import GroupConfigTable
from ringmq.remoting.assignment_bodies import RequestMode
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, decode_frame
from ringmq.remoting.config_beans import DataVersion, SubscriptionGroupConfig, TopicConfig, TopicConfigTable
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.ha_bodies import HaRuntimeInfo
from ringmq.remoting.json_body import write_body
from ringmq.timer.timer_sync import decode_timers

MASTER = "10.0.0.1:10911"
TOPICS, OFFSETS = RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET
DELAYS, GROUPS = RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
END, COUNTED = RequestCode.GET_BROKER_HA_STATUS, RequestCode.GET_TIMER_METRICS
POP_MODES = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
RECORDING = Path(__file__).parents[1] / "golden" / "ha" / "slave-synchronize.jsonl.gz"
VERSION = DataVersion(3, 0, 1000)
COUNTS = b'{"dataVersion":{"counter":1},"timingCount":{"T":{"count":-4,"timeStamp":7}}}'
FILES = tuple(file for guest in guests() for file in guest.copied_files)
Master = Callable[[Ask], RemotingCommand]


def answer(body: bytes, ext: dict[str, str] | None = None) -> RemotingCommand:
    return RemotingCommand.response_to(RemotingCommand.request(1), 0, None, ext, body)


def end_of(offset: int) -> RemotingCommand:
    """A master's log ends there."""
    return answer(HaRuntimeInfo(True, offset).encode())


def small_master(ask: Ask) -> RemotingCommand:
    """Answers everything at once, like 5.3.3."""
    match ask.code:
        case RequestCode.GET_BROKER_HA_STATUS:
            return end_of(1000)
        case RequestCode.GET_ALL_TOPIC_CONFIG:
            return answer(write_body(TopicConfigTable({"T": TopicConfig("T", 2, 2)}, VERSION).to_json()))
        case RequestCode.GET_ALL_CONSUMER_OFFSET:
            table = {"T@G": {0: 5, 1: 7}}
            return answer(write_body({"dataVersion": VERSION.to_json(), "groupTopicMap": {}, "offsetTable": table}))
        case RequestCode.GET_ALL_DELAY_OFFSET:
            return answer(b'{"offsetTable":{1:9}}')
        case RequestCode.GET_TIMER_METRICS:
            return answer(COUNTS)
        case RequestCode.GET_ALL_MESSAGE_REQUEST_MODE:
            table = {"T": {"G": RequestMode("T", "G", "POP", 2).to_json()}}
            return answer(write_body({"messageRequestModeMap": table}))
    return answer(GroupConfigTable({"G": SubscriptionGroupConfig("G")}, VERSION).encode())


def run_pass(sync: SlaveSync, master: Master, now_ms: int) -> list[Synced]:
    """Everything that one pass brings, all of it at `now_ms`."""
    found: list[Synced] = []
    while (ask := sync.due(now_ms)) is not None:
        assert sync.due(now_ms) is None, "one request at a time"
        synced = sync.answered(ask, master(ask), now_ms)
        if synced is not None:
            found.append(synced)
    return found


def test_a_pass_begins_when_the_master_is_known_and_then_every_10_s() -> None:
    sync = SlaveSync(files=FILES)
    assert sync.due(0) is None
    sync.master_is(MASTER, 5)
    topics, offsets, groups, modes, delays, timers = run_pass(sync, small_master, 5)
    assert isinstance(topics, TopicConfigTable)
    assert isinstance(groups, GroupConfigTable)
    assert (list(topics.topics), list(groups.groups)) == (["T"], ["G"])
    assert offsets == ConsumerOffsets(VERSION, {("T", "G"): {0: 5, 1: 7}})
    assert modes == RequestModes((RequestMode("T", "G", "POP", 2),))
    assert delays == FileText(DELAYS, '{"offsetTable":{1:9}}')
    assert timers == FileText(COUNTED, COUNTS.decode())
    assert sync.passes == 1
    assert sync.due(5 + PERIOD_MS - 1) is None
    assert len(run_pass(sync, small_master, 5 + PERIOD_MS)) == 6


def test_another_master_is_asked_at_once_and_the_old_ones_answer_counts_no_longer() -> None:
    sync = SlaveSync(files=FILES)
    sync.master_is(MASTER, 0)
    late = sync.due(0)
    assert late is not None
    sync.master_is("10.0.0.2:10911", 1)
    fresh = sync.due(1)
    assert fresh is not None
    assert fresh.address == "10.0.0.2:10911"
    assert sync.answered(late, small_master(late), 2) is None
    assert sync.due(2) is None, "the new master's answer is still awaited"
    sync.master_is("", 3)
    assert sync.due(10**9) is None


def test_a_master_that_does_not_answer_is_tried_with_growing_pauses() -> None:
    sync = SlaveSync(files=FILES)
    sync.master_is(MASTER, 0)
    now_ms, pauses = 0, []
    for _ in range(6):
        ask = sync.due(now_ms)
        assert ask is not None
        assert ask.code == END
        sync.failed(ask, now_ms)
        assert sync.due(sync.next_ms - 1) is None
        pauses.append(sync.next_ms - now_ms)
        now_ms = sync.next_ms
    assert pauses == [1000, 2000, 4000, 8000, 10_000, 10_000]
    assert len(run_pass(sync, small_master, now_ms)) == 6


def test_a_log_end_that_does_not_read_is_asked_for_in_the_next_pass() -> None:
    sync = SlaveSync(files=FILES)
    sync.master_is(MASTER, 0)
    ask = sync.due(0)
    assert ask is not None
    with pytest.raises(RemotingError):
        sync.answered(ask, answer(b"<html>"), 0)
    assert sync.due(PERIOD_MS - 1) is None
    assert len(run_pass(sync, small_master, PERIOD_MS)) == 6


def test_a_refused_table_is_left_out_and_the_others_come() -> None:
    sync = SlaveSync(files=FILES)
    sync.master_is(MASTER, 0)
    seen = []
    while (ask := sync.due(0)) is not None:
        seen.append(ask.code)
        if ask.code == OFFSETS:
            sync.refused(ask, 0)
        elif ask.code == DELAYS:
            with pytest.raises(RemotingError):
                sync.answered(ask, answer(b"[]"), 0)
        else:
            assert (sync.answered(ask, small_master(ask), 0) is None) == (ask.code == END)
    assert seen == [END, TOPICS, OFFSETS, GROUPS, POP_MODES, DELAYS, COUNTED]
    assert sync.passes == 0, "it was not whole"
    assert sync.due(PERIOD_MS) is not None


class PagingMaster:
    """Stock after 5.3.3: pages of `size`; the table's version changes after the pages in `changes_after`."""

    def __init__(self, count: int, size: int, changes_after: tuple[int, ...] = ()) -> None:
        self.count, self.size, self.changes_after = count, size, changes_after
        self.version = DataVersion(1, 0, 1)
        self.asked: list[dict[str, str]] = []

    def __call__(self, ask: Ask) -> RemotingCommand:
        if ask.code != TOPICS:
            return small_master(ask)
        self.asked.append(ask.ext_fields)
        known = json.loads(ask.ext_fields["dataVersion"] or "{}")
        first = int(ask.ext_fields["topicSeq"]) if known == self.version.to_json() else 0
        names = sorted(f"T{number:03}" for number in range(self.count))[first : first + self.size]
        table = TopicConfigTable({name: TopicConfig(name) for name in names}, self.version)
        if len(self.asked) in self.changes_after:
            self.version = DataVersion(self.version.counter + 1, 0, 1)
        return answer(write_body(table.to_json()), {"totalTopicNum": str(self.count)})


@pytest.mark.parametrize("count", [1, 9, 10, 11, 20, 21])
@pytest.mark.parametrize("changes_after", [(), (1,), (1, 2)])
def test_pages_come_together_whole(count: int, changes_after: tuple[int, ...]) -> None:
    """Stock's own client misses the last entry of a table that ends one entry behind a page."""
    sync, master = SlaveSync(files=FILES), PagingMaster(count, 10, changes_after)
    sync.master_is(MASTER, 0)
    topics = run_pass(sync, master, 0)[0]
    assert isinstance(topics, TopicConfigTable)
    assert sorted(topics.topics) == sorted(f"T{number:03}" for number in range(count))
    assert master.asked[0] == {"topicSeq": "0", "dataVersion": "", "maxTopicNum": "2000"}


def test_a_table_that_changes_all_the_time_is_given_up() -> None:
    sync, master = SlaveSync(files=FILES), PagingMaster(50, 10, tuple(range(1, 100)))
    sync.master_is(MASTER, 0)
    for now_ms in range(0, 70_000, 1000):
        ask = sync.due(now_ms)
        if ask is None or ask.code not in (END, TOPICS):
            break
        assert sync.answered(ask, master(ask), now_ms) is None
    assert 60_000 < now_ms < 63_000


def test_a_page_without_entries_is_an_error_and_no_endless_loop() -> None:
    sync = SlaveSync(files=FILES)
    sync.master_is(MASTER, 0)
    ask = sync.due(0)
    assert ask is not None
    sync.answered(ask, end_of(0), 0)
    ask = sync.due(0)
    assert ask is not None
    empty = write_body(TopicConfigTable({}, VERSION).to_json())
    with pytest.raises(RemotingError, match="empty page"):
        sync.answered(ask, answer(empty, {"totalTopicNum": "3"}), 0)


def recorded_answers() -> dict[int, list[RemotingCommand]]:
    """What a stock master answered to a stock slave, by request code."""
    asked: dict[tuple[str, int], int] = {}
    found: dict[int, list[RemotingCommand]] = {}
    with gzip.open(RECORDING, "rt") as lines:
        for line in map(json.loads, lines):
            if "hex" not in line or line["conn"].startswith("nsr"):
                continue
            command = decode_frame(bytes.fromhex(line["hex"]))
            if line["dir"] == "c2s":
                asked[line["conn"], command.opaque] = command.code
            else:
                found.setdefault(asked[line["conn"], command.opaque], []).append(command)
    return found


def test_a_recorded_stock_masters_tables_are_understood() -> None:
    recorded = recorded_answers()
    assert {TOPICS, OFFSETS, DELAYS, GROUPS, COUNTED, RequestCode.GET_TIMER_CHECK_POINT} <= recorded.keys()
    last = {code: answers[-1] for code, answers in recorded.items()}
    sync = SlaveSync(files=FILES)
    sync.master_is(MASTER, 0)
    found = run_pass(sync, lambda ask: end_of(0) if ask.code == END else last[ask.code], 0)
    topics, offsets, groups, modes, delays, counts = found
    assert counts == FileText(COUNTED, last[COUNTED].body.decode())
    timers = decode_timers(last[RequestCode.GET_TIMER_CHECK_POINT], 1 << 50)
    assert timers.open_ms > 1_700_000_000_000 and timers.marks_from is None
    assert isinstance(topics, TopicConfigTable)
    assert {"ha-a", "GoldCluster", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX"} <= topics.topics.keys()
    assert topics.topics["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18
    assert modes == RequestModes(()), "the recorded master has none"
    assert isinstance(offsets, ConsumerOffsets)
    assert isinstance(groups, GroupConfigTable)
    assert groups.groups["SELF_TEST_C_GROUP"].which_broker_when_consume_slowly == 1
    assert delays == FileText(DELAYS, last[DELAYS].body.decode())


def test_a_master_that_has_less_log_is_asked_for_no_table() -> None:
    """A stock master with an empty disk sends nothing and says so by its log's end alone."""
    sync = SlaveSync(files=FILES)
    sync.master_is(MASTER, 0)
    for now_ms in (0, PERIOD_MS):
        ask = sync.due(now_ms, 500)
        assert ask is not None
        assert ask.code == END
        with pytest.raises(RemotingError, match="ends at 499, this slave's at 500"):
            sync.answered(ask, end_of(499), now_ms)
        assert sync.due(now_ms + PERIOD_MS - 1, 500) is None
    ask = sync.due(2 * PERIOD_MS, 500)
    assert ask is not None
    assert sync.answered(ask, end_of(500), 2 * PERIOD_MS) is None
    assert len(run_pass(sync, small_master, 2 * PERIOD_MS)) == 6


def test_a_master_that_cannot_say_where_its_log_ends_is_believed() -> None:
    sync = SlaveSync(files=FILES)
    sync.master_is(MASTER, 0)
    ask = sync.due(0, 500)
    assert ask is not None
    sync.refused(ask, 0)
    assert len(run_pass(sync, small_master, 0)) == 6


def test_a_file_that_a_master_may_lack_leaves_the_pass_whole() -> None:
    for is_optional in (True, False):
        sync = SlaveSync(files=(CopiedFile("counts", COUNTED, "counts", is_optional=is_optional),))
        sync.master_is(MASTER, 0)
        while (ask := sync.due(0)) is not None:
            if ask.code == COUNTED:
                sync.refused(ask, 0)
            else:
                sync.answered(ask, small_master(ask), 0)
        assert sync.passes == is_optional


def test_a_text_that_a_guest_refuses_is_not_taken() -> None:
    counts = json.dumps({"timingCount": {"T": {"count": "many"}}}).encode()
    sync = SlaveSync(files=FILES)
    sync.master_is(MASTER, 0)
    while (ask := sync.due(0)) is not None:
        if ask.code == COUNTED:
            with pytest.raises(RemotingError, match="no whole number as count"):
                sync.answered(ask, answer(counts), 0)
        else:
            sync.answered(ask, small_master(ask), 0)
    assert sync.passes == 0


def test_a_master_that_does_not_know_request_modes_leaves_the_pass_whole() -> None:
    """RocketMQ 4.9."""
    sync = SlaveSync(files=FILES)
    sync.master_is(MASTER, 0)
    while (ask := sync.due(0)) is not None:
        if ask.code == POP_MODES:
            sync.refused(ask, 0)
        else:
            sync.answered(ask, small_master(ask), 0)
    assert sync.passes == 1
