"""Parts of the log that are taken out of it: where it ends then, what is kept, and that no crash on the way matters."""

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from ringmq.store import adoption, adoption_staging, inspect, markers, salvage, store_task
from ringmq.store import record as records
from ringmq.store.adoption import AdoptionError, append, check_front, whole_bytes
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import ConfigFileError, load_config, persist_config
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import SAME_BOOT, recover
from ringmq.store.salvage import SalvageError, rebase, salvage_files, truncate
from ringmq.store.store_task import StoreTask, perform, read_task, write_task
from ringmq.store.verify import verify
from ringmq.store.write_hold import HeldFor, forget_adopted, read_hold, write_hold
from tests.spark_bridge.made_store import MadeStore
from tests.store.test_torn_tail import encode

FILE_BYTES = 1 << 14
RECORDS = 120  # about five files
NOW_MS = 1_700_000_000_000
PROPERTIES = b"own\x01A\x02"  # the last byte of a record is not zero


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root, commit_log_file_bytes=FILE_BYTES, consume_queue_file_bytes=20_000, index_slots=20, index_entries=80
    )


def made(root: Path, records: int = RECORDS) -> MadeStore:
    """A cleanly closed store of two queues."""
    store = MadeStore(root, file_bytes=FILE_BYTES)
    for number in range(records):
        store.append(topic="Salvaged", queue_id=number % 2, body=b"%d " % number + b"b" * 500, properties=PROPERTIES)
    return store


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    return made(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def store(template: MadeStore, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template.root, tmp_path / "store"))


def log_of(root: Path) -> bytes:
    """The log's files from the first to the last, trailing zeros off."""
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").glob("0*"))).rstrip(b"\0")


def salvaged(root: Path) -> dict[tuple[int, int], bytes]:
    """What salvage/ holds by range; each range once."""
    files = salvage_files(root)
    found = {(file.from_offset, file.to_offset): file.path.read_bytes() for file in files}
    assert len(found) == len(files)
    for (start, end), data in found.items():
        assert not data[end - start :].strip(b"\0")
    return {(start, end): data[: end - start] for (start, end), data in found.items()}


def places(template: MadeStore) -> list[int]:
    """Where records end, from the first one's begin on."""
    return [0] + [position + size for position, size, _, _ in template.places]


@pytest.mark.parametrize("number", [1, 13, 60, 61, 118, 119])
def test_the_log_ends_at_the_cut_and_the_rest_is_kept(store: Path, template: MadeStore, number: int) -> None:
    before, border = log_of(store), places(template)[number]
    inode = (store / "commitlog" / f"{border // FILE_BYTES * FILE_BYTES:020d}").stat().st_ino
    report = truncate(config_of(store), border, now_ms=NOW_MS)
    assert report.end_offset == border
    assert log_of(store) == before[:border]
    kept = salvaged(store)
    for (start, end), data in kept.items():
        assert data == before[start:end]
    assert min(start for start, _ in kept) == border and max(end for _, end in kept) == len(before)
    assert [file.path for file in report.files] == [file.path for file in salvage_files(store)]
    parted = store / "commitlog" / f"{border // FILE_BYTES * FILE_BYTES:020d}"
    assert parted.stat().st_ino != inode and parted.stat().st_size == FILE_BYTES


def test_queues_end_with_the_log_after_the_recovery(store: Path, template: MadeStore) -> None:
    truncate(config_of(store), places(template)[61])
    markers.write_boot_marker(store)  # as in a restart in place
    result = recover(config_of(store))
    assert result.mode == SAME_BOOT
    assert result.append_offset == places(template)[61]
    assert result.next_offsets == {("Salvaged", 0): 31, ("Salvaged", 1): 30}
    found = MessageStore(config_of(store))
    report = verify(found, result.append_offset, check_index=False)
    assert (report.errors, report.records) == (0, 61)


def test_an_offset_inside_a_record_or_a_blank_cuts_in_front_of_it(template: MadeStore, tmp_path: Path) -> None:
    position, size, _, _ = template.places[50]
    begins = [begin for begin, _, _, _ in template.places]
    blank = next(end for end, begin in zip(places(template)[1:], begins[1:], strict=False) if end < begin)
    cases = [(position + 1, position), (position + size - 1, position), (blank + 4, blank), (blank + 8, blank)]
    for number, (asked, border) in enumerate(cases):
        root = Path(shutil.copytree(template.root, tmp_path / str(number)))
        assert truncate(config_of(root), asked).end_offset == border


