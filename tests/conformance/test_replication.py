"""A slave follows a master, one of them stock: same bytes, and the slave serves them when the master is gone.

A stock slave takes topics over from its master after a minute for the first time, so both groups run side by side and
the tests that need it come last.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.timer.timer_checkpoint import read_timer_checkpoint
from tests.conformance.replication import FILE_BYTES, Group, RingmqNode, StockNode, stored_log
from tests.conformance.stock_client import StockClient
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import TIMEOUT_S, wait_until

TOPIC, TIMED = "Followed", "TimedFollowed"
QUEUES = 4
PARTS = 800  # sends of one `fill`; every tenth is a batch of three
STOCK_FIRST_SYNCHRONISATION_S = 120.0
TIMEOUT_MS = 2900
"""Nearly what a send waits for a slave that is silent."""
TIMERS = 30
LATER_MS = 30_000
"""Most of these messages are due when the master is gone."""

pytestmark = pytest.mark.timeout(240)


def fill(stock_client: StockClient, group: Group, start: int, count: int = PARTS) -> None:
    stock_client.call("fill", group.namesrv, topic=TOPIC, queues=QUEUES, start=start, count=count)


@pytest.fixture(scope="module")
def stock_follows(stock_client: StockClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """A stock slave that came, empty, to a RingMQ master with some log files."""
    group = Group(tmp_path_factory.mktemp("stock-follows"), "ringmq", "stock")
    try:
        make_topic(group.master.address, TIMED, 1)
        fill(stock_client, group, 0)
        group.start_slave()
        yield group
    finally:
        group.close()


@pytest.fixture(scope="module")
def ringmq_follows(stock_client: StockClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """A RingMQ slave behind a stock master, there before the first message: a stock master begins a new slave's copy at
    its newest file."""
    group = Group(tmp_path_factory.mktemp("ringmq-follows"), "stock", "ringmq")
    try:
        make_topic(group.master.address, TIMED, 1)
        group.start_slave()
        fill(stock_client, group, 0)
        yield group
    finally:
        group.close()


@pytest.fixture(params=["stock_follows", "ringmq_follows"])
def group(request: pytest.FixtureRequest) -> Group:
    return request.getfixturevalue(request.param)


def test_an_empty_slave_gets_the_whole_log(group: Group) -> None:
    group.wait_equal()
    assert len(stored_log(group.master.store)) > FILE_BYTES


def test_a_slave_rejects_sends_and_send_backs(group: Group) -> None:
    assert group.slave is not None
    with RawClient(group.slave.address) as client:
        sent = client.send(TOPIC, b"x")
        back = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": "G", "delayLevel": 0})
    for answer in (sent, back):
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert (answer.remark or "").startswith("[REJECTREQUEST]system busy, start flow control for a while")


def test_it_follows_over_file_ends_while_messages_come(group: Group, stock_client: StockClient) -> None:
    before = len(stored_log(group.master.store))
    fill(stock_client, group, 1000)
    assert len(stored_log(group.master.store)) - before > FILE_BYTES
    group.wait_equal()


def test_it_goes_on_in_mid_log_after_a_reconnect(group: Group, stock_client: StockClient) -> None:
    """The slave is killed while messages come, and is back before they have ended."""
    assert group.slave is not None
    sending = stock_client.submit("fill", group.namesrv, topic=TOPIC, queues=QUEUES, start=2000, count=PARTS)
    slave, behind = group.slave, len(stored_log(group.slave.store))
    wait_until(lambda: len(stored_log(slave.store)) > behind, "the slave follows again")
    slave.kill()
    slave.start()
    sending.result(90)
    group.wait_equal()


def test_a_list_of_networks_decides_whether_a_stock_slave_follows(
    stock_follows: Group, stock_client: StockClient
) -> None:
    """The tests before have an empty list."""
    master, slave = stock_follows.master, stock_follows.slave
    assert slave is not None
    master.stop()
    master.start(haAllowedNetworks="10.0.0.0/8")
    line = "from 127.0.0.1 to the replication port is closed: haAllowedNetworks does not allow the host"
    wait_until(lambda: line in master.tail(), "the master says why the slave stays away")
    before = len(stored_log(slave.store))
    fill(stock_client, stock_follows, 3000, 10)
    assert len(stored_log(slave.store)) == before
    master.stop()
    master.start(haAllowedNetworks="127.0.0.0/8")
    stock_follows.wait_equal()


def test_a_slaves_own_list_does_not_keep_it_from_a_stock_master(
    ringmq_follows: Group, stock_client: StockClient
) -> None:
    """It bounds who may have the log cut; following a master costs nothing. Only the wrong list brings a line."""
    slave = ringmq_follows.slave
    assert slave is not None
    line = "haAllowedNetworks does not name master 127.0.0.1: this slave follows it"
    for networks in ("127.0.0.0/8", "10.0.0.0/8"):
        slave.stop()
        slave.start(haAllowedNetworks=networks)
        fill(stock_client, ringmq_follows, 3000, 10)
        ringmq_follows.wait_equal()
        assert (line in slave.tail()) == (networks == "10.0.0.0/8")


@pytest.mark.parametrize("role", ["master", "slave"])
def test_our_replication_worker_dies_and_the_stream_goes_on(
    request: pytest.FixtureRequest, stock_client: StockClient, role: str
) -> None:
    group = request.getfixturevalue("stock_follows" if role == "master" else "ringmq_follows")
    node = group.master if role == "master" else group.slave
    assert isinstance(node, RingmqNode)
    sending = stock_client.submit("fill", group.namesrv, topic=TOPIC, queues=QUEUES, start=4000, count=PARTS)
    node.kill_worker("ha")
    sending.result(90)
    group.wait_equal()


def test_a_send_is_acknowledged_when_the_slave_has_it(stock_follows: Group, stock_client: StockClient) -> None:
    """SYNC_MASTER: what SEND_OK was said for stands in the stock slave's file already."""
    stock_follows.master.stop()
    stock_follows.master.start(brokerRole="SYNC_MASTER")
    slave = stock_follows.slave
    assert isinstance(slave, StockNode)
    assert send_until_ok(stock_client, stock_follows) == "SEND_OK", "the slave is back in sync"
    for _ in range(10):
        (sent,) = stock_client.call("sendTimed", stock_follows.namesrv, topic=TOPIC, count=1)
        assert sent["status"] == "SEND_OK"
        there = stored_log(slave.store)
        assert b"timed 0" in there[sent["commitLogOffset"] :]


