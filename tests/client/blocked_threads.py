"""Waiting until a thread sleeps in the wait for a lock. A signal that comes just before does not end that wait."""

import platform
import threading
from pathlib import Path

from tests.waiting import wait_until

FUTEX = {"x86_64": "202", "aarch64": "98"}.get(platform.machine(), "")
WAIT_FOR_LOCK = "0x189"
"""FUTEX_WAIT_BITSET, private, by the clock: a semaphore of glibc. A wait for the GIL has a time limit instead."""
LOOKS = 3
"""The monitor of a client is a lock, too, and held for moments only."""


def wait_blocked(thread: threading.Thread) -> None:
    """Until `thread` waits for a lock without a time limit, and goes on to."""
    assert FUTEX, f"the number of the system call futex on {platform.machine()} is not known here"
    call = Path(f"/proc/self/task/{thread.native_id}/syscall")
    seen: list[str] = []

    def is_blocked() -> bool:
        words = call.read_text().split()  # number, address, operation, value, time limit
        if words[0] == FUTEX and words[2] == WAIT_FOR_LOCK and words[4] == "0x0":
            seen.append(words[1])
        else:
            seen.clear()
        return len(seen) >= LOOKS and len(set(seen[-LOOKS:])) == 1

    wait_until(is_blocked, f"{thread.name} waits for a lock")
