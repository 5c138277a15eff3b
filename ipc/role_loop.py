"""A role inside its worker process: opens a C role, calls its loop slice by slice until the stop is complete, and ends
the process.
"""

import errno
import logging
import os
from collections.abc import Callable
from typing import Any

from ringmq.ipc.exit_status import EXIT_ENGINE_REFUSED, EXIT_INVARIANT, EXIT_USAGE
from ringmq.ipc.invariant import InvariantError, report
from ringmq.ipc.logs import configure_worker
from ringmq.ipc.plane import Plane
from ringmq.ipc.worker import StopFlag, WorkerSpec, open_worker
from ringmq.native import ffi, lib

log = logging.getLogger(__name__)

SLICE_NS = 250_000_000
REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS})
"""Errors by which the kernel or a seccomp profile refuses io_uring."""


class RoleError(RuntimeError):
    """A role could not start or had to end. The message names role and cause; `status` is the exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def opened(name: str, handle: Any, error: Any, *, needs_engine: bool = False) -> Any:
    """The handle. Raises RoleError with the cause if it is NULL."""
    if handle == ffi.NULL:
        refused = needs_engine and -error[0] in REFUSALS
        hint = " (io_uring is refused, see docs/operating.md)" if refused else ""
        status = EXIT_ENGINE_REFUSED if refused else 1
        raise RoleError(f"{name} cannot start: {os.strerror(-error[0])}{hint}", status)
    return handle


def run_role(
    name: str, run: Callable[[Any, int], int], role: Any, idle: Callable[[int], None] = lambda reason: None
) -> int:
    """Call the C loop until it reports that the clean stop is complete, or that the role has yielded the journal.
    Returns which: RMQ_RUN_STOPPED or RMQ_RUN_YIELDED. Calls `idle` between its slices."""
    while True:
        reason = int(run(role, SLICE_NS))
        if reason < 0:
            raise RoleError(f"{name}: {os.strerror(-reason)}")
        idle(reason)
        if reason in (lib.RMQ_RUN_STOPPED, lib.RMQ_RUN_YIELDED):
            return reason


def run_worker(arguments: list[str], serve: Callable[[WorkerSpec, Plane, StopFlag], int]) -> int:
    """Run `serve` for the arguments (NAME SPEC) of a worker process. Returns the exit status for the supervisor."""
    spec = WorkerSpec.from_json(arguments[1])
    plane, stop = open_worker(spec)
    configure_worker(spec.name, plane.header.settings)
    try:
        return serve(spec, plane, stop)
    except RoleError as error:
        log.error("%s", error)
        return error.status
    except InvariantError as error:
        report(error)
        return EXIT_INVARIANT


def no_worker(name: str) -> RoleError:
    """The error of an entry point for a name that it does not serve."""
    return RoleError(f"there is no worker {name}", EXIT_USAGE)
