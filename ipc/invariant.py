"""Invariants, checked where Python reads words of other processes: the twin of native/src/plane/invariant.h.

`check_invariant` raises. `run_worker` (ipc/role_loop.py) writes the line and ends the process. The supervisor starts a
replacement, as after any death.
"""

import traceback
from pathlib import Path

from ringmq.native import ffi, lib


class InvariantError(BaseException):
    """A broken invariant. It is no Exception, so that a handler for defects of one turn does not go on over a
    broken plane."""

    def __init__(self, what: str, values: dict[str, int]) -> None:
        super().__init__(f"broken invariant: not {what}; {values}")
        self.what = what
        self.values = values


def check_invariant(condition: bool, what: str, **values: int) -> None:
    """Raise InvariantError unless `condition`; `what` states the condition in words. Use it only for words that
    another process of this broker has written and that no legal race changes."""
    if not condition:
        raise InvariantError(what, values)


def report(error: InvariantError) -> None:
    """Write the line of the state, and record it in the role block of this worker."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name != "invariant.py"
    ]
    file, line = (Path(frames[-1].filename).name, frames[-1].lineno or 0) if frames else ("(unknown)", 0)
    values = ffi.new("int64_t[]", list(error.values.values()))
    names = ", ".join(error.values).encode()
    lib.rmq_invariant_report(file.encode(), line, error.what.encode(), names, values, len(values))