def send_until_ok(stock_client: StockClient, group: Group) -> object:
    """The status of the last send."""
    return stock_client.call("sendUntil", group.namesrv, topic=TOPIC, status="SEND_OK", seconds=TIMEOUT_S)


def test_a_silent_slave_is_a_timeout_and_a_lost_one_is_told_at_once(
    stock_follows: Group, stock_client: StockClient
) -> None:
    slave = stock_follows.slave
    assert isinstance(slave, StockNode)
    slave.pause()
    try:
        first, *later = stock_client.call("sendTimed", stock_follows.namesrv, topic=TOPIC, count=20)
        assert first["status"] == "FLUSH_SLAVE_TIMEOUT" and first["ms"] >= TIMEOUT_MS, first
        waited = [sent for sent in later if sent["status"] == "FLUSH_SLAVE_TIMEOUT" or sent["ms"] >= TIMEOUT_MS]
        assert len(waited) < len(later) // 2, later
        assert later[-1]["status"] == "code 1" and "in-sync replicas not enough" in later[-1]["remark"], later
    finally:
        slave.go_on()
    assert send_until_ok(stock_client, stock_follows) == "SEND_OK", "the slave counts again"
    sends = stock_client.submit("sendTimed", stock_follows.namesrv, topic=TOPIC, count=400)
    slave.kill()
    seen = {sent["status"] for sent in sends.result(90)}
    assert seen <= {"SEND_OK", "SLAVE_NOT_AVAILABLE", "code 1"} and "code 1" in seen, "none has waited in vain"
    slave.start()
    assert send_until_ok(stock_client, stock_follows) == "SEND_OK", "the slave is back"
    stock_follows.wait_equal()


