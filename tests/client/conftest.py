"""Waiting for conditions with a deadline, and quick settings."""

import asyncio
from collections.abc import Callable

import pytest


async def eventually(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until `condition()` is true; fails after `timeout_s`."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., object]:
    return eventually
