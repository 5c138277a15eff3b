"""native/src/reader/turn_rules.c once more, in plain Python."""

UNITS, UNITS_LATE, UNITS_OF_TURN = 128, 16, 8192
ONCE_BYTES, SEND_BYTES, BYTES_OF_TURN = 65_536, 1 << 20, 4 << 20


def units(used: int) -> int:
    """What a connection may use of a turn that has used so much."""
    return UNITS if used < UNITS_OF_TURN else UNITS_LATE


def send_bytes(waiting: int, handed: int) -> int:
    """Bytes that go to the kernel now; 0 = in the next turn."""
    if waiting <= ONCE_BYTES:
        return waiting
    return min(waiting, SEND_BYTES) if handed < BYTES_OF_TURN else 0
