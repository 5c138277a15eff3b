"""Bodies with many entries, written in steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ringmq.broker.requests.turns import Steps
from ringmq.remoting import json_body

STEP_PIECES = 64
"""Pieces of one step, of some 10 us each if a piece reads a time from the store."""


def concatenated(pieces: Iterable[bytes]) -> Steps[bytes]:
    """All pieces. They are made while the steps run."""
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
