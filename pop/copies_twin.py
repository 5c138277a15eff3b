"""The cases of a batch of copies, in Python: the same rule as `rmq_pop_copies_look`. Tests run both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ringmq.native import lib


def look(
    ready: Sequence[int], window_of: Mapping[int, int], room: int
) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Begin a batch of ready messages, by their slots. Returns the slots of the batch, those that stay ready, and the
    cases: (window, messages)."""
    taken, left, cases = list[int](), list[int](), dict[int, int]()
    for slot in ready:
        window = window_of[slot]
        is_full = len(taken) == min(room, lib.RMQ_POP_COPY_BATCH)
        if is_full or (window not in cases and len(cases) == lib.RMQ_POP_CASES_MAX):
            left.append(slot)
            continue
        cases[window] = cases.get(window, 0) + 1
        taken.append(slot)
    return taken, left, list(cases.items())
