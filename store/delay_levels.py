"""messageDelayLevel in the form of the C core."""

from collections.abc import Sequence
from typing import Any

from ringmq.native import ffi


def native_delay_levels(milliseconds: Sequence[int]) -> Any:
    """Return struct rmq_delay_levels of the delays of levels 1, 2, ..."""
    levels = ffi.new("struct rmq_delay_levels *")
    levels.count = len(milliseconds)
    levels.delay_ms[0 : len(milliseconds)] = list(milliseconds)
    return levels
