"""A group that turns from POP to pulls at a whole broker: no message is lost, and none that is open comes at once."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.memory import remove_lasting
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import decode_messages
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient, Taken
from tests.pop.test_hand_over import expected, in_log
from tests.pop.test_pop_broker import QUEUES, committed, found, send
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
BODIES = [b"m%d" % number for number in range(40)]
LONG_MS = 600_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "store", SMALL) as broker:
        yield broker
        assert broker.stop() == 0


def set_mode(address: str, mode: str, topic: str = "T") -> RemotingCommand:
    body = {"consumerGroup": "G", "mode": mode, "popShareQueueNum": 0, "topic": topic}
    with RawClient(address) as client:
        return client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(body).encode())


def turn_to_pulls(address: str) -> None:
    """On a slow disk the syncs of a switch take longer than a request may wait: it is answered 2, and asked again."""
    wait_until(lambda: set_mode(address, "PULL").code == 0, "the group pulls")


def mode_of(address: str) -> str:
    with RawClient(address) as client:
        body = client.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {}).body
    return str(json.loads(body)["messageRequestModeMap"]["T"]["G"]["mode"])


def popping(address: str) -> PopClient:
    """The client of a group that pops a topic with messages."""
    make_topic(address, "T", QUEUES)
    send(address, "T", BODIES)
    assert set_mode(address, "POP").code == 0
    return PopClient(address, "G", "T")


def pulled(address: str, topic: str, queue_id: int) -> list[bytes]:
    """What a member that pulls finds from the consumer offset on."""
    offset = committed(address, "G", topic, queue_id)
    fields = {
        "consumerGroup": "G", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1,
    }  # fmt: skip
    with RawClient(address) as client:
        answer = client.ask(RequestCode.PULL_MESSAGE, fields)
    return [bytes(one.body) for one in decode_messages(answer.body)] if answer.code == 0 else []


def all_pulled(address: str) -> list[bytes]:
    return [body for queue_id in range(QUEUES) for body in pulled(address, "T", queue_id)]


def soon(client: PopClient, taken: list[Taken]) -> None:
    """The time of these messages ends soon."""
    for one in taken:
        assert client.change(one, 500).code == 0


def revived(address: str, bodies: list[bytes]) -> None:
    """Members that pull find these messages in the topic of retries, and no others."""
    wanted = sorted(bodies)
    wait_until(lambda: sorted(pulled(address, "%RETRY%G_T", 0)) == wanted, "they come by the topic of retries")


def test_members_that_pull_find_what_no_consumer_holds(broker: RunningBroker) -> None:
    client = popping(broker.address)
    held = [found(client, invisible_ms=LONG_MS), *client.pop(29, LONG_MS)]
    for one in held[10:]:
        assert client.ack(one).code == 0
    turn_to_pulls(broker.address)
    assert mode_of(broker.address) == "PULL"
    free = set(BODIES) - {one.body for one in held}
    assert sorted(all_pulled(broker.address)) == sorted(free), "no open one, and no acknowledged one"
    assert all(client.ack(one).code == 0 for one in held[:5]), "late acknowledgements count"
    soon(client, held[:10])
    revived(broker.address, [one.body for one in held[5:10]])
    assert sorted(all_pulled(broker.address)) == sorted(free), "the offsets stay"


def test_messages_that_were_popped_again_come_once_more(broker: RunningBroker) -> None:
    """Those of the topic of retries have a window of their own."""
    client = popping(broker.address)
    soon(client, held := [found(client, invisible_ms=LONG_MS), *client.pop(4, LONG_MS)])
    again: list[Taken] = []

    def are_there() -> bool:
        again.extend(one for one in client.pop_all(invisible_ms=LONG_MS) if one.flag == 1)
        return len(again) == len(held)

    wait_until(are_there, "pops find the copies")
    assert client.ack(again[0]).code == 0
    turn_to_pulls(broker.address)
    assert pulled(broker.address, "%RETRY%G_T", 0) == [], "a consumer has them"
    soon(client, again[1:])
    revived(broker.address, [one.body for one in again[1:]])


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_worker_that_stops_before_a_switch(broker: RunningBroker, is_killed: bool) -> None:
    """Its replacement does it. One that goes on too late changes nothing: the operator was told so."""
    client = popping(broker.address)
    held = [found(client, invisible_ms=LONG_MS), *client.pop(9, LONG_MS)]
    pid = broker.worker_pids()["pop"]
    os.kill(pid, signal.SIGSTOP)
    answers: list[RemotingCommand] = []
    asking = threading.Thread(target=lambda: answers.append(set_mode(broker.address, "PULL")))
    asking.start()
    if is_killed:
        os.kill(pid, signal.SIGKILL)
    asking.join()
    if is_killed:
        assert [answer.code for answer in answers] == [0]
    else:
        os.kill(pid, signal.SIGCONT)
        remark = "no answer within 4000 ms; the mode has not changed"
        assert [(answer.code, answer.remark) for answer in answers] == [(ResponseCode.SYSTEM_BUSY, remark)]
        assert client.ack(held[0]).code == 0, "the worker goes on"
        assert mode_of(broker.address) == "POP" and len(all_pulled(broker.address)) > len(BODIES) - len(held)
        turn_to_pulls(broker.address)
    assert mode_of(broker.address) == "PULL"
    assert sorted(all_pulled(broker.address)) == sorted(set(BODIES) - {one.body for one in held})


@pytest.mark.parametrize("is_lost", [True, False])
def test_open_messages_outlive_all_processes_and_the_memory(tmp_path: Path, is_lost: bool) -> None:
    """The offsets lie behind them. Without the memory, the records in the log tell what was open."""
    store = tmp_path / "store"
    with RunningBroker(store, SMALL) as broker:
        client = popping(broker.address)
        held = [found(client, invisible_ms=LONG_MS), *client.pop(9, LONG_MS)]
        for one in held[6:]:
            assert client.ack(one).code == 0
        turn_to_pulls(broker.address)
        broker.kill_all()
    assert in_log(store) == expected(held[:6])
    if is_lost:
        shutil.rmtree(store / "pop")
        remove_lasting(store)
    with RunningBroker(store, SMALL) as broker:
        assert mode_of(broker.address) == "PULL"
        free = set(BODIES) - {one.body for one in held}
        assert sorted(all_pulled(broker.address)) == sorted(free)
        client = PopClient(broker.address, "G", "T")
        assert client.ack(held[0]).code == 0
        soon(client, held[1:6])
        revived(broker.address, [one.body for one in held[1:6]])
        assert broker.stop() == 0


def test_a_group_turns_back_to_pop(broker: RunningBroker) -> None:
    """Pops go on behind what members have pulled."""
    client = popping(broker.address)
    held = [found(client, invisible_ms=LONG_MS), *client.pop(9, LONG_MS)]
    turn_to_pulls(broker.address)
    passed = pulled(broker.address, "T", 0)[:3]
    offset = committed(broker.address, "G", "T", 0) + len(passed)
    with RawClient(broker.address) as raw:
        fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": offset}
        assert raw.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    assert set_mode(broker.address, "POP").code == 0
    rest = client.pop_all(invisible_ms=LONG_MS)
    assert sorted(one.body for one in rest) == sorted(set(BODIES) - set(passed) - {one.body for one in held})
    for one in (*held, *rest):
        assert client.ack(one).code == 0
    ends = [len(BODIES) // QUEUES] * QUEUES
    wait_until(
        lambda: [committed(broker.address, "G", "T", queue_id) for queue_id in range(QUEUES)] == ends, "all is done"
    )
