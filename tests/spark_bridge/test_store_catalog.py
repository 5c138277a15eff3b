"""The catalog of a store: where it ends, whoever owns it, and what is said of a store that cannot be read."""

import itertools
import logging
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringmq.ipc.watermark import NO_LIMIT, NOT_LIVE, OURS, Watermarks
from ringmq.spark_bridge import store_catalog
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.log_ranges import log_extent
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from ringmq.spark_bridge.slices import QueueKey, QueueSpan
from ringmq.spark_bridge.store_catalog import StoreCatalog
from ringmq.spark_bridge.stream_core import Limits, StreamOffset
from ringmq.spark_bridge.stream_query import StreamQuery
from ringmq.store import markers
from ringmq.store.broker_name import write_broker_name
from ringmq.store.commit_log import CommitLog
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import recover
from ringmq.store.store_lock import StoreLock
from tests.archives import extract_all
from tests.spark_bridge.made_store import MadeStore, held_by_stock
from tests.store.golden_stores import crashed_config

CONFIRM_APPENDED, CONFIRM_FLUSHED, CONFIRM_LIMITED = 0, 1, 2
CRASHED = Path(__file__).parents[1] / "golden" / "store-crashed" / "store-crashed.tar.xz"


def catalog_of(root: Path, **options: str) -> StoreCatalog:
    return StoreCatalog(parse_options({"store": str(root)} | options))


def watermarks(append: int, flushed: int, dispatched: int, policy: int, limit: int = NO_LIMIT) -> Watermarks:
    return Watermarks(True, append, flushed, dispatched, 0, policy, 0, 0, 1, 1, limit)


def log_end(root: Path) -> int:
    """Where the newest record that may be read ends."""
    catalog = catalog_of(root, includeSystemTopics="true")
    spans = [QueueSpan(key, *catalog.bounds(key)) for key in catalog.queues()]
    return log_extent(catalog.log_index(), [span for span in spans if span.count]).end


def bodies(root: Path, topic: str) -> list[bytes]:
    options = parse_options({"store": str(root), "subscribe": topic})
    parts = plan_batch(StoreCatalog(options), options)
    batches = [batch for part in parts for batch in read_slice(part, ("value",), ReadSettings())]
    return [value for batch in batches for value in batch.column(0).to_pylist()]


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    store = MadeStore(tmp_path / "store")
    for number in range(20):
        store.append(topic="T", body=b"%d" % number, stored_ms=1000 + 10 * number)
    return store


# ---- where it ends ----


def test_after_a_clean_stop_the_queues_end_is_the_end(golden_store: Path, manifest: list[dict[str, Any]]) -> None:
    assert log_end(golden_store) == manifest[-1]["commitLogOffset"] + manifest[-1]["storeSize"]


