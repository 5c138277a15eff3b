"""A master that has lost a tail which its slave has: writes are held until it is decided whose log is right."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.ha_bodies import HaStatus
from ringmq.remoting.json_body import read_object, write_body
from ringmq.store.config_files import load_config, persist_config
from ringmq.store.store_task import CUT, StoreTask, write_task
from ringmq.store.write_hold import read_hold
from tests.ha.test_pair import MASTER, NAMED, SLAVE, log_bytes, marks, running_slave, wait_for_slave
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

ASYNC = {**MASTER, "brokerRole": "ASYNC_MASTER", **NAMED}
SENT = [b"%d " % number + b"x" * 700 for number in range(60)]
LOST_FROM = 30_000
LATE = b"to a topic that was made last"
NO_HOLD = "none"


def bodies(broker: RunningBroker) -> list[bytes]:
    return [bytes(message.body) for message in messages_of(broker.address, "Diverged", 1)]


def send_all(broker: RunningBroker, messages: list[bytes]) -> None:
    with RawClient(broker.address) as client:
        for body in messages:
            assert client.send("Diverged", body).code == 0


def offset_of(broker: RunningBroker) -> int:
    """Of the group G on the one queue, -1 for none."""
    with RawClient(broker.address) as client:
        answer = client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET, {})
        table = read_object(answer.body, "offsets")["offsetTable"] if answer.code == 0 else {}
        return int(table.get("Diverged@G", {}).get("0", -1))


def commit(broker: RunningBroker, offset: int) -> None:
    """For the group G, which is made."""
    with RawClient(broker.address) as client:
        group = write_body(SubscriptionGroupConfig("G").to_json())
        assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group).code == 0
        fields = {"consumerGroup": "G", "topic": "Diverged", "queueId": "0", "commitOffset": str(offset)}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0


def queues_of(broker: RunningBroker) -> int:
    """Of the topic, as the broker has it."""
    with RawClient(broker.address) as client:
        answer = client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Diverged"})
        return int(read_object(answer.body, "topic")["readQueueNums"])


def is_held(broker: RunningBroker) -> bool:
    """As the master says; a send would make the logs differ as long as it is not."""
    with RawClient(broker.address) as client:
        return HaStatus.decode(client.ask(RequestCode.HA_STATUS, {}).body).write_hold != NO_HOLD


def held_for(broker: RunningBroker) -> list[str]:
    """Addresses of the slaves that wait for a decision; none while control is away."""
    with RawClient(broker.address) as client:
        answer = client.ask(RequestCode.HA_STATUS, {})
        return [entry.address for entry in HaStatus.decode(answer.body).divergences] if answer.code == 0 else []


def takes_sends(broker: RunningBroker) -> bool:
    with RawClient(broker.address) as client:
        return client.send("Diverged", b"?").code == 0


def decide(broker: RunningBroker, choice: str) -> None:
    with RawClient(broker.address) as client:
        assert client.ask(RequestCode.HA_DECIDE, {"brokerId": 1, "choice": choice}).code == 0


def change_live(broker: RunningBroker, assignment: str) -> None:
    with RawClient(broker.address) as client:
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, assignment.encode()).code == 0


def settings_of(broker: RunningBroker) -> list[str]:
    """name=value, as the broker says them."""
    with RawClient(broker.address) as client:
        return bytes(client.ask(RequestCode.GET_BROKER_CONFIG, {}).body).decode().splitlines()


@pytest.fixture(scope="module")
def stopped_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Stores of a pair in `master` and `slave`; the master is to lose what it has from LOST_FROM on. The log's end."""
    folder = tmp_path_factory.mktemp("pair")
    with RunningBroker(folder / "master", ASYNC) as master:
        make_topic(master.address, "Diverged", 1)
        make_topic(master.address, "Late", 1)
        commit(master, 7)
        with running_slave(folder, master) as slave:
            send_all(master, SENT)
            with RawClient(master.address) as client:
                assert client.send("Late", LATE).code == 0
            end = wait_for_slave(master, slave)
            wait_until(lambda: offset_of(slave) == 7, "the slave has the tables")
        assert master.stop() == 0
    write_task(folder / "master", StoreTask(CUT, LOST_FROM))
    return folder, end


