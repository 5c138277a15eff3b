"""Names in /dev/shm that others have taken."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.ipc import segment
from ringmq.ipc.segment import (
    create_segment,
    open_segment,
    plain_name,
    plane_name,
    remove_segments,
    renew_plane_name,
    segment_path,
)


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path)
    yield f"ringmq-test-{uuid.uuid4().hex[:8]}"


def test_what_cannot_be_unlinked_does_not_keep_the_rest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sticky folder protects the files of other users; a folder cannot be unlinked at all."""
    segment_path(name, "a-folder").mkdir()
    foreign = segment_path(name, "foreign")
    foreign.touch()
    create_segment(name, "watermarks", 4096).close()
    unlink = os.unlink

    def sticky(path: os.PathLike[str], *arguments: object, **options: object) -> None:
        if Path(path) == foreign:
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path)

    monkeypatch.setattr(os, "unlink", sticky)
    remove_segments(name)
    assert foreign.exists() and segment_path(name, "a-folder").is_dir()
    with pytest.raises(FileNotFoundError):
        open_segment(name, "watermarks")


def test_a_segment_whose_name_is_taken_is_not_made(name: str) -> None:
    segment_path(name, "plane").mkdir()
    with pytest.raises(IsADirectoryError, match=f"{name}-plane"):
        create_segment(name, "plane", 4096)


def test_each_start_has_a_name_that_no_one_can_foresee(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path / "shm")
    store = tmp_path / "store"
    for folder in (store, tmp_path / "shm"):
        folder.mkdir()
    assert plane_name(store) == plain_name(store), "a broker of an earlier version"
    names = set()
    for _ in range(3):
        renew_plane_name(store)
        names.add(plane_name(store))
    assert len(names) == 3 and all(name.startswith(f"{plain_name(store)}-") for name in names)
    assert (store / segment.NAME_FILE).stat().st_mode & 0o777 == 0o640


def test_a_page_of_an_earlier_version_is_found_after_a_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path / "shm")
    store = tmp_path / "store"
    for folder in (store, tmp_path / "shm"):
        folder.mkdir()
    renew_plane_name(store)
    create_segment(plain_name(store), "watermarks", 4096).close()
    assert plane_name(store) == plain_name(store)
    later = f"{plain_name(store)}-{(store / segment.NAME_FILE).read_text()}"

    def make_after(name: str, other: str) -> None:
        """The clock of files has steps of some ms."""
        path, before = segment_path(name, "watermarks"), segment_path(other, "watermarks").stat().st_ctime_ns
        create_segment(name, "watermarks", 4096).close()
        while path.stat().st_ctime_ns <= before:
            create_segment(name, "watermarks", 4096).close()

    make_after(later, plain_name(store))
    assert plane_name(store) == later, "the page of the later version counts"
    make_after(plain_name(store), later)
    assert plane_name(store) == plain_name(store), "a killed broker of the later version left its page"
    renew_plane_name(store)
    assert not list((tmp_path / "shm").iterdir()), "what earlier brokers have left is removed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_a_page_of_another_user_is_neither_read_nor_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path / "shm")
    store = tmp_path / "store"
    for folder in (store, tmp_path / "shm"):
        folder.mkdir()
    renew_plane_name(store)
    create_segment(plain_name(store), "watermarks", 4096).close()
    forged = segment_path(plain_name(store), "watermarks")
    os.chown(forged, 65534, 65534)
    assert plane_name(store) != plain_name(store)
    renew_plane_name(store)
    assert forged.exists()
