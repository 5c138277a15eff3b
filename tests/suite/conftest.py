"""See `inner.py`."""

from pathlib import Path

import pytest

from tests.suite.inner import Inner


@pytest.fixture
def inner(tmp_path: Path) -> Inner:
    """An empty suite."""
    return Inner(tmp_path)
