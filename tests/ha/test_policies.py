"""Every policy that can be told from the others by what its slaves do, on a running broker: who waits for whom."""

import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.admin_bodies import decode_kv_table
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.store.checkpoint import read_checkpoint
from tests.broker.exporter_kit import value
from tests.conformance.wire import send_fields, shortened
from tests.drill.settings import SMALL_STORE
from tests.ha.scripted_slave import ScriptedSlave, status
from tests.raw_client import SEND_V2, RawClient
from tests.waiting import wait_until

EAST, WEST, ALSO_EAST = "127.0.0.2", "127.0.0.3", "127.0.0.4"
ROOMS = f"{EAST}=east;{WEST}=west;{ALSO_EAST}=east"
OK, NOT_ENOUGH = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR
LARGE = b"x" * 60_000
SPAN_S = 0.15
"""What is not answered within it waits."""
TIMEOUT_S = 8
"""A slaveTimeout that runs out. A quarter of it, for the answers, is long for a machine that runs nothing else."""
SETTINGS: dict[str, object] = {
    **SMALL_STORE, "brokerRole": "SYNC_MASTER", "slaveTimeout": 120_000, "haHousekeepingInterval": 600_000,
}  # fmt: skip


class Sending:
    """A producer with one send under way."""

    def __init__(self, broker: RunningBroker, body: bytes = b"x") -> None:
        self._broker = broker
        self._client = RawClient(broker.address)
        self._client.send_request(SEND_V2, shortened(send_fields("TopicA", 0, {})), body)

    @property
    def end(self) -> int:
        """End of the log with it, once it is appended."""
        return read_watermarks(self._broker.store).append_offset

    def waits(self) -> bool:
        """No answer comes for a while."""
        self._client.socket.settimeout(SPAN_S)
        try:
            self._client.socket.recv(1, 2)  # MSG_PEEK
        except TimeoutError:
            return True
        return False

    def code(self) -> int:
        """The answer's code; waits for it."""
        self._client.socket.settimeout(60)
        answer = self._client.receive()
        assert answer is not None
        self._client.close()
        return int(answer.code)


@contextmanager
def group(folder: Path, *hosts: str, **settings: object) -> Iterator[tuple[RunningBroker, list[ScriptedSlave]]]:
    """A master and slaves that have begun to follow."""
    with RunningBroker(folder / "store", {**SETTINGS, **settings}) as broker, ExitStack() as slaves:
        following = [slaves.enter_context(ScriptedSlave(broker, host)) for host in hosts]
        wait_until(lambda: status(broker).in_sync_replicas == 1 + len(hosts), "all are in sync")
        yield broker, following


def runtime_info(client: RawClient) -> dict[str, str]:
    """What `mqadmin brokerStatus` shows."""
    return decode_kv_table(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {}).body)


def appended(broker: RunningBroker, end: int) -> int:
    """The log's end, once it is beyond `end`."""
    wait_until(lambda: read_watermarks(broker.store).append_offset > end, "it is appended")
    return read_watermarks(broker.store).append_offset


def done_of(sendings: list[Sending]) -> int:
    """How many have their answer."""
    return sum(not sending.waits() for sending in sendings)


# -- replicationPolicy: how far one replica must have come ---------------------------------------------------------


