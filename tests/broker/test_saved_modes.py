"""A request mode is on disk before the answer to its operator, so it survives the death of any process."""

import json
import signal
from pathlib import Path

import pytest

from ringmq.broker.tables.loading import load_modes
from ringmq.broker.tables.request_modes import FILE, RequestModeTable
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.assignment_bodies import MODE_MAP, POP, RequestMode
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.json_body import write_body
from ringmq.store.config_files import load_config
from tests.broker.control_kit import Harness, harness, now
from tests.broker.test_access_processes import SMALL
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

__all__ = ["harness"]


def asked(harness: Harness, mode: str = "POP", share: int = 1) -> None:
    body = {"consumerGroup": "G", "mode": mode, "popShareQueueNum": share, "topic": "TBW102"}
    harness.put(RemotingCommand.request(RequestCode.SET_MESSAGE_REQUEST_MODE, None, write_body(body)))


def test_a_mode_is_on_disk_before_its_answer(harness: Harness) -> None:
    asked(harness)
    (answer,) = harness.answers()
    assert answer.code == 0
    saved = load_config(harness.root, FILE)[MODE_MAP]
    assert saved == {"TBW102": {"G": RequestMode("TBW102", "G", POP, 1).to_json()}}
    assert "G" in load_config(harness.root, "subscriptionGroup.json")["subscriptionGroupTable"]
    again = RequestModeTable()
    load_modes(harness.root, again, fresh=False)
    assert list(again) == list(harness.loop.broker.modes)


def test_an_operator_is_told_that_a_mode_is_not_on_disk(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(harness)
    assert [answer.code for answer in harness.answers()] == [0]

    def full(*words: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr("ringmq.broker.tables.persistence.persist_parts", full)
        asked(harness, share=2)
        (answer,) = harness.answers()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "a restart may lose it" in (answer.remark or "") and "No space left" in (answer.remark or "")
    harness.loop.turn(now())
    assert load_config(harness.root, FILE)[MODE_MAP]["TBW102"]["G"]["popShareQueueNum"] == 2, "tried again"


def test_a_clean_stop_saves_a_mode(harness: Harness) -> None:
    harness.loop.broker.modes.put(RequestMode("T", "G", POP, 5))
    harness.loop.close(now())
    assert load_config(harness.root, FILE)[MODE_MAP]["T"]["G"]["popShareQueueNum"] == 5


# ---- kills ----


def shown(broker: RunningBroker) -> object:
    with RawClient(broker.address) as client:
        body = client.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {}).body
    return json.loads(body)[MODE_MAP]


def set_mode(broker: RunningBroker, share: int) -> None:
    """The test kills processes as soon as this is answered."""
    bean = RequestMode("T", "G", POP, share).to_json()
    with RawClient(broker.address) as client:
        answer = client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, write_body(bean))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def expected(share: int) -> object:
    return {"T": {"G": RequestMode("T", "G", POP, share).to_json()}}


def test_an_answered_mode_survives_kills(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with RunningBroker(store, SMALL) as broker:
        make_topic(broker.address, "T", 2)
        set_mode(broker, 1)
        killed = broker.signal_worker("control", signal.SIGKILL)
        assert killed is not None
        wait_until(lambda: broker.worker_pids().get("control") not in (None, killed), "control is replaced")
        assert shown(broker) == expected(1)
        set_mode(broker, 2)
        broker.kill_all()
    with RunningBroker(store, SMALL) as broker:
        assert shown(broker) == expected(2)
