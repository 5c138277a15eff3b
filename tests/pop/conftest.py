"""plane_kit and the kits of this folder, and stores of a stock broker."""

import sys
import tarfile
from pathlib import Path

import pytest

from tests.archives import extract_all

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden"
sys.path[:0] = [str(HERE), str(HERE.parent / "native"), str(HERE.parent)]


@pytest.fixture
def pop_copy(tmp_path: Path) -> Path:
    """A store that POP has been used on, after a clean stop; a test may write to it."""
    with tarfile.open(GOLDEN / "store-pop" / "store-pop.tar.xz") as tar:
        extract_all(tar, tmp_path)
    return tmp_path / "store-pop"


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without POP, with timer messages; not to be written to."""
    target = tmp_path_factory.mktemp("golden-basic")
    with tarfile.open(GOLDEN / "store-basic" / "store-basic.tar.gz") as tar:
        extract_all(tar, target)
    return target / "store-basic"
