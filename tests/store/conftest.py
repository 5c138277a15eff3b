"""Golden stores of stock RocketMQ 5.3.3, unpacked once per session, copied where a test writes."""

import gzip
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.archives import extract_all

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="session")
def golden_basic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store after a clean stop; not to be written to."""
    target = tmp_path_factory.mktemp("golden-basic")
    with tarfile.open(GOLDEN / "store-basic" / "store-basic.tar.gz") as tar:
        extract_all(tar, target)
    return target / "store-basic"


@pytest.fixture(scope="session")
def manifest() -> list[dict[str, Any]]:
    """One entry per record of the store after a clean stop, in log order."""
    with gzip.open(GOLDEN / "store-basic" / "manifest.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def expected() -> dict[str, Any]:
    """Answers of the stock store."""
    with gzip.open(GOLDEN / "store-basic" / "expected.json.gz", "rt", encoding="utf-8") as text:
        answers: dict[str, Any] = json.load(text)
        return answers


@pytest.fixture
def basic_copy(golden_basic: Path, tmp_path: Path) -> Path:
    """A copy that a test may write to."""
    return Path(shutil.copytree(golden_basic, tmp_path / "store"))


@pytest.fixture
def pop_copy(tmp_path: Path) -> Path:
    """A store that POP has been used on, after a clean stop; a test may write to it."""
    with tarfile.open(GOLDEN / "store-pop" / "store-pop.tar.xz") as tar:
        extract_all(tar, tmp_path)
    return tmp_path / "store-pop"


@pytest.fixture(scope="session")
def _crashed_stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("golden-crashed")
    with tarfile.open(GOLDEN / "store-crashed" / "store-crashed.tar.xz") as tar:
        extract_all(tar, target)
    return target


@pytest.fixture
def crashed_copy(_crashed_stores: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Make a writable copy of one of the crash-* variants."""

    def copy(variant: str) -> Path:
        found = next(path for path in _crashed_stores.rglob(variant) if path.is_dir())
        return Path(shutil.copytree(found, tmp_path / variant))

    return copy


@pytest.fixture(scope="session")
def crashed_answers() -> Callable[[str], dict[str, Any]]:
    """Read one JSON page of golden/store-crashed."""

    def read(name: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((GOLDEN / "store-crashed" / name).read_text())
        return value

    return read
