"""What is broken, deleted, made again or forbidden: an error with its place, or with failOnDataLoss=false the rest."""

import fcntl
import logging
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ringmq.spark_bridge import queue_units
from ringmq.spark_bridge.errors import DataLossError, ReadError
from ringmq.spark_bridge.log_segments import LogSegments
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.shm_log import read_log
from ringmq.spark_bridge.shm_queues import read_queues
from ringmq.spark_bridge.slice_reader import read_slice, store_here
from ringmq.spark_bridge.slices import BrokerLocation, Slice
from tests.spark_bridge.made_store import MadeStore
from tests.spark_bridge.reading import place_of, rows_of, slice_of

FLOCK = struct.Struct("hhqqi4x")
BY_LOG, BY_QUEUE = "log", "queue"
COLUMNS = ("offset", "value")


@pytest.fixture
def store(tmp_path: Path) -> MadeStore:
    """30 messages in two queues, ten to a file."""
    made = MadeStore(tmp_path / "store", file_bytes=2048, units_per_file=4)
    for number in range(30):
        made.append(queue_id=number % 2, body=f"body {number:02d}".encode() + bytes(93))
    assert len(list((made.root / "commitlog").iterdir())) >= 3
    return made


def part_of(store: MadeStore, walk: str, file: int = 0) -> Slice:
    if walk == BY_QUEUE:
        return slice_of(store.root, {key: (0, end) for key, end in store.next_offsets.items()})
    begin = file * store.file_bytes
    return slice_of(
        store.root,
        {key: (0, end) for key, end in store.next_offsets.items()},
        (begin, min(store.end, begin + store.file_bytes)),
    )


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["value"][5:7]) for row in rows)


def in_first_file(store: MadeStore) -> list[int]:
    return [number for number, place in enumerate(store.places) if place[0] < store.file_bytes]


DAMAGES = {
    "size": (0, b"\x00\x00\x00\x10"),
    "huge size": (0, b"\x7f\xff\xff\xff"),
    "magic": (4, b"\xda\xa3\x20\xb0"),
    "place": (28, bytes(8)),
    "body length": (84, b"\x7f\xff\xff\xff"),
    "zeros": (0, bytes(60)),
}


