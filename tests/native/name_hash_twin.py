"""native/src/base/name_hash.h once more, in plain Python."""

from collections.abc import Sequence

MASK = 2**64 - 1
SECRET = (0x0706050403020100, 0x0F0E0D0C0B0A0908)


def name_hash(secret: Sequence[int], name: bytes) -> int:
    """The hash of a name: the lower half of `siphash`."""
    return siphash(secret, name) & 0xFFFFFFFF


def numbered_name_hash(secret: Sequence[int], name: bytes, number: int) -> int:
    """The hash of a name with a second part."""
    return name_hash(secret, (number & 0xFFFFFFFF).to_bytes(8, "little") + name)


def pair_hash(secret: Sequence[int], a: int, b: int) -> int:
    """The hash of two numbers."""
    return name_hash(secret, (a << 32 | b).to_bytes(8, "little"))


def siphash(secret: Sequence[int], text: bytes) -> int:
    """SipHash-1-3 with 64 bits."""
    v0, v1 = secret[0] ^ 0x736F6D6570736575, secret[1] ^ 0x646F72616E646F6D
    state = v0, v1, secret[0] ^ 0x6C7967656E657261, secret[1] ^ 0x7465646279746573
    rest = len(text) % 8
    padded = text + bytes(7 - rest) + bytes([len(text) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v0, v1, v2, v3 = _round((*state[:3], state[3] ^ word))
        state = v0 ^ word, v1, v2, v3
    state = *state[:2], state[2] ^ 0xFF, state[3]
    for _ in range(3):
        state = _round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _round(state: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    v0, v1, v2, v3 = state
    v0 = (v0 + v1) & MASK
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 = (v2 + v3) & MASK
    v3 = _rotated(v3, 16) ^ v2
    v0 = (v0 + v3) & MASK
    v3 = _rotated(v3, 21) ^ v0
    v2 = (v2 + v1) & MASK
    v1 = _rotated(v1, 17) ^ v2
    return v0, v1, _rotated(v2, 32), v3


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & MASK
