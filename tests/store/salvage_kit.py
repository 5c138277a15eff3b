"""Stores of a few small log files, and one that parts from another."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.store.config import StoreConfig
from ringmq.store.salvage import salvage_files
from tests.spark_bridge.made_store import MadeStore

FILE_BYTES = 1 << 14
RECORDS = 120  # about five files
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
    """The content of salvage/ by range, each range once."""
    files = salvage_files(root)
    found = {(file.from_offset, file.to_offset): file.path.read_bytes() for file in files}
    assert len(found) == len(files)
    for (start, end), data in found.items():
        assert not data[end - start :].strip(b"\0")
    return {(start, end): data[: end - start] for (start, end), data in found.items()}


def places(template: MadeStore) -> list[int]:
    """Where records end, from the first one's begin on."""
    return [0] + [position + size for position, size, _, _ in template.places]


def reader_of(data: bytes, step: int = 1000) -> Callable[[int, int], bytes]:
    """Reads another log, at most `step` bytes at once."""
    return lambda offset, length: data[offset : offset + min(step, length)]
