"""`ringmq group inflight` against a running broker, and against brokers that cannot answer."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ringmq.cli.main import main
from ringmq.client.errors import BrokerError, ConnectError
from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.cli import inflight
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.pop_bodies import ClientShare, OpenPop, PopInflight, QueueShare
from tests.broker.test_processes import SMALL
from tests.commands import run_ringmq
from tests.pop.pop_client import PopClient, Taken
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("inflight") / "store", SMALL) as running:
        yield running


def shown(broker: RunningBroker, *words: str) -> dict[str, Any]:
    """The one entry, as JSON."""
    done = run_ringmq("group", "inflight", *words, "--namesrv", broker.namesrv, "-o", "json")
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(done.stdout)
    found: dict[str, Any] = entry
    return found


def test_open_messages_are_shown_with_the_ids_of_their_clients(broker: RunningBroker) -> None:
    with contextlib.closing(PopClient(broker.address, "G", "T")) as client:
        for number in range(12):
            assert client.raw.send("T", b"%d" % number).code == 0
        client.join("worker-7")
        taken: list[Taken] = []

        def has_all() -> bool:  # a message is in its queue a while after its send
            taken.extend(client.pop(1, invisible_ms=600_000))
            return len(taken) == 12

        wait_until(has_all, "all messages are popped", state=lambda: [one.offset for one in taken])
        assert client.ack(taken[0]).code == 0
        host, port = client.raw.socket.getsockname()
        entry = shown(broker, "G", "--rows", "3")
        assert (entry["broker"], entry["address"]) == ("broker-a", broker.address)
        assert (entry["messages"], entry["pops"], entry["due"], entry["returned"]) == (11, 11, 0, 0)
        (row,) = entry["clients"]
        assert (row["client"], row["clientId"], row["messages"]) == (f"{host}:{port}", "worker-7", 11)
        assert [one["queueOffset"] for one in entry["oldest"]] == [1, 2, 3]
        assert shown(broker, "G", "--topic", "T")["messages"] == 11
        text = run_ringmq("group", "inflight", "G", "--rows", "3", "--namesrv", broker.namesrv).stdout
        assert f"broker-a {broker.address}: 11 open messages of 11 pops" in text
        assert f"worker-7 ({host}:{port})" in text
        assert "... and 8 more, see --rows" in text


def test_a_worker_that_rests_has_nothing(broker: RunningBroker) -> None:
    assert run_ringmq("group", "create", "quiet", "--namesrv", broker.namesrv).returncode == 0
    assert shown(broker, "quiet")["messages"] == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nobody",), "group nobody does not exist"),
        (("quiet", "--topic", "nothing"), "nothing"),
        (("quiet", "--rows", "65"), "--rows"),
    ],
)
def test_errors_name_their_cause(broker: RunningBroker, words: tuple[str, ...], error: str) -> None:
    run_ringmq("group", "create", "quiet", "--namesrv", broker.namesrv)
    done = run_ringmq("group", "inflight", *words, "--namesrv", broker.namesrv)
    assert done.returncode != 0
    assert error in done.stderr


# ---- brokers that cannot answer ----

SEEN = PopInflight(
    5, 2, 3, 4, 1, 9, (OpenPop("T", 1, 7, 2, 90_000, -500, "0a0b0c0d", 3), OpenPop("T", 1, 9, 1, 7, 9, "")),
    (QueueShare("T", 1, 5, 90_000, -500),), (ClientShare("0a0b0c0d", 5, 90_000, -500),),
)  # fmt: skip


class Brokers:
    """An admin of brokers that answer as the test says."""

    namespace = ""

    def __init__(self, answers: dict[str, PopInflight | Exception], groups: list[str]) -> None:
        self._answers, self._groups = answers, groups
        self.client = self

    async def call(self, address: str, code: int, fields: dict[str, str], *, timeout_ms: int) -> Any:
        answer = self._answers[address]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(body=answer.encode())

    async def masters(self) -> list[str]:
        return list(self._answers)

    async def cluster_info(self) -> Any:
        return SimpleNamespace(brokers={f"name-{at}": SimpleNamespace(master_addr=at) for at in self._answers})

    async def connections(self, group: str) -> None:
        raise ConnectError("a:1", "refused")

    async def groups(self) -> list[str]:
        return self._groups


def run(monkeypatch: pytest.MonkeyPatch, brokers: Brokers, *words: str) -> tuple[int, str]:
    """The status and the text of the command."""

    @contextlib.asynccontextmanager
    async def opened(*arguments: Any) -> AsyncIterator[Brokers]:
        yield brokers

    monkeypatch.setattr(inflight, "open_admin", opened)
    done = CliRunner().invoke(main, ["group", "inflight", *words])
    return done.exit_code, done.output


def refused(code: int) -> BrokerError:
    return BrokerError("a:1", code, "no")


def test_brokers_that_cannot_answer_are_named_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    old = refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    brokers = Brokers({"a:1": SEEN, "b:1": old, "c:1": ConnectError("c:1", "refused"),
                       "d:1": refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)}, ["G"])  # fmt: skip
    status, text = run(monkeypatch, brokers, "G")
    assert status == 0
    assert "name-a:1 a:1: 5 open messages of 4 pops" in text
    assert "of them 2 whose time is over" in text and "beside them 3 that no client has received" in text
    assert "... and 2 more, see --rows" in text and "... and 8 more, see --rows" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["T", "1", "7", "2", "3", "90000", "-500", "0a0b0c0d"] in rows
    assert ["T", "1", "9", "1", "-", "7", "9", "-"] in rows, "neither attempts nor client are known"
    assert ["T", "1", "5", "90000", "-500"] in rows and ["0a0b0c0d", "5", "90000", "-500"] in rows
    assert "name-b:1 b:1: it does not know this request" in text
    assert "name-c:1 c:1: no connection to c:1: refused" in text
    assert "d:1" not in text, "it does not know the group"


def test_it_fails_if_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    status, text = run(monkeypatch, Brokers({"a:1": ConnectError("a:1", "refused")}, ["G"]), "G")
    assert status == 1 and "no connection to a:1: refused" in text


def test_a_group_that_no_broker_knows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
    status, text = run(monkeypatch, Brokers({"a:1": unknown}, []), "G")
    assert status == 1 and "group G does not exist" in text


def test_topics_of_a_namespace_are_named_as_its_clients_do() -> None:
    answer = PopInflight(
        1, 0, 0, 1, 1, 1, queues=(QueueShare("%RETRY%ns%G+ns%T", 0, 1, 1), QueueShare("ns%T", 0, 1, 1))
    )
    rows = inflight.with_members(answer.to_json(), {}, "ns")["queues"]
    assert [row["topic"] for row in rows] == ["%RETRY%G+ns%T", "T"]


def test_it_is_a_command_of_group() -> None:
    group = main.get_command(click.Context(main), "group")
    assert isinstance(group, click.Group)
    assert "inflight" in group.commands
