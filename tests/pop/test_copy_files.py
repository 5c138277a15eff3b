"""A slave's copy of its master's POP memory on disk: deaths, power cuts, and starts in either role."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringmq.native import lib
from ringmq.pop import image_file, log_cut, page_changes
from ringmq.pop.copy_files import CopyFiles
from ringmq.pop.copy_mark import PIECES, mark_copy, run_of_copy
from ringmq.pop.copy_sync import RETRY_FIRST_MS, WAIT_MS_MAX, Known
from ringmq.pop.image_file import END as JOURNAL_END
from ringmq.pop.image_file import END_MAGIC, HEAD, JOURNAL, PAGE, DiskFile, HeaderError
from ringmq.pop.memory import PopMemory, remove_lasting
from ringmq.pop.names import read_names
from ringmq.remoting.pop_copy_headers import PIECE_BYTES_MAX
from tests.pop.copy_pair import END, Master, Slave, image_of
from tests.pop.memory_kit import content
from tests.pop.test_memory_deaths import killed_at


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    made = Master(tmp_path / "master")
    made.names.add("G", "T", 0, 0)
    made.put(0, 100)
    yield made
    remove_lasting(made.root)


@pytest.fixture
def slave(tmp_path: Path) -> Slave:
    return Slave(tmp_path / "slave")


def entries(root: Path) -> set[int]:
    """Base offsets of the entries with which a start would go on."""
    memory = PopMemory.load(root)
    if memory is None:
        return set()
    found = {base for base, _ in content(memory).values()}
    memory.close(clean=False)
    remove_lasting(root)
    return found


def test_a_copy_waits_for_the_log(master: Master, slave: Slave) -> None:
    """It may tell of copies in topics of retries that came while the snapshot began: the end is that of the answer."""
    slave.copy(master, END - 1)
    assert slave.sync.is_whole and not entries(slave.root)
    slave.save(END - 1)
    assert not entries(slave.root)
    slave.save(END)
    assert entries(slave.root) == {0, 100} and slave.sync.known.snapshot == master.memory.header.snapshot


def test_a_slave_that_starts_again_goes_on(master: Master, slave: Slave) -> None:
    slave.copy(master)
    log_cut.forget_as_slave(slave.root)
    again = Slave(slave.root)
    assert again.sync.known == slave.sync.known != Known()
    master.put(200)
    again.copy(master)
    assert 0 < again.bytes < slave.bytes
    assert image_of(slave.root) == image_of(master.root)
    log_cut.forget_as_slave(slave.root)
    assert entries(slave.root) == {0, 100, 200}


def test_a_former_master_forgets_its_own_memory(master: Master) -> None:
    master.close()
    log_cut.forget_as_slave(master.root)
    assert Slave(master.root).sync.known == Known()
    assert not entries(master.root) and not (master.root / "pop" / page_changes.FILE).exists()
    assert read_names(master.root / "pop") is not None, "no id is used again"


def test_a_cut_of_the_log_takes_the_copy_away(master: Master, slave: Slave) -> None:
    slave.copy(master)
    log_cut.forget_behind(slave.root, 10)
    assert not entries(slave.root) and not run_of_copy(slave.root / "pop")
    again = Slave(slave.root)
    again.copy(master)
    assert entries(slave.root) == {0, 100}


def test_a_master_that_has_lost_its_memory_takes_the_copy_away(master: Master, slave: Slave) -> None:
    slave.copy(master)
    master.taker.snapshots.close()
    master.memory.discard()
    slave.copy(master)
    assert slave.sync.known == Known() and not entries(slave.root)


def test_a_worker_that_starts_again_after_a_power_cut_gives_all(master: Master, slave: Slave) -> None:
    slave.copy(master)
    master.close()
    (master.root / "pop" / "changes").unlink()
    master.open()
    master.put(300)
    slave.copy(master)
    assert entries(slave.root) == {0, 100, 300} and image_of(slave.root) == image_of(master.root)


def test_the_sign_of_a_copy_leaves_the_pieces(tmp_path: Path) -> None:
    (tmp_path / PIECES).write_bytes(b"a piece")
    mark_copy(tmp_path, 7)
    assert (tmp_path / PIECES).read_bytes() == b"a piece" and run_of_copy(tmp_path) == 7


def test_new_memory_is_no_copy(master: Master, slave: Slave) -> None:
    slave.copy(master)
    PopMemory.make(slave.root, 1, 0, entries_max=100, windows_max=100).discard()
    assert not run_of_copy(slave.root / "pop")


def damage(data: bytes) -> bytes:
    return data[:50] + bytes([data[50] ^ 1]) + data[51:]


def test_a_damaged_copy_is_not_used(master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch) -> None:
    slave.copy(master)
    add = CopyFiles.add
    with monkeypatch.context() as patch:
        patch.setattr(CopyFiles, "add", lambda files, piece: add(files, damage(piece)))
        master.put(200)
        with pytest.raises(OSError, match="POP's memory is damaged"):
            slave.copy(master)
    assert entries(slave.root) == {0, 100}
    slave.copy(master)
    assert entries(slave.root) == {0, 100, 200}


class Forged(CopyFiles):
    """Files to which a master sends a whole journal with wrong content, and its CRC."""

    page = 0
    """The number of the last page, 0 = as it is."""
    snapshot = 0
    """Added to the number of the snapshot in head and end."""
    flips: int | None = None
    """The byte of the first page that is another one."""

    def add(self, piece: bytes) -> None:
        data = bytearray(piece)
        magic, version, pages, store_id, number = HEAD.unpack_from(data)
        HEAD.pack_into(data, 0, magic, version, pages, store_id, number + self.snapshot)
        end = HEAD.size + pages * (PAGE + 4)
        if self.page:
            data[end - 4 : end] = self.page.to_bytes(4, "little")
        if self.flips is not None:
            data[HEAD.size + self.flips] ^= 1
        JOURNAL_END.pack_into(data, end, zlib.crc32(data[:end]), pages, number + self.snapshot, END_MAGIC)
        super().add(bytes(data))


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "next"])
@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("page", (1 << 32) - 1, "has page 4294967295, the memory has"),
        ("snapshot", 1, "is of snapshots"),
        ("flips", 0, "header is damaged"),
        ("flips", 8, "it is of version"),
    ],
)
def test_a_forged_copy_changes_nothing(
    master: Master, slave: Slave, field: str, value: int, text: str, is_first: bool
) -> None:
    if not is_first:
        slave.copy(master)
    before = image_of(slave.root) if not is_first else b""
    master.names.add("G", "T", 1, 0)
    master.put(200)
    files, forged = slave.progress._files, Forged(slave.root)
    setattr(forged, field, value)
    slave.progress._files = forged
    with pytest.raises(OSError, match=text):
        slave.copy(master)
    assert is_first or image_of(slave.root) == before
    names = read_names(slave.root / "pop")
    assert (None if names is None else len(names.windows)) == (None if is_first else 1)
    slave.progress._files = files
    slave.copy(master)
    assert entries(slave.root) == {0, 100, 200}


def test_an_image_that_is_damaged_ends_a_copy(master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(folder: Path) -> None:
        raise HeaderError("its header is damaged")

    slave.copy(master)
    master.put(200)
    monkeypatch.setattr(image_file, "load", damaged)
    with pytest.raises(OSError, match="image of POP's memory cannot be used: its header is damaged"):
        slave.copy(master)


def test_a_copy_does_not_wait_for_ever_for_the_log(master: Master, slave: Slave) -> None:
    slave.copy(master, END - 1)
    slave.now_ms += WAIT_MS_MAX
    slave.save(END - 1)
    assert slave.sync.is_whole
    slave.now_ms += 1
    with pytest.raises(OSError, match=f"the log ends at {END - 1}, .* waits for {END}"):
        slave.save(END - 1)
    assert not slave.sync.is_whole and not (slave.root / "pop" / PIECES).exists()
    slave.copy(master)
    assert entries(slave.root) == {0, 100}


@pytest.mark.parametrize(
    ("at", "text"), [(8, "is of version 3, this build has 2"), (0, "begins with no journal")], ids=["version", "magic"]
)
def test_a_copy_that_cannot_be_used_ends_with_its_first_piece(
    tmp_path: Path, slave: Slave, monkeypatch: pytest.MonkeyPatch, at: int, text: str
) -> None:
    large = Master(tmp_path / "large", entries=1 << 16)
    large.put(*range(0, 1 << 16, 64))
    add = CopyFiles.add
    monkeypatch.setattr(
        CopyFiles, "add", lambda files, piece: add(files, piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :])
    )
    with pytest.raises(OSError, match=text):
        slave.copy(large)
    assert slave.bytes == PIECE_BYTES_MAX and slave.sync.next_ms == slave.now_ms + RETRY_FIRST_MS
    large.close()


def test_a_full_disk_leaves_the_copy(master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch) -> None:
    slave.copy(master)
    master.put(200)
    with monkeypatch.context() as patch:

        def full(descriptor: int, data: bytes, at: int) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="pop/pieces"):
            slave.copy(master)
    assert entries(slave.root) == {0, 100} and not (slave.root / "pop" / PIECES).exists()
    slave.copy(master)
    assert entries(slave.root) == {0, 100, 200}


def test_a_journal_counts_once_its_pages_have_room(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(image: DiskFile, *arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(image.path))

    slave.copy(master)
    master.put(200)
    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "reserve", full)
        patch.setattr(DiskFile, "apply", full)
        with pytest.raises(OSError, match="No space left"):
            slave.copy(master)
        assert not (slave.root / "pop" / JOURNAL).exists()
        assert entries(slave.root) == {0, 100}, "a start has nothing to write"
    slave.copy(master)
    assert entries(slave.root) == {0, 100, 200}


def test_a_slave_without_room_for_a_journal_starts(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file system does not reserve room, so a journal is there that no start can write into the image."""
    slave.copy(master)
    master.put(200)
    slave.copy(master)

    def full(image: DiskFile, *arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(image.path))

    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "apply", full)
        again = Slave(slave.root)
    assert again.sync.known == Known() and "cannot be read: [Errno 28] No space left" in caplog.text
    assert entries(slave.root) == {0, 100, 200}
    again.copy(master)
    assert again.sync.known == slave.sync.known
    assert entries(slave.root) == {0, 100, 200} and image_of(slave.root) == image_of(master.root)


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "next"])
@pytest.mark.parametrize("point", ["pop-copy-named", "pop-copy-made", "pop-copy-replaced", "pop-journal-replayed"])
def test_a_death_leaves_one_of_two_copies(master: Master, slave: Slave, point: str, is_first: bool) -> None:
    before: set[int] = set()
    if not is_first:
        slave.copy(master)
        before = {0, 100}
    master.names.add("G", "T", 1, 0)
    master.put(200)

    def work(step: Callable[[str], None]) -> None:
        again = Slave(slave.root)
        again.progress._files._step = step
        again.copy(master)

    assert killed_at(point, 1, work) == (is_first == (point == "pop-copy-made") or point == "pop-copy-named")
    again = Slave(slave.root)
    assert entries(slave.root) in (before, {0, 100, 200})
    again.copy(master)
    assert entries(slave.root) == {0, 100, 200} and image_of(slave.root) == image_of(master.root)
    names = read_names(slave.root / "pop")
    assert names is not None and len(names.windows) == 2 and not names.damaged
    assert run_of_copy(slave.root / "pop")


