"""The lag of groups in messages and in time: those that pull, those that pop, those of brokers that tell offsets
alone."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ringmq.cli import lag
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.admin_bodies import ConsumeOffset, ConsumeStats, decode_delays
from ringmq.remoting.message_queue import MessageQueue
from tests.broker.test_processes import SMALL
from tests.commands import run_ringmq
from tests.pop.pop_client import PopClient, Taken
from tests.staging import make_topic
from tests.waiting import wait_until

Rows = Callable[..., list[dict[str, Any]]]
NUMBERS = ("lag", "inFlight")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("lag") / "store", SMALL) as running:
        yield running


@pytest.fixture
def rows(broker: RunningBroker) -> Rows:
    """The rows of a command."""

    def run(*words: str) -> list[dict[str, Any]]:
        done = run_ringmq(*words, "--namesrv", broker.namesrv, "-o", "json")
        if "has consumed nothing yet" in done.stderr:  # the worker tells its first offset within a second
            return []
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    return run


def queue_of(rows: list[dict[str, Any]], topic: str) -> dict[str, Any]:
    """The one queue with messages. Its numbers are None before the group has an offset."""
    (row,) = [row for row in rows if row["topic"] == topic and row["brokerOffset"]] or [dict.fromkeys(NUMBERS)]
    return row


def test_a_group_that_pops_lacks_what_is_open_and_what_no_consumer_has(broker: RunningBroker, rows: Rows) -> None:
    make_topic(broker.address, "Popped", 1)
    with contextlib.closing(PopClient(broker.address, "poppers", "Popped")) as client:
        for number in range(10):
            assert client.raw.send("Popped", b"%d" % number).code == 0
        sent_s = time.monotonic()
        client.join("worker-1")
        taken: list[Taken] = []

        def has_eight() -> bool:  # a message is in its queue a while after its send
            taken.extend(client.pop(8 - len(taken), invisible_ms=600_000))
            return len(taken) == 8

        wait_until(has_eight, "eight messages are popped")
        for one in taken[1:]:
            assert client.ack(one).code == 0

        def is_told() -> bool:  # the worker tells it once a second
            return queue_of(rows("group", "progress", "poppers"), "Popped")["inFlight"] == 1

        wait_until(is_told, "one message is open")
        row = queue_of(rows("group", "progress", "poppers", "--topic", "Popped"), "Popped")
        assert (row["consumerOffset"], row["lag"], row["inFlight"]) == (0, 3, 1)
        assert 0 < row["lagMs"] < (time.monotonic() - sent_s + 60) * 1000
        text = run_ringmq("group", "progress", "poppers", "--namesrv", broker.namesrv).stdout
        assert "total lag 3, 1 in flight, the oldest message is " in text
        (listed,) = [row for row in rows("group", "list", "--lag") if row["group"] == "poppers"]
        (of_topic,) = rows("topic", "groups", "Popped")
        for one in (listed, of_topic):
            assert (one["members"], one["consumeType"], one["lag"], one["inFlight"]) == (1, "CONSUME_POP", 3, 1)
            assert row["lagMs"] <= one["lagMs"] < (time.monotonic() - sent_s + 60) * 1000
        assert client.ack(taken[0]).code == 0
        left = client.pop_all()
        assert len(left) == 2 and all(client.ack(one).code == 0 for one in left)
        wait_until(lambda: rows("topic", "groups", "Popped")[0]["lag"] == 0, "all is acknowledged")
        assert rows("topic", "groups", "Popped")[0]["lagMs"] is None


def test_messages_that_came_again_count(broker: RunningBroker, rows: Rows) -> None:
    """A member of the group does not subscribe to the topic in which they lie."""
    make_topic(broker.address, "Again", 1)
    with contextlib.closing(PopClient(broker.address, "slow", "Again")) as client:
        client.join("worker-2")
        assert client.raw.send("Again", b"m").code == 0
        wait_until(lambda: client.pop(1, invisible_ms=200), "the message is popped")
        for words in (("slow",), ("slow", "--topic", "Again")):
            wait_until(
                lambda words=words: queue_of(rows("group", "progress", *words), "%RETRY%slow_Again")["lag"] == 1,
                "the copy is in the topic of retries",
            )
        wait_until(lambda: rows("topic", "groups", "Again")[0]["lag"] == 1, "it is open no more")
        assert rows("topic", "groups", "Again")[0]["lagMs"] > 0


def test_a_group_that_pulls_lacks_what_it_has_not_committed(broker: RunningBroker, rows: Rows) -> None:
    make_topic(broker.address, "Pulled", 1)
    for number in range(5):
        assert run_ringmq("produce", "Pulled", "-m", str(number), "--namesrv", broker.namesrv).returncode == 0
    words = ("consume", "Pulled", "-g", "pullers", "-c", "2", "--namesrv", broker.namesrv)
    assert run_ringmq(*words).returncode == 0
    (row,) = rows("topic", "groups", "Pulled")
    assert (row["group"], row["members"], row["lag"]) == ("pullers", 0, 3)
    assert row["lagMs"] > 0
    assert queue_of(rows("group", "progress", "pullers"), "Pulled")["lag"] == 3


def test_a_topic_without_groups_and_one_that_is_missing(broker: RunningBroker, rows: Rows) -> None:
    make_topic(broker.address, "Alone", 1)
    assert rows("topic", "groups", "Alone") == []
    done = run_ringmq("topic", "groups", "Nowhere", "--namesrv", broker.namesrv)
    assert done.returncode == 1 and "topic Nowhere has no route" in done.stderr


# ---- sums ----

FIRST, SECOND = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)


def test_brokers_that_tell_offsets_alone_have_all_behind_the_offset_as_lag() -> None:
    stats = ConsumeStats({FIRST: ConsumeOffset(10, 4, 7, 0), SECOND: ConsumeOffset(10, 0, 8, 0, 1)})
    assert lag.sums(stats, {FIRST: 5, SECOND: 90}) == {"lag": 9, "inFlight": 4, "lagMs": 90}
    assert lag.sums(ConsumeStats({}), {}) == {"lag": 0, "inFlight": 0, "lagMs": None}


def test_the_next_pop_of_a_topic_that_was_made_anew_since_hides_no_lag() -> None:
    """The worker that would tell another place does not run while nothing is open."""
    assert ConsumeOffset(10, 2, 5000, 0, 0).lag == 8


def test_delays_are_read_from_an_answer_of_rocketmq() -> None:
    body = (
        b'{"consumeTimeSpanSet":[{"consumeTimeStamp":1,"delayTime":20,"maxTimeStamp":3,'
        b'"messageQueue":{"brokerName":"a","queueId":0,"topic":"T"},"minTimeStamp":0},'
        b'{"delayTime":-4,"messageQueue":{"brokerName":"b","queueId":0,"topic":"T"}}]}'
    )
    assert decode_delays(body) == {FIRST: 20, SECOND: 0}


async def test_groups_are_asked_at_the_same_time() -> None:
    """One after another, thousands of groups would take minutes. Each answer waits for a full round of questions."""
    round_ = asyncio.Barrier(lag.GROUPS_AT_ONCE)

    class Asked:
        async def connections(self, group: str) -> None:
            await round_.wait()

    groups = [f"G{number}" for number in range(2 * lag.GROUPS_AT_ONCE)]
    async with asyncio.timeout(30):
        found = await lag.members_of(Asked(), groups)  # type: ignore[arg-type]
    offline = {"members": 0, "consumeType": None, "messageModel": None}
    assert found == dict.fromkeys(groups, offline) and list(found) == groups
