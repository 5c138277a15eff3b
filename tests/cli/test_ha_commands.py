"""`ringmq ha` against a broker that a slave's claim has made hold its writes."""

import json
import subprocess
import zlib
from collections.abc import Callable, Iterator

import pytest

from ringmq.ha import handshake
from ringmq.ha.handshake import PeerClaim
from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.program import Program
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from tests.commands import RINGMQ, run_ringmq
from tests.ha.fake_slave_log import FakeSlaveLog, one_record_more
from tests.raw_client import RawClient
from tests.waiting import wait_until

FILE_BYTES = 1 << 20
SMALL = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "maxMessageSize": 131_072,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "haAllowedNetworks": "127.0.0.0/8",
}
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("ha") / "store", SMALL) as broker:
        yield broker


@pytest.fixture
def ringmq(broker: RunningBroker) -> Run:
    def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_ringmq(*arguments, RINGMQ_NAMESRV=broker.namesrv)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def slave(broker: RunningBroker) -> Iterator[FakeSlaveLog]:
    with FakeSlaveLog() as slave:
        yield slave


def claim_more(broker: RunningBroker, slave: FakeSlaveLog, broker_id: int, more: int) -> str:
    """Say that we are a slave with the broker's log and `more` records; the verdict, when it has seen them."""
    end = read_watermarks(broker.store).append_offset
    log = (broker.store / "commitlog" / f"{0:020}").read_bytes()[:end]
    slave.log = log
    for _ in range(more):
        slave.log = one_record_more(slave.log, log[: int.from_bytes(log[:4], "big")])
    claim = PeerClaim(
        cluster="DefaultCluster",
        broker_name="broker-a",
        broker_id=broker_id,
        start_id="1f",
        min_offset=0,
        max_offset=len(slave.log),
        file_bytes=FILE_BYTES,
        broker_addr=slave.address,
        tail=((0, end, zlib.crc32(log) & 0x7FFF_FFFF),),  # as RocketMQ counts it
    )

    def verdict() -> str:
        with RawClient(broker.address) as client:
            answer = client.ask(RequestCode.HA_HANDSHAKE, {}, handshake.body(claim))
        said = handshake.answer_of(answer.body)
        return "" if "being checked" in said.reason else said.verdict

    wait_until(verdict, "its log is checked")
    return verdict()


def test_a_master_alone(ringmq: Run, broker: RunningBroker) -> None:
    text = ringmq("ha", "status").stdout
    assert f"broker-a {broker.address}: master, log 0..0" in text
    assert "1 replicas in sync, 1 wanted" in text
    (entry,) = json.loads(ringmq("ha", "status", "-o", "json").stdout)
    assert (entry["role"], entry["isDegraded"], entry["slaves"], entry["writeHold"]) == ("master", False, [], "none")
    assert (
        "no broker other is registered; there is broker-a"
        in ringmq("ha", "status", "--broker", "other", status=1).stderr
    )


def test_watching_goes_on_until_it_is_ended(broker: RunningBroker) -> None:
    command = [*RINGMQ, "ha", "status", "--watch", "0.1", "-o", "json", "-n", broker.namesrv]
    with Program(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        seen = [json.loads(watching.stdout.readline())["role"] for _ in range(3)]
        watching.terminate()
        watching.communicate(timeout=60)
    assert seen == ["master"] * 3
    assert watching.returncode == 0


def test_a_longer_slave_is_shown_and_decided_about(ringmq: Run, broker: RunningBroker, slave: FakeSlaveLog) -> None:
    assert "those that wait for a decision: none" in ringmq("ha", "salvage", status=1).stderr
    ringmq("produce", "Held", "-m", "before")
    assert claim_more(broker, slave, 1, 2) == handshake.HOLD
    assert claim_more(broker, slave, 2, 1) == handshake.HOLD
    text = ringmq("ha", "status").stdout
    assert f"WRITES ARE REFUSED: slave 1 {slave.address}" in text
    refused = ringmq("produce", "Held", "-m", "refused", status=1)
    assert "ringmq ha status" in refused.stderr or "longer" in refused.stderr, refused.stderr
    assert "name one slave with --slave" in ringmq("ha", "salvage", status=1).stderr
    ringmq("ha", "salvage", "--slave", "1")
    assert "WRITES ARE REFUSED: slave 2" in ringmq("ha", "status").stdout
    decided = json.loads(ringmq("ha", "salvage", "-o", "json").stdout)
    assert (decided["choice"], decided["brokerId"], decided["broker"]) == ("salvage", 2, "broker-a")
    assert claim_more(broker, slave, 1, 2) == handshake.CUT
    ringmq("produce", "Held", "-m", "after")
    assert "SENDS ARE REFUSED" in broker.log_tail()
    assert "sends are accepted again" in broker.log_tail()


def test_adopting_opens_the_store_again_and_the_broker_goes_on(
    ringmq: Run, broker: RunningBroker, slave: FakeSlaveLog
) -> None:
    """The slave cannot be reached, so nothing comes of it but the restart in place: the hold stays until another choice
    is made, which needs no slave."""
    ringmq("produce", "Held", "-m", "kept")
    before = read_watermarks(broker.store).append_offset
    assert claim_more(broker, slave, 5, 2) == handshake.HOLD
    slave.close()
    assert "takes over" in ringmq("ha", "adopt").stdout
    wait_until(lambda: "task of the store: adopt" in broker.log_tail(), "the store is opened again")
    wait_until(lambda: json.loads(ringmq("ha", "status", "-o", "json").stdout), "the broker is registered again")
    ringmq("produce", "Held", "-m", "still refused", status=1)
    assert f"WRITES ARE REFUSED: slave 5 {slave.address}" in ringmq("ha", "status").stdout
    ringmq("ha", "salvage", "--slave", "5", "--address", slave.address)
    ringmq("produce", "Held", "-m", "goes on")
    assert read_watermarks(broker.store).append_offset > before
