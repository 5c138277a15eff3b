"""Names in /dev/shm that others have taken."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.ipc import segment
from ringmq.ipc.segment import create_segment, open_segment, remove_segments, segment_path


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
