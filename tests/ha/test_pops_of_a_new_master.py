"""A slave that is made master goes on with the open messages of POP: receipts, acknowledgements, batches, times."""

from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.pop.copy_mark import run_of_copy
from ringmq.pop.image_file import has_image
from ringmq.pop.memory_copy import image_copy
from ringmq.remoting.role_bodies import PROMOTE
from ringmq.store.config_files import load_config
from tests.ha.role_pair import order
from tests.ha.test_pair import MASTER, NAMED, SLAVE, wait_for_slave
from tests.pop.pop_client import PopClient, Taken
from tests.pop.test_pop_broker import committed, found, send
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
LONELY = {**MASTER, "brokerRole": "ASYNC_MASTER"}
QUICK = {**NAMED, "ringmqSlaveSyncPeriod": 500, "ringmqPopExportAtStop": True}
HOUR_MS = 3_600_000
TAKEN, ACKED, BATCH = 40, 25, 8
BODIES = [b"%02d" % number for number in range(60)]
RETRY = "%RETRY%A_Again"


def open_in(store: Path) -> tuple[int, int]:
    """(open messages, those of orderly batches that are not done) of the image."""
    if not has_image(store):
        return 0, 0
    with image_copy(store / "pop") as copy:
        batches = 0
        for place in copy.places():
            batch = lib.rmq_pop_order_at(copy.windows, place)
            if batch:
                batches += int(batch.count) - int(batch.acked).bit_count()
        return int(lib.rmq_pop_counts_of(copy.windows).open), batches


def wait_for_tables(store: Path, *names: str) -> None:
    def are_there() -> bool:
        tables = load_config(store, "topics.json"), load_config(store, "subscriptionGroup.json")
        return all(f"'{name}'" in str(tables) for name in names)

    wait_until(are_there, "the slave has the master's topics and groups")


def bodies(taken: list[Taken]) -> set[bytes]:
    return {one.body for one in taken}


def pop_some(client: PopClient) -> list[Taken]:
    """TAKEN messages."""
    taken: list[Taken] = []

    def are_taken() -> bool:
        taken.extend(client.pop(min(32, TAKEN - len(taken)), HOUR_MS))
        return len(taken) == TAKEN

    wait_until(are_taken, "the messages are there")
    return taken


def first_batch(client: PopClient) -> list[Taken]:
    batch: list[Taken] = []

    def is_there() -> bool:
        batch[:] = client.pop(BATCH, HOUR_MS, order="true", attemptId="a")
        return len(batch) == BATCH

    wait_until(is_there, "the batch is there")
    return batch


def fill(master: RunningBroker, slave: RunningBroker) -> tuple[list[Taken], list[Taken]]:
    """Messages of a queue that are open, and an orderly batch. The slave has them."""
    make_topic(master.address, "T", 2)
    for topic in ("Ordered", "Again"):
        make_topic(master.address, topic, 1)
    client, ordered = PopClient(master.address, "G", "T"), PopClient(master.address, "O", "Ordered")
    again = PopClient(master.address, "A", "Again")
    wait_until(lambda: client.raw.send("T", b"first").code == 0, "the slave is in sync")
    assert client.ack(found(client)).code == 0
    send(master.address, "T", BODIES)
    send(master.address, "Ordered", BODIES[: 2 * BATCH], 1)
    taken, batch = pop_some(client), first_batch(ordered)
    for one in taken[:ACKED]:
        assert client.ack(one).code == 0
    assert ordered.ack(batch[0]).code == 0
    come_again(again)
    wait_for_slave(master, slave)
    wait_for_tables(slave.store, "T", "Ordered", "G", "O", "A", RETRY)
    wanted = TAKEN - ACKED, BATCH - 1
    wait_until(lambda: open_in(slave.store) == wanted, "the slave has them", state=lambda: open_in(slave.store))
    return taken, batch


@pytest.mark.parametrize("end", ["all killed", "master killed", "all stopped"])
def test_a_new_master_goes_on_with_open_messages(tmp_path: Path, end: str) -> None:
    store = tmp_path / "slave"
    with (
        RunningBroker(tmp_path / "master", {**MASTER, **QUICK}) as master,
        RunningBroker(store, {**SLAVE, **QUICK}, namesrv=master.namesrv) as slave,
    ):
        taken, batch = fill(master, slave)
        if end == "all stopped":
            assert master.stop() == 0  # it writes check points, which the slave may get or not
        else:
            master.kill_all()
        if end == "all killed":
            slave.kill_all()
        else:
            assert slave.stop() == 0
    with RunningBroker(store, LONELY) as promoted:
        goes_on(promoted, taken, batch)
        assert promoted.stop() == 0


def test_a_slave_that_is_promoted_while_it_runs_goes_on_with_open_messages(tmp_path: Path) -> None:
    with (
        RunningBroker(tmp_path / "master", {**LONELY, **QUICK}) as master,
        RunningBroker(tmp_path / "slave", {**SLAVE, **QUICK}, namesrv=master.namesrv) as slave,
    ):
        taken, batch = fill(master, slave)
        master.kill_all()
        done = order(slave, PROMOTE, accepts_loss=True)
        assert (done.tenure, done.failure) == ("master", "")
        goes_on(slave, taken, batch)
        assert slave.stop() == 0


def come_again(client: PopClient) -> None:
    """Of two messages whose time is over, one is acknowledged then. The copy of the other waits."""
    assert client.raw.send("Again", b"acked").code == 0
    assert found(client, invisible_ms=300).flag == 0
    again = found(client, invisible_ms=HOUR_MS)
    assert again.flag == 1 and client.ack(again).code == 0
    assert client.raw.send("Again", b"waits").code == 0
    assert found(client, invisible_ms=300).body == b"waits"


def goes_on(promoted: RunningBroker, taken: list[Taken], batch: list[Taken]) -> None:
    client, ordered = PopClient(promoted.address, "G", "T"), PopClient(promoted.address, "O", "Ordered")
    line = "open messages are those of the former master"
    wait_until(lambda: line in promoted.log_path.read_text(), "it has taken the copy")
    assert not run_of_copy(promoted.store / "pop"), "they are its own now"
    rest = client.pop_all()
    came_again, lost = bodies(rest) & bodies(taken), set(BODIES) - bodies(taken + rest)
    print(f"{len(taken)} taken, {ACKED} acknowledged, {len(came_again)} came again, {len(lost)} lost")
    assert not came_again and not lost
    for one in taken[ACKED:] + rest:
        assert client.ack(one).code == 0, "receipts of the former master hold"
    for queue_id, end in enumerate((len(BODIES) // 2 + 1, len(BODIES) // 2)):
        wait_until(lambda q=queue_id, e=end: committed(promoted.address, "G", "T", q) == e, "all are done")  # type: ignore[misc]
    assert ordered.pop(BATCH, order="true", attemptId="b") == [], "the batch blocks its queue"
    for one in batch[1:]:
        assert ordered.ack(one).code == 0
    assert bodies(ordered.pop(32, order="true", attemptId="b")) == set(BODIES[BATCH : 2 * BATCH])
    waits = found(PopClient(promoted.address, "A", "Again"))
    assert (waits.body, waits.flag) == (b"waits", 1), "the copy that no consumer had"
