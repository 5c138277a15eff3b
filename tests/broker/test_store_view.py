"""Control's eyes on the store: golden messages through the live bound, and what a deleted topic leaves behind."""

import os
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.broker.store_view import StoreView
from ringmq.remoting.names import STAGED_TOPIC
from ringmq.store import layout
from ringmq.store.message_store import MessageStore
from ringmq.store.record import OK, parse_record
from tests.archives import extract_all
from tests.store.golden_stores import basic_config
from tests.store.test_torn_tail import encode


class FakePlane:
    """Just the bounds."""

    def __init__(self, confirm: int) -> None:
        self.confirm = confirm
        self.watermarks = SimpleNamespace(
            min_offset=0, append_offset=confirm + 7, flushed_offset=confirm, dispatched_offset=confirm - 3
        )

    def confirm_offset(self) -> int:
        return self.confirm


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    target = tmp_path_factory.mktemp("golden")
    with tarfile.open(Path(__file__).parents[1] / "golden" / "store-basic" / "store-basic.tar.gz") as tar:
        extract_all(tar, target)
    return MessageStore(basic_config(target / "store-basic"))


def test_messages_are_seen_below_the_confirm_offset_only(store: MessageStore) -> None:
    everything = StoreView(FakePlane(1 << 40), store)
    units = everything.queue_units("GoldA", 0, 10, 2)
    assert len(units) == 2
    (first, size, _), _ = units
    raw = everything.view(first)
    assert raw is not None
    assert len(raw) == size
    behind, before = StoreView(FakePlane(first + size), store), StoreView(FakePlane(first + size - 1), store)
    assert behind.view(first) == raw
    assert before.view(first) is None
    assert len(behind.queue_units("GoldA", 0, 10, 2)) == 1
    assert before.queue_units("GoldA", 0, 10, 2) == []
    assert behind.store_time("GoldA", 0, 10) > 0
    assert before.store_time("GoldA", 0, 10) == -1
    assert everything.view(first + 1) is None
    assert everything.view(-1) is None


def test_keys_are_found_below_the_confirm_offset_only(store: MessageStore) -> None:
    everything = StoreView(FakePlane(1 << 40), store)
    found = everything.query_by_key("GoldC", "Aa", 32, 0, 1 << 62)
    assert len(found.messages) == 2, "two keys with one hash"
    assert found.index_last_update_phyoffset > 0
    none = StoreView(FakePlane(1), store).query_by_key("GoldC", "Aa", 32, 0, 1 << 62)
    assert none.messages == []
    assert none.index_last_update_phyoffset <= 1


def test_batch_queues_are_read_whole(store: MessageStore) -> None:
    view = StoreView(FakePlane(1 << 40), store)
    found = view.batch_pull("GoldBatchCQ", 0, 0, 4, [])
    assert found.status == "FOUND"
    assert found.next_begin_offset > 0
    assert found.body
    assert view.batch_pull("GoldBatchCQ", 0, found.max_offset, 4, []).status == "OFFSET_OVERFLOW_ONE"
    assert view.batch_pull("Nope", 0, 0, 4, []).status == "NO_MATCHED_LOGIC_QUEUE"


def test_log_state_and_times(store: MessageStore) -> None:
    view = StoreView(FakePlane(1000), store)
    state = view.log_state()
    assert (state.append_offset, state.confirm_offset, state.dispatched_offset) == (1007, 1000, 997)
    assert 0 <= state.disk_ratio <= 1
    assert view.earliest_store_time() > 0
    assert view.offset_by_time("GoldA", 0, 0, False) == 0


def test_a_deleted_topic_leaves_no_queue(tmp_path: Path) -> None:
    view = StoreView(FakePlane(1), MessageStore(basic_config(tmp_path)))
    for folder in ("consumequeue", "batchconsumequeue"):
        (tmp_path / folder / "T" / "0").mkdir(parents=True)
    (tmp_path / "consumequeue" / "U" / "0").mkdir(parents=True)
    assert view.topics_on_disk() == {"T", "U"}
    view.delete_topic("T")
    view.delete_topic("..")
    assert view.topics_on_disk() == {"U"}


def test_a_topic_made_again_shows_nothing_of_the_one_before(tmp_path: Path) -> None:
    config = basic_config(tmp_path)
    view = StoreView(FakePlane(1 << 40), MessageStore(config))
    for folder, unit in (
        (layout.CONSUME_QUEUE, layout.CONSUME_QUEUE_UNIT),
        (layout.BATCH_CONSUME_QUEUE, layout.BATCH_UNIT),
    ):
        is_batch = folder == layout.BATCH_CONSUME_QUEUE
        size = config.batch_consume_queue_file_bytes if is_batch else config.consume_queue_file_bytes
        for places in ([(0, 50), (50, 60), (110, 70)], [(200, 40)]):
            path = tmp_path / folder / "T" / "0" / f"{0:020d}"
            path.parent.mkdir(parents=True)
            rest = [(0, 0, base, 1, 0, 0) if is_batch else (0,) for base in range(len(places))]
            units = [unit.pack(*place, *more) for place, more in zip(places, rest, strict=True)]
            path.write_bytes(b"".join(units).ljust(size, b"\0"))
            assert view.queue_units("T", 0, 0, 5) == [(*place, 0) for place in places]
            view.delete_topic("T")


def test_what_retention_took_is_let_go(tmp_path: Path) -> None:
    config = basic_config(tmp_path)
    paths = [tmp_path / layout.COMMIT_LOG / f"{number * config.commit_log_file_bytes:020d}" for number in range(2)]
    paths[0].parent.mkdir()
    for path in paths:
        path.touch()
        os.truncate(path, config.commit_log_file_bytes)
    store = MessageStore(config)
    view = StoreView(FakePlane(1), store)
    assert view.log_file(0) is not None
    paths[0].unlink()
    assert f"{paths[0]} (deleted)" in Path("/proc/self/maps").read_text()
    view.refresh()
    assert f"{paths[0]} (deleted)" not in Path("/proc/self/maps").read_text()
    assert store.commit_log.min_offset == config.commit_log_file_bytes
    assert view.log_file(0) is None


def test_a_record_that_a_client_has_made_up_around_others_is_not_shown(tmp_path: Path) -> None:
    """Its head is in one message of the client, its tail in a later one, and the messages of others are its body."""
    small = encode(0, 0, b"", b"", b"T")
    secret = encode(1, 700, b"secret", b"", STAGED_TOPIC.encode())
    head = bytearray(small[:88])
    head[:4], head[84:88] = (len(small) + len(secret)).to_bytes(4, "big"), len(secret).to_bytes(4, "big")
    made_up = bytes(head) + secret + small[88:]
    assert parse_record(made_up, with_body=False)[0] == OK
    for raw, is_shown in ((made_up, False), (secret, False), (encode(0, 0, b"x", b"", b"T"), True)):
        log = SimpleNamespace(raw_at=lambda offset, end, raw=raw: memoryview(raw))
        view = StoreView(FakePlane(1 << 20), cast(Any, SimpleNamespace(commit_log=log)))
        assert (view.view(parse_record(raw, with_body=False)[1].physical_offset) == raw) == is_shown  # type: ignore[union-attr]
