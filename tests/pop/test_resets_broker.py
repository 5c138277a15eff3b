"""Resets and deletions at a whole broker: they count when they are answered. A death leaves one of two states."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient, pop_fields
from tests.pop.test_pop_broker import QUEUES, committed, found, send
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
EACH = 10
"""Messages of a queue."""
BODIES = [b"m%d" % number for number in range(EACH * QUEUES)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("resets") / "store", SMALL) as broker:
        yield broker
        assert broker.stop() == 0


def consumed(address: str, name: str) -> PopClient:
    """The client of a group that has acknowledged all messages of its topic."""
    make_topic(address, name, QUEUES)
    send(address, name, BODIES)
    client = PopClient(address, f"G_{name}", name)
    for one in [found(client), *client.pop_all()]:
        assert client.ack(one).code == 0
    wait_until(lambda: offsets_of(address, name) == [EACH] * QUEUES, "the offsets follow")
    return client


def offsets_of(address: str, name: str) -> list[int]:
    return [committed(address, f"G_{name}", name, queue_id) for queue_id in range(QUEUES)]


def reset(address: str, name: str, timestamp: int = 0, **fields: object) -> RemotingCommand:
    """The answer to a reset, of all queues to their beginning."""
    asked = {"topic": name, "group": f"G_{name}", "timestamp": timestamp, "isForce": "true", "queueId": -1, **fields}
    with RawClient(address) as raw:
        return raw.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, asked)


def given(client: PopClient) -> list[bytes]:
    return sorted(one.body for one in client.pop_all())


def test_a_reset_counts_when_it_is_answered(broker: RunningBroker) -> None:
    client = consumed(broker.address, "T_back")
    assert reset(broker.address, "T_back").code == 0
    again = client.pop_all()
    assert sorted(one.body for one in again) == sorted(BODIES)
    assert reset(broker.address, "T_back", queueId=1, offset=EACH - 1).code == 0
    assert [one.offset for one in client.pop_all()] == [EACH - 1], "an open message is given again at once"
    assert all(client.ack(one).code == 0 for one in again), "receipts of before have no effect on queue 1"
    wait_until(lambda: offsets_of(broker.address, "T_back") == [EACH, EACH - 1], "queue 1 has an open message")


def test_a_pop_ends_the_reset_of_a_group_that_has_pulled(broker: RunningBroker) -> None:
    """A member that pulls later goes on behind what was acknowledged."""

    def pull(raw: RawClient, offset: int) -> int:
        fields = {
            "consumerGroup": "G_T_both", "topic": "T_both", "queueId": 0, "queueOffset": offset, "maxMsgNums": 1,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1,
        }  # fmt: skip
        return raw.ask(RequestCode.PULL_MESSAGE, fields).code

    client = consumed(broker.address, "T_both")
    with RawClient(broker.address) as raw:
        assert pull(raw, EACH - 1) == ResponseCode.SUCCESS
        assert reset(broker.address, "T_both").code == 0
        for one in client.pop_all():
            assert client.ack(one).code == 0
        wait_until(lambda: offsets_of(broker.address, "T_both") == [EACH] * QUEUES, "request 14 shows what pops do")
        assert pull(raw, EACH - 1) == ResponseCode.SUCCESS
        assert given(client) == []
        assert reset(broker.address, "T_both").code == 0
        assert pull(raw, EACH - 1) == ResponseCode.PULL_OFFSET_MOVED, "no pop came before"


def test_a_group_skips_its_backlog(broker: RunningBroker) -> None:
    make_topic(broker.address, "T_skip", QUEUES)
    send(broker.address, "T_skip", BODIES)
    client = PopClient(broker.address, "G_T_skip", "T_skip")
    held = found(client, invisible_ms=1500)
    assert reset(broker.address, "T_skip", timestamp=-1).code == 0
    assert client.pop() == [] and offsets_of(broker.address, "T_skip") == [EACH] * QUEUES
    again = found(client)
    assert again.body == held.body and again.flag == 1, "a message that is held comes again at its time"
    assert client.ack(again).code == 0


@pytest.mark.parametrize("what", ["topic", "group"])
def test_polls_of_deleted_names_are_refused(broker: RunningBroker, what: str) -> None:
    """Both are made anew, and begin with nothing open."""
    name = f"T_{what}"
    client = consumed(broker.address, name)
    send(broker.address, name, [b"open"])
    held = found(client)
    polling = RawClient(broker.address)
    polling.send_request(RequestCode.POP_MESSAGE, pop_fields(f"G_{name}", name, 1, 60_000, -1, pollTime=60_000))
    fields = {"consumerGroup": f"G_{name}", "topic": name, "queueId": -1}

    def is_waiting() -> bool:
        return client.raw.ask(RequestCode.POLLING_INFO, fields).ext_fields == {"pollingNum": "1"}

    wait_until(is_waiting, "the poll waits")
    with RawClient(broker.address) as raw:
        if what == "topic":
            assert raw.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name}).code == 0
            assert polling.receive().code == 17
            wait_until(lambda: is_made(broker.address, name), "the topic is made anew")
            assert client.pop() == []
            send(broker.address, name, [b"new"])
            assert found(client).body == b"new"
        else:
            deleted = {"groupName": f"G_{name}", "cleanOffset": "true"}
            assert raw.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, deleted).code == 0
            # clients may make groups here: the poll is asked again, and its group begins anew
            assert polling.receive().code == 0
            assert len(client.pop_all()) == len(BODIES)
            assert client.ack(held).code == 0


def is_made(address: str, name: str) -> bool:
    """A topic can be made anew once its queues are removed."""
    with RawClient(address) as raw:
        fields = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        return raw.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0


def test_a_worker_that_was_never_used_is_not_started(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SMALL) as broker:
        make_topic(broker.address, "T", QUEUES)
        send(broker.address, "T", BODIES)
        with RawClient(broker.address) as raw:
            fields = {"consumerGroup": "G_T", "topic": "T", "queueId": 0, "commitOffset": 3}
            raw.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G_T"})
            assert raw.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
            assert reset(broker.address, "T").code == 0
            assert raw.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
        assert "pop" not in broker.worker_pids()
        assert broker.stop() == 0


@pytest.mark.parametrize("end", ["stop", "kill-all"])
def test_a_reset_while_no_worker_runs_outlives_the_broker(tmp_path: Path, end: str) -> None:
    """Nothing is open, so no start has begun the worker."""
    store = tmp_path / "store"
    with RunningBroker(store, SMALL) as broker:
        consumed(broker.address, "T")
        assert broker.stop() == 0
    with RunningBroker(store, SMALL) as broker:
        assert "pop" not in broker.worker_pids()
        assert reset(broker.address, "T").code == 0
        if end == "kill-all":
            broker.kill_all()
        else:
            assert broker.stop() == 0
    with RunningBroker(store, SMALL) as broker:
        client = PopClient(broker.address, "G_T", "T")
        first = found(client)
        assert sorted([first.body, *given(client)]) == sorted(BODIES)
        assert broker.stop() == 0


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_worker_that_stops_before_a_reset(tmp_path: Path, is_killed: bool) -> None:
    """Its replacement resets the group. One that goes on too late does nothing: the operator was told so."""
    with RunningBroker(tmp_path / "store", SMALL) as broker:
        client = consumed(broker.address, "T")
        pid = broker.worker_pids()["pop"]
        os.kill(pid, signal.SIGSTOP)
        answers: list[RemotingCommand] = []
        asking = threading.Thread(target=lambda: answers.append(reset(broker.address, "T")))
        asking.start()
        if is_killed:
            os.kill(pid, signal.SIGKILL)
        asking.join()
        if not is_killed:
            os.kill(pid, signal.SIGCONT)
        (answer,) = answers
        if is_killed:
            assert (answer.code, given(client)) == (0, sorted(BODIES))
        else:
            assert (answer.code, answer.remark) == (2, "no answer within 4000 ms; queues may be reset")
            assert given(client) == [] and offsets_of(broker.address, "T") == [EACH] * QUEUES
            assert reset(broker.address, "T").code == 0 and given(client) == sorted(BODIES)
        assert broker.stop() == 0


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_worker_that_stops_before_a_deletion(tmp_path: Path, is_killed: bool) -> None:
    """The replacement has a part in it. Nothing is deleted beside a worker that hangs."""
    with RunningBroker(tmp_path / "store", SMALL) as broker:
        client = consumed(broker.address, "T")
        send(broker.address, "T", [b"open"])
        held = found(client)
        pid = broker.worker_pids()["pop"]
        os.kill(pid, signal.SIGSTOP)
        deletion = RawClient(broker.address)
        deletion.send_request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        if is_killed:
            os.kill(pid, signal.SIGKILL)
        answer = deletion.receive()
        deletion.close()
        assert answer is not None
        if is_killed:
            assert (answer.code, client.ack(held).code) == (0, 17)
        else:
            os.kill(pid, signal.SIGCONT)
            assert (answer.code, answer.remark) == (2, "no answer within 4000 ms; nothing has changed")
            assert client.ack(held).code == 0
            wait_until(lambda: offsets_of(broker.address, "T") == [EACH + 1, EACH], "the acknowledgement counts")
        assert broker.stop() == 0


def test_control_that_dies_with_a_reset_leaves_all_queues_alike(tmp_path: Path) -> None:
    """The replacement of control may still find the request, which is answered 2 then."""
    with RunningBroker(tmp_path / "store", SMALL) as broker:
        client, taken = consumed(broker.address, "T"), Counter[bytes]()

        def is_taken() -> bool:
            found = client.pop_all()
            taken.update(one.body for one in found)
            return all(client.ack(one).code == 0 for one in found) and bool(found)

        def is_settled() -> bool:
            return not is_taken() and offsets_of(broker.address, "T") == [EACH] * QUEUES

        for _ in range(3):
            control = broker.worker_pids()["control"]
            answers: list[RemotingCommand | None] = []

            def ask(answers: list[RemotingCommand | None] = answers) -> None:
                try:
                    answers.append(reset(broker.address, "T"))
                except OSError:
                    answers.append(None)

            asking = threading.Thread(target=ask)
            asking.start()
            os.kill(control, signal.SIGKILL)
            asking.join()
            wait_until(lambda dead=control: broker.worker_pids().get("control") not in (None, dead), "control is back")
            if answers[0] is not None and answers[0].code == 0:
                assert is_taken()
            wait_until(is_settled, "the offsets follow")
            assert len({taken[body] for body in BODIES}) == 1, "all messages come again, or none does"
        assert taken.total() == sum(taken[body] for body in BODIES)
        assert broker.stop() == 0
