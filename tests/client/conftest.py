"""Waiting for conditions with a deadline; and RINGMQ_PURE_PYTHON=1, which shuts compiled code out before anything is
imported, so that the same tests prove the SDK without it."""

import asyncio
import os
import sys
from collections.abc import Callable

import pytest

PURE_PYTHON = os.environ.get("RINGMQ_PURE_PYTHON") == "1"
if PURE_PYTHON:
    for name in ("orjson", "ringmq.native._native"):
        sys.modules[name] = None  # type: ignore[assignment]  # makes its import fail


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say so also in a quiet run."""
    if PURE_PYTHON:
        from ringmq import native
        from ringmq.remoting import json_text

        assert json_text.orjson is None
        assert not native.available()
        terminalreporter.write_line("compiled code is shut out")


async def eventually(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until `condition()` is true; fails after `timeout_s`."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)  # poll


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., object]:
    return eventually
