"""`ringmq ha promote` and `demote` on running brokers: a pair of ours, the death of a master, who may, and refusals."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringmq.cli.main import main
from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.route import TopicRouteData
from tests.raw_client import RawClient
from tests.staging import bodies_of, make_topic
from tests.waiting import wait_until

TOPIC = "Roles"
STORE = {
    "mappedFileSizeCommitLog": 131_072, "mappedFileSizeConsumeQueue": 6000, "maxHashSlotNum": 100, "maxIndexNum": 400,
    "haAllowedNetworks": "127.0.0.0/8", "slaveTimeout": 20_000,
}  # fmt: skip
MASTER = {**STORE, "brokerRole": "SYNC_MASTER"}
SLAVE = {**STORE, "brokerRole": "SLAVE", "brokerId": 1}


def ha(command: str, broker: RunningBroker, names: RunningBroker, *more: str) -> Result:
    return CliRunner().invoke(main, ["ha", command, "--broker", broker.address, "-n", names.namesrv, *more])


def changed(command: str, broker: RunningBroker, names: RunningBroker, *more: str) -> Result:
    """The command, again and again until it is done: a busy machine may be silent for longer than a round of
    questions."""
    return wait_until(
        lambda: next((done for done in [ha(command, broker, names, *more)] if not done.exit_code), None), command
    )


def losses(broker: RunningBroker, names: RunningBroker) -> list[str]:
    """The answer to a dry run."""
    plan = ha("promote", broker, names, "--dry-run", "-o", "json")
    assert plan.exit_code == 0, plan.output
    assert json.loads(plan.stdout)["role"] == "slave"
    found: list[str] = json.loads(plan.stdout)["losses"]
    return found


@pytest.fixture
def names(tmp_path: Path) -> Iterator[RunningBroker]:
    """A name server, which outlives the brokers of the pair."""
    with RunningBroker(tmp_path / "names", {"brokerName": "names"}) as names:
        yield names


def master_at(names: RunningBroker) -> str:
    """The master of the pair for clients."""
    with RawClient(names.namesrv) as client:
        answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    if answer.code:
        return ""
    brokers = TopicRouteData.decode(bytes(answer.body)).broker_datas
    return next((broker.broker_addrs.get(0, "") for broker in brokers if broker.broker_name == "broker-a"), "")


def wait_in_step(master: RunningBroker, slave: RunningBroker) -> None:
    end = read_watermarks(master.store).append_offset
    wait_until(lambda: read_watermarks(slave.store).dispatched_offset >= end, "the slave has the whole log")


def shows(broker: RunningBroker, body: bytes) -> bool:
    """True if a pull finds the body. False while the broker opens its store again, too."""
    try:
        return body in bodies_of(broker.address, TOPIC)
    except (AssertionError, OSError):
        return False


def fill(master: RunningBroker, names: RunningBroker, slave: RunningBroker) -> list[bytes]:
    """Messages that the pair has acknowledged. The slave has topic and log."""
    make_topic(master.address, TOPIC)
    bodies = [b"%d" % number for number in range(20)]
    with RawClient(master.address) as client:
        wait_until(lambda: client.send(TOPIC, b"first").code == 0, "the slave is in sync")
        assert {client.send(TOPIC, body, number % 2).code for number, body in enumerate(bodies)} == {0}
    wait_in_step(master, slave)
    wait_until(lambda: bodies_of(slave.address, TOPIC), "the slave has the topic")
    wait_until(lambda: master_at(names) == master.address, "clients know the master")
    return bodies


def test_a_pair_changes_its_roles_while_it_runs(tmp_path: Path, names: RunningBroker) -> None:
    with (
        RunningBroker(tmp_path / "a", MASTER, namesrv=names.namesrv) as a,
        RunningBroker(tmp_path / "b", SLAVE, namesrv=names.namesrv) as b,
        RawClient(a.address) as to_a,
        RawClient(b.address) as to_b,
    ):
        bodies = fill(a, names, b)
        wait_until(lambda: any(f"master {a.address} lives" in line for line in losses(b, names)), "the master is seen")
        refused = ha("promote", b, names)
        assert refused.exit_code == 1 and "is not promoted" in refused.stderr
        done = changed("demote", a, names)
        assert done.stdout == f"broker-a {a.address} is a slave, epoch 0\n"
        assert to_a.send(TOPIC, b"refused").code == ResponseCode.SYSTEM_BUSY
        wait_until(lambda: not losses(b, names), "the demoted broker has answered")
        done = changed("promote", b, names)
        assert done.stdout.startswith(f"broker-a {b.address} is the master, epoch ")
        wait_until(lambda: master_at(names) == b.address, "clients know the new master")
        wait_until(lambda: to_b.send(TOPIC, b"second").code == 0, "the old master follows")
        wait_in_step(b, a)
        assert sorted({*bodies, b"first", b"second"}) == sorted(set(bodies_of(b.address, TOPIC)))
        assert bodies_of(a.address, TOPIC) == bodies_of(b.address, TOPIC)
        assert a.stop() == 0 and b.stop() == 0


def test_an_old_master_that_comes_back_follows(tmp_path: Path, names: RunningBroker) -> None:
    """Its configuration still names a master, and it has messages that the promoted slave never got."""
    with (
        RunningBroker(tmp_path / "a", MASTER, namesrv=names.namesrv) as a,
        RunningBroker(tmp_path / "b", SLAVE, namesrv=names.namesrv) as b,
        RawClient(b.address) as to_b,
    ):
        bodies = fill(a, names, b)
        port = a.port
        a.kill_all()
        wait_until(lambda: not master_at(names), "the name server knows no master")
        changed("promote", b, names)
        with RunningBroker(tmp_path / "a", MASTER, namesrv=names.namesrv, port=port) as again:
            wait_until(lambda: to_b.send(TOPIC, b"second").code == 0, "the old master follows")
            wait_in_step(b, again)
            assert master_at(names) == b.address
            assert set(bodies) < set(bodies_of(again.address, TOPIC)) == set(bodies_of(b.address, TOPIC))
            with RawClient(again.address) as to_a:
                assert to_a.send(TOPIC, b"refused").code == ResponseCode.SYSTEM_BUSY
            assert again.stop() == 0
        assert b.stop() == 0


def test_what_a_promoted_broker_is_lasts_over_restarts(tmp_path: Path, names: RunningBroker) -> None:
    with RunningBroker(tmp_path / "b", SLAVE, namesrv=names.namesrv) as b:
        changed("promote", b, names, "--accept-loss")
        port = b.port
        make_topic(b.address, TOPIC)
        with RawClient(b.address) as client:
            assert client.send(TOPIC, b"first").code == ResponseCode.SUCCESS
        b.kill_all()
    with RunningBroker(tmp_path / "b", SLAVE, namesrv=names.namesrv, port=port) as b, RawClient(b.address) as client:
        wait_until(lambda: client.send(TOPIC, b"second").code == 0, "it is the master again")
        assert master_at(names) == b.address
        assert ha("promote", b, names).exit_code == 1
        assert b.stop() == 0


def test_two_brokers_that_start_at_once_agree_on_the_master(tmp_path: Path, names: RunningBroker) -> None:
    """The old master has no file yet, and its configuration names a master."""
    with (
        RunningBroker(tmp_path / "a", MASTER, namesrv=names.namesrv) as a,
        RunningBroker(tmp_path / "b", SLAVE, namesrv=names.namesrv) as b,
    ):
        fill(a, names, b)
        ports = a.port, b.port
        a.kill_all()
        wait_until(lambda: not master_at(names), "the name server knows no master")
        changed("promote", b, names)
        b.kill_all()
    with ThreadPoolExecutor() as pool:
        of_a, of_b = (
            pool.submit(RunningBroker, tmp_path / name, settings, namesrv=names.namesrv, port=port)
            for name, settings, port in (("a", MASTER, ports[0]), ("b", SLAVE, ports[1]))
        )
        with of_a.result() as a, of_b.result() as b, RawClient(b.address) as to_b, RawClient(a.address) as to_a:
            wait_until(lambda: to_b.send(TOPIC, b"second").code == 0, "the promoted broker serves")
            assert to_a.send(TOPIC, b"refused").code == ResponseCode.SYSTEM_BUSY
            wait_in_step(b, a)
            assert bodies_of(a.address, TOPIC) == bodies_of(b.address, TOPIC)
            assert a.stop() == 0 and b.stop() == 0


def test_a_stopped_master_makes_way_when_it_goes_on(tmp_path: Path, names: RunningBroker) -> None:
    with (
        RunningBroker(tmp_path / "a", MASTER, namesrv=names.namesrv) as a,
        RunningBroker(tmp_path / "b", SLAVE, namesrv=names.namesrv) as b,
        RawClient(b.address) as to_b,
    ):
        bodies = fill(a, names, b)
        group = os.getpgid(a.process.pid)
        os.killpg(group, signal.SIGSTOP)
        try:
            changed("promote", b, names, "--accept-loss")
        finally:
            os.killpg(group, signal.SIGCONT)
        wait_until(lambda: to_b.send(TOPIC, b"second").code == 0, "the old master follows")
        wait_in_step(b, a)
        wait_until(lambda: master_at(names) == b.address, "clients know the new master")
        with RawClient(a.address) as to_a:
            assert to_a.send(TOPIC, b"refused").code == ResponseCode.SYSTEM_BUSY
        assert set(bodies) < set(bodies_of(a.address, TOPIC)) == set(bodies_of(b.address, TOPIC))
        assert a.stop() == 0 and b.stop() == 0


def test_what_a_promotion_has_left_behind_holds_no_sends(tmp_path: Path, names: RunningBroker) -> None:
    """The old master has acknowledged messages alone, as ASYNC_MASTER may. They go to its salvage folder."""
    settings = {**MASTER, "brokerRole": "ASYNC_MASTER"}
    with RunningBroker(tmp_path / "a", settings, namesrv=names.namesrv) as a:
        port = a.port
        with RunningBroker(tmp_path / "b", SLAVE, namesrv=names.namesrv) as b:
            fill(a, names, b)
            b.kill_all()
        with RawClient(a.address) as to_a:
            assert to_a.send(TOPIC, b"alone").code == ResponseCode.SUCCESS
        a.kill_all()
    with RunningBroker(tmp_path / "b", SLAVE, namesrv=names.namesrv) as b, RawClient(b.address) as to_b:
        changed("promote", b, names, "--accept-loss")
        assert to_b.send(TOPIC, b"second").code == ResponseCode.SUCCESS
        with RunningBroker(tmp_path / "a", settings, namesrv=names.namesrv, port=port) as again:
            wait_until(lambda: shows(again, b"second"), "the old master follows")
            assert to_b.send(TOPIC, b"third").code == ResponseCode.SUCCESS
            wait_in_step(b, again)
            assert bodies_of(again.address, TOPIC) == bodies_of(b.address, TOPIC)
            assert any(b"alone" in path.read_bytes() for path in (again.store / "salvage").iterdir())
