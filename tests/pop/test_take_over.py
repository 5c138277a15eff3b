"""A broker on a store that a RocketMQ broker has left: open messages, and memory of an earlier time."""

import errno
import os
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.pop import open_work
from ringmq.pop import take_over as take_over_module
from ringmq.pop.memory import PopMemory, remove_lasting
from ringmq.pop.names import Names
from ringmq.pop.order_file import FILE
from ringmq.pop.record_notice import read_notice
from ringmq.pop.take_over import TakeOverError, is_of_another_broker, take_over
from ringmq.store import markers
from ringmq.store.config_files import load_config, persist_config
from ringmq.store.queue_ends import write_queue_ends
from tests.pop.memory_kit import entry, window
from tests.pop.pop_client import PopClient
from tests.pop.test_memory_deaths import FOLDER, points_of
from tests.waiting import wait_until

GOLD = {
    "mappedFileSizeCommitLog": 1048576, "mappedFileSizeConsumeQueue": 20_000, "brokerName": "broker-p",
    "brokerClusterName": "GoldCluster", "fileReservedTime": 1_000_000,
}  # fmt: skip


def wind_back(root: Path, read_ms: int = 1795209427000) -> None:
    """Records of the timer topic from this time on were not delivered yet."""
    with (root / "config/timercheck").open("r+b") as file:
        file.write(struct.pack(">q", read_ms))


def come_again(address: str, topic: str, count: int) -> list[str]:
    """Bodies of the messages of a topic that come from the topic of retries, so many at least."""
    client = PopClient(address, "CGP", topic, "broker-p")
    found: list[str] = []

    def has_all() -> bool:
        found.extend(one.body.decode() for one in client.pop(invisible_ms=600_000) if one.flag)
        return len(found) >= count

    wait_until(has_all, f"{count} messages of {topic} come again")
    found += [one.body.decode() for one in client.pop_all(invisible_ms=600_000) if one.flag]
    client.close()
    return sorted(found)


@pytest.mark.timeout(180)
def test_open_messages_of_another_broker_come_again_once(pop_copy: Path) -> None:
    """GPB and GPM: the stock broker has given them again, too, and no consumer has taken the copies."""
    wind_back(pop_copy)
    with RunningBroker(pop_copy, GOLD) as broker:
        assert come_again(broker.address, "GPB", 6) == sorted(["buf-3", "buf-4", "buf-5"] * 2)
        assert come_again(broker.address, "GPM", 4) == sorted(["bufbatch-4", "bufbatch-5"] * 2)
        assert come_again(broker.address, "GPW", 1) == ["v1w-0"]
        broker.kill_all()
    with RunningBroker(pop_copy, GOLD) as broker:
        client = PopClient(broker.address, "CGP", "GPB", "broker-p")
        assert client.pop() == [], "consumers have them; the next start has not taken them over again"
        assert broker.stop() == 0


