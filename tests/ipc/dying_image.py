"""A module that an image of test_image.py loads: the image, or the worker that it forks, is killed once at DIE_AT.

`-` in front of a step: before it. `+`: after it. `import`: while the image loads this module. `first`: in the first
instructions of the worker, before the interpreter knows that it was forked.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringmq.ipc import forked_worker

IMAGE_STEPS = ("-fork_sibling", "+fork_sibling", "+_serve")
WORKER_STEPS = (
    "first", "-become", "-_leave_image", "-place_descriptors", "+place_descriptors", "+_leave_image", "-run_program",
)  # fmt: skip


def die_at(step: str) -> None:
    """Kill this process if the test has named this step, and no process has died there yet."""
    if os.environ.get("DIE_AT") != step:
        return
    try:
        Path(os.environ["DIE_ONCE"]).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _dying(owner: Any, name: str) -> None:
    real: Callable[..., Any] = getattr(owner, name)

    def step(*arguments: Any) -> Any:
        die_at(f"-{name}")
        result = real(*arguments)
        if result != 0:  # of fork_sibling: the worker has steps of its own
            die_at(f"+{name}")
        return result

    setattr(owner, name, step)


def _die_first(real: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    @ctypes.PYFUNCTYPE(None)
    def after_in_child() -> None:
        die_at("first")
        ctypes.pythonapi.PyOS_AfterFork_Child()

    return lambda: [*real()[:2], ctypes.cast(after_in_child, ctypes.c_void_p)]


if hasattr(image := sys.modules["__main__"], "fork_sibling"):
    die_at("import")
    image._hooks = _die_first(image._hooks)
    _dying(image, "fork_sibling")
    _dying(image, "become")
    _dying(image.Image, "_serve")
    for name in ("_leave_image", "place_descriptors", "run_program"):
        _dying(forked_worker, name)
