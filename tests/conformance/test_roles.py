"""A stock peer while a RingMQ broker changes its role: ours changes, and says what is left to do at stock's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringmq.cli.main import main
from tests.conformance.replication import Group, RingmqNode, stored_log
from tests.raw_client import RawClient
from tests.staging import bodies_of, make_topic
from tests.waiting import wait_until

TOPIC = "Roles"
NAMED = {"haAllowedNetworks": "127.0.0.0/8"}

pytestmark = pytest.mark.timeout(240)


def ha(group: Group, command: str, address: str, *more: str) -> Result:
    return CliRunner().invoke(main, ["ha", command, "--broker", address, "-n", group.namesrv, *more])


def changed(group: Group, command: str, address: str, *more: str) -> None:
    """The command, again and again until it is done: a busy machine may be silent for longer than a round of
    questions."""
    wait_until(lambda: not ha(group, command, address, *more).exit_code, command)


def send(address: str, *bodies: bytes) -> None:
    with RawClient(address) as client:
        for body in bodies:
            wait_until(lambda body=body: client.send(TOPIC, body).code == 0, "the master takes sends")  # type: ignore[misc]


@pytest.fixture
def behind_stock(tmp_path: Path) -> Iterator[Group]:
    """A RingMQ slave of a stock master."""
    group = Group(tmp_path, "stock", "ringmq")
    try:
        yield group
    finally:
        group.close()


@pytest.fixture
def before_stock(tmp_path: Path) -> Iterator[Group]:
    """A stock slave of a RingMQ master."""
    group = Group(tmp_path, "ringmq", "stock", **NAMED)
    try:
        yield group
    finally:
        group.close()


def test_a_slave_of_a_stock_master_is_promoted_and_stock_follows(behind_stock: Group) -> None:
    group = behind_stock
    make_topic(group.master.address, TOPIC)
    slave = group.start_slave()
    assert isinstance(slave, RingmqNode)
    slave.stop()
    slave.start(**NAMED)
    send(group.master.address, b"1", b"2")
    group.wait_equal()
    wait_until(lambda: len(bodies_of(slave.address, TOPIC)) == 2, "the slave has the topic")
    plan = ha(group, "promote", slave.address, "--dry-run")
    assert f"stock master {group.master.address} lives" in plan.stderr
    assert (
        f"broker {group.master.address} is RocketMQ or an older version: start it with brokerRole=SLAVE" in plan.stderr
    )
    assert ha(group, "promote", slave.address).exit_code == 1
    group.master.stop()
    refused = ha(group, "promote", slave.address)
    assert refused.exit_code == 1 and "the policy of the last one is not known" in refused.stderr
    changed(group, "promote", slave.address, "--accept-loss")
    send(slave.address, b"3")
    group.master.start(brokerRole="SLAVE", brokerId=2)
    send(slave.address, b"4")
    wait_until(lambda: stored_log(group.master.store) == stored_log(slave.store), "stock follows")
    assert sorted(bodies_of(slave.address, TOPIC)) == [b"1", b"2", b"3", b"4"]


def test_a_demoted_master_follows_a_stock_one(before_stock: Group) -> None:
    group = before_stock
    make_topic(group.master.address, TOPIC)
    slave = group.start_slave()
    send(group.master.address, b"1", b"2")
    group.wait_equal()
    changed(group, "demote", group.master.address)
    slave.stop()
    slave.start(brokerRole="ASYNC_MASTER", brokerId=0)
    make_topic(slave.address, TOPIC)  # a stock slave takes topics over after a minute
    send(slave.address, b"3")
    wait_until(lambda: stored_log(group.master.store) == stored_log(slave.store), "the demoted broker follows")
    wait_until(lambda: sorted(bodies_of(group.master.address, TOPIC)) == [b"1", b"2", b"3"], "it can be read")
