"""The names of windows: no id is used twice, whatever a death or a power cut leaves of the file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ringmq.pop import names as names_module
from ringmq.pop.names import FILE, IDS_END, RESERVED, Names, NoIdsError, read_names
from tests.pop.disk_kit import fill_disk


def add(names: Names, *queues: int) -> list[int]:
    return [names.add("Group", "Topic", queue, 7) for queue in queues]


def test_names_are_found_again(tmp_path: Path) -> None:
    names = Names(tmp_path)
    assert add(names, 0, 1) == [1, 2]
    assert names.add("%RETRY%ä", "a b\n", -1, 0) == 3
    names.forget(2)
    names.close()
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o640
    again = Names(tmp_path)
    assert list(again.all()) == [(1, "Group", "Topic", 0), (2, "Group", "Topic", 1), (3, "%RETRY%ä", "a b\n", -1)]
    name = again.of(1)
    assert name is not None and (name.birth, again.of(4)) == (7, None)
    assert add(again, 3) == [4]
    again.close()


def test_a_death_wastes_no_id_and_a_power_cut_the_reserved_ones(tmp_path: Path) -> None:
    names = Names(tmp_path)
    add(names, 0, 1)
    names.close()
    after_death = Names(tmp_path)
    assert add(after_death, 2) == [3]
    after_death.close()
    after_cut = Names(tmp_path, was_cut=True)
    after_cut.close()
    worker = Names(tmp_path)  # the main process has told the file
    assert add(worker, 3) == [RESERVED + 1]
    worker.close()


def test_the_last_lines_may_be_lost_at_any_byte(tmp_path: Path) -> None:
    """Lines that were not synced are gone after a power cut, whole or in part. Ids of theirs are not used again."""
    names = Names(tmp_path)
    add(names, 0, 1, 2)
    names.close()
    data = (tmp_path / FILE).read_bytes()
    first = data.index(b"\n") + 1  # the reservation is synced before its first id is used
    for end in range(first, len(data) + 1):
        for tail in (b"", b"\0" * 9, b"\xff\xfe"):
            (tmp_path / FILE).write_bytes(data[:end] + tail)
            after = Names(tmp_path, was_cut=True)
            assert add(after, 9) == [RESERVED + 1]
            assert {name for name, *_ in after.all()} <= {1, 2, 3, RESERVED + 1}
            after.close()
            found = read_names(tmp_path)
            assert found is not None and found.damaged == 0 and RESERVED + 1 in found.windows, (end, tail)


@pytest.mark.parametrize("at", [0, 5, 8, 9, 12, 20])
def test_a_damaged_line_is_counted_and_its_ids_are_not_used_again(tmp_path: Path, at: int) -> None:
    names = Names(tmp_path)
    add(names, *range(5))
    names.close()
    data = bytearray((tmp_path / FILE).read_bytes())
    lines = data.splitlines(keepends=True)
    lines[-1][at] ^= 1  # the last id
    (tmp_path / FILE).write_bytes(b"".join(lines))
    again = Names(tmp_path)
    assert again.damaged == 1
    assert {number for number, *_ in again.all()} == {1, 2, 3, 4}
    assert add(again, 9) > [RESERVED]
    again.close()


def test_reserved_ids_are_on_disk_before_their_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: steps.append("sync"))
    names = Names(tmp_path, step=steps.append)
    add(names, *range(RESERVED + 1))
    one = ["pop-names-reserved", "sync", "pop-name-added"]
    assert steps == [*one, *["pop-name-added"] * (RESERVED - 1), *one]
    names.sync()
    names.sync()
    assert steps[-2:] == ["pop-name-added", "sync"], "nothing was added since"
    names.close()


def test_a_failed_sync_is_never_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(tmp_path)
    add(names, 0)
    tries = []

    def broken(descriptor: int) -> None:
        tries.append(descriptor)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    for _ in range(3):
        with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/names'"):
            names.sync()
        add(names, 1)
    assert len(tries) == 1
    names.close()


@pytest.mark.parametrize("written", [0, 1, 20])
def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    names = Names(tmp_path)
    add(names, 0)
    pwrite = os.pwrite

    def full(descriptor: int, data: bytes, at: int) -> int:
        if written and len(data) > written:
            return pwrite(descriptor, data[:written], at)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left on device"):
            add(names, 1)
    assert add(names, 2) == [2], "the id was not used"
    names.close()
    found = read_names(tmp_path)
    assert found is not None and (found.damaged, set(found.windows)) == (0, {1, 2})


def test_the_file_is_written_anew_when_most_windows_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "STALE_LINES", 10)
    names = Names(tmp_path)
    add(names, *range(100))
    names.keep({3, 99})
    assert add(names, 200) == [101]
    names.close()
    found = read_names(tmp_path)
    assert found is not None and (set(found.windows), found.lines) == ({3, 99, 101}, 5)
    again = Names(tmp_path, was_cut=True)
    assert add(again, 0) == [RESERVED + 1]
    again.close()


def test_a_full_disk_leaves_a_long_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(names_module, "STALE_LINES", 10)
    names = Names(tmp_path)
    add(names, *range(100))
    before = (tmp_path / FILE).read_bytes()
    with monkeypatch.context() as patch:
        fill_disk(patch)
        names.keep({3, 99})
    assert "No space left on device; the next start writes it anew" in caplog.text
    assert ((tmp_path / FILE).read_bytes(), list(tmp_path.iterdir())) == (before, [tmp_path / FILE])
    assert ([number for number, *_ in names.all()], add(names, 7)) == ([3, 99], [101])
    names.keep({3, 99, 101})
    found = read_names(tmp_path)
    assert found is not None and set(found.windows) == {3, 99, 101}
    names.close()


def test_damaged_lines_on_a_full_disk_leave_the_names_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process uses ids that the damaged lines may have, with and without room for a line that says so."""
    names = Names(tmp_path)
    add(names, *range(5))
    names.close()
    data = bytearray((tmp_path / FILE).read_bytes())
    data[-5] ^= 1
    (tmp_path / FILE).write_bytes(data)
    with monkeypatch.context() as patch:
        fill_disk(patch)
        full = Names(tmp_path)
        full.keep({1, 2, 3, 4})
        assert [number for number, *_ in full.all()] == [1, 2, 3, 4]
        with pytest.raises(OSError, match="No space left on device"):
            add(full, 9)
    (first,) = add(full, 9)
    full.close()
    again = Names(tmp_path)
    assert RESERVED < first < add(again, 10)[0]
    again.close()


