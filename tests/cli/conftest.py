"""Addresses for the command line's tests."""

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address where nobody listens: bound, so that nobody else gets it, and refused, since it does not listen."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"
