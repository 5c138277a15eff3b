"""Servers of both kinds; waiting for conditions with a deadline; and RINGMQ_PURE_PYTHON=1, which shuts compiled code
out before anything is imported, so that the same tests prove the SDK without it."""

import os
import shutil
import sys
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from tests.waiting import until

if TYPE_CHECKING:
    from tests.conformance.servers import Server
    from tests.server_pool import ServerPool

PURE_PYTHON = os.environ.get("RINGMQ_PURE_PYTHON") == "1"
if PURE_PYTHON:
    for name in ("orjson", "ringmq.native._native"):
        sys.modules[name] = None  # type: ignore[assignment]  # makes its import fail

from tests.patient_clients import patient_clients  # noqa: E402, F401 - behind the lines that shut compiled code out


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say so also in a quiet run."""
    if PURE_PYTHON:
        from ringmq import native
        from ringmq.remoting import json_text

        assert json_text.orjson is None
        assert not native.available()
        terminalreporter.write_line("compiled code is shut out")


STOCK = pytest.param(
    "stock",
    marks=[
        pytest.mark.stock,
        pytest.mark.timeout(180),
        pytest.mark.skipif(shutil.which("mvn") is None, reason="stock RocketMQ comes through Maven"),
    ],
)


@pytest.fixture(scope="module", params=["ringmq", STOCK])
def server(request: pytest.FixtureRequest, shared_servers: "ServerPool") -> "Server":
    """A shared name server and broker: RingMQ's, and once more stock RocketMQ's."""
    return shared_servers(request.param)


@pytest.fixture(scope="module", params=[STOCK])
def stock_server(request: pytest.FixtureRequest, shared_servers: "ServerPool") -> "Server":
    """Stock RocketMQ alone, for what RingMQ's broker refuses by name."""
    return shared_servers(request.param)


@pytest.fixture(scope="module")
def ringmq_server(shared_servers: "ServerPool") -> "Server":
    """RingMQ alone, for what stock does otherwise."""
    return shared_servers("ringmq")


@pytest.fixture
def topic() -> str:
    """A topic of the test's own."""
    return f"T_{uuid.uuid4().hex[:12]}"


@pytest.fixture(name="eventually")
def _eventually() -> Callable[[Callable[[], object]], Awaitable[object]]:
    """Wait until a condition is true, while other tasks run."""
    return lambda condition: until(condition, "what the test waits for")