@pytest.mark.parametrize("policy", ["received", "cached"])
def test_levels(tmp_path: Path, policy: str) -> None:
    """One slave that first reads nothing, then everything, and at last reports it."""
    with group(tmp_path, WEST, replicationPolicy=policy) as (broker, (slave,)):
        slave.reads = False
        sending = Sending(broker, LARGE)
        appended(broker, 0)
        assert sending.waits(), "it is not in the slave's kernel as long as that has no room for it"
        slave.reads = True
        if policy == "cached":
            wait_until(lambda: slave.end == sending.end, "the slave has it")
            assert sending.waits(), "it has not said so"
            slave.report()
        assert sending.code() == OK
        with urllib.request.urlopen(f"{broker.metrics_url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        name = "ringmq_request_seconds"
        assert value(text, f"{name}_count", stage="replicated") == 1
        appended_s, replicated_s = (value(text, f"{name}_sum", stage=stage) for stage in ("appended", "replicated"))
        assert replicated_s >= appended_s + SPAN_S, "it waited for the slave"


def test_sent_waits_for_the_window_and_handed_does_not(tmp_path: Path) -> None:
    for policy in ("sent", "handed"):
        window = {"ringmqHaWindowBytes": 65_536}
        with group(tmp_path / policy, WEST, replicationPolicy=policy, **window) as (broker, (slave,)):
            waiting = []
            while len(waiting) < 8:  # a window takes the largest record and a transfer in any case
                waiting.append(Sending(broker, LARGE))
                appended(broker, 60_000 * (len(waiting) - 1))
            assert waiting[-1].waits() or policy == "handed"
            wait_until(lambda: slave.end > 0, "the slave has some")
            least, most = (8, 8) if policy == "handed" else (1, 7)
            wait_until(lambda n=least, s=waiting: done_of(s) >= n, "what needs no report is answered")
            assert done_of(waiting) <= most
            slave_done = 0
            while slave_done < read_watermarks(broker.store).append_offset:
                slave.report()
                slave_done = slave.end
            assert [sending.code() for sending in waiting] == [OK] * 8


def test_flushed_counts_only_who_says_that_its_reports_are_flushed_offsets(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {**SETTINGS, "replicationPolicy": "flushed"}) as broker:
        with ScriptedSlave(broker):
            wait_until(lambda: len(status(broker).slaves) == 1, "a stock slave is connected")
            assert Sending(broker).code() == NOT_ENOUGH, "a stock slave cannot say what is on its disk"
        wait_until(lambda: not status(broker).slaves, "it is gone")
        with ScriptedSlave(broker, level="flushed") as slave:
            wait_until(lambda: status(broker).in_sync_replicas == 2, "this one counts")
            sending = Sending(broker)
            wait_until(lambda: slave.end > 0, "it has it")
            assert sending.waits()
            slave.report()
            assert sending.code() == OK


# -- replicaPolicy: how many, and where ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "hosts", "enough"),
    [
        ({}, (EAST, WEST), (WEST,)),
        ({"flushDiskType": "SYNC_FLUSH"}, (EAST, WEST), (WEST,)),
        ({"replicaPolicy": "one"}, (EAST, WEST), (EAST,)),
        ({"inSyncReplicas": 3}, (EAST, WEST, ALSO_EAST), (EAST, ALSO_EAST)),
        ({"replicaPolicy": "majority", "totalReplicas": 5}, (EAST, WEST, ALSO_EAST), (WEST, EAST)),
        ({"replicaPolicy": "all", "totalReplicas": 4}, (EAST, WEST, ALSO_EAST), (WEST, EAST, ALSO_EAST)),
        (
            {"replicaPolicy": "rooms", "haRoom": "east", "haReplicaRooms": ROOMS},
            (EAST, WEST, ALSO_EAST),
            (EAST, ALSO_EAST, WEST),
        ),
        ({"inSyncReplicas": 3, "enableAutoInSyncReplicas": True}, (EAST,), (EAST,)),
        ({"haAllowedReplicas": WEST}, (WEST,), (WEST,)),
    ],
    ids=["SYNC_MASTER", "SYNC_FLUSH", "one", "inSyncReplicas", "majority", "all", "rooms", "auto", "allowed"],
)
def test_replicas(tmp_path: Path, settings: dict[str, object], hosts: tuple[str, ...], enough: tuple[str, ...]) -> None:
    """The answer comes with the last report of those that are `enough`, and not one earlier."""
    with group(tmp_path, *hosts, **settings) as (broker, slaves):
        by_host = dict(zip(hosts, slaves, strict=True))
        sending = Sending(broker)
        end = appended(broker, 0)
        for host in enough:
            assert sending.waits(), f"before the report of {host}"
            wait_until(lambda slave=by_host[host]: slave.end == end, "it has it")
            by_host[host].report()
        assert sending.code() == OK


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        ({"replicaPolicy": "all", "totalReplicas": 3}, (EAST,)),
        ({"replicaPolicy": "rooms", "haRoom": "east", "haReplicaRooms": ROOMS}, (EAST, ALSO_EAST)),
        ({"inSyncReplicas": 3, "minInSyncReplicas": 3, "enableAutoInSyncReplicas": True}, (EAST,)),
    ],
    ids=["all", "rooms", "auto with a minimum"],
)
def test_too_few_replicas_store_nothing(tmp_path: Path, settings: dict[str, object], hosts: tuple[str, ...]) -> None:
    with group(tmp_path, *hosts, **settings) as (broker, _), RawClient(broker.address) as client:
        answer = client.send("TopicA", b"x")
        assert (answer.code, answer.remark) == (NOT_ENOUGH, "in-sync replicas not enough")
        assert read_watermarks(broker.store).append_offset == 0
        assert client.send("TopicA", b"x", pairs={"WAIT": "false"}).code == OK, "WAIT=false asks for no replica"


