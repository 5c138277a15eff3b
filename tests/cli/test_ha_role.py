"""`ringmq ha promote` and `ringmq ha demote` against a scripted broker."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from ringmq.cli import admin, ha_role
from ringmq.cli.main import main
from ringmq.client.errors import BrokerError
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.role_bodies import LINES_MAX, RoleState

SLAVE = RoleState("broker-a", "slave", 0, "it follows a master, or looks for one")
LOSS = "master 10.0.0.1:10911 lives: it may acknowledge messages behind offset 4096"
PLAN = replace(SLAVE, planned_epoch=65537, order=1)
TAKING = RoleState("broker-a", "taking", 65537, "to master: services start", order=2, is_done=False)
MASTER = RoleState("broker-a", "master", 65537, "it takes requests", order=2)
STOCK = "broker 10.0.0.1:10911 is RocketMQ: start it with brokerRole=SLAVE and brokerId=1"


class Broker:
    """A client of one broker, which answers by its script and keeps what it was asked."""

    def __init__(self, *script: RoleState | BrokerError) -> None:
        self.script = list(script)
        self.asked: list[tuple[str, str, str]] = []

    async def call(self, address: str, code: int, fields: Any, **_: Any) -> RemotingCommand:
        assert code == RequestCode.HA_ROLE
        self.asked.append((address, fields["choice"], fields["acceptsLoss"]))
        said = self.script.pop(0)
        if isinstance(said, BrokerError):
            raise said
        response = RemotingCommand.response_to(RemotingCommand.request(RequestCode.HA_ROLE), 0, None)
        response.body = said.encode()
        return response

    async def close(self) -> None: ...


def ringmq(monkeypatch: pytest.MonkeyPatch, broker: Broker, *arguments: str) -> Any:
    monkeypatch.setattr(admin, "RemotingClient", lambda settings: broker)
    return CliRunner().invoke(main, ["ha", *arguments, "--broker", "b:1", "-n", "ns:9876"])


def choices(broker: Broker) -> Sequence[str]:
    return [choice for _, choice, _ in broker.asked]


def test_a_promotion_is_planned_then_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(PLAN, replace(TAKING, step="to master: workers end their turns"), TAKING, TAKING, MASTER)
    result = ringmq(monkeypatch, broker, "promote")
    assert result.exit_code == 0, result.output
    assert result.stdout == "broker-a b:1 is the master, epoch 65537\n"
    assert result.stderr.splitlines() == ["b:1: to master: services start", "b:1: it takes requests"]
    assert broker.asked[:2] == [("b:1", "plan", "false"), ("b:1", "promote", "false")]
    assert choices(broker)[2:] == ["look"] * 3


def test_a_loss_is_told_and_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(replace(PLAN, losses=(LOSS,)))
    result = ringmq(monkeypatch, broker, "promote")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"messages may be lost: {LOSS}",
        "Error: b:1 is not promoted, because messages may be lost; --accept-loss promotes it",
    ]
    assert choices(broker) == ["plan"]


def test_an_accepted_loss_is_told_before_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(replace(PLAN, losses=(LOSS,)), replace(MASTER, advice=(STOCK,)))
    result = ringmq(monkeypatch, broker, "promote", "--accept-loss")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [f"messages may be lost: {LOSS}", STOCK]
    assert broker.asked[1] == ("b:1", "promote", "true")


def test_a_dry_run_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(replace(PLAN, losses=(LOSS,)))
    result = ringmq(monkeypatch, broker, "promote", "--dry-run", "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "broker": "broker-a", "address": "b:1", "role": "slave", "epoch": 65537, "losses": [LOSS], "advice": [],
    }  # fmt: skip
    assert choices(broker) == ["plan"]
    master = Broker(MASTER)
    result = ringmq(monkeypatch, master, "demote", "--dry-run")
    assert result.stdout == "broker-a b:1 would become a slave\n"
    assert choices(master) == ["look"]
    result = ringmq(monkeypatch, Broker(SLAVE), "demote", "--dry-run")
    assert (result.exit_code, result.stderr) == (1, "Error: b:1 is no master: it is slave, epoch 0\n")


def test_a_demotion(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(replace(MASTER, tenure="yielding", is_done=False), replace(SLAVE, epoch=65537, order=2))
    result = ringmq(monkeypatch, broker, "demote")
    assert result.stdout == "broker-a b:1 is a slave, epoch 65537\n"
    assert broker.asked[0] == ("b:1", "demote", "false")


def test_a_change_that_is_given_up_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(PLAN, TAKING, replace(SLAVE, order=2, failure="the tenure file cannot be written: disk full"))
    result = ringmq(monkeypatch, broker, "promote")
    assert result.exit_code == 1
    assert "b:1 is slave, epoch 0: the tenure file cannot be written: disk full" in result.stderr


def test_another_order_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(PLAN, TAKING, replace(TAKING, order=3))
    result = ringmq(monkeypatch, broker, "promote")
    assert result.exit_code == 1
    assert "has taken another order, or a replacement of its worker control" in result.stderr


def test_the_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_role, "WAIT_S_MAX", 0.0)
    result = ringmq(monkeypatch, Broker(PLAN, TAKING), "promote")
    assert result.exit_code == 1
    assert "b:1 goes on without this command after 0 s: to master: services start" in result.stderr


@pytest.mark.parametrize("command", ["promote", "demote"])
def test_a_stock_broker_is_changed_by_its_configuration(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    stock = Broker(BrokerError("b:1", ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 270009 not supported"))
    result = ringmq(monkeypatch, stock, command)
    assert result.exit_code == 1
    assert "it is RocketMQ or an older version: stop it, set brokerRole and brokerId" in result.stderr


def test_a_host_without_the_right_gets_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = BrokerError("b:1", ResponseCode.NO_PERMISSION, "only loopback and networks of adminAddresses may send it")
    result = ringmq(monkeypatch, Broker(refused), "demote")
    assert result.exit_code == 1
    assert "only loopback and networks of adminAddresses may send it" in result.stderr


def test_the_body_is_read_as_it_was_written() -> None:
    state = replace(TAKING, losses=(LOSS,), advice=(STOCK,), failure="none")
    assert RoleState.decode(state.encode()) == state
    many = replace(state, losses=("a",) * 99)
    assert RoleState.decode(many.encode()).losses == ("a",) * LINES_MAX
