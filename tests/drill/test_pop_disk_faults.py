"""A full disk and failed syncs under POP: acknowledgements go on where they may, and nothing is lost."""

import subprocess
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.revival_words import Gauge, RevivalWord
from ringmq.remoting.codes import RequestCode, ResponseCode
from tests.drill.settings import SMALL_STORE
from tests.drill.small_disk import fill, missing_for_small_disk, small_disk
from tests.pop.pop_client import PopClient, Taken
from tests.pop.pop_words import word
from tests.pop.test_pop_broker import found
from tests.pop.test_power_cut import open_in_image
from tests.raw_client import RawClient
from tests.services.late_start import ask_started
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(400)]
SETTINGS = {**SMALL_STORE, "messageIndexEnable": False, "cleanResourceInterval": 86_400_000}
HOUR_MS, SOON_MS = 3_600_000, 1500
COUNT, LARGE = 60, 60_000
DISK = Path(__file__).parents[1] / "native" / "preloaded_disk.c"
NO_ROOM, GOES_ON = "a power cut takes what came since the last snapshot", "there is room again"
STOPPED = "POP is stopped until the broker starts again: "


def send_large(broker: RunningBroker, count: int) -> None:
    with RawClient(broker.address) as client:
        for number in range(count):
            body = (b"%d" % number).ljust(LARGE, b".")
            assert client.send("T", body).code == ResponseCode.SUCCESS


def number_of(taken: Taken) -> int:
    return int(taken.body.rstrip(b"."))


