"""Copies that write refuses: the time until the next try."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from desk_stage import ROLE, Stage

from ringmq.ipc.ports import Port
from ringmq.native import ffi, lib
from ringmq.pop.revival import OF_STORE, SOON, Revival
from ringmq.services.kit.clocks import monotonic_ms

TRY_MS = 10_000_000
"""Time between two tries. No interval is longer."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A consumer has one message."""
    made = Stage(tmp_path / "store")
    made.topic("T")
    made.group("G")
    made.send("T", 1)
    assert made.pop().code == 0
    yield made


class Refused:
    """Revival, to which the test says what write has answered."""

    def __init__(self, stage: Stage) -> None:
        unused: Any = None
        log_acks: Any = SimpleNamespace(native=ffi.NULL, is_answered=True, hold=lambda is_held: False)
        plane: Any = stage.plane
        self.lines: list[str] = []
        self.revival = Revival(
            plane=plane, port=Port(plane, plane.port_of(ROLE)), memory=stage.memory, windows=stage.windows,
            names=stage.desk.windows, targets=unused, config=lambda: stage.config, control=unused,
            words=defaultdict(int), log_line=self.lines.append, on_made=lambda: None, log_acks=log_acks,
        )  # fmt: skip
        self._times_ms = itertools.count(monotonic_ms() + TRY_MS, TRY_MS)

    def refuse(self, cause: int) -> str:
        """Write refuses the copy of the due message. Returns the log line."""
        self.lines.clear()
        now_ms, native = next(self._times_ms), self.revival._batches.native
        assert lib.rmq_pop_copies_due(native, now_ms) == lib.rmq_pop_copies_look(native, 1) == 1
        slot = native.left[0] = native.taken[0]
        native.left_count = 1
        native.rows[slot].left, native.rows[slot].detail = lib.RMQ_POP_LEFT_REFUSED, cause
        self.revival.finish(now_ms)
        return self.lines[-1] if self.lines else ""


@pytest.mark.parametrize("cause", [*OF_STORE, *SOON])
def test_a_cause_that_holds_for_all_makes_later_tries_no_rarer(stage: Stage, cause: int) -> None:
    """After a night with a full disk, a message would wait for hours because of a refusal of its own."""
    refused = Refused(stage)
    for _ in range(20):
        refused.refuse(cause)
    assert refused.refuse(lib.RMQ_CAUSE_MESSAGE_SIZE).endswith("tried again in 10 s")
    assert refused.refuse(lib.RMQ_CAUSE_MESSAGE_SIZE).endswith("tried again in 20 s")
