"""POP and slaves, one of the pair stock: the answer of a slave, and open messages when it is made master.

A stock slave has the consumer offsets of its master, and the records in the log. The same is true of a RingMQ slave
behind a stock master. Two RingMQ brokers: tests/ha/test_pops_of_a_new_master.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.store.config_files import load_config
from tests.conformance.replication import Group
from tests.pop.pop_client import PopClient, Taken, pop_fields
from tests.pop.test_pop_broker import send
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(360)
TOPIC, GROUP = "PopFollowed", "PopFollowers"
BODIES = [b"%02d" % number for number in range(20)]
TAKEN, ACKED = 12, 5
INVISIBLE_MS = {"stock": 20_000, "ringmq": 3_600_000}
"""By the master. A stock slave gets its first tables after a minute, and then gives again what is not acknowledged."""
STOCK_FIRST_SYNCHRONISATION_S = 150.0


@pytest.fixture(
    params=[("stock", "ringmq"), ("ringmq", "stock")], ids=["ringmq-follows", "stock-follows"], scope="module"
)
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    group = Group(tmp_path_factory.mktemp("pop-slaves"), *request.param)
    try:
        make_topic(group.master.address, TOPIC, 1)
        group.start_slave()
        yield group
    finally:
        group.close()


def take(client: PopClient, invisible_ms: int) -> list[Taken]:
    taken: list[Taken] = []

    def are_taken() -> bool:
        taken.extend(client.pop(TAKEN - len(taken), invisible_ms))
        return len(taken) == TAKEN

    wait_until(are_taken, "messages are taken")
    return taken


def committed(store: Path) -> int:
    """The consumer offset that the slave has."""
    table = load_config(store, "consumerOffset.json").get("offsetTable", {}).get(f"{TOPIC}@{GROUP}", {})
    return next((int(offset) for queue_id, offset in table.items() if int(queue_id) == 0), -1)


def test_a_slave_gives_no_message(group: Group) -> None:
    """RingMQ names the master. A stock slave looks for the topic first, and has none for a minute."""
    assert group.slave is not None
    with RawClient(group.slave.address) as client:
        answer = client.ask(RequestCode.POP_MESSAGE, pop_fields(GROUP, TOPIC, 1, 20_000, 0))
    print(f"{group.slave.kind} slave: {answer.code} {answer.remark}")
    assert answer.code != ResponseCode.SUCCESS


def test_a_promoted_slave_loses_no_message(group: Group) -> None:
    """The first messages are acknowledged, so the consumer offset is that of the first open one."""
    assert group.slave is not None
    client = PopClient(group.master.address, GROUP, TOPIC, group.broker_name)
    send(group.master.address, TOPIC, BODIES, 1)
    taken = take(client, INVISIBLE_MS[group.master.kind])
    for one in taken[:ACKED]:
        assert client.ack(one).code == 0
    slave = group.slave
    if slave.kind == "stock":
        what = "the slave has the consumer offset"
        wait_until(lambda: committed(slave.store) == ACKED, what, STOCK_FIRST_SYNCHRONISATION_S)
    group.wait_equal()
    group.master.kill()
    slave.stop()
    slave.start(brokerRole="ASYNC_MASTER", brokerId=0)
    client = PopClient(slave.address, GROUP, TOPIC, group.broker_name)
    found: list[Taken] = []
    open_ones = set(BODIES) - {one.body for one in taken[:ACKED]}

    def are_found() -> bool:
        found.extend(client.pop(32, 600_000))
        return {one.body for one in found} >= open_ones

    wait_until(are_found, "all open messages come", 120, state=lambda: f"{len(found)} messages")
    again = [one.body for one in found if one.body not in open_ones]
    print(f"{slave.kind} promoted: {len(BODIES)} sent, {TAKEN} taken, {ACKED} acknowledged, {len(again)} of them again")
    assert slave.kind == "ringmq" or not again, "a stock master keeps acknowledgements in its memory for 10 s"
