"""The workers of a running broker, as each of its processes sees them: names and flags in the plane's role blocks.

The main process publishes them from the worker table before any worker starts. Other processes have no table of their
own to look into: what a broker runs may have been registered in its main process alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from ringmq.ipc.plane import Plane
from ringmq.ipc.workers import WorkerRow
from ringmq.native import ffi, lib


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker's words in the plane."""

    name: str
    role: int
    pid: int
    """0 = not running."""
    generation: int
    """Starts."""
    state: int
    progress: int
    flags: int
    deaths: int
    impossible: int
    """States that cannot be which its processes have met."""

    @property
    def is_optional(self) -> bool:
        """The broker goes on without it."""
        return bool(self.flags & lib.RMQ_ROLE_OPTIONAL)

    @property
    def is_dormant(self) -> bool:
        """Nothing has needed it yet, or needs it any more."""
        return not self.pid and bool(self.flags & lib.RMQ_ROLE_DORMANT)

    @property
    def keeps_dying(self) -> bool:
        """It has died several times lately."""
        return bool(self.flags & lib.RMQ_ROLE_KEEPS_DYING)


def publish_workers(plane: Plane, rows: Iterable[WorkerRow], dormant: Collection[str]) -> None:
    """Write name and flags of each worker into its block (the main process alone, before any worker starts)."""
    for row in rows:
        block = plane.role(row.role)
        block.name = row.name.encode()
        block.flags = lib.RMQ_ROLE_OPTIONAL if row.is_optional else 0
        set_flag(block, lib.RMQ_ROLE_DORMANT, on=row.name in dormant)


def set_flag(block: object, flag: int, *, on: bool) -> None:
    """Set or clear one flag of a role block (the supervisor alone)."""
    flags = block.flags | flag if on else block.flags & ~flag  # type: ignore[attr-defined]
    if flags != block.flags:  # type: ignore[attr-defined]
        block.flags = flags  # type: ignore[attr-defined]


def workers(plane: Plane) -> Iterator[Worker]:
    """Every worker that the broker has, dormant ones too, by role."""
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
                block.impossible_count,
            )
            yield Worker(name, role, *(int(word) for word in words))


def want(plane: Plane, role: int) -> None:
    """Start the role's worker if it is dormant. Call it after the work for it has been published."""
    lib.rmq_worker_want(plane.struct, role)


def rest(plane: Plane, role: int) -> None:
    """A worker that has nothing to do, before its last look for work: with none it may end with EXIT_RESTED."""
    lib.rmq_worker_rest(plane.struct, role)
