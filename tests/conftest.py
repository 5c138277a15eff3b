"""Servers that tests of several folders share (`tests/server_pool.py`)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.server_pool import ServerPool

SHARING_FOLDERS = ("client", "conformance")
POOL = pytest.StashKey["ServerPool"]()


@pytest.fixture(scope="session")
def shared_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ServerPool]":
    """`shared_servers("ringmq" or "stock", "default" or "sync")`: one server of each for all tests that share well."""
    from tests.server_pool import ServerPool  # here: the tests without compiled code shut it out before any import

    pool = request.session.stash[POOL] = ServerPool(tmp_path_factory.mktemp)
    yield pool
    pool.close()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Behind the folders that share servers nobody needs them: what follows measures time and memory."""
    if POOL in item.session.stash and (nextitem is None or nextitem.path.parent.name not in SHARING_FOLDERS):
        item.session.stash[POOL].close()
