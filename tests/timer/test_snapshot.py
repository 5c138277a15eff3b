"""What a checkpoint of delivery says about messages that may still wait."""

from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.timer.core import Progress
from ringmq.timer.delivery import Delivery
from ringmq.timer.progress import Snapshot

END, COPIES_END = 9, 5000
OWN_MS, COARSEST_MS = 0, 1000
"""0: the present precision."""


def delivering(*, queue_offset: int = END, dispatched: int = COPIES_END, waits: bool = False) -> Any:
    """Of a worker that began behind 5 records, and has stored copies up to COPIES_END since."""
    delivery: Any = Delivery.__new__(Delivery)
    struct = SimpleNamespace(coarsest_ms=COARSEST_MS, window_slots=40)
    delivery.core = SimpleNamespace(progress=Progress(0, queue_offset, 0), is_behind=False)
    delivery._publisher = SimpleNamespace(log_offset=COPIES_END)
    delivery._slots = SimpleNamespace(files=SimpleNamespace(struct=struct, log_end=0, window_slots=0))
    queue = SimpleNamespace(max_offset=END)
    delivery._plane = SimpleNamespace(watermarks=SimpleNamespace(dispatched_offset=dispatched), queue=lambda _: queue)
    delivery._queue, delivery._queue_end = SimpleNamespace(queue_slot=0), 5
    delivery._oldest, delivery._is_rebuilding = SimpleNamespace(position=0), False
    delivery._store = SimpleNamespace(waits=lambda _: waits)
    return delivery


@pytest.mark.parametrize(
    ("case", "coarsest_ms"),
    [
        ({}, OWN_MS),
        ({"waits": True}, COARSEST_MS),
        ({"queue_offset": END - 1}, COARSEST_MS),
        ({"dispatched": COPIES_END - 1}, COARSEST_MS),
    ],
)
def test_steps_of_earlier_settings_count_until_no_message_is_on_its_way(case: Any, coarsest_ms: int) -> None:
    """A rolled copy is in the log for a while before it has a unit."""
    found: Snapshot = delivering(**case)._snapshot()
    assert (found.coarsest_ms, found.window_slots) == (coarsest_ms, 0 if coarsest_ms else 40)


def test_the_window_is_known_once_no_message_has_waited() -> None:
    """Behind an older version or a stock broker it is not. The next message is filed by the present one."""
    delivery = delivering()
    assert delivery._snapshot().window_slots == 40
    delivery._store.waits = lambda _: True
    assert delivery._snapshot().window_slots == 40