@pytest.fixture
def slave_end(tmp_path: Path, stopped_pair: tuple[Path, int]) -> int:
    """Puts the pair's stores into tmp_path; the end of the slave's log."""
    folder, end = stopped_pair
    for name in ("master", "slave"):
        shutil.copytree(folder / name, tmp_path / name)
    return end


@contextmanager
def held_pair(tmp_path: Path, slave_end: int) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    """Master and slave are back, and the master holds its writes."""
    with RunningBroker(tmp_path / "master", ASYNC) as master:
        assert marks(master).append_offset <= LOST_FROM
        with running_slave(tmp_path, master) as slave:
            wait_until(lambda: is_held(master), "writes are held")
            assert not takes_sends(master)
            assert marks(master).append_offset <= LOST_FROM < marks(slave).append_offset == slave_end
            yield master, slave
        assert master.stop() == 0


def test_an_operator_adopts_the_slaves_tail(tmp_path: Path, slave_end: int) -> None:
    with held_pair(tmp_path, slave_end) as (master, slave):
        pid = master.process.pid
        change_live(master, "ringmqSlowRequestMs=777")
        decide(master, "adopt")
        wait_until(lambda: marks(master).live and marks(master).append_offset == slave_end, "the tail is taken over")
        wait_until(lambda: takes_sends(master), "writes go on")
        assert master.process.pid == pid and master.process.poll() is None
        assert bodies(master)[: len(SENT)] == SENT
        assert "ringmqSlowRequestMs=777" in settings_of(master), "what was changed live holds"
        end = wait_for_slave(master, slave)
        assert log_bytes(slave.store, 0, end) == log_bytes(master.store, 0, end)


def test_an_operator_gives_the_slaves_tail_up(tmp_path: Path, slave_end: int) -> None:
    tail = log_bytes(tmp_path / "slave", LOST_FROM, slave_end)
    with held_pair(tmp_path, slave_end) as (master, slave):
        decide(master, "salvage")
        wait_until(lambda: takes_sends(master), "writes go on")
        wait_until(lambda: marks(slave).live and marks(slave).append_offset == marks(master).append_offset, "it is cut")
        end = wait_for_slave(master, slave)
        assert log_bytes(slave.store, 0, end) == log_bytes(master.store, 0, end)
        assert bodies(master)[:-1] == SENT[: len(bodies(master)) - 1]
    saved = b"".join(path.read_bytes() for path in sorted((tmp_path / "slave" / "salvage").iterdir()))
    assert tail in saved


def test_a_hold_outlives_every_death_and_an_adoption_without_the_slave(tmp_path: Path, slave_end: int) -> None:
    """The slave never comes back: nothing that it has acknowledged is written over before somebody has chosen."""
    with RunningBroker(tmp_path / "master", ASYNC) as master:
        with RunningBroker(tmp_path / "slave", SLAVE, namesrv=master.namesrv) as slave:
            wait_until(lambda: is_held(master), "writes are held")
            slave.close()  # for good
        address = slave.address
        master.signal_worker("control", signal.SIGKILL)
        assert not takes_sends(master)
        wait_until(lambda: held_for(master) == [address], "control is back and knows why")
        master.kill_all()
    with RunningBroker(tmp_path / "master", ASYNC) as master:
        assert not takes_sends(master)
        assert held_for(master) == [address]
        decide(master, "adopt")
        wait_until(lambda: "was not taken over" in master.log_tail(), "the adoption has ended")
        wait_until(lambda: held_for(master) == [address], "the store is open again, and writes are held")
        assert not takes_sends(master)
        decide(master, "salvage")
        assert takes_sends(master)
        assert master.stop() == 0
    assert read_hold(tmp_path / "master") == (), "what was decided stays decided"


