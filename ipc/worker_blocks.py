"""The workers of a running broker as its processes see them: names and flags in the plane's role blocks.

The main process publishes them from the worker table before any worker starts. Other processes must not use a table of
their own, because services may be registered in the main process alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from ringmq.ipc.plane import Plane
from ringmq.ipc.workers import WorkerRow
from ringmq.native import ffi, lib


class Worker(Struct, frozen=True):
    """The words of one worker in the plane."""

    name: str
    role: int
    pid: int
    """0 = not running."""
    generation: int
    """Number of starts."""
    state: int
    progress: int
    flags: int
    deaths: int
    impossible: int
    """Number of impossible states that its processes have met."""

    @property
    def is_optional(self) -> bool:
        """True if the broker runs without it."""
        return bool(self.flags & lib.RMQ_ROLE_OPTIONAL)

    @property
    def is_dormant(self) -> bool:
        """True if it has no process because there is no work for it."""
        return not self.pid and bool(self.flags & lib.RMQ_ROLE_DORMANT)

    @property
    def in_crash_loop(self) -> bool:
        """True if it has died several times lately."""
        return bool(self.flags & lib.RMQ_ROLE_CRASH_LOOP)


def publish_workers(plane: Plane, rows: Iterable[WorkerRow], dormant: Collection[str]) -> None:
    """Write name and flags of each worker into its block. Only the main process calls it, before any worker starts."""
    for row in rows:
        block = plane.role(row.role)
        block.name = row.name.encode()
        block.flags = lib.RMQ_ROLE_OPTIONAL if row.is_optional else 0
        set_flag(block, lib.RMQ_ROLE_OF_MASTER, on=row.needs_master)
        set_flag(block, lib.RMQ_ROLE_DORMANT, on=row.name in dormant)


def set_flag(block: object, flag: int, *, on: bool) -> None:
    """Set or clear one flag of a role block. Only the supervisor calls it."""
    flags = block.flags | flag if on else block.flags & ~flag  # type: ignore[attr-defined]
    if flags != block.flags:  # type: ignore[attr-defined]
        block.flags = flags  # type: ignore[attr-defined]


def workers(plane: Plane) -> Iterator[Worker]:
    """Every worker of the broker by role, dormant ones too."""
    for role in range(lib.RMQ_ROLES_MAX):
        block = plane.role(role)
        if name := ffi.string(block.name).decode():
            words = (
                block.pid,
                block.generation,
                block.state,
                block.progress,
                block.flags,
                block.deaths,
                block.invariant_failures,
            )
            yield Worker(name, role, *(int(word) for word in words))
