"""The parts of the worker `pop` together: work that keeps it from its rest."""

from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.pop.service import PopService
from ringmq.pop.window_memory import WindowMemory
from tests.pop.window_pair import NativeWindows


def part(goes_on: bool) -> Any:
    """A part whose turns have more to do, or not."""
    return SimpleNamespace(
        turn=lambda now_ms: goes_on, has_worked=False, reported=0, failure=None, is_done=True, no_room=""
    )  # fmt: skip


@pytest.mark.parametrize(
    ("desk", "revival", "offsets", "goes_on", "has_worked"),
    [
        (False, False, False, False, False), (True, False, False, True, True), (False, True, False, True, True),
        (False, False, True, True, False),
    ],
)  # fmt: skip
def test_a_pass_over_consumer_offsets_is_no_work(
    desk: bool, revival: bool, offsets: bool, goes_on: bool, has_worked: bool
) -> None:
    """It comes each second. With more windows than a turn looks at, the worker would never rest."""
    windows = NativeWindows(WindowMemory(4, 16), 0, 0)
    plane: Any = SimpleNamespace(role=lambda role: SimpleNamespace(counters=[0] * 64))
    service = PopService(
        plane=plane, role=0, windows=windows.native, entries_max=16, desk=part(desk), recovery=part(False),
        revival=part(revival), offsets=part(offsets), snapshots=part(False), close_memory=lambda is_saved: None,
        log_line=print,
    )  # fmt: skip
    assert (service.turn(1000), service.has_worked) == (goes_on, has_worked)