def test_a_cut_at_the_begin_of_a_file_leaves_the_blank_in_front_of_it(store: Path, template: MadeStore) -> None:
    before = log_of(store)
    assert truncate(config_of(store), 2 * FILE_BYTES).end_offset == 2 * FILE_BYTES
    assert log_of(store) == before[: 2 * FILE_BYTES].rstrip(b"\0")
    end = recover(config_of(store)).append_offset  # a blank at the very end is written again by who goes on
    assert end == max(begin + size for begin, size, _, _ in template.places if begin < 2 * FILE_BYTES)


@pytest.mark.parametrize("behind", [0, 1, FILE_BYTES, 1 << 40])
def test_a_log_that_ends_there_is_left_alone(store: Path, template: MadeStore, behind: int) -> None:
    before = log_of(store)
    report = truncate(config_of(store), template.end + behind)
    assert (report.end_offset, report.files) == (template.end, ())
    assert log_of(store) == before
    assert not markers.has_abort(store)


def test_a_cut_in_front_of_the_log_is_refused(store: Path) -> None:
    (store / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(SalvageError, match=f"begins at {FILE_BYTES}"):
        truncate(config_of(store), FILE_BYTES - 1)


def test_two_cuts_at_one_offset_keep_both_tails(store: Path, template: MadeStore) -> None:
    border = places(template)[100]
    first = log_of(store)[border:]
    truncate(config_of(store), border, now_ms=NOW_MS)
    path = store / "commitlog" / f"{border // FILE_BYTES * FILE_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(border % FILE_BYTES)
        file.write(b"other")
    truncate(config_of(store), border, now_ms=NOW_MS)
    tails = [file.path.read_bytes() for file in salvage_files(store) if file.from_offset == border]
    assert tails[-1] == b"other" or tails[0] == b"other"
    assert any(first.startswith(tail) for tail in tails)


def test_a_rebased_store_is_empty_and_begins_at_the_offset(store: Path, template: MadeStore) -> None:
    before = log_of(store)
    assert rebase(config_of(store), 64 * FILE_BYTES).end_offset == 64 * FILE_BYTES
    kept = salvaged(store)
    assert b"".join(before[start:end] for start, end in sorted(kept)) == b"".join(kept[key] for key in sorted(kept))
    assert min(kept)[0] == 0 and max(end for _, end in kept) == template.end
    result = recover(config_of(store))
    assert (result.min_offset, result.append_offset, result.queues) == (64 * FILE_BYTES, 64 * FILE_BYTES, {})


def test_a_log_on_another_disk_than_the_store_is_copied(
    store: Path, template: MadeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, target: Path) -> Path:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(Path, "rename", refuse)
    before = log_of(store)
    rebase(config_of(store), 64 * FILE_BYTES)
    kept = salvaged(store)
    assert b"".join(kept[key] for key in sorted(kept)) == before
    assert [path.name for path in (store / "commitlog").iterdir()] == [f"{64 * FILE_BYTES:020d}"]


def test_a_log_cannot_begin_inside_a_file(store: Path) -> None:
    before = log_of(store)
    with pytest.raises(SalvageError, match="cannot begin"):
        rebase(config_of(store), FILE_BYTES + 1)
    assert log_of(store) == before


# ---- adoption ------------------------------------------------------------------------------------------------


def reader_of(data: bytes, step: int = 1000) -> Callable[[int, int], bytes]:
    """Reads another log, at most `step` bytes at once."""
    return lambda offset, length: data[offset : offset + min(step, length)]


@pytest.mark.parametrize("step", [7, 1000, 1 << 20])
def test_the_adopted_log_is_the_other_ones_byte_by_byte(store: Path, template: MadeStore, step: int) -> None:
    border = places(template)[30]
    truncate(config_of(store), border)
    assert append(config_of(store), border, template.end, reader_of(log_of(template.root), step)) == template.end
    assert log_of(store) == log_of(template.root)
    assert recover(config_of(store)).next_offsets == {("Salvaged", 0): 60, ("Salvaged", 1): 60}


def test_logs_that_differ_in_front_of_the_offset_are_not_joined(store: Path, template: MadeStore) -> None:
    border = places(template)[30]
    truncate(config_of(store), border)
    before, data = log_of(store), bytearray(log_of(template.root))
    data[border - 5000] ^= 1
    with pytest.raises(AdoptionError, match="differ"):
        check_front(config_of(store), border, reader_of(bytes(data)))
    assert log_of(store) == before


def test_what_is_no_record_ends_an_adoption(store: Path, template: MadeStore) -> None:
    border, bad = places(template)[30], template.places[70]
    for at, what in ((4, "neither a record"), (120, "CRC")):
        truncate(config_of(store), border)
        data = bytearray(log_of(template.root))
        data[bad[0] + at] ^= 0x40
        with pytest.raises(AdoptionError, match=what) as caught:
            append(config_of(store), border, template.end, reader_of(bytes(data)))
        assert caught.value.end_offset == bad[0]
        assert log_of(store) == bytes(data[: bad[0]]).rstrip(b"\0")


@pytest.mark.parametrize(("at", "field"), [(30, "physical offset"), (12, "queue id"), (20, "queue offset")])
def test_a_record_with_an_impossible_value_is_adopted_as_it_is(
    store: Path, template: MadeStore, at: int, field: str
) -> None:
    """As replication takes it: the recovery behind the adoption counts and names it."""
    border, wrong = places(template)[30], template.places[70][0]
    truncate(config_of(store), border)
    data = bytearray(log_of(template.root))
    data[wrong + at] ^= 0x80
    assert append(config_of(store), border, template.end, reader_of(bytes(data))) == template.end
    assert log_of(store) == bytes(data)
    (store / "abort").touch()
    result = recover(config_of(store))
    assert (result.append_offset, result.not_indexed) == (template.end, 1)
    assert any(f"at {wrong}, has an impossible {field}" in reason for reason in result.reasons)


def test_a_wrong_place_is_no_record_where_records_are_proof() -> None:
    """Records that a peer sends to prove that its log goes on have to be of this very place."""
    raw = encode(0, 77, b"body", b"")
    assert whole_bytes(raw, 77, FILE_BYTES, check_crc=True) == (len(raw), records.SHORT)
    assert whole_bytes(raw, 78, FILE_BYTES, check_crc=True) == (0, records.BAD_PLACE)
    assert whole_bytes(raw, 78, FILE_BYTES, check_crc=True, keeps_places=False) == (len(raw), records.SHORT)


def test_an_other_log_that_ends_early_or_breaks_is_taken_as_far_as_it_goes(store: Path, template: MadeStore) -> None:
    data, border, end = log_of(template.root), places(template)[30], places(template)[80]

    def broken(offset: int, length: int) -> bytes:
        if offset > end:
            raise OSError("connection reset")
        return data[offset : min(offset + length, end + 1)]

    for read_chunk in (lambda offset, length: data[offset : min(offset + length, end + 1)], broken):
        truncate(config_of(store), border)
        with pytest.raises(AdoptionError) as caught:
            append(config_of(store), border, template.end, read_chunk)
        assert caught.value.end_offset == end
        assert log_of(store) == data[:end]


# ---- orders --------------------------------------------------------------------------------------------------


class Source:
    """An `open_source` that serves the log of another store."""

    def __init__(self, template: MadeStore) -> None:
        self._read = reader_of(log_of(template.root))

    def __call__(self, address: str) -> "Source":
        assert address == "10.0.0.2:10911"
        return self

    def __enter__(self) -> Callable[[int, int], bytes]:
        return self._read

    def __exit__(self, *ignored: object) -> None:
        return None


def diverge(root: Path, template: MadeStore, number: int) -> None:
    """Give the store another log from its `number`-th record on."""
    shutil.rmtree(root)
    own = made(root, number)
    for _ in range(20):
        own.append(topic="Salvaged", queue_id=0, body=b"its own " * 90, properties=PROPERTIES)
    assert own.end != template.end


def orders(template: MadeStore) -> dict[str, StoreTask]:
    return {
        "cut": StoreTask("cut", places(template)[61] + 5),
        "rebase": StoreTask("rebase", 2 * FILE_BYTES),
        "adopt": StoreTask("adopt", places(template)[61] + 5, end=template.end, source="10.0.0.2:10911"),
    }


def held_for(template: MadeStore) -> HeldFor:
    """Writes are held for the source of the adoption."""
    return HeldFor(1, "10.0.0.2:10911", places(template)[61], places(template)[61], template.end)


@pytest.mark.parametrize("action", ["cut", "rebase", "adopt"])
def test_an_order_is_performed_once(store: Path, template: MadeStore, action: str) -> None:
    if action == "adopt":
        diverge(store, template, 61)
    other = HeldFor(2, "10.0.0.3:10911", 0, 0, 5)
    write_hold(store, [held_for(template), other])
    write_task(store, orders(template)[action])
    performed = perform(config_of(store), Source(template))
    assert action in performed.lines[0]
    assert performed.adopted_from == (places(template)[61] if action == "adopt" else None)
    assert read_task(store) is None
    assert perform(config_of(store), Source(template)).lines == []
    assert read_hold(store) == ((other,) if action == "adopt" else (held_for(template), other))
    if action == "adopt":
        assert log_of(store) == log_of(template.root)
        assert {start for start, _ in salvaged(store)} >= {places(template)[61]}


def test_an_adoption_ends_every_hold_for_that_slave(store: Path, template: MadeStore) -> None:
    """Under the addresses that it had before, and as the slave of its host: known by the end of its log."""
    this = held_for(template)
    for_it = [this, replace(this, address="10.0.0.7:1"), replace(this, broker_id=-1, address="10.0.0.2")]
    others = (
        replace(this, address="10.0.0.7:2", slave_offset=this.slave_offset - 1),
        replace(this, address="10.0.0.7:3", slave_offset=this.slave_offset + 1),
        replace(this, broker_id=2, address="10.0.0.7:4"),
        replace(this, broker_id=-1, address="10.0.0.7"),
    )
    write_hold(store, [*for_it, *others])
    forget_adopted(store, this.address, template.end)
    assert read_hold(store) == others
    write_hold(store, for_it)
    forget_adopted(store, "10.0.0.9:1", template.end)
    assert read_hold(store) == tuple(for_it), "of a broker that nothing is held for"


def test_queues_name_the_adopted_log(store: Path, template: MadeStore) -> None:
    """What they had behind the cut were records of the store's own tail."""
    diverge(store, template, 61)
    write_task(store, orders(template)["adopt"])
    perform(config_of(store), Source(template))
    markers.write_boot_marker(store)  # as in a restart in place
    result = recover(config_of(store))
    assert result.append_offset == template.end
    assert result.next_offsets == {("Salvaged", 0): 60, ("Salvaged", 1): 60}
    assert [state.max_offset for _, state in sorted(result.queues.items())] == [31, 30], "dispatch adds the rest"
    report = verify(MessageStore(config_of(store)), places(template)[61], check_index=False)
    assert (report.errors, report.records) == (0, 61)


@pytest.mark.parametrize("number", [61, RECORDS], ids=["adopted", "nothing to adopt"])
def test_what_a_failed_sync_took_out_of_a_queue_is_found_after_an_adoption(
    store: Path, template: MadeStore, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order's own recovery finds it first, and redoes nothing: it must not count as the last run's recovery."""
    if number < RECORDS:
        diverge(store, template, number)
    write_task(store, StoreTask("adopt", [*places(template), template.end][number], template.end, "10.0.0.2:10911"))
    markers.write_abort(store, os.getpid())
    markers.write_boot_marker(store)
    markers.write_failed_marker(store, "fsync of a consume queue")
    next((store / "consumequeue" / "Salvaged" / "0").iterdir()).write_bytes(bytes(20_000))
    monkeypatch.setattr(store_task, "recover", partial(recover, window_bytes=1000))
    perform(config_of(store), Source(template))
    result = recover(config_of(store), window_bytes=1000)
    assert (result.append_offset, result.redispatch_offset) == (template.end, 0)
    assert result.queues[("Salvaged", 0)].missing_from == 0


@pytest.mark.parametrize(("kept", "asked"), [(0, ["10.0.0.2:10911"]), (61, [])])
def test_tables_come_with_a_log_that_nothing_of_the_own_one_is_in(
    store: Path, template: MadeStore, kept: int, asked: list[str]
) -> None:
    """Where the logs have a past in common, the own tables are the newer ones."""
    diverge(store, template, kept)
    write_task(store, replace(orders(template)["adopt"], offset=places(template)[kept]))
    sources: list[str] = []

    def take(root: Path, address: str) -> list[str]:
        assert root == store / adoption_staging.FOLDER
        sources.append(address)
        return ["tables"]

    performed = perform(config_of(store), Source(template), take)
    assert (sources, "tables" in performed.lines) == (asked, bool(asked))
    assert performed.adopted_from == places(template)[kept]
    assert log_of(store) == log_of(template.root)


@pytest.mark.parametrize(("unknown_from", "queues"), [(None, []), (61, ["Tail"]), (0, ["Old", "Tail"])])
def test_unknown_topics_get_queues_where_the_adopted_log_begins_with_them(
    tmp_path: Path, unknown_from: int | None, queues: list[str]
) -> None:
    """Below it they are deleted."""
    store = MadeStore(tmp_path / "store", file_bytes=FILE_BYTES)
    ends = [0]
    for topic in ["Old"] * 61 + ["Known"] + ["Old", "Tail"] * 10:
        store.append(topic=topic, queue_id=0, body=b"body", properties=PROPERTIES)
        ends.append(store.end)
    shutil.rmtree(store.root / "consumequeue")
    persist_config(store.root, "topics.json", {"topicConfigTable": {"Known": {}}})
    markers.write_abort(store.root, os.getpid())
    offset = None if unknown_from is None else ends[unknown_from]
    found = recover(config_of(store.root), unknown_topics_from=offset).queues
    assert sorted(topic for topic, _ in found) == sorted(["Known", *queues])


def broken_sources(template: MadeStore) -> dict[str, Any]:
    """Sources that do not hand over everything, and the error about each."""

    def refuse(address: str) -> Source:
        raise ConnectionRefusedError(f"{address}: refused")

    early, bent, other = Source(template), Source(template), Source(template)
    data = log_of(template.root)
    early._read = reader_of(data[: places(template)[80]])
    bad = bytearray(data)
    bad[places(template)[90] + 120] ^= 1
    bent._read = reader_of(bytes(bad))
    bad = bytearray(data)
    bad[places(template)[61] - 200] ^= 1
    other._read = reader_of(bytes(bad))
    return {"refused": refuse, "ends at": early, "CRC": bent, "differ": other}


@pytest.mark.parametrize("why", ["refused", "ends at", "CRC", "differ"])
def test_an_adoption_that_gets_not_everything_cuts_nothing(store: Path, template: MadeStore, why: str) -> None:
    diverge(store, template, 61)
    before = log_of(store)
    write_hold(store, [held_for(template)])
    write_task(store, orders(template)["adopt"])
    performed = perform(config_of(store), broken_sources(template)[why])
    assert "the own log was not cut" in performed.lines[-1] and why in performed.lines[-1]
    assert performed.adopted_from is None
    assert (log_of(store), salvaged(store), read_task(store)) == (before, {}, None)
    assert not (store / adoption_staging.FOLDER).exists()
    assert read_hold(store) == (held_for(template),), "the slave still has what was acknowledged"
    write_task(store, orders(template)["adopt"])  # somebody chooses once more
    perform(config_of(store), Source(template))
    assert log_of(store) == log_of(template.root)
    assert read_hold(store) == ()


def test_a_log_that_parts_where_the_own_one_begins_is_adopted(store: Path, template: MadeStore) -> None:
    """Nothing of the own log stays, and its files in front are deleted."""
    diverge(store, template, 61)
    (store / "commitlog" / f"{0:020d}").unlink()
    write_task(store, replace(orders(template)["adopt"], offset=FILE_BYTES))
    assert perform(config_of(store), Source(template)).adopted_from == FILE_BYTES
    assert log_of(store) == log_of(template.root)[FILE_BYTES:]
    assert recover(config_of(store)).append_offset == template.end


def leave_copy(root: Path, template: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with another log from its 61st record on, and the complete copy of an adoption that a crash stopped."""
    diverge(root, template, 61)
    write_task(root, orders(template)["adopt"])

    def crash(*ignored: object) -> None:
        raise OSError("crashed")

    with monkeypatch.context() as patch:
        patch.setattr(store_task, "end_at", crash)
        with pytest.raises(OSError, match="crashed"):
            perform(config_of(root), Source(template))
    assert (root / adoption_staging.FOLDER / "complete.json").exists()


@pytest.mark.parametrize("action", ["cut", "rebase"])
def test_a_copy_of_an_adoption_goes_with_the_order_that_replaced_it(
    store: Path, template: MadeStore, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins behind the log's new end: a later adoption from that slave may not take it."""
    leave_copy(store, template, monkeypatch)
    write_task(store, orders(template)[action])
    perform(config_of(store), Source(template))
    assert not (store / adoption_staging.FOLDER).exists()


@pytest.mark.parametrize(("number", "left"), [(30, 61), (61, 30)], ids=["other order", "shorter log"])
def test_a_copy_that_begins_elsewhere_than_the_own_log_parts_is_made_anew(
    store: Path, template: MadeStore, number: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_copy(store, template, monkeypatch)
    order = replace(orders(template)["adopt"], offset=places(template)[number])
    if left < 61:
        truncate(config_of(store), places(template)[left])
    write_task(store, order)
    source = Source(template)
    performed = perform(config_of(store), source)
    assert performed.adopted_from == places(template)[30]
    assert log_of(store) == log_of(template.root)
    assert read_task(store) is None


def test_a_copy_that_begins_elsewhere_is_no_reason_to_cut(
    store: Path, template: MadeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source is gone when the copy would have to be made again."""
    leave_copy(store, template, monkeypatch)
    before = log_of(store)
    write_task(store, replace(orders(template)["adopt"], offset=places(template)[30]))
    performed = perform(config_of(store), broken_sources(template)["refused"])
    assert "the own log was not cut" in performed.lines[-1]
    assert (log_of(store), salvaged(store), read_task(store)) == (before, {}, None)


FULL = SimpleNamespace(f_bavail=5, f_frsize=4096)
EMPTY = SimpleNamespace(f_bavail=1 << 20, f_frsize=4096)


def test_an_adoption_without_room_on_the_disk_cuts_nothing(
    store: Path, template: MadeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    diverge(store, template, 61)
    before = log_of(store)
    write_task(store, orders(template)["adopt"])
    monkeypatch.setattr(os, "statvfs", lambda path: FULL)
    told = perform(config_of(store), Source(template)).lines
    assert "20480 free" in told[-1]
    assert (log_of(store), salvaged(store)) == (before, {})


@pytest.mark.parametrize("full", ["store", "log1", "log2"])
def test_an_adoption_asks_each_disk_that_it_writes_to(
    tmp_path: Path, template: MadeStore, full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root and two paths of the log on a disk of their own each; new log files come to the first of them."""
    store = Path(shutil.copytree(template.root, tmp_path / "store"))
    diverge(store, template, 61)
    folders = (tmp_path / "log1", tmp_path / "log2")
    for folder in folders:
        folder.mkdir()
    for path in (store / "commitlog").glob("0*"):
        path.rename(tmp_path / ("log1" if int(path.name) < 2 * FILE_BYTES else "log2") / path.name)
    config = replace(config_of(store), commit_log_directories=folders)
    write_task(store, orders(template)["adopt"])
    monkeypatch.setattr(adoption_staging, "_device", lambda path: path.name)
    monkeypatch.setattr(os, "statvfs", lambda path: FULL if path.name == full else EMPTY)
    before = [sorted(folder.iterdir()) for folder in folders]
    performed = perform(config, Source(template))
    needs_little = full == "log2"  # one file is written again there: 16384 bytes, 20480 are free
    assert (performed.adopted_from is not None) == needs_little, performed.lines
    if not needs_little:
        assert f"bytes on the disk of {tmp_path / full}, which has 20480 free" in performed.lines[-1]
        assert [sorted(folder.iterdir()) for folder in folders] == before


def test_the_progress_of_a_copy_is_told(store: Path, template: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption_staging, "PROGRESS_BYTES", 10_000)
    diverge(store, template, 61)
    write_task(store, orders(template)["adopt"])
    lines: list[str] = []
    perform(config_of(store), Source(template), tell=lines.append)
    assert lines and all(line.endswith("MiB of the log of 10.0.0.2:10911") for line in lines)


@pytest.mark.parametrize("text", ["", "{", "7", '[{"broker_id": 1}]', '[["x"]]', '{"a": 1}'])
def test_a_file_that_holds_writes_for_nobody_is_named(store: Path, text: str) -> None:
    write_hold(store, [HeldFor(1, "10.0.0.2:10911", 0, 0, 5)])
    (store / "config" / "ringmqWriteHold.json").write_text(text)
    with pytest.raises(ConfigFileError, match=r"ringmqWriteHold\.json"):
        read_hold(store)
    write_hold(store, [])
    assert read_hold(store) == ()


NO_ORDERS = ("", "{", "[]", '{"action": "cut"}', '{"action": "drop", "offset": 1}', '{"action": "cut", "offset": -1}')


@pytest.mark.parametrize("text", NO_ORDERS)
def test_a_file_that_is_no_order_stops_the_start(store: Path, text: str) -> None:
    write_task(store, StoreTask("cut", 0))
    (store / "config" / "haOrder.json").write_text(text)
    with pytest.raises(SalvageError, match="is not a task of the store"):
        read_task(store)


# ---- crashes -------------------------------------------------------------------------------------------------

TRACED = {module.__file__ for module in (salvage, adoption, adoption_staging, store_task, markers)}


def run_to_line(work: Callable[[], Any], lines: int) -> bool:
    """Do the work in a child process that dies at its `lines`-th line; says whether it got to its end before."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    left = lines

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os._exit(9)
        return trace

    try:
        sys.settrace(trace)
        work()
        os._exit(0)
    except BaseException as error:
        os.write(2, repr(error).encode())
        os._exit(1)


@pytest.mark.parametrize("action", ["cut", "rebase", "adopt", "adopt from the own begin", "cut after a copy"])
def test_a_death_at_any_line_is_made_good_by_doing_it_again(
    template: MadeStore, tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsync", "fdatasync"):  # a process that dies takes nothing out of the page cache
        monkeypatch.setattr(os, name, lambda descriptor: None)
    begin, root = tmp_path / "begin", tmp_path / "root"
    shutil.copytree(template.root, begin)
    order = orders(template)[action.split()[0]]
    if action == "cut after a copy":
        leave_copy(begin, template, monkeypatch)
        order = StoreTask("cut", places(template)[40])
    elif action == "adopt from the own begin":
        diverge(begin, template, 100)
        (begin / "commitlog" / f"{0:020d}").unlink()
        order = replace(order, offset=FILE_BYTES)
    elif action == "adopt":
        diverge(begin, template, 100)
    write_task(begin, order)
    wanted = Path(shutil.copytree(begin, tmp_path / "wanted"))
    perform(config_of(wanted), Source(template))
    lines, ended = 1, False
    while not ended:
        shutil.copytree(begin, root)
        ended = run_to_line(lambda: perform(config_of(root), Source(template)), lines)
        perform(config_of(root), Source(template))
        assert (log_of(root), salvaged(root)) == (log_of(wanted), salvaged(wanted)), lines
        assert not list((root / "salvage").glob("*.tmp"))
        end = recover(config_of(root)).append_offset
        assert (
            end
            == {
                "cut": places(template)[40 if "copy" in action else 61],
                "rebase": 2 * FILE_BYTES,
                "adopt": template.end,
            }[order.action]
        )
        assert not (root / adoption_staging.FOLDER).exists()
        shutil.rmtree(root)
        lines += 1 + lines // 20  # records are looked at in many equal turns
    assert lines > 40


@pytest.mark.parametrize("kept", [0, 100])
def test_a_death_before_the_copy_is_complete_leaves_the_store_as_it_was(
    template: MadeStore, tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any line: without its source afterwards the log is either as before, or wholly the other one's."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda descriptor: None)
    begin, root = tmp_path / "begin", tmp_path / "root"
    shutil.copytree(template.root, begin)
    diverge(begin, template, kept)
    persist_config(begin, "topics.json", {"topicConfigTable": {"Own": {}}})
    write_hold(begin, [held_for(template)])
    order = replace(orders(template)["adopt"], offset=places(template)[min(kept, 61)])
    write_task(begin, order)
    before = log_of(begin)

    def take(folder: Path, address: str) -> list[str]:
        persist_config(folder, "topics.json", {"topicConfigTable": {"Theirs": {}}})
        return ["tables"]

    lines, ended, seen = 1, False, set()
    while not ended:
        shutil.copytree(begin, root)
        ended = run_to_line(lambda: perform(config_of(root), Source(template), take), lines)
        perform(config_of(root), broken_sources(template)["refused"])
        log, topics = log_of(root), load_config(root, "topics.json")["topicConfigTable"]
        is_adopted = log == log_of(template.root)
        assert is_adopted or (log, salvaged(root)) == (before, {}), lines
        assert list(topics) == (["Theirs"] if is_adopted and not kept else ["Own"]), lines
        assert read_hold(root) == (() if is_adopted else (held_for(template),)), lines
        assert not (root / adoption_staging.FOLDER).exists()
        seen.add(is_adopted)
        shutil.rmtree(root)
        lines += 1 + lines // 20
    assert seen == {False, True}


# ---- looking at it -------------------------------------------------------------------------------------------


def test_inspect_shows_what_was_taken_out(store: Path, template: MadeStore) -> None:
    truncate(config_of(store), places(template)[61], now_ms=NOW_MS)
    recover(config_of(store))
    found = MessageStore(config_of(store))
    rows = inspect.salvage_files(found)
    assert (rows[0]["from_offset"], rows[0]["saved_ms"]) == (places(template)[61], NOW_MS)
    seen = [record for row in rows for record in inspect.salvage_records(found, row["name"], 0, 1000)]
    assert [row["commit_log_offset"] for row in seen] == [position for position, _, _, _ in template.places[61:]]
    some = inspect.salvage_records(found, rows[0]["name"], template.places[63][0], 2)
    assert [row["commit_log_offset"] for row in some] == [place[0] for place in template.places[63:65]]
    with pytest.raises(FileNotFoundError, match=r"salvage file .* does not exist"):
        list(inspect.salvage_records(found, "../commitlog/" + "0" * 20, 0, 1))


def test_damage_ends_the_records_of_a_salvage_file_with_a_row_that_says_so(store: Path, template: MadeStore) -> None:
    file = truncate(config_of(store), places(template)[100], now_ms=NOW_MS).files[0]
    with file.path.open("r+b") as opened:
        opened.seek(template.places[103][0] + 4 - file.from_offset)
        opened.write(b"\0\0\0\0")
    rows = list(inspect.salvage_records(MessageStore(config_of(store)), file.path.name, 0, 1000))
    assert [row["commit_log_offset"] for row in rows] == [place[0] for place in template.places[100:104]]
    assert rows[-1]["error"] == "neither a record nor a blank"


TABLE = "ringmqStagedWrites.json"


def table_of(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "config" / TABLE).read_text())
    return found


@pytest.mark.parametrize("action", ["cut", "rebase"])
def test_what_control_believes_of_the_log_is_cut_with_it(store: Path, template: MadeStore, action: str) -> None:
    """The table of staged writes; its older copy, too."""
    border = places(template)[60]
    value = {"version": 1, "replayFrom": 9, "record": [border, 100, 1]}
    (store / "config").mkdir(exist_ok=True)
    for name in (TABLE, TABLE + ".bak"):
        text = json.dumps({**value, "queries": [["below", 3, border, 2], ["behind", 7, border + 1, 0]]})
        (store / "config" / name).write_text(text)
    if action == "cut":
        truncate(config_of(store), border)
    else:
        rebase(config_of(store), 1 << 20)
    kept = [["below", 3, border, 2]] if action == "cut" else []
    assert table_of(store) == {"version": 1, "replayFrom": 0, "queries": kept}
    assert not (store / "config" / (TABLE + ".bak")).exists()


@pytest.mark.parametrize("text", ["{broken", '{"queries": [["q"]]}', '{"queries": 7}', '{"queries": [["q", 1, "x"]]}'])
def test_what_cannot_be_read_of_it_is_forgotten(store: Path, text: str) -> None:
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / TABLE).write_text(text)
    truncate(config_of(store), 0)
    assert table_of(store)["queries"] == []
