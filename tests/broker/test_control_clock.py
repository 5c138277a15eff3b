"""Control's timed work over a wall clock that is set back."""

import json
from pathlib import Path

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from tests.broker.test_delay_faults import Clock
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

HOUR_S, DAY_S = 3600, 86_400
SETTINGS = {"flushConsumerOffsetInterval": 1000}


@pytest.mark.parametrize("seconds", [-HOUR_S, -40 * DAY_S])
def test_a_clock_that_is_set_back_delays_no_save(tmp_path: Path, seconds: int) -> None:
    clock, store = Clock(tmp_path), tmp_path / "store"
    saved = store / "config" / "consumerOffset.json"
    with RunningBroker(store, SETTINGS, environment=clock.environment) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        group = json.dumps(SubscriptionGroupConfig("G").to_json()).encode()
        assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group).code == 0
        for number in range(3):
            assert client.send("T", b"%d" % number).code == 0
        for offset in (1, 2, 3):
            if offset == 2:
                clock.set(seconds)
            fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": str(offset)}
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0

            def is_saved(wanted: int = offset) -> bool:
                try:
                    return f"0:{wanted}\n" in saved.read_text()
                except FileNotFoundError:  # a save moves the old file to its .bak first
                    return False

            wait_until(is_saved, f"offset {offset} is saved")
        assert Plane.open(plane_name(broker.store)).role(lib.RMQ_ROLE_CONTROL).deaths == 0
        assert broker.stop() == 0