@pytest.mark.parametrize("walk", [BY_LOG, BY_QUEUE])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_record_is_named_or_left_out(
    store: MadeStore, walk: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    position = store.places[4][0]
    at, data = DAMAGES[damage]
    store.damage(position + at, data)
    part = part_of(store, walk)
    with pytest.raises(ReadError, match=rf"{store.root}.*offset {position}"):
        rows_of(part, COLUMNS)
    with caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        rows = rows_of(part, COLUMNS, fail_on_data_loss=False)
    assert numbers(rows) == [n for n in (in_first_file(store) if walk == BY_LOG else range(30)) if n != 4]
    assert len(caplog.records) == 1
    assert str(position) in caplog.text


@pytest.mark.parametrize("walk", [BY_LOG, BY_QUEUE])
@pytest.mark.parametrize(
    ("at", "value"),
    [(12, struct.pack(">i", -1)), (20, struct.pack(">q", -9)), (28, struct.pack(">q", 7))],
    ids=["queue id", "queue offset", "place"],
)
def test_a_record_that_no_queue_has_is_left_out(
    store: MadeStore, walk: str, at: int, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Dispatch indexes none with an impossible value: no row is lost, and a job goes on."""
    position, _, fields, offset = store.places[4]
    store.damage(position + at, value)
    key = (fields.topic, fields.queue_id)
    store.write_filler(*key, offset)
    with caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        rows = rows_of(part_of(store, walk), COLUMNS)
    assert numbers(rows) == [n for n in (in_first_file(store) if walk == BY_LOG else range(30)) if n != 4]
    said = "1 queue offsets" if walk == BY_QUEUE else "1 records contain another log offset"
    assert [said in record.getMessage() for record in caplog.records] == [True] * (walk == BY_QUEUE or at == 28)


@pytest.mark.parametrize("walk", [BY_LOG, BY_QUEUE])
def test_a_wrong_crc_is_found_when_asked(store: MadeStore, walk: str) -> None:
    position = store.places[3][0]
    store.damage(position + 90, b"X")
    part = part_of(store, walk)
    assert len(rows_of(part, COLUMNS)) >= 10
    with pytest.raises(ReadError, match=f"offset {position}.*CRC"):
        rows_of(part, COLUMNS, verify_crc=True)
    assert 3 not in numbers(rows_of(part, COLUMNS, verify_crc=True, fail_on_data_loss=False))


@pytest.mark.parametrize("walk", [BY_LOG, BY_QUEUE])
def test_a_body_that_cannot_be_decompressed(tmp_path: Path, walk: str) -> None:
    store = MadeStore(tmp_path / "store")
    store.append(body=b"body 00")
    position = store.append(body=b"no zlib", sys_flag=1)
    store.append(body=b"body 02")
    part = part_of(store, walk)
    with pytest.raises(ReadError, match=f"offset {position}.*decompressed"):
        rows_of(part, COLUMNS)
    assert numbers(rows_of(part, COLUMNS, fail_on_data_loss=False)) == [0, 2]
    assert len(rows_of(part, ("offset", "timestamp"))) == 3, "the body is not looked at when it is not wanted"


@pytest.mark.parametrize("unit", [bytes(20), struct.pack(">qiq", 100, 30, 0)])
def test_a_wrong_unit(store: MadeStore, unit: bytes) -> None:
    store.write_unit(store.root / "consumequeue/T/1", 2, unit)
    part = part_of(store, BY_QUEUE)
    with pytest.raises(ReadError, match="queue 1 of topic T, queue offset 2"):
        rows_of(part, COLUMNS)
    assert numbers(rows_of(part, COLUMNS, fail_on_data_loss=False)) == [n for n in range(30) if n != 5]


def test_a_unit_of_another_queue_s_record_gives_no_row(store: MadeStore) -> None:
    position, size = store.places[6][:2]  # of queue 0
    store.write_unit(store.root / "consumequeue/T/1", 2, struct.pack(">qiq", position, size, 0))
    with pytest.raises(ReadError, match="another size, place, queue"):
        rows_of(part_of(store, BY_QUEUE), COLUMNS)


@pytest.mark.parametrize("walk", [BY_LOG, BY_QUEUE])
def test_a_file_that_retention_took(store: MadeStore, walk: str) -> None:
    part = part_of(store, walk)
    lost = in_first_file(store)
    (store.root / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(DataLossError, match="retention"):
        rows_of(part, COLUMNS)
    rows = rows_of(part, COLUMNS, fail_on_data_loss=False)
    assert numbers(rows) == ([] if walk == BY_LOG else [n for n in range(30) if n not in lost])


def test_queue_files_that_went_with_the_log(store: MadeStore) -> None:
    part = part_of(store, BY_QUEUE)
    (store.root / "consumequeue/T/0" / f"{0:020d}").unlink()
    with pytest.raises(DataLossError, match="nothing at offset 0"):
        rows_of(part, COLUMNS)
    found = numbers(rows_of(part, COLUMNS, fail_on_data_loss=False))
    assert found == [number for number in range(30) if number % 2 or number >= 8]


def test_a_queue_file_that_goes_while_its_folder_is_listed(store: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def list_late(folder: Path) -> list[str]:
        names = [path.name for path in folder.iterdir()]
        (store.root / "consumequeue/T/0" / f"{0:020d}").unlink(missing_ok=True)
        return names

    monkeypatch.setattr(queue_units, "_names", list_late)
    found = numbers(rows_of(part_of(store, BY_QUEUE), COLUMNS, fail_on_data_loss=False))
    assert found == [number for number in range(30) if number % 2 or number >= 8]


def test_a_log_without_losses_is_read_without_the_queues(store: MadeStore) -> None:
    part = part_of(store, BY_LOG)
    shutil.rmtree(store.root / "consumequeue")
    (store.root / "consumequeue").touch()  # what would open a queue raises NotADirectoryError
    assert numbers(rows_of(part, COLUMNS)) == in_first_file(store)


@pytest.mark.parametrize("walk", [BY_LOG, BY_QUEUE])
def test_a_file_unlinked_while_it_is_read(store: MadeStore, walk: str) -> None:
    """What forced cleaning does: no signal, an error with the place; what is already mapped stays readable."""
    part = part_of(store, walk)
    batches = read_slice(part, COLUMNS, ReadSettings(batch_rows=1, window_bytes=300))
    assert next(batches).num_rows == 1
    for path in (store.root / "commitlog").iterdir():
        path.unlink()
    with pytest.raises(DataLossError, match=r"commitlog.*offset \d+|gone since"):
        list(batches)


def test_a_store_that_was_made_again_is_noticed(store: MadeStore, tmp_path: Path) -> None:
    part = part_of(store, BY_LOG)
    place = part.broker.store
    assert place is not None and store_here(place)
    shutil.move(store.root, tmp_path / "old")
    shutil.copytree(tmp_path / "old", store.root)
    assert not store_here(place)
    with pytest.raises(ReadError, match="does not have the store"):
        rows_of(part)
    with pytest.raises(DataLossError, match="recreated"):
        LogSegments(place)


@pytest.mark.parametrize("read", [read_log, read_queues])
def test_a_store_that_is_made_again_when_a_task_opens_it_is_a_loss(
    store: MadeStore, tmp_path: Path, read: Callable[..., Iterator[pa.RecordBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    part = part_of(store, BY_LOG)
    shutil.move(store.root, tmp_path / "old")
    shutil.copytree(tmp_path / "old", store.root)
    with pytest.raises(DataLossError, match="recreated"):
        list(read(part, COLUMNS, ReadSettings()))
    assert list(read(part, COLUMNS, ReadSettings(fail_on_data_loss=False))) == []
    assert "recreated" in caplog.text


def test_a_file_shorter_than_planned_is_refused(store: MadeStore) -> None:
    os.truncate(store.root / "commitlog" / f"{0:020d}", 1000)
    with pytest.raises(ReadError, match="ends at offset 1000"):
        rows_of(part_of(store, BY_LOG))
    with pytest.raises((ReadError, DataLossError), match=r"reaches over the file's end|no file holds"):
        rows_of(part_of(store, BY_QUEUE))


def test_a_range_that_begins_inside_a_record(store: MadeStore) -> None:
    part = slice_of(store.root, {("T", 0): (0, 9)}, (50, 2000))
    with pytest.raises(ReadError, match="no record at offset 50"):
        rows_of(part)


def is_locked(path: Path) -> bool:
    """Whether retention, which asks for an exclusive lock, would find the file in use."""
    with path.open("r+b") as file:
        asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        return bool(FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)


@pytest.mark.parametrize("walk", [BY_LOG, BY_QUEUE])
def test_a_file_is_locked_while_it_is_read(store: MadeStore, walk: str) -> None:
    first = store.root / "commitlog" / f"{0:020d}"
    batches: Iterator[pa.RecordBatch] = read_slice(part_of(store, walk), COLUMNS, ReadSettings(batch_rows=1))
    assert not is_locked(first)
    next(batches)
    assert is_locked(first)
    batches.close()  # type: ignore[attr-defined]  # a task that ends early (limit)
    assert not is_locked(first)


def test_a_store_of_another_host_cannot_be_read_by_shared_memory(store: MadeStore) -> None:
    part = part_of(store, BY_LOG)
    place = part.broker.store
    assert place is not None
    elsewhere = Slice(
        BrokerLocation("b", None, type(place)(place.root, "another boot", place.device, place.inode)),
        part.spans,
        part.log,
    )
    with pytest.raises(ReadError, match=r"another host.*transport=auto"):
        read_slice(elsewhere, COLUMNS, ReadSettings())


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_user_without_permission_is_told_so(store: MadeStore) -> None:
    (store.root / "commitlog").chmod(0o750)
    place = place_of(store.root)
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setegid(65534)
        os.seteuid(65534)
        try:
            LogSegments(place)
        except ReadError as error:
            os._exit(0 if "may not read" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
