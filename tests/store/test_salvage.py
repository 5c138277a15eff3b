"""Parts of the log that are taken out of it: the end of the log, the kept parts, and adoptions of other logs."""

import errno
import shutil
from pathlib import Path

import pytest

from ringmq.store import inspect, markers
from ringmq.store import record as records
from ringmq.store.adoption import AdoptionError, append, check_front, whole_bytes
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import recover
from ringmq.store.recovery_state import SAME_BOOT
from ringmq.store.salvage import SalvageError, rebase, salvage_files, truncate
from ringmq.store.verify import verify
from tests.spark_bridge.made_store import MadeStore
from tests.store.salvage_kit import FILE_BYTES, config_of, log_of, places, reader_of, salvaged, store, template
from tests.store.test_torn_tail import encode

__all__ = ["store", "template"]

NOW_MS = 1_700_000_000_000


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


def test_files_forget_what_is_behind_a_cut_before_the_log_changes(store: Path, template: MadeStore) -> None:
    """A death in between must not leave files that tell of more than the log has."""
    before, forgotten = log_of(store), list[int]()

    def forget(root: Path, log_offset: int) -> None:
        assert (root, log_of(store)) == (store, before)
        forgotten.append(log_offset)

    assert truncate(config_of(store), template.end, forget).end_offset == template.end
    assert forgotten == [], "nothing is cut"
    border = places(template)[100]
    truncate(config_of(store), border, forget)
    before = log_of(store)
    rebase(config_of(store), 4 * FILE_BYTES, forget)
    assert forgotten == [border, 0]


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


@pytest.mark.parametrize("is_right", [True, False])
def test_the_checksum_of_a_large_body_is_taken_in_steps(is_right: bool) -> None:
    raw, steps = bytearray(encode(0, 77, b"b" * (3 << 20), b"")), 0
    raw[2 << 20] ^= not is_right

    def rest() -> None:
        nonlocal steps
        steps += 1

    wanted = (len(raw), records.SHORT) if is_right else (0, records.BAD_CRC)
    assert whole_bytes(bytes(raw), 77, 1 << 30, check_crc=True, rest=rest) == wanted
    assert steps == 3


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


# ---- inspection ----------------------------------------------------------------------------------------------


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
