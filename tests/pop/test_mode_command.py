"""`ringmq group mode` against a running broker, and against brokers that are busy, refuse, or lack a master."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from ringmq.cli.main import main
from ringmq.client.errors import BrokerError
from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.cli import mode
from ringmq.remoting.assignment_bodies import POP, PULL
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.route import BrokerData
from tests.broker.test_processes import SMALL
from tests.commands import run_ringmq
from tests.pop.pop_client import PopClient, Taken
from tests.pop.test_pull_switch_broker import mode_of
from tests.staging import make_topic
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("mode") / "store", SMALL) as running:
        make_topic(running.address, "T", 1)
        assert run_ringmq("group", "create", "G", "--namesrv", running.namesrv).returncode == 0
        yield running


def shown(broker: RunningBroker, *words: str) -> dict[str, Any]:
    """The one row."""
    done = run_ringmq("group", "mode", *words, "--namesrv", broker.namesrv, "-o", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    found: dict[str, Any] = row
    return found


def test_a_mode_is_shown_and_set(broker: RunningBroker) -> None:
    there = {"broker": "broker-a", "address": broker.address}
    unset = {**there, "mode": PULL, "shareQueues": None, "source": "defaultMessageRequestMode"}
    assert shown(broker, "G", "T") == unset
    popping = {**there, "mode": POP, "shareQueues": 2, "source": "set"}
    assert shown(broker, "G", "T", "pop", "--share-queues", "2") == popping
    assert mode_of(broker.address) == POP
    assert shown(broker, "G", "T", "pop") == popping, "a change keeps what no option names"
    assert shown(broker, "G", "T") == popping
    text = run_ringmq("group", "mode", "G", "T", "pull", "--namesrv", broker.namesrv).stdout
    assert "members learn of it within 20 s; open messages stay with their consumers" in text
    assert mode_of(broker.address) == PULL
    assert shown(broker, "G", "T")["source"] == "set"


def test_open_messages_stay_with_their_consumers(broker: RunningBroker) -> None:
    make_topic(broker.address, "Held", 1)
    with contextlib.closing(PopClient(broker.address, "G", "Held")) as client:
        assert client.raw.send("Held", b"m").code == 0
        shown(broker, "G", "Held", "pop")
        taken: list[Taken] = []
        wait_until(lambda: taken.extend(client.pop(1, invisible_ms=600_000)) or taken, "the message is popped")
        assert shown(broker, "G", "Held", "pull")["mode"] == PULL
        assert client.ack(taken[0]).code == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nobody", "T"), "group nobody does not exist on any broker"),
        (("nobody", "T", "pop"), "make it with ringmq group create nobody"),
        (("G", "Nowhere", "pop"), "topic Nowhere has no route"),
        (("G", "T", "push"), "'push' is not one of"),
        (("G", "T", "pull", "--share-queues", "1"), "--share-queues belongs to the mode pop"),
        (("G", "T", "--share-queues", "1"), "--share-queues belongs to the mode pop"),
        (("G", "T", "pop", "--share-queues", "-1"), "--share-queues"),
        (("G", "T", "pull", "--wait", "nan"), "'nan' is no number of seconds"),
    ],
)
def test_errors_name_their_cause(broker: RunningBroker, words: tuple[str, ...], error: str) -> None:
    done = run_ringmq("group", "mode", *words, "--namesrv", broker.namesrv)
    assert done.returncode != 0
    assert error in done.stderr
    assert "Traceback" not in done.stderr


# ---- brokers that answer as a test says ----


class Brokers:
    """An admin of two brokers. `refusals`: by address, the codes with which requests to set a mode are refused.
    `ids`: the brokerId of each."""

    namespace = "ns"

    def __init__(self, refusals: dict[str, list[int]], config: str = "", ids: tuple[int, ...] = (0, 0)) -> None:
        self.refusals, self._config, self._ids = refusals, config, ids
        self.client, self.sent = self, list[tuple[str, dict[str, Any]]]()

    async def call(self, address: str, code: int, body: bytes = b"", *, timeout_ms: int) -> Any:
        if code == RequestCode.GET_ALL_MESSAGE_REQUEST_MODE:
            return SimpleNamespace(body=b'{"messageRequestModeMap":{"ns%T":{"other":{"mode":"POP"}}}}')
        if code == RequestCode.GET_BROKER_CONFIG:
            return SimpleNamespace(body=self._config.encode())
        if self.refusals.get(address):
            raise BrokerError(address, self.refusals[address].pop(0), "7 check points are in the log")
        self.sent.append((address, json.loads(body)))
        return SimpleNamespace(body=b"")

    async def route(self, topic: str) -> Any:
        ids = enumerate(self._ids)
        return SimpleNamespace(broker_datas=[BrokerData("c", f"b{number}", {at: f"{number}:1"}) for number, at in ids])

    async def groups(self) -> list[str]:
        return ["G"]


def run(monkeypatch: pytest.MonkeyPatch, brokers: Brokers, *words: str) -> tuple[int, str]:
    """The status and the text of the command."""

    @contextlib.asynccontextmanager
    async def opened(*arguments: Any) -> AsyncIterator[Brokers]:
        yield brokers

    monkeypatch.setattr(mode, "open_admin", opened)
    monkeypatch.setattr(mode, "ASK_S", 0.0)
    done = CliRunner().invoke(main, ["group", "mode", *words])
    return done.exit_code, done.output


def test_each_master_gets_the_mode_with_the_names_of_the_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({})
    assert run(monkeypatch, brokers, "G", "T", "pop")[0] == 0
    bean = {"consumerGroup": "ns%G", "mode": "POP", "popShareQueueNum": 0, "topic": "ns%T"}
    assert brokers.sent == [("0:1", bean), ("1:1", bean)]


def test_a_default_of_pop_is_shown_with_its_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    config = "defaultMessageRequestMode=POP\ndefaultPopShareQueueNum=4\n"
    _, text = run(monkeypatch, Brokers({}, config), "G", "T")
    assert [line.split() for line in text.splitlines()[1:]] == [
        [f"b{number}", f"{number}:1", "POP", "4", "defaultMessageRequestMode"] for number in (0, 1)
    ]


def test_a_broker_that_writes_check_points_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = ResponseCode.SYSTEM_BUSY
    brokers = Brokers({"0:1": [busy, busy]})
    status, text = run(monkeypatch, brokers, "G", "T", "pull")
    assert (status, len(brokers.sent)) == (0, 2)
    assert text.count("7 check points are in the log") == 1


def test_it_ends_at_its_time_and_names_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({"1:1": [ResponseCode.SYSTEM_BUSY] * 9})
    status, text = run(monkeypatch, brokers, "G", "T", "pull", "--wait", "0")
    assert status == 1
    assert "b1: 1:1 answered 2: 7 check points are in the log; after 0 s the mode has not changed: see --wait" in text
    assert "the mode is set on b0" in text


def test_a_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({"0:1": [ResponseCode.NO_PERMISSION]})
    status, text = run(monkeypatch, brokers, "G", "T", "pop")
    assert (status, brokers.sent) == (1, []) and "b0: 0:1 answered 16" in text


def test_a_broker_without_a_master_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    status, text = run(monkeypatch, Brokers({}, ids=(0, 1)), "G", "T", "pop")
    assert status == 1 and "no master of b1 is registered" in text
