"""Where a pull's answer sends the client next, on a master and on a slave: the C rules beside their plain twin."""

import itertools
import time

import pytest
from reader_kit import MakeKit, ReaderKit, connected, pull_frame, send_frame
from waiting import wait_until

from ringmq.broker.replication.broker_suggestion import Member, PullFinding, suggest
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import lib

GROUP_FLAGS = lib.RMQ_GROUP_LIVE | lib.RMQ_GROUP_CONSUME_ENABLE | lib.RMQ_GROUP_HAS_MEMBERS
SLOW_BROKER, GROUP_BROKER = 3, 2
MESSAGES = 3
FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21
SWITCHES = list(itertools.product((False, True), repeat=4))


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    kit = make_kit()
    word = GROUP_FLAGS | SLOW_BROKER << lib.RMQ_GROUP_SLOW_BROKER_SHIFT | GROUP_BROKER << lib.RMQ_GROUP_BROKER_SHIFT
    kit.group(b"GROUP", word)
    for role in ("write", "dispatch", "read"):
        kit.start(role)
    with connected(kit) as client:
        for number in range(MESSAGES):
            assert client.ask(send_frame("TopicA", b"x", f"UNIQ_KEY\x01{number}\x02TAGS\x01a\x02")).code == 0
    topic = lib.rmq_topic_find(kit.plane, b"TopicA", 6)
    wait_until(lambda: kit.queue(topic, 0).max_offset == MESSAGES, "the queue has all messages")
    return kit


def become(kit: ReaderKit, member: Member) -> None:
    settings = kit.header.settings
    kit.marks.tenure = Tenure(TenureState.MASTER if member.is_master else TenureState.SLAVE).word
    settings.slave_read_enable = member.slave_read_enable
    settings.offset_check_in_slave = member.offset_check_in_slave
    kit.header.replication.master_known = member.master_known


@pytest.mark.parametrize("window_bytes", [1 << 30, 0])
@pytest.mark.parametrize(("is_master", "master_known", "reads", "corrects"), SWITCHES)
def test_every_answer_is_the_twins(
    kit: ReaderKit, is_master: bool, master_known: bool, reads: bool, corrects: bool, window_bytes: int
) -> None:
    member = Member(is_master, master_known, reads, corrects)
    become(kit, member)
    kit.header.settings.memory_window_bytes = window_bytes
    slow = window_bytes == 0
    cases = {
        "*": [
            (0, PullFinding(FOUND, 0, MESSAGES, slow)),
            (MESSAGES, PullFinding(NOT_FOUND, MESSAGES, MESSAGES, False)),
            (MESSAGES + 5, PullFinding(MOVED, MESSAGES + 5, MESSAGES, False)),
        ],
        "none": [(0, PullFinding(RETRY, 0, MESSAGES, slow))],
    }
    with connected(kit) as client:
        for expression, pulls in cases.items():
            for offset, found in pulls:
                answer = client.ask(pull_frame("TopicA", "GROUP", offset, sys_flag=4, subscription=expression))
                fields = answer.ext_fields
                said = answer.code, int(fields["nextBeginOffset"]), int(fields["suggestWhichBrokerId"])
                advice = suggest(member, found, SLOW_BROKER, GROUP_BROKER)
                assert said == (advice.code, advice.next_offset, advice.suggested_broker_id), (expression, offset)


def test_a_slave_without_a_master_lets_a_pull_beyond_its_end_wait(kit: ReaderKit) -> None:
    """Stock answers "again, at once", with the same offset: its clients spin."""
    become(kit, Member(False, False, True, False))
    with connected(kit) as client:
        began = time.monotonic()
        answer = client.ask(pull_frame("TopicA", "GROUP", MESSAGES + 5, sys_flag=2 | 4, suspend_ms=300))
        assert time.monotonic() - began > 0.25, "not at once"
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (NOT_FOUND, str(MESSAGES + 5))


def test_a_slave_that_knows_a_master_sends_a_waiting_pull_there(kit: ReaderKit) -> None:
    become(kit, Member(False, True, True, False))
    with connected(kit) as client:
        answer = client.ask(pull_frame("TopicA", "GROUP", MESSAGES, sys_flag=2 | 4, suspend_ms=5000))
        assert (answer.code, answer.ext_fields["suggestWhichBrokerId"]) == (RETRY, "0")
