"""Names of topics that share a cell of a table whose hash has no secret. Pure.

The hash takes 8 bytes of a name at a step: it combines them with its state, multiplies by a constant and mixes. A
client that knows the constant chooses 8 bytes freely, and computes 8 further ones that lead to a given state. A few
such blocks in a row give tens of thousands of names of one hash value, in a second.
"""

import itertools
import random
import string
import struct

import numpy

ALPHABET = string.ascii_letters + string.digits + "-_"
BLOCKS, WAYS = 4, 14
"""A name is so many blocks of 16 bytes. Each block has so many forms that lead to one state."""
NAMES = WAYS**BLOCKS
DRAWN = 1 << 18
_IS_LEGAL = numpy.isin(numpy.arange(256), list(ALPHABET.encode()))
_WORD = 0xFFFF_FFFF_FFFF_FFFF
_HIGH_BITS = 0x8080_8080_8080_8080
_MULTIPLIER, _LAST = 0xD6E8_FEB8_6659_FD93, 0x9E37_79B9_7F4A_7C15


def step(state: int, word: int) -> int:
    """Return the hash's state behind 8 more bytes."""
    state = (state ^ word) * _MULTIPLIER & _WORD
    return state ^ state >> 32


def hash_without_secret(name: bytes) -> int:
    """Return the hash of a name whose length is a multiple of 8."""
    state = len(name)
    for (word,) in struct.iter_unpack("<Q", name):
        state = step(state, word)
    return (state * _LAST & _WORD) >> 32


def colliding_names(count: int, dice: random.Random) -> list[str]:
    """Return so many names of one hash value, at most NAMES."""
    state, blocks = 16 * BLOCKS, []
    for _ in range(BLOCKS):
        goal = dice.getrandbits(64) & ~_HIGH_BITS
        blocks.append(_forms(state, goal, dice))
        state = step(0, goal)
    parts = itertools.islice(itertools.product(*blocks), count)
    return [b"".join(part).decode() for part in parts]


def _forms(state: int, goal: int, dice: random.Random) -> list[bytes]:
    """Return WAYS times 16 characters that lead from `state` to `step(0, goal)`."""
    forms: dict[bytes, None] = {}
    while len(forms) < WAYS:
        drawn = numpy.frombuffer(dice.randbytes(8 * DRAWN), numpy.uint8) % len(ALPHABET)
        first = numpy.frombuffer(ALPHABET.encode(), numpy.uint8)[drawn].view("<u8")
        behind = (first ^ numpy.uint64(state)) * numpy.uint64(_MULTIPLIER)
        second = behind ^ behind >> numpy.uint64(32) ^ numpy.uint64(goal)
        for at in numpy.flatnonzero(_IS_LEGAL[second.view(numpy.uint8)].reshape(-1, 8).all(axis=1)):
            forms[first[at].tobytes() + second[at].tobytes()] = None
    return list(forms)[:WAYS]
