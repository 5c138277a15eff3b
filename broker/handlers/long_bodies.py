"""Bodies with many entries, written in steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ringmq.broker.requests.turns import Steps
from ringmq.remoting import json_body

STEP_PIECES = 64
"""Of some 10 us each, where a piece asks the store for a time."""


def concatenated(pieces: Iterable[bytes]) -> Steps[bytes]:
    """All pieces; they are made while the steps run."""
    text = bytearray()
    for number, piece in enumerate(pieces, 1):
        text += piece
        if number % STEP_PIECES == 0:
            yield
    return bytes(text)


def separated(entries: Iterable[bytes]) -> Iterator[bytes]:
    """The entries with commas between them."""
    for number, entry in enumerate(entries):
        yield b"," + entry if number else entry


def member_name(name: str) -> bytes:
    """`"name":`"""
    return json_body.write_body({name: 0})[1:-2]