def test_a_master_with_an_empty_disk_gets_all_back_from_its_slave(tmp_path: Path, slave_end: int) -> None:
    shutil.rmtree(tmp_path / "master")
    topics = load_config(tmp_path / "slave", "topics.json")
    del topics["topicConfigTable"]["Late"]  # made so shortly before the end that the slave was not told
    persist_config(tmp_path / "slave", "topics.json", topics)
    with RunningBroker(tmp_path / "master", ASYNC) as master:
        with RunningBroker(
            tmp_path / "slave", {**SLAVE, "ringmqSlaveSyncPeriod": 100}, namesrv=master.namesrv
        ) as slave:
            wait_until(lambda: is_held(master), "writes are held")
            with RawClient(slave.address) as client:
                assert client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Diverged"}).code == 0
            assert offset_of(slave) == 7
            make_topic(master.address, "Diverged", 4)  # as clients that run on have it made, with defaults
            commit(master, 0)
            decide(master, "adopt")
            wait_until(lambda: marks(master).live and marks(master).append_offset == slave_end, "it is taken over")
            wait_until(lambda: takes_sends(master), "writes go on")
            assert bodies(master)[: len(SENT)] == SENT
            assert offset_of(master) == 7
            assert queues_of(master) == 1
            make_topic(master.address, "Late", 1)
            assert [bytes(message.body) for message in messages_of(master.address, "Late", 1)] == [LATE]
            end = wait_for_slave(master, slave)
            assert end > slave_end
            assert log_bytes(slave.store, 0, end) == log_bytes(master.store, 0, end)
            assert slave.stop() == 0
        assert master.stop() == 0


def test_a_rule_adopts_without_being_asked(tmp_path: Path, slave_end: int) -> None:
    with RunningBroker(tmp_path / "master", {**ASYNC, "haDivergenceRule": "adopt"}) as master:
        with running_slave(tmp_path, master) as slave:
            wait_until(lambda: marks(master).live and marks(master).append_offset >= slave_end, "it is taken over")
            wait_until(lambda: takes_sends(master), "writes go on")
            assert bodies(master)[: len(SENT)] == SENT
            end = wait_for_slave(master, slave)
            assert log_bytes(slave.store, 0, end) == log_bytes(master.store, 0, end)
        assert master.stop() == 0


def test_logs_that_differ_are_told_apart_and_the_slaves_part_is_kept(tmp_path: Path, slave_end: int) -> None:
    """The master has gone on without the slave: the same offsets hold something else."""
    others = [b"other %d" % number + b"y" * 900 for number in range(60)]
    with RunningBroker(tmp_path / "master", ASYNC) as master:
        kept = len(bodies(master))
        send_all(master, others)
        assert marks(master).append_offset > slave_end
        with running_slave(tmp_path, master) as slave:
            wait_until(lambda: is_held(master), "writes are held")
            assert not takes_sends(master)
            assert marks(slave).append_offset == slave_end
            decide(master, "salvage")
            wait_until(lambda: marks(slave).live and marks(slave).append_offset > slave_end, "it follows again")
            end = wait_for_slave(master, slave)
            assert log_bytes(slave.store, 0, end) == log_bytes(master.store, 0, end)
            assert bodies(master)[: kept + len(others)] == SENT[:kept] + others
        assert master.stop() == 0
    saved = b"".join(path.read_bytes() for path in sorted((tmp_path / "slave" / "salvage").iterdir()))
    assert all(body in saved for body in SENT[kept:])


def test_with_an_empty_list_a_longer_slave_holds_nobody_up(tmp_path: Path, slave_end: int) -> None:
    """Each side says which property would let it go on; the slave's log stays as it is."""
    unnamed = {**ASYNC, "haAllowedNetworks": ""}
    with RunningBroker(tmp_path / "master", unnamed) as master:
        with running_slave(tmp_path, master, {}) as slave:
            line = "haAllowedNetworks of the master does not name 127.0.0.1"
            wait_until(lambda: line in master.log_tail() and line in slave.log_tail(), "both say why")
            assert takes_sends(master)
            assert marks(slave).append_offset == slave_end
        assert master.stop() == 0
    assert read_hold(tmp_path / "master") == ()
