"""Golden records for the role tests."""

import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ringmq.native import ffi, lib
from tests.archives import extract_all

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]  # plane_kit, reader_kit, waiting
GOLDEN = Path(__file__).parents[1] / "golden" / "store-basic" / "store-basic.tar.gz"


@pytest.fixture(scope="session")
def golden_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked store of a stock broker; not to be written to."""
    target = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN) as tar:
        extract_all(tar, target)
    return target / "store-basic"


@pytest.fixture(scope="session")
def golden_log(golden_store: Path) -> list[bytes]:
    """Every record of its log."""
    records, view = [], ffi.new("struct rmq_record_view *")
    for path in sorted((golden_store / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while lib.rmq_record_parse(data[at : at + (1 << 20)], len(data) - at, 0, view) == lib.RMQ_RECORD_OK:
            records.append(data[at : at + view.total_size])
            at += view.total_size
    return records


@pytest.fixture
def make_kit(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes a ReaderKit whose threads end with the test, also when it fails."""
    from reader_kit import ReaderKit

    with ExitStack() as made:

        def make(*roles: str, **settings: Any) -> Any:
            kit = ReaderKit(tmp_path, **settings)
            made.callback(kit.close)
            kit.wide_topic(b"TopicA")
            for role in roles:
                kit.start(role)
            return kit

        yield make
