"""The blocking SDK under gevent's monkey patching: one user's wait does not keep the others."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from tests.client.fake_broker import FakeBroker, FakeCluster, Peer
from tests.client.threaded_cluster import threaded_cluster

ROOT = Path(__file__).resolve().parents[2]
ANSWER_AFTER_S = 1.0
USERS, ROUNDS = 200, 2


class SlowCluster(FakeCluster):
    """Takes its time for every send."""

    def serve(self, broker: FakeBroker, peer: Peer, request: RemotingCommand, *, hold: bool = True) -> None:
        if request.code == RequestCode.SEND_MESSAGE_V2:
            loop = asyncio.get_running_loop()
            loop.call_later(ANSWER_AFTER_S, lambda: super(SlowCluster, self).serve(broker, peer, request, hold=hold))
        else:
            super().serve(broker, peer, request, hold=hold)


def test_the_waits_of_200_users_overlap() -> None:
    pytest.importorskip("gevent")
    with threaded_cluster(kind=SlowCluster, topics={"T": 4}) as cluster:
        command = [sys.executable, "-m", "tests.client.gevent_users", cluster.namesrv, "T", str(USERS), str(ROUNDS)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["sends"] == USERS // 2 * ROUNDS
    assert told["sum_of_sends_s"] >= USERS // 2 * ROUNDS * ANSWER_AFTER_S
    assert told["elapsed_s"] < told["sum_of_sends_s"] / 2, told
    assert told["ticks"] > 20, "the greenlet that counts was kept from running"


@pytest.mark.parametrize("script", ["gevent_kills", "gevent_forks"])
def test_neither_killed_greenlets_nor_forks_do_harm_to_others(script: str) -> None:
    pytest.importorskip("gevent")
    with threaded_cluster(topics={"T": 4}) as cluster:
        command = [sys.executable, "-m", f"tests.client.{script}", cluster.namesrv, "T"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    assert done.stdout.split() == ["OK"]
