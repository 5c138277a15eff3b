"""Open messages while the store is repaired, cut by an order (`ringmq ha salvage`), or completed by another log."""

import shutil
from pathlib import Path

import pytest

from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.revival_words import RevivalWord
from ringmq.store.store_task import ADOPT, CUT, StoreTask, write_task
from tests.broker.test_processes import SMALL
from tests.commands import run_ringmq
from tests.pop.pop_client import PopClient, Taken
from tests.pop.pop_words import word
from tests.pop.test_pop_broker import found, send
from tests.staging import make_topic, messages_of
from tests.waiting import wait_dispatched, wait_until

pytestmark = pytest.mark.timeout(180)
HOUR_MS = 3_600_000
SIZES = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]


def bodies(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def hold(client: PopClient, count: int) -> list[Taken]:
    """Take so many messages, one by one, for an hour."""
    return [found(client, invisible_ms=HOUR_MS) for _ in range(count)]


def all_of(client: PopClient, wanted: set[bytes]) -> list[Taken]:
    """Pop until all of these are there."""
    came: list[Taken] = []

    def is_there() -> bool:
        came.extend(client.pop_all(invisible_ms=HOUR_MS))
        return {one.body for one in came} >= wanted

    wait_until(is_there, "messages come", state=lambda: sorted(wanted - {one.body for one in came}))
    return came


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Taken], int, int]:
    """A store; messages 1 to 6, of which a consumer has all but 1; the end of the log before 8, and its end.

    Message 0 has come again, and its copy waits. It lies behind 8 to 11.
    """
    store = tmp_path_factory.mktemp("stopped") / "store"
    with RunningBroker(store, SMALL) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", bodies(0, 8), 1)
        client = PopClient(broker.address, "G", "T")
        first, *held = hold(client, 6)
        assert client.ack(held[0]).code == 0
        place = read_watermarks(store).append_offset
        send(broker.address, "T", bodies(8, 12), 1)
        assert client.change(first, 1).code == 0
        retry = "%RETRY%G_T"
        wait_until(lambda: len(messages_of(broker.address, retry, 1)) == 1, "its copy is in the log")
        held += hold(client, 1)
        assert [one.body for one in held] == bodies(1, 7)
        end = read_watermarks(store).append_offset
        assert broker.stop() == 0
    return store, held, place, end


def copy_of(store: Path, to: Path) -> Path:
    """A copy of the store."""
    return Path(shutil.copytree(store, to))


def test_a_repair_keeps_open_messages(stopped: tuple[Path, list[Taken], int, int], tmp_path: Path) -> None:
    """After a death of all: the memory is not changed."""
    store = copy_of(stopped[0], tmp_path / "store")
    with RunningBroker(store, SMALL) as broker:
        client = PopClient(broker.address, "G", "T")
        held = {one.body: one for one in all_of(client, set(bodies(8, 12)))}
        kept = held.pop(b"8")
        assert client.ack(kept).code == 0
        broker.kill_all()
    repaired = run_ringmq("store", "repair", str(store), *SIZES)
    assert repaired.returncode == 0, repaired.stderr
    with RunningBroker(store, SMALL) as broker:
        client = PopClient(broker.address, "G", "T")
        assert client.pop_all() == [], "consumers have the others"
        for one in held.values():
            assert client.change(one, 1).code == 0, "the receipts are good"
        assert b"8" not in {one.body for one in all_of(client, set(held))}
        assert broker.stop() == 0


def test_a_log_that_is_cut_forgets_what_lay_behind(
    stopped: tuple[Path, list[Taken], int, int], tmp_path: Path
) -> None:  # fmt: skip
    """The copy of message 0 is lost, so it comes again. New messages get the offsets of lost ones, and are seen."""
    source, held, place, _ = stopped
    store = copy_of(source, tmp_path / "store")
    write_task(store, StoreTask(CUT, place))
    with RunningBroker(store, SMALL) as broker:
        send(broker.address, "T", [b"new 8", b"new 9"], 1)
        client = PopClient(broker.address, "G", "T")
        came = all_of(client, {b"0", b"new 8", b"new 9"})
        assert not {one.body for one in came} & set(bodies(8, 12))
        assert b"1" not in {one.body for one in came}, "it is acknowledged"
        for one in held[1:]:
            assert client.ack(one).code == 0
        assert all(client.ack(one).code == 0 for one in came)
        assert client.pop_all() == []
        assert broker.stop() == 0


def test_an_adopted_log_brings_its_messages(stopped: tuple[Path, list[Taken], int, int], tmp_path: Path) -> None:
    """The own log is cut, and that of another broker is copied behind. Messages that it has there have to be seen."""
    source, _, place, _ = stopped
    store, other = copy_of(source, tmp_path / "store"), copy_of(source, tmp_path / "other")
    shutil.rmtree(other / "pop")
    write_task(other, StoreTask(CUT, place))
    with RunningBroker(other, SMALL) as taken_from:
        send(taken_from.address, "T", [b"other %d" % number for number in range(8, 14)], 1)
        wait_dispatched(other)
        end = read_watermarks(other).append_offset
        write_task(store, StoreTask(ADOPT, place, end, taken_from.address))
        with RunningBroker(store, SMALL) as broker:
            client = PopClient(broker.address, "G", "T")
            came = all_of(client, {b"0", *(b"other %d" % number for number in range(8, 14))})
            assert not {one.body for one in came} & {b"1", *bodies(8, 12)}
            assert word(broker, RevivalWord.FAILED) == 0
            assert all(client.ack(one).code == 0 for one in came)
            assert client.pop_all() == []
            assert broker.stop() == 0
        assert taken_from.stop() == 0