def test_who_is_not_allowed_does_not_count(tmp_path: Path) -> None:
    allowed = {"haAllowedReplicas": WEST}
    with RunningBroker(tmp_path / "store", {**SETTINGS, **allowed}) as broker, ScriptedSlave(broker, EAST):
        wait_until(lambda: len(status(broker).slaves) == 1, "it is connected")
        assert Sending(broker).code() == NOT_ENOUGH


def test_a_lowered_requirement_goes_down_to_the_master_alone(tmp_path: Path) -> None:
    settings = {"inSyncReplicas": 2, "enableAutoInSyncReplicas": True}
    with group(tmp_path, EAST, **settings) as (broker, (slave,)):
        sending = Sending(broker)
        assert sending.waits(), "a live slave is waited for"
        slave.close()
        assert sending.code() == OK, "without one the master is enough"
        wait_until(lambda: status(broker).is_degraded, "and says so")
        assert Sending(broker).code() == OK


# -- statuses and their times --------------------------------------------------------------------------------------


@pytest.mark.timed(cpus=1.5)
def test_a_silent_slave_costs_one_time_out_and_no_more(tmp_path: Path) -> None:
    settings = {"slaveTimeout": TIMEOUT_S * 1000}
    with group(tmp_path, WEST, **settings) as (broker, (slave,)), RawClient(broker.address) as client:
        began = time.monotonic()
        first = Sending(broker)
        wait_until(lambda: time.monotonic() - began > 0.75 * TIMEOUT_S, "the first one has waited for long")
        later = time.monotonic()
        second = Sending(broker)
        assert first.code() == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert time.monotonic() - began >= TIMEOUT_S
        assert second.code() == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert time.monotonic() - later < TIMEOUT_S, "what was parked behind it is answered with it"
        wait_until(lambda: status(broker).replication_state == "stalled", "the slave is out of sync by then")
        end = read_watermarks(broker.store).append_offset
        assert client.send("TopicA", b"third").code == NOT_ENOUGH, "refused, so it does not wait"
        assert read_watermarks(broker.store).append_offset == end
        counted = {"haSendsRefused": "1", "haSendsFlushSlaveTimeout": "2", "haDegradedEntered": "2"}
        wait_until(lambda: counted.items() <= runtime_info(client).items(), "operators see it")
        slave.report()
        wait_until(lambda: status(broker).replication_state == "ok", "it is in sync again")
        third = Sending(broker)
        appended(broker, end)
        wait_until(lambda: slave.end > end, "it has it")
        slave.report()
        assert third.code() == OK


def test_two_slaves_and_one_goes(tmp_path: Path) -> None:
    """What waits for either goes on with the other; what waits for both is told at once."""
    with group(tmp_path, EAST, WEST, inSyncReplicas=3) as (broker, (east, west)):
        sending = Sending(broker)
        end = appended(broker, 0)
        wait_until(lambda: east.end == west.end == end, "both have it")
        east.report()
        assert sending.waits()
        began = time.monotonic()
        west.close()
        assert sending.code() == ResponseCode.SLAVE_NOT_AVAILABLE
        assert time.monotonic() - began < 20, "long before slaveTimeout"


def test_an_unconfirmed_tail_waits_over_a_clean_stop(tmp_path: Path) -> None:
    """What is parked is answered, the stop is clean, and the next start shows the tail when a slave has it."""
    settings = {"minInSyncReplicas": 2, "inSyncReplicas": 2}
    with group(tmp_path, WEST, **settings) as (broker, (slave,)):
        sending = Sending(broker, b"confirmed")
        end = appended(broker, 0)
        wait_until(lambda: slave.end == end, "it has it")
        slave.report()
        assert sending.code() == OK
        sending = Sending(broker, b"parked")
        appended(broker, end)
        assert broker.stop() == 0
        assert sending.code() in (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT)
    assert not (tmp_path / "store" / "abort").exists()
    assert read_checkpoint(tmp_path / "store").confirm_offset == end, "what readers without a broker go by"
    with RunningBroker(tmp_path / "store", {**SETTINGS, **settings}) as broker, RawClient(broker.address) as client:
        marks = read_watermarks(broker.store)
        assert marks.confirm_offset == end < marks.append_offset
        pulled = client.pull("TopicA")
        assert (pulled.code, pulled.ext_fields["maxOffset"]) == (OK, "1")
        with ScriptedSlave(broker, WEST) as slave:
            wait_until(lambda: slave.end == marks.append_offset, "a slave has it")
            assert client.pull("TopicA").ext_fields["maxOffset"] == "1"
            slave.report()
            wait_until(lambda: client.pull("TopicA").ext_fields["maxOffset"] == "2", "it is readable")