def test_damaged_lines_go_with_the_next_start(tmp_path: Path) -> None:
    names = Names(tmp_path)
    kept = [names.add("G", f"T{number}", 0, 0) for number in range(3)]
    names.close()
    data = bytearray((tmp_path / FILE).read_bytes())
    data[-5] ^= 1
    (tmp_path / FILE).write_bytes(data)
    again = Names(tmp_path)
    again.keep(kept)
    assert again.damaged == 1
    again.close()
    found = read_names(tmp_path)
    assert found is not None and (found.damaged, set(found.windows)) == (0, set(kept[:2]))
    last = Names(tmp_path)
    assert last.add("G", "T", 9, 0) > RESERVED, "ids of lost lines are not used again"
    last.close()


def test_ids_whose_lines_are_lost_are_passed_over(tmp_path: Path) -> None:
    """Marks in the log may have them. Another window with such an id would have copies that it has not made."""
    names = Names(tmp_path)
    names.pass_over(0)
    assert names.add("G", "T", 0, 0) == 1
    names.pass_over(1)
    assert names.add("G", "T", 1, 0) == 2
    names.pass_over(7)
    assert names.add("G", "T", 2, 0) == 7 + RESERVED
    names.close()
    again = Names(tmp_path)
    assert again.add("G", "T", 3, 0) == 8 + RESERVED
    again.pass_over(IDS_END - 1)
    assert again.ids_left == 0
    again.close()


def test_used_up_ids_are_an_error_and_may_begin_again(tmp_path: Path) -> None:
    names = Names(tmp_path, first_id=IDS_END - 1)
    assert names.ids_left == 1
    assert add(names, 0) == [IDS_END - 1]
    with pytest.raises(NoIdsError, match="1048575 ids of windows are used up"):
        add(names, 1)
    names.restart()
    assert add(names, 2) == [1]
    names.close()
    again = Names(tmp_path)
    assert list(again.all()) == [(1, "Group", "Topic", 2)]
    again.close()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / FILE).symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        Names(tmp_path)
