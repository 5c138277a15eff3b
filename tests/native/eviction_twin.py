"""native/src/reader/eviction_rules.c once more, in plain Python."""

FLOOR_MS, GRACE_MS, PACE = 250, 100, 1024
ON_TIME, SHORT, LATE = 0, 1, 2
FIRST_BYTES, FIRST_FACTOR = 16384, 16
WHOLE, TOLERATED = 1000, 20
IDLE_BITS = 24


def first_bytes(total: int, there: int, *, many: bool) -> int:
    """Memory that a frame gets at first."""
    first = max(there, 1)
    if many:
        first = max(first * FIRST_FACTOR, FIRST_BYTES)
    return min(first, total)


def time_ms(timeout_ms: int, free: int, every: int) -> int:
    """The time for a half frame by the share of blocks that are free."""
    share = min(WHOLE, 2 * WHOLE * free // every) if every else WHOLE
    return min(timeout_ms, max(FLOOR_MS, timeout_ms * (share**3 // WHOLE**2) // WHOLE))


def lateness(timeout_ms: int, limit_ms: int, there: int, taken_ms: int) -> int:
    """ON_TIME, SHORT (late for want of memory), LATE."""
    if taken_ms > timeout_ms:
        return LATE
    return SHORT if taken_ms > limit_ms + there // PACE else ON_TIME


def behind(total: int, there: int, taken_ms: int) -> int:
    """The share of the bytes due by now that is missing, in thousandths."""
    if taken_ms <= GRACE_MS:
        return 0
    due = min(total, min(taken_ms, 0xFFFFFFFF) * PACE)
    missing = (due - there) * WHOLE // due if there < due else 0
    return missing if missing > TOLERATED else 0


def block_rank(behind_by: int, run: int, *, crumb: bool) -> int:
    """The rank of a half frame; the greatest is closed first, 0 = never."""
    if not behind_by or not run or (crumb and behind_by < WHOLE - WHOLE // 10):
        return 0
    return (1 if crumb else 2 + behind_by // (WHOLE // 10)) << 48 | run << 16 | behind_by


def waiting_rank(weight: int, waited_ms: int, run: int) -> int:
    """The same for a frame that itself waits for memory."""
    return weight if run and waited_ms > FLOOR_MS else 0


def waiting_weight(wanted: int, *, has_sent: bool, since_ms: int) -> int:
    """Of a connection that waits for memory: the heaviest gives way."""
    return min(wanted + min(since_ms, 0xFFFF) * 16384, (1 << 30) - 1) if has_sent else (1 << 30) + wanted


def buffer_rank(buffers: int, weight: int, idle_ms: int) -> int:
    """The rank of a connection whose bytes hold receive buffers; the greatest is closed first, 0 = never."""
    if not buffers:
        return 0
    kind = 1 if weight else 3 if idle_ms > GRACE_MS else 2
    return kind << 60 | (weight or buffers) << IDLE_BITS | min(idle_ms, (1 << IDLE_BITS) - 1)


def answer_rank(memory: int, idle_ms: int) -> int:
    """The rank of a connection when all answers take too much memory; the greatest is closed first."""
    return (1 << 62 if idle_ms > GRACE_MS else 0) | min(memory, (1 << 62) - 1)