def timed(group: Group, prefix: str, due_ms: int) -> None:
    with RawClient(group.master.address) as client:
        for number in range(TIMERS):
            pairs = {"TIMER_DELIVER_MS": str(due_ms + number * 50), "UNIQ_KEY": f"{prefix}{number}"}

            def is_taken(pairs: dict[str, str] = pairs) -> bool:
                return client.send(TIMED, b"x", pairs=pairs).code == 0

            wait_until(is_taken, "the master takes it")


def delivered(address: str) -> Counter[str]:
    return Counter(message.properties["UNIQ_KEY"] for message in messages_of(address, TIMED, 1))


def test_a_slave_files_timer_messages_and_copies_timercheck(group: Group) -> None:
    assert group.slave is not None
    timed(group, "early", time.time_ns() // 1_000_000 + 1500)
    late_ms = time.time_ns() // 1_000_000 + LATER_MS
    timed(group, "later", late_ms)
    wait_until(lambda: len(delivered(group.master.address)) >= TIMERS, "the master delivers what is due")
    delivered_ms = time.time_ns() // 1_000_000
    store = group.slave.store

    def is_copied() -> bool:
        found = read_timer_checkpoint(store)
        return found is not None and found.last_read_ms >= delivered_ms and found.queue_offset >= 2 * TIMERS

    wait_until(
        is_copied,
        f"the slave has the master's progress, which has read up to {delivered_ms}",
        state=lambda: read_timer_checkpoint(store),
    )

    def waiting() -> int:
        with RawClient(group.master.address) as client:
            answer = client.ask(RequestCode.GET_TIMER_METRICS, {})
        counts = json.loads(bytes(answer.body))["timingCount"]
        return int(counts[TIMED]["count"]) if TIMED in counts else 0  # the master counts a message some time after it

    def is_counted() -> bool:
        """On a slow machine some of the later ones are delivered by now."""
        return waiting() + len(delivered(group.master.address)) == 2 * TIMERS

    wait_until(is_counted, "the master counts what waits")


def test_the_slave_copies_request_modes(group: Group) -> None:
    assert group.slave is not None
    wanted = {"consumerGroup": "Popping", "mode": "POP", "popShareQueueNum": 3, "topic": TOPIC}
    with RawClient(group.master.address) as master:
        answer = master.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(wanted).encode())
    assert answer.code == 0, answer.remark

    def copied() -> object:
        with RawClient(slave.address) as client:
            body = client.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {}).body
        return json.loads(body)["messageRequestModeMap"].get(TOPIC)

    slave = group.slave
    wait_until(lambda: copied() == {"Popping": wanted}, "the slave has the mode", STOCK_FIRST_SYNCHRONISATION_S)
    known = json.loads((slave.store / "config" / "messageRequestMode.json").read_text())
    assert known == {"messageRequestModeMap": {TOPIC: {"Popping": wanted}}}


def test_the_slave_serves_everything_to_a_stock_consumer(group: Group, stock_client: StockClient) -> None:
    """First from the master, then, with the master gone, a new group gets the same from the slave."""
    wanted = stock_client.call("readTopics", group.namesrv, topics=[TOPIC])
    count = len(wanted)
    assert group.slave is not None
    known = group.slave.store / "config" / "topics.json"
    timeout_s = STOCK_FIRST_SYNCHRONISATION_S
    wait_until(lambda: known.exists() and TOPIC in known.read_text(), "the slave knows the topic", timeout_s)
    group.master.stop()
    seen = stock_client.call("consumeAll", group.namesrv, topic=TOPIC, group="AfterTheMaster", count=count, seconds=40)
    assert [message["queueOffset"] for message in seen] == [message["queueOffset"] for message in wanted]
    assert seen == wanted


def test_the_slave_goes_on_with_timer_messages_as_master(group: Group) -> None:
    """A message that the old master had delivered before its progress was copied does not come again."""
    assert group.slave is not None
    group.slave.stop()
    group.slave.start(brokerRole="ASYNC_MASTER", brokerId=0)
    address = group.slave.address
    wait_until(lambda: len(delivered(address)) == 2 * TIMERS, "all are delivered", 90)
    found = delivered(address)
    assert {found[f"early{number}"] for number in range(TIMERS)} == {1}
    assert {found[f"later{number}"] for number in range(TIMERS)} <= {1, 2}
