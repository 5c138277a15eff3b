"""The loads of the drill: their numbers in its report, and the reads that they share."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.client import RingmqError
from ringmq.loadtest.drills import reads
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.drill import DrillReport, Fault
from ringmq.loadtest.drills.load import Course
from ringmq.loadtest.drills.loads import LOADS, POP_LOADS
from ringmq.loadtest.drills.reads import follow, read_until

Pulled = tuple[list[Any], int]


def course(*, is_running: Callable[[], bool] = lambda: False, timeout_s: float = 60.0) -> Course:
    return Course("", str, is_running, timeout_s)


def test_the_report_has_the_numbers_of_all_loads() -> None:
    shared = course()
    counts = {words: count for kind in LOADS for words, count in kind(shared).counts.items()}
    injected = [(1000, Fault("kill", ("write", "flush"))), (1300, Fault("restart"))]
    lost = [Violation("loss", "1 is not there")]
    report = DrillReport(7, faults=3, counts=counts, seconds=1.25, violations=lost, injected=injected)
    pops = (
        "0 popped, 0 pops acknowledged, 0 polled, 0 polls, 0 in vain, 0 cut off, 0 refused, 0 ms late at most, "
        "0 sent to long polls, 0 witnessed, 0 orderly batches, 0 of repeated attempts, 0 resets, 0 begun anew, "
        if POP_LOADS
        else ""
    )
    assert report.text() == (
        "drill with seed 7: 3 faults, 0 sends, 0 acknowledged, 0 delayed, 0 with a time, 0 sent back, "
        f"0 in an ordered group, 0 transactions ended, {pops}0 read while it ran, 0 read by SQL92, "
        "1.2 s: 1 violations\n"
        "  loss: 1 is not there\n"
        "  faults, in ms since 1000: +0 kill write flush, +300 restart"
    )


def test_no_two_loads_want_another_value_of_a_setting() -> None:
    names = [name for kind in LOADS for name in kind.settings]
    assert len(names) == len(set(names))


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Pulled | Exception]]:
    """The answers to pulls by topic, the last one again and again."""
    answers: dict[str, list[Pulled | Exception]] = {}

    async def pull(client: object, address: str, queue_id: int, queue_offset: int, topic: str) -> Pulled:
        left = answers[topic]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(reads, "pull", pull)
    return answers


def messages(*names: str) -> Pulled:
    return [SimpleNamespace(name=name) for name in names], len(names)


def test_queues_are_read_until_all_is_there(queues: dict[str, list[Pulled | Exception]]) -> None:
    found: list[str] = []
    queues |= {"A": [messages("a"), RingmqError("killed"), messages()], "B": [messages(), messages("b"), messages()]}
    place = [("A", 0), ("B", 0)]
    take = cast(Any, lambda message: found.append(message.name))
    asyncio.run(read_until(cast(Any, None), course(), place, take, lambda: len(found) == 2))
    assert found == ["a", "b"]


def test_messages_that_never_come_end_the_reads(queues: dict[str, list[Pulled | Exception]]) -> None:
    queues["A"] = [messages()]
    take = cast(Any, None)
    asyncio.run(read_until(cast(Any, None), course(timeout_s=0.05), [("A", 0)], take, lambda: False))


def test_a_reader_goes_on_beyond_errors(
    queues: dict[str, list[Pulled | Exception]],
) -> None:
    found: list[str] = []
    queues["A"] = [messages("a"), OSError("no broker"), messages(), messages("b"), messages()]
    running = course(is_running=lambda: len(found) < 2)
    asyncio.run(follow(cast(Any, None), running, ("A", 0), cast(Any, lambda message: found.append(message.name))))
    assert found == ["a", "b"]
