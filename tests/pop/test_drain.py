"""`ringmq pop drain`: a broker gives no message any more, and leaves none open in the log."""

import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.pop_bodies import LOOK, WAITING, PopDrain
from tests.commands import run_ringmq
from tests.pop.pop_client import PopClient, Taken
from tests.pop.test_hand_over import EXPORTS, LONG_MS, POLL_MS, exported, given, in_log, offsets, send
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(240)


def command(broker: RunningBroker, *words: str) -> "subprocess.CompletedProcess[str]":
    return run_ringmq("pop", *words, "--namesrv", broker.namesrv, "-o", "json")


def drained(broker: RunningBroker, *words: str) -> dict[str, Any]:
    done = command(broker, "drain", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def state(client: PopClient) -> tuple[str, int]:
    """The state of the broker, and its open messages."""
    answer = client.raw.ask(RequestCode.POP_DRAIN, {"choice": LOOK})
    assert answer.code == 0, answer.remark
    seen = PopDrain.decode(answer.body)
    return seen.state, seen.messages


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_open_messages_with_records_come_again_behind_a_drain_without_waiting(store: Path) -> None:
    left = exported(store)
    with RunningBroker(store, EXPORTS) as broker:
        client = PopClient(broker.address, "G", "T")
        assert client.ack(left[0]).code == 0
        assert drained(broker, "--now") == {
            "broker": "broker-a", "address": broker.address, "state": "drained", "messages": 0,
        }  # fmt: skip
        assert client.pop(1) == [] and client.ack(left[1]).code == 0
        assert broker.stop() == 0
    assert in_log(store) == {} and offsets(store, "T", "G") == {0: 3}
    assert not (store / "pop" / "records").exists()
    copy = store.with_name("copy")
    shutil.copytree(store, copy)
    assert given(copy) == [b"m%d" % number for number in range(3, 20)]
    with RunningBroker(store, EXPORTS) as broker:  # this version gives them again, too: receipts of before are void
        assert [one.offset for one in PopClient(broker.address, "G", "T").pop(2, LONG_MS, pollTime=POLL_MS)] == [3, 4]
        assert broker.stop() == 0
    assert [found for found, _ in in_log(store).values()] == [[3, 4]], "no acknowledgement of the drain ends these"


def test_open_messages_without_records_stay_with_their_consumers(store: Path) -> None:
    with RunningBroker(store, EXPORTS) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", 6)
        client = PopClient(broker.address, "G", "T")
        taken = client.pop(4, LONG_MS, pollTime=POLL_MS)
        assert client.ack(taken[2]).code == 0
        assert drained(broker, "--now")["messages"] == 3
        assert client.pop(1) == []
        assert broker.stop() == 0
    assert in_log(store) == {} and offsets(store, "T", "G").get(0, 0) == 0
    with RunningBroker(store, EXPORTS) as broker:
        client = PopClient(broker.address, "G", "T")
        assert [one.body for one in client.pop_all(invisible_ms=LONG_MS, pollTime=POLL_MS)] == [b"m4", b"m5"]
        assert all(client.ack(one).code == 0 for one in taken)
        assert broker.stop() == 0
    assert [found for found, _ in in_log(store).values()] == [[4, 5]]


def test_a_drain_waits_for_acknowledgements_and_keeps_polls(store: Path) -> None:
    left = exported(store)
    with RunningBroker(store, EXPORTS) as broker:
        client, poller = PopClient(broker.address, "G", "T"), PopClient(broker.address, "G", "T")
        results: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: results.append(drained(broker, "--wait", "100")))
        thread.start()
        wait_until(lambda: state(client) == (WAITING, 8), "the broker waits for its consumers")
        assert client.pop(1) == []
        polled: list[list[Taken]] = []
        polls = threading.Thread(target=lambda: polled.append(poller.pop(1, LONG_MS, pollTime=90_000)))
        polls.start()
        assert all(client.ack(one).code == 0 for one in left)
        thread.join(60)
        assert [one["state"] for one in results] == ["drained"] and polls.is_alive()
        assert command(broker, "resume").returncode == 0
        polls.join(60)
        assert [one.offset for one in polled[0]] == [10]
        assert broker.stop() == 0
    assert [found for found, _ in in_log(store).values()] == [[10]]


def test_a_drain_that_has_waited_in_vain_has_no_effect(store: Path) -> None:
    with RunningBroker(store, EXPORTS) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", 6)
        client = PopClient(broker.address, "G", "T")
        assert len(client.pop(4, LONG_MS, pollTime=POLL_MS)) == 4
        done = command(broker, "drain", "--wait", "0.1")
        assert done.returncode == 1 and "4 messages are open after 0.1 s; it gives messages again" in done.stderr
        assert [one.offset for one in client.pop(1, LONG_MS, pollTime=POLL_MS)] == [4]
        assert broker.stop() == 0
    assert len(in_log(store)) == 2


def test_a_drain_outlives_the_worker(store: Path) -> None:
    with RunningBroker(store, EXPORTS) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", 6)
        client = PopClient(broker.address, "G", "T")
        assert len(client.pop(4, LONG_MS, pollTime=POLL_MS)) == 4
        assert drained(broker, "--now")["messages"] == 4
        os.kill(broker.worker_pids()["pop"], signal.SIGKILL)
        assert client.pop(1) == []
        assert broker.stop() == 0
    assert in_log(store) == {}


def test_a_choice_that_is_unknown_is_refused(store: Path) -> None:
    with RunningBroker(store, EXPORTS) as broker:
        make_topic(broker.address, "T", 1)
        answer = PopClient(broker.address, "G", "T").raw.ask(RequestCode.POP_DRAIN, {"choice": "x" * 100})
        assert answer.code == 29 and "choice = 'xxxx" in str(answer.remark) and len(str(answer.remark)) < 200
        done = run_ringmq("pop", "drain", "--broker", "other", "--namesrv", broker.namesrv)
        assert done.returncode == 1 and "no master other is registered; there is broker-a" in done.stderr