@pytest.mark.skipif(bool(missing_for_small_disk()), reason=missing_for_small_disk() or "can be made")
def test_copies_wait_for_room_and_acknowledgements_go_on(tmp_path: Path) -> None:
    """Neither the log nor a snapshot has room. The broker dies meanwhile, and its memory has all."""
    with small_disk(tmp_path, 48) as disk:
        store, log = disk / "store", tmp_path / "log"
        with RunningBroker(store, SETTINGS, log_path=log) as broker:
            make_topic(broker.address, "T", 1)
            send_large(broker, COUNT)
            client = PopClient(broker.address, "G", "T")
            held = [found(client, invisible_ms=1)]
            again = found(client, invisible_ms=HOUR_MS)
            while again.flag != 1:
                held.append(again)
                again = found(client, invisible_ms=HOUR_MS)
            held += client.pop_all(count=8, invisible_ms=HOUR_MS)
            open_ = {number_of(one): one for one in (*held[1:], again)}
            assert set(open_) == set(range(COUNT))
            wait_until(lambda: open_in_image(store) == COUNT, "a snapshot has all")
            ballast = fill(disk)
            failed, stored = word(broker, RevivalWord.FAILED), word(broker, RevivalWord.STORED)
            for number in range(COUNT // 2):
                assert client.change(open_[number], SOON_MS).code == 0
            wait_until(lambda: word(broker, RevivalWord.FAILED) > failed, "the log has no room", state=broker.log_tail)
            told = "group G: messages of topic T cannot come again now: the disk is full; they are tried again in 1 s"
            wait_until(lambda: told in broker.log_tail(1 << 20), "a line names the group", state=broker.log_tail)
            acked = range(COUNT // 2, COUNT // 2 + 10)
            assert all(client.ack(open_[number]).code == 0 for number in acked)
            assert word(broker, RevivalWord.STORED) - stored < COUNT // 2
            broker.kill_all()
        with RunningBroker(store, SETTINGS, log_path=log) as broker:
            client = PopClient(broker.address, "G", "T")
            assert client.ack(open_[acked[-1] + 1]).code == 0, "acknowledgements go on"
            ballast.unlink()
            came = set[int]()

            def is_back() -> bool:
                came.update(number_of(one) for one in client.pop_all(count=8, invisible_ms=HOUR_MS))
                return came >= set(range(COUNT // 2))

            wait_until(is_back, "each comes again", state=lambda: set(range(COUNT // 2)) - came)
            assert not came & set(acked), "an acknowledged message came again"
            assert broker.stop() == 0


@pytest.mark.skipif(bool(missing_for_small_disk()), reason=missing_for_small_disk() or "can be made")
def test_snapshots_wait_for_room(tmp_path: Path) -> None:
    """The worker says so once, serves on, and writes a snapshot with all when there is room."""
    with small_disk(tmp_path, 48) as disk:
        store = disk / "store"
        with RunningBroker(store, SETTINGS, log_path=tmp_path / "log") as broker:
            make_topic(broker.address, "T", 1)
            with RawClient(broker.address) as raw:
                for number in range(2000):
                    assert raw.send("T", b"%d" % number).code == 0
            client = PopClient(broker.address, "G", "T")
            held = [found(client, invisible_ms=HOUR_MS)]
            wait_until(lambda: open_in_image(store) == 1, "there is a snapshot")
            ballast = fill(disk)
            held += [one for _ in range(600) for one in client.pop(1, HOUR_MS)]
            wait_until(lambda: NO_ROOM in broker.log_tail(1 << 20), "a snapshot has no room", state=broker.log_tail)
            assert all(client.ack(one).code == 0 for one in held[:300])
            assert client.pop(1, HOUR_MS), "pops go on"
            assert open_in_image(store) == 1
            ballast.unlink()
            wait_until(lambda: open_in_image(store) == word(broker, Gauge.OPEN), "a snapshot has all")
            wait_until(lambda: GOES_ON in broker.log_tail(1 << 20), "the worker says that there is room")
            assert broker.stop() == 0


@pytest.mark.parametrize("file", ["journal", "image", "names"])
def test_a_failed_sync_of_a_snapshot_is_never_tried_again(tmp_path: Path, file: str) -> None:
    """All requests of POP are refused with the cause until a start. Sends go on, and no acknowledgement is lost."""
    library, faulty, store = tmp_path / "preloaded_disk.so", tmp_path / "faulty", tmp_path / "store"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, DISK, "-ldl"], check=True, timeout=120)
    environment = {"LD_PRELOAD": str(library), "FAULTY_FILES": str(faulty)}
    with RunningBroker(store, SETTINGS, environment=environment) as broker:
        make_topic(broker.address, "T", 1)
        with RawClient(broker.address) as raw:
            for number in range(20):
                assert raw.send("T", b"%d" % number).code == 0
        client = PopClient(broker.address, "G", "T")
        held = [found(client, invisible_ms=HOUR_MS), *client.pop(9, HOUR_MS)]
        wait_until(lambda: open_in_image(store) == len(held), "a snapshot has all")
        faulty.write_text(f"sync pop/{file}")
        found(PopClient(broker.address, "G_new", "T"), invisible_ms=HOUR_MS)  # its window has a name
        assert client.ack(held[0]).code == 0
        cause = f"the memory of POP cannot be saved: {store}/pop/{file}: Input/output error"
        remark = STOPPED + cause
        wait_until(lambda: client.ask_pop().remark == remark, "POP refuses", state=broker.log_tail)
        faulty.unlink()  # the disk would work again: that changes nothing
        batch = ask_started(client.raw, RequestCode.BATCH_ACK_MESSAGE, {}, b'{"acks":[],"brokerName":"broker-a"}')
        refused = [client.ask_pop(), client.ack(held[1]), client.change(held[1], 1), batch]
        assert {(answer.code, answer.remark) for answer in refused} == {(1, remark)}
        with RawClient(broker.address) as raw:
            assert raw.send("T", b"20").code == 0
        assert f"pop: {cause}; POP refuses requests" in broker.log_tail(1 << 20)
        pid = broker.signal_worker("pop", 9)  # type: ignore[arg-type]
        wait_until(lambda: broker.worker_pids().get("pop", pid) != pid, "a replacement is there")
        answer = client.ask_pop()
        assert answer.code == 1 and str(answer.remark).startswith(STOPPED), "it does not try again, either"
        broker.stop()
    with RunningBroker(store, SETTINGS, environment=environment) as broker:
        client = PopClient(broker.address, "G", "T")
        taken = {one.body for one in client.pop_all(invisible_ms=HOUR_MS)}
        assert not taken & {one.body for one in held}, "one is done, and a consumer has the others"
        assert all(client.change(one, 1).code == 0 for one in held[1:])
        came = set[bytes]()

        def is_back() -> bool:
            came.update(one.body for one in client.pop_all(invisible_ms=HOUR_MS))
            return {one.body for one in held[1:]} <= came

        wait_until(is_back, "messages come again")
        assert held[0].body not in came
        assert len(messages_of(broker.address, "T", 1)) == 21
        assert broker.stop() == 0
