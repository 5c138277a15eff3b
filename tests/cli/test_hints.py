"""What an operator is told when the cluster lacks something: what is missing and what to do."""

from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner

from ringmq.cli import admin
from ringmq.cli.main import main
from ringmq.client.errors import BrokerError
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand


class Cluster:
    """A client of a name server that knows no topic; `body` is its cluster information."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def call(self, address: str, code: int, *_: Any, **__: Any) -> RemotingCommand:
        request = RemotingCommand.request(RequestCode(code))
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            raise BrokerError(address, ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        response = RemotingCommand.response_to(request, 0, None)
        if code == RequestCode.GET_BROKER_CLUSTER_INFO:
            response.body = self.body
        return response

    async def close(self) -> None: ...


EMPTY = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
ONE = (
    b'{"brokerAddrTable":{"b":{"brokerAddrs":{"0":"h:1"},"brokerName":"b","cluster":"c"}},'
    b'"clusterAddrTable":{"c":["b"]}}'
)


def ringmq(monkeypatch: pytest.MonkeyPatch, body: bytes, arguments: Sequence[str]) -> Any:
    monkeypatch.setattr(admin, "RemotingClient", lambda settings: Cluster(body))
    return CliRunner().invoke(main, [*arguments, "-n", "ns:9876"])


@pytest.mark.parametrize("command", ["route", "status"])
def test_a_topic_without_a_route_says_what_to_do(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    result = ringmq(monkeypatch, ONE, ["topic", command, "Absent"])
    assert result.exit_code == 1
    assert "Absent has no route" in result.output and "ringmq topic create Absent" in result.output


def test_no_broker_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ringmq(monkeypatch, EMPTY, ["topic", "create", "T"])
    assert result.exit_code == 1
    assert "no broker is registered at ns:9876" in result.output and "ringmq broker --namesrv ns:9876" in result.output
    result = ringmq(monkeypatch, ONE, ["topic", "create", "T", "--cluster", "other"])
    assert "in cluster other; there is c" in result.output


def test_a_route_that_does_not_come_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "ROUTE_WAIT_S", 0.0)
    result = ringmq(monkeypatch, ONE, ["topic", "create", "T"])
    assert result.exit_code == 0
    assert "no route to T" in result.stderr
    assert "topic T has 8 queues" in result.stdout


@pytest.mark.parametrize(
    "command", ["topic list", "topic delete T", "group progress G", "ha status", "consume T", "produce T -m x"]
)
def test_without_a_name_server_one_line_says_how_to_start_one(command: str, unused_address: str) -> None:
    result = CliRunner().invoke(main, [*command.split(), "-n", unused_address])
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert f"no connection to name server {unused_address}: Connection refused; `ringmq serve` starts one" in line
    assert "--namesrv or RINGMQ_NAMESRV names another" in line