@pytest.mark.timeout(180)
def test_batches_of_another_broker_block_beside_open_messages(pop_copy: Path) -> None:
    wind_back(pop_copy)
    content = load_config(pop_copy, FILE)
    content["table"]["GPO@CGO"][0] |= {"popTime": time.time_ns() // 1_000_000, "i": 600_000}
    persist_config(pop_copy, FILE, content)
    with RunningBroker(pop_copy, GOLD) as broker:
        client = PopClient(broker.address, "CGO", "GPO", "broker-p")
        assert client.pop(order="true", attemptId="other") == []
        assert [one.offset for one in client.pop(order="true", attemptId="a6")] == [10, 11]
        client.close()
        assert broker.stop() == 0


Left = Callable[[Path], None]


def by_ours(root: Path) -> None:
    write_queue_ends(root, 0, 1000, [])


def killed_ours(root: Path) -> None:
    markers.write_abort(root, 4711)


def killed_stock(root: Path) -> None:
    (root / "abort").write_text("4711")


@pytest.mark.parametrize(
    ("left", "log_end", "is_clean", "expected"),
    [
        (by_ours, 1000, True, False),
        (by_ours, 1000, False, False),  # the last snapshot could not be written
        (by_ours, 900, True, False),  # the log was cut
        (by_ours, 1001, True, True),
        (killed_ours, 5000, False, False),
        (killed_stock, 1000, True, True),
        (lambda root: None, 1000, False, True),  # ours was killed, a stock broker has stopped cleanly since
        (lambda root: None, 1000, True, False),  # the log was changed by an order
    ],
)
def test_the_broker_that_has_had_the_store_last(
    tmp_path: Path, left: Left, log_end: int, is_clean: bool, expected: bool
) -> None:
    left(tmp_path)
    assert is_of_another_broker(tmp_path, log_end, is_clean=is_clean) is expected


# ---- the memory that a start makes ----


@pytest.fixture
def look(pop_copy: Path) -> Iterator[Any]:
    """StoreLook of the recorded store, of which some records were not handled yet."""
    wind_back(pop_copy)
    table = load_config(pop_copy, "consumerOffset.json")["offsetTable"]
    offsets = {name: {int(queue): offset for queue, offset in row.items()} for name, row in table.items()}
    config = BrokerConfig(
        store_path_root_dir=str(pop_copy), mapped_file_size_commit_log=1048576, mapped_file_size_consume_queue=20_000
    )
    plane = SimpleNamespace(
        group_find=lambda group: group, group=lambda group: SimpleNamespace(config=lib.RMQ_GROUP_LIVE),
        queue=lambda slot: SimpleNamespace(min_offset=0, max_offset=1000, log_end=0),
        offset_get=lambda group, slot: offsets.get(f"{slot[0]}@{group}", {}).get(slot[1], -1),
        watermarks=SimpleNamespace(dispatched_offset=0, start_id=7, min_offset=0),
        topic_find=lambda topic: topic, queue_find=lambda topic, queue_id: (topic, queue_id),
    )  # fmt: skip
    topics = SimpleNamespace(queue=lambda topic, queue_id: (topic, (topic, queue_id), queue_id))
    yield SimpleNamespace(
        root=pop_copy, config=config, plane=plane, topics=topics, log_end=0, log=lambda: None
    )  # fmt: skip
    remove_lasting(pop_copy)


def entries_of(root: Path) -> dict[tuple[str, int, int], list[int]]:
    """(topic, start offset, pop time) -> open offsets of the memory."""
    memory = PopMemory.load(root)
    assert memory is not None and memory.header.start_id == 7
    names = {number: topic for number, _, topic, _ in Names(memory.folder).all()}
    found: dict[tuple[str, int, int], list[int]] = {}
    for index in range(64):
        slot = entry(memory, index)
        if lib.rmq_pop_pages_has(memory.pages, slot) and slot.state:
            assert slot.state == lib.RMQ_POP_OPEN
            key = names[int(slot.window)], int(slot.base_offset - slot.start_delta), int(slot.pop_time_ms)
            found[key] = [int(slot.base_offset) + bit for bit in range(64) if slot.present >> bit & 1]
    memory.close(clean=False)
    return found


OPEN = {
    ("GPB", 0, 1795209409941): [3, 4, 5], ("GPM", 8, 1795209411007): [12, 13], ("GPW", 0, 1795209543152): [0],
}  # fmt: skip


def test_entries_have_the_receipts_of_the_other_broker(look: Any) -> None:
    assert take_over(look)
    found = entries_of(look.root)
    assert OPEN.items() <= found.items() and sum(map(len, found.values())) == 9
    assert take_over(look) and entries_of(look.root) == found, "a start that died before the store was marked"


def test_without_room_nothing_is_changed(look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def save_whole(memory: PopMemory) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(memory.folder))

    with monkeypatch.context() as patched, pytest.raises(TakeOverError, match="No space left"):
        patched.setattr(PopMemory, "save_whole", save_whole)
        take_over(look)
    assert not (look.root / "pop" / "image").exists()
    assert take_over(look)


def test_records_that_cannot_be_read_refuse_the_start(look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them groups would go on at the offsets of the other broker, which lie behind open messages."""

    def fails(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files", "somewhere")

    for place in ("revive_topics", "RecordScan.records"):
        with monkeypatch.context() as patched, pytest.raises(TakeOverError, match="somewhere: Too many open files"):
            patched.setattr(f"ringmq.pop.take_over.{place}", fails)
            take_over(look)
        assert not (look.root / "pop").exists()


def test_a_start_tells_how_many_records_it_has_read_and_has_a_bound(
    look: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(take_over_module, "TELL_MS", 0)
    monkeypatch.setattr(take_over_module, "RECORDS_MAX", 2)
    with pytest.raises(TakeOverError, match="more than 2 records"):
        take_over(look)
    assert "pop: 2 records of open messages" in caplog.text
    assert not (look.root / "pop").exists()


def test_messages_without_a_record_are_pops_of_one_check_point(look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop writes a pop of at most so many entries into the log."""
    missing = list(range(10, 10 + 1000 * 65, 1000))
    monkeypatch.setattr(
        "ringmq.pop.take_over.plan_window", lambda committed, bounds, pops, was_killed: (90_000, [], missing)
    )
    assert take_over(look)
    memory = PopMemory.load(look.root)
    assert memory is not None
    entries = [entry(memory, index) for index in range(int(memory.header.used_entries) - 1)]
    pops = Counter((int(one.window), int(one.base_offset - one.start_delta), int(one.pop_time_ms)) for one in entries)
    assert {one.state for one in entries} == {lib.RMQ_POP_RETURNED}
    assert len(entries) % 65 == 0 and sorted(set(pops.values())) == [1, 32]
    memory.close(clean=False)


def test_records_that_name_nothing_open_are_noted(look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie behind consumer offsets, and their messages come as the groups go on. A stop has to end them then."""
    monkeypatch.setattr(take_over_module, "plan_window", lambda committed, bounds, pops, was_killed: None)
    assert not take_over(look)
    assert read_notice(look.root).until_ms and not (look.root / "pop" / "image").exists()


@pytest.mark.parametrize("is_killed_ours", [True, False], ids=["ours", "stock"])
@pytest.mark.parametrize("point", points_of(FOLDER / "take_over.py"))
def test_the_start_behind_one_that_dies_on_the_way_has_all(
    look: Any, monkeypatch: pytest.MonkeyPatch, point: str, is_killed_ours: bool
) -> None:
    """`stock`: a RocketMQ broker has been killed before, and the start dies before the store has its own mark."""
    (killed_ours if is_killed_ours else killed_stock)(look.root)

    def die_there(step: str) -> None:
        if step == point:
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if not pid:
        try:
            monkeypatch.setattr(take_over_module, "passed", die_there)
            take_over(look)
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1]), f"{point} was never reached"
    monkeypatch.setattr(open_work, "StoreLook", lambda config, root: look)
    assert open_work.has_open_work(look.config, look.root)
    assert sum(map(len, entries_of(look.root).values())) == 9


def damage_entry(memory: PopMemory) -> None:
    entry(memory, 0).base_offset += 1


def damage_window(memory: PopMemory) -> None:
    window(memory, 0).birth += 1


def damage_name(memory: PopMemory) -> None:
    path = memory.folder / "names"
    path.write_bytes(path.read_bytes().replace(b"GPB", b"GPX"))


@pytest.mark.parametrize("damage", [damage_entry, damage_window, damage_name])
def test_damaged_memory_is_made_anew_from_the_records(
    look: Any, monkeypatch: pytest.MonkeyPatch, damage: Callable[[PopMemory], None]
) -> None:
    """The open messages lie behind the consumer offsets, at which the groups would go on."""
    monkeypatch.setattr(open_work, "StoreLook", lambda config, root: look)
    assert take_over(look)
    found = entries_of(look.root)
    markers.write_abort(look.root, 4711)
    memory = PopMemory.load(look.root)
    assert memory is not None
    damage(memory)
    memory.close(clean=False)
    assert open_work.has_open_work(look.config, look.root)
    assert entries_of(look.root) == found
    segment = PopMemory.load(look.root)
    assert segment is not None and segment.path != memory.path
    segment.close(clean=False)
    assert open_work.has_open_work(look.config, look.root)
    assert segment.path.exists() and entries_of(look.root) == found, "the next start uses it"


def test_topics_and_groups_that_are_gone_have_no_open_messages(look: Any) -> None:
    look.topics.queue = lambda topic, queue_id: None if topic.startswith("G") else (topic, (topic, queue_id), queue_id)
    assert not take_over(look)
    assert not (look.root / "pop").exists()
