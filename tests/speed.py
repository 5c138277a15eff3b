"""Budgets of time that hold on a machine of any speed.

A budget is written for a machine that does the reference work in WORK_MS. A slower machine, or one whose neighbours
take its caches and its time, gets as much more as the reference work takes longer there at that moment.
"""

import time
from collections.abc import Callable
from statistics import median

WORK_MS = 2.0
"""CPU time of the reference work on the machine for which the budgets are written, while it does nothing else."""
SAMPLES = 5
Clock = Callable[[], int]
"""A clock in ns."""
CPU: Clock = time.thread_time_ns
WALL: Clock = time.perf_counter_ns


def allowed(budget: float, clock: Clock = CPU) -> float:
    """The budget, in any unit, on this machine now. `clock`: that of the measured time.

    Call it right behind the work: a machine of many users changes its speed within seconds.
    """
    return budget * slowness(clock)


def slowness(clock: Clock = CPU) -> float:
    """How many times longer the reference work takes now, at least 1. It takes about ten milliseconds."""
    return max(1.0, median(_work_ms(clock) for _ in range(SAMPLES)) / WORK_MS)


def _work_ms(clock: Clock) -> float:
    began_ns = clock()
    _work()
    return (clock() - began_ns) / 1e6


def _work() -> None:
    """A little of all that Python code does here: names, tables, bytes and numbers."""
    table: dict[str, list[int]] = {}
    for number in range(8000):
        row = table.setdefault(f"name-{number % 1600}", [])
        row.append(number)
    text = "".join(f"{name}:{sum(row)};" for name, row in sorted(table.items()))
    parts = dict(part.partition(":")[::2] for part in text.encode().decode().split(";"))
    assert len(parts) == len(table) + 1