def test_a_power_cut_leaves_the_journal_of_the_pages(
    master: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that was not synced is gone, and the first page of the image may be there."""
    slave.copy(master)
    journal, on_disk = slave.root / "pop" / JOURNAL, [b""]
    sync, apply = image_file.sync_directory, DiskFile.apply

    def synced(folder: Path) -> None:
        sync(folder)
        on_disk.append(journal.read_bytes())

    def cut(image: DiskFile, source: DiskFile, at: int, numbers: object, count: int) -> None:
        apply(image, source, at, numbers, 1)
        raise OSError(errno.EIO, "the power is gone")

    master.put(200)
    with monkeypatch.context() as patch:
        patch.setattr(image_file, "sync_directory", synced)
        patch.setattr(DiskFile, "apply", cut)
        with pytest.raises(OSError, match="the power is gone"):
            slave.copy(master)
    journal.write_bytes(on_disk[-1])
    assert Slave(slave.root).sync.known.snapshot == master.memory.header.snapshot
    assert entries(slave.root) == {0, 100, 200}


def test_windows_have_their_names_at_each_moment(master: Master, slave: Slave) -> None:
    """Names come first, so the image of a copy is never ahead of them."""
    seen: list[tuple[str, int]] = []

    def note(step: str) -> None:
        found = read_names(slave.root / "pop")
        assert found is not None
        seen.append((step, len(found.windows)))

    slave.progress._files._step = note
    slave.copy(master)
    master.names.add("G", "T", 1, 0)
    master.put(200)
    slave.copy(master)
    assert seen == [("pop-copy-named", 1), ("pop-copy-made", 1), ("pop-copy-named", 2), ("pop-copy-replaced", 2)]
    assert lib.RMQ_POP_VERSION == 2 and (slave.root / "pop" / JOURNAL).exists()