@pytest.mark.parametrize("policy", [CONFIRM_APPENDED, CONFIRM_FLUSHED])
def test_a_live_owner_with_a_stalled_flush(
    golden_store: Path, manifest: list[dict[str, Any]], policy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appended is all, durable is half: under the flushed policy the other half is not readable."""
    end = manifest[-1]["commitLogOffset"] + manifest[-1]["storeSize"]
    flushed = manifest[2000]["commitLogOffset"]
    marks = watermarks(end, flushed, flushed if policy == CONFIRM_FLUSHED else end, policy)
    monkeypatch.setattr(store_catalog, "read_watermarks", lambda root: marks)
    assert log_end(golden_store) == marks.confirm_offset


def test_a_dead_owner_s_page_is_not_believed(
    golden_store: Path, manifest: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_catalog, "read_watermarks", lambda root: NOT_LIVE)
    assert log_end(golden_store) == manifest[-1]["commitLogOffset"] + manifest[-1]["storeSize"]


def test_what_was_acknowledged_when_a_plan_began_is_in_it(made: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [place[0] for place in made.places]
    looks = iter([(places[8], places[5]), (places[12], places[7]), (places[12], places[9])])

    def look(root: Path) -> Watermarks:
        append, dispatched = next(looks)
        return watermarks(append, append, dispatched, CONFIRM_APPENDED)

    monkeypatch.setattr(store_catalog, "read_watermarks", look)
    catalog = catalog_of(made.root)
    assert catalog.bounds(QueueKey("T", catalog.brokers()[0].name, 0)) == (0, 9)


def test_a_slave_s_end_never_falls_when_its_master_is_back_and_has_confirmed_less(
    made: MadeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What dispatch had not come to when the limit fell is not waited for."""
    places = [place[0] for place in made.places]
    alone = watermarks(places[12], places[12], places[8], CONFIRM_LIMITED)
    linked = watermarks(places[12], places[12], places[9], CONFIRM_LIMITED, places[5])
    looks = iter([alone, linked])
    monkeypatch.setattr(store_catalog, "read_watermarks", lambda root: next(looks))
    catalog = StoreCatalog(parse_options({"store": str(made.root)}), clock=lambda: 0.0)
    assert catalog.bounds(QueueKey("T", catalog.brokers()[0].name, 0)) == (0, 9)
    assert not caplog.text


def test_a_dispatch_that_stands_still_is_not_waited_for_endlessly(
    made: MadeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    places = [place[0] for place in made.places]
    stuck = watermarks(places[8], places[8], places[5], CONFIRM_APPENDED)
    monkeypatch.setattr(store_catalog, "read_watermarks", lambda root: stuck)
    ticks = iter(range(100))
    catalog = StoreCatalog(parse_options({"store": str(made.root)}), clock=lambda: float(next(ticks)))
    assert catalog.bounds(QueueKey("T", catalog.brokers()[0].name, 0)) == (0, 5)
    assert f"{places[8] - places[5]} bytes behind its log" in caplog.text


def test_of_a_running_stock_broker_the_queues_are_believed(made: MadeStore) -> None:
    """It holds the lock and has no watermark page; the abort file is there while it runs."""
    made.append(topic="T", body=b"not dispatched", is_dispatched=False)
    markers.write_abort(made.root, os.getpid())
    with held_by_stock(made.root):
        assert bodies(made.root, "T") == [b"%d" % number for number in range(20)]
    assert bodies(made.root, "T")[20:] == [b"not dispatched"], "without an owner it counts, as recovery would keep it"


@pytest.fixture
def lost_end(made: MadeStore) -> Iterator[MadeStore]:
    """A power failure took the log's newest record and left its unit; a RingMQ that has not recovered it holds it."""
    position = made.append(topic="T", body=b"lost")
    made.damage(position, bytes(made.places[-1][1]))
    markers.write_abort(made.root, 1)
    lock = StoreLock(made.root)
    yield made
    lock.close()


def test_the_end_is_not_known_while_a_broker_starts(lost_end: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_catalog, "START_POLL_S", 0.0)
    ticks = itertools.count()
    catalog = StoreCatalog(parse_options({"store": str(lost_end.root)}), clock=lambda: float(next(ticks)))
    with pytest.raises(ReadError, match=f"{lost_end.root}: its broker is starting"):
        catalog.queues()
    assert next(ticks) >= store_catalog.START_WAIT_S
    with pytest.raises(ReadError, match="its broker is starting"):
        catalog.ends()


def test_a_plan_waits_for_a_broker_that_starts(made: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    end = made.places[-1][0]
    looks = iter([replace(NOT_LIVE, lock_holder=OURS), watermarks(end, end, end, CONFIRM_APPENDED)])
    monkeypatch.setattr(store_catalog, "read_watermarks", lambda root: next(looks))
    catalog = catalog_of(made.root)
    assert [key.topic for key in catalog.queues()] == ["T"]


def test_a_stream_waits_for_a_broker_that_starts(lost_end: MadeStore, caplog: pytest.LogCaptureFixture) -> None:
    options = parse_options({"store": str(lost_end.root), "startingOffsets": "earliest"}, streaming=True)
    stream = StreamQuery(options)
    place = StreamOffset({QueueKey("T", "DEFAULT_BROKER", 0): 15}, given_at_ms=1)
    with caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        assert stream.next_end(place, Limits()) is place
    assert "its broker is starting" in caplog.text and "The stream waits" in caplog.text
    assert stream.last_end() is None


def test_a_torn_record_behind_the_queues_is_not_read(made: MadeStore) -> None:
    made.append(topic="T", body=b"whole", is_dispatched=False)
    made.next_offsets["T", 0] += 1
    torn = made.append(topic="T", body=bytes(100) + b"torn", is_dispatched=False)
    made.damage(torn + 100, b"\xff" * 20)
    markers.write_abort(made.root, 1)
    assert bodies(made.root, "T")[20:] == [b"whole"]


def test_a_topic_without_any_unit_is_found_behind_the_queues(made: MadeStore) -> None:
    made.append(topic="New", body=b"first", is_dispatched=False)
    markers.write_abort(made.root, 1)
    catalog = catalog_of(made.root)
    assert QueueKey("New", "DEFAULT_BROKER", 0) in catalog.queues()
    assert bodies(made.root, "New") == [b"first"]


@pytest.fixture(scope="module")
def crashed_stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("spark-crashed")
    with tarfile.open(CRASHED) as tar:
        extract_all(tar, target)
    return target


@pytest.fixture
def crashed(crashed_stores: Path, tmp_path: Path) -> Callable[[str], Path]:
    def copy(variant: str) -> Path:
        found = next(path for path in crashed_stores.rglob(variant) if path.is_dir())
        return Path(shutil.copytree(found, tmp_path / variant))

    return copy


@pytest.mark.parametrize("variant", ["crash-kill9", "crash-live", "crash-torn-body"])
def test_a_killed_brokers_store_has_the_rows_that_recovery_leaves(crashed: Callable[[str], Path], variant: str) -> None:
    root = crashed(variant)
    queue = MessageStore(crashed_config(root)).queue("CrashA", 1)
    assert queue is not None
    path = queue.files.path(queue.files.starts[-1])
    path.write_bytes(path.read_bytes().rstrip(b"\0")[:-60].ljust(6000, b"\0"))  # dispatch was three records behind
    before = {topic: bodies(root, topic) for topic in ("CrashA", "CrashB")}
    recovered = recover(crashed_config(root))
    for topic, found in before.items():
        expected = sum(end for (name, _), end in recovered.next_offsets.items() if name == topic)
        assert len(found) == expected > 100


# ---- what it says ----


def test_bounds_times_and_places(made: MadeStore) -> None:
    catalog = catalog_of(made.root)
    (key,) = catalog.queues()
    assert catalog.bounds(key) == (0, 20)
    assert catalog.bounds(QueueKey("T", key.broker, 7)) == (0, 0)
    assert [catalog.offset_at(key, at) for at in (0, 1000, 1001, 1190, 1191)] == [0, 0, 1, 19, None]
    place = catalog.log_index().position(key, 3)
    assert place is not None and (place.begin, place.size) == made.places[3][:2]


def test_times_behind_the_queues(made: MadeStore) -> None:
    made.append(topic="T", stored_ms=2000, is_dispatched=False)
    markers.write_abort(made.root, 1)
    catalog = catalog_of(made.root)
    (key,) = catalog.queues()
    assert catalog.bounds(key) == (0, 21)
    assert [catalog.offset_at(key, at) for at in (1190, 1191, 2000, 2001)] == [19, 20, 20, None]


def test_a_new_look_sees_what_is_new(made: MadeStore) -> None:
    catalog = catalog_of(made.root)
    (key,) = catalog.queues()
    assert catalog.bounds(key) == (0, 20)
    made.append(topic="T")
    made.append(topic="U")
    assert catalog.bounds(key) == (0, 20), "bounds belong to a look"
    assert [found.topic for found in catalog.queues()] == ["T", "U"]
    assert catalog.bounds(key) == (0, 21)


def test_a_store_that_was_made_again_is_another_place(made: MadeStore) -> None:
    catalog = catalog_of(made.root)
    assert len(catalog.queues()) == 1
    before = catalog.brokers()[0].store
    made.root.rename(made.root.with_name("old"))
    MadeStore(made.root).append(topic="T", body=b"of the new one")
    assert catalog.brokers()[0].store == before
    (key,) = catalog.queues()
    assert catalog.bounds(key) == (0, 1)
    assert catalog.brokers()[0].store != before


def test_the_brokers_name(made: MadeStore) -> None:
    assert catalog_of(made.root).brokers()[0].name == "DEFAULT_BROKER"
    write_broker_name(made.root, "broker-a")
    write_broker_name(made.root, "broker-b")
    assert catalog_of(made.root).brokers()[0].name == "broker-b"


def test_system_topics_are_there_on_demand(golden_store: Path) -> None:
    topics = {key.topic for key in catalog_of(golden_store).queues()}
    assert topics == {"GoldA", "GoldB", "GoldC", "GoldBatchCQ", "GoldTx", "GoldDelay"}
    more = {key.topic for key in catalog_of(golden_store, includeSystemTopics="true").queues()} - topics
    assert {"SCHEDULE_TOPIC_XXXX", "%RETRY%GG_RETRY", "%DLQ%GG_RETRY", "RMQ_SYS_TRANS_HALF_TOPIC"} <= more


# ---- what cannot be read ----


def _missing(root: Path) -> None:
    shutil.rmtree(root)


def _no_log(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def _foreign(root: Path) -> None:
    (root / "commitlog" / f"{0:020d}").write_bytes(b"PAR1" * 2000)


def _newer(root: Path) -> None:
    path = root / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xaf"))


def _odd_size(root: Path) -> None:
    shutil.copy(root / "commitlog" / f"{0:020d}", root / "commitlog" / f"{1 << 20:020d}")
    with (root / "commitlog" / f"{1 << 20:020d}").open("r+b") as file:
        file.truncate(1000)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_missing, "option store: .* has no folder commitlog on this host"),
        (_no_log, "has no folder commitlog on this host; it is the broker's storePathRootDir"),
        (_foreign, "begins with magic 50415231, not DAA320A7 or DAA320AB: another program's file, or a newer format"),
        (_newer, "begins with magic DAA320AF"),
        (_odd_size, "has 1000 bytes, not 1048576 as configured"),
    ],
)
def test_a_store_that_is_none(made: MadeStore, spoil: Callable[[Path], None], message: str) -> None:
    spoil(made.root)
    with pytest.raises(ReadError, match=message):
        catalog_of(made.root).queues()


@pytest.mark.parametrize("vanished", [1, 100])
def test_a_file_that_goes_between_listing_and_reading_is_looked_at_again(
    made: MadeStore, monkeypatch: pytest.MonkeyPatch, vanished: int
) -> None:
    left = itertools.count(vanished, -1)

    def check_log(log: CommitLog) -> None:
        if next(left) > 0:
            raise FileNotFoundError(2, "gone", "00000000000001048576")

    monkeypatch.setattr(store_catalog, "check_log", check_log)
    if vanished == 1:
        assert catalog_of(made.root).queues()
        return
    with pytest.raises(ReadError, match="00000000000001048576 is not there"):
        catalog_of(made.root).queues()
