"""Placement of workers on CPUs: one pure function, one line per rule.

On small hosts the data plane shares one CPU and never spins. To wake a process on the same CPU costs 2-3 us, on another
40-75 us, and a spinning partner starves the peer it waits for. On large hosts each hot worker has its own CPU and spins
a little before it parks.
"""

from collections.abc import Collection

from msgspec import Struct

from ringmq.ipc.ports import READERS_MAX
from ringmq.ipc.workers import WORKERS, CpuClass, WorkerTable, is_read
from ringmq.native import lib

SPIN_PAUSES = 2000


class Placement(Struct, frozen=True):
    """CPU sets by worker name (`read-0`, `write`, ...) and the spin count."""

    cpus_by_worker: dict[str, tuple[int, ...]]
    spin_pauses: int

    @property
    def readers(self) -> int:
        """Number of read workers."""
        return sum(map(is_read, self.cpus_by_worker))


def default_readers(cpu_count: int) -> int:
    """One reader up to 7 CPUs, then a quarter of them, at most 16."""
    return 1 if cpu_count < 8 else min(READERS_MAX, cpu_count // 4)


def place(
    cpus: list[int],
    readers: int | None = None,
    *,
    sync_flush: bool = False,
    sync_replication: bool = False,
    slave: bool = False,
    listening: Collection[str] | None = None,
    table: WorkerTable = WORKERS,
) -> Placement:
    """The placement for the CPUs in `cpus` (as the affinity mask gives them, in order). Raises ValueError on bad
    counts.

    `sync_flush`: every answer waits for flush, so on a small host flush shares the CPU of read and write.
    `sync_replication`: ha does, too, and so does flush, because it completes requests that the slaves have reported.
    One connection then gets 1.6 times the answers of a placement with both on the other CPU. `listening`: the workers
    whose own listener is open. None = all but guests.
    """
    count = default_readers(len(cpus)) if readers is None else readers
    if not cpus:
        raise ValueError("placement needs at least one CPU")
    if not 1 <= count <= READERS_MAX:
        raise ValueError(f"readers={count} is outside 1..{READERS_MAX}")
    spin_pauses = 0
    if len(cpus) <= 2:
        lanes = _small(cpus[0], cpus[-1], sync_flush=sync_flush, sync_replication=sync_replication)
    elif len(cpus) < count + _OTHERS - 1:
        lanes = _shared(cpus, count)
    else:
        lanes = _own(cpus, count)
        spin_pauses = SPIN_PAUSES
    placed: dict[CpuClass, int] = {}
    plan: dict[str, tuple[int, ...]] = {}
    owner = lib.RMQ_ROLE_HA if slave else lib.RMQ_ROLE_WRITE
    for row in (row.beside(owner) for row in table.rows(count)):
        if row.listener and not (
            row.cpu_class is not CpuClass.AUXILIARY if listening is None else row.name in listening
        ):
            continue
        lane, number = lanes[row.cpu_class], placed.get(row.cpu_class, 0)
        plan[row.name] = (lane[min(number, len(lane) - 1)],)
        placed[row.cpu_class] = number + 1
    return Placement(plan, spin_pauses)


_OTHERS = 5
"""Classes beside readers whose workers get a CPU each on a large host: write, flush, dispatch, control, ha."""
_Lanes = dict[CpuClass, list[int]]
"""The CPUs of a class. The n-th worker of the class gets the n-th CPU; workers beyond the last CPU share the last."""


def _small(hot: int, cold: int, *, sync_flush: bool, sync_replication: bool) -> _Lanes:
    """The data plane on one CPU; everything else, services too, on the other if there is another."""
    lanes: _Lanes = {cpu_class: [cold] for cpu_class in CpuClass}
    lanes[CpuClass.READ] = lanes[CpuClass.WRITE] = [hot]
    lanes[CpuClass.FLUSH] = [hot if sync_flush or sync_replication else cold]
    lanes[CpuClass.HA] = [hot if sync_replication else cold]
    return lanes


def _shared(cpus: list[int], readers: int) -> _Lanes:
    """Readers and write go around all CPUs but the last two, which the others share."""
    hot = cpus[:-2]
    lanes: _Lanes = {cpu_class: [cpus[-1]] for cpu_class in CpuClass}
    lanes[CpuClass.DISPATCH] = lanes[CpuClass.HA] = [cpus[-2]]
    lanes[CpuClass.READ] = [hot[reader % len(hot)] for reader in range(readers)]
    lanes[CpuClass.WRITE] = [hot[readers % len(hot)]]
    return lanes


def _own(cpus: list[int], readers: int) -> _Lanes:
    """A CPU for each class; if one CPU is missing, ha shares control's. Services get the CPUs that are left."""
    write, flush, dispatch, control = cpus[readers : readers + _OTHERS - 1]
    left = cpus[readers + _OTHERS - 1 :]
    return {
        CpuClass.READ: cpus[:readers],
        CpuClass.WRITE: [write],
        CpuClass.FLUSH: [flush],
        CpuClass.DISPATCH: [dispatch],
        CpuClass.CONTROL: [control],
        CpuClass.AUXILIARY: [control],
        CpuClass.HA: [left[0] if left else control],
        CpuClass.SERVICE: [*left[1:], control],
    }
