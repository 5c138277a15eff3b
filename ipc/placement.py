"""Which worker runs on which CPU: one pure function, one line per rule.

Small hosts: the data plane shares one CPU and never spins, because waking a process on the same CPU costs
2-3 us and on another 40-75 us, and a spinning partner starves the peer it waits for. Large hosts: one
CPU per hot worker, and they spin a little before they park.
"""

from dataclasses import dataclass

READERS_MAX = 16
SPIN_PAUSES = 2000


@dataclass(frozen=True, slots=True)
class Placement:
    """CPU sets by worker name (`read-0`, `write`, `flush`, `dispatch`, `ha`, `control`) and the spin count.

    A slave has `ha-slave`, which appends what the master sends, in place of `write` and `ha`.
    """

    cpus_by_worker: dict[str, tuple[int, ...]]
    spin_pauses: int

    @property
    def readers(self) -> int:
        """Number of read workers."""
        return sum(1 for name in self.cpus_by_worker if name.startswith("read-"))


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
) -> Placement:
    """Plan for the CPUs in `cpus` (as the affinity mask gives them, in order). ValueError on bad counts.

    `sync_flush`: every answer waits for flush, so on a small host it sits beside read and write. `sync_replication`:
    so do ha and flush, which completes what the slaves have reported; one connection gets 1.6 times the answers of a
    plan with both on the other CPU.
    """
    count = default_readers(len(cpus)) if readers is None else readers
    if not cpus:
        raise ValueError("placement needs at least one CPU")
    if not 1 <= count <= READERS_MAX:
        raise ValueError(f"readers={count} is outside 1..{READERS_MAX}")
    reader_names = [f"read-{index}" for index in range(count)]
    others = ("write", "flush", "dispatch", "control", "ha")
    spin_pauses = 0
    if len(cpus) <= 2:
        hot = (cpus[0],)
        cold = (cpus[-1],)
        plan: dict[str, tuple[int, ...]] = dict.fromkeys(reader_names, hot)
        plan |= {"write": hot, "flush": hot if sync_flush or sync_replication else cold, "dispatch": cold}
        plan |= {"control": cold, "ha": hot if sync_replication else cold}
    elif len(cpus) < count + len(others) - 1:
        plan = {name: (cpus[index % (len(cpus) - 2)],) for index, name in enumerate([*reader_names, "write"])}
        plan |= {"dispatch": (cpus[-2],), "flush": (cpus[-1],), "control": (cpus[-1],), "ha": (cpus[-2],)}
    else:
        plan = {name: (cpus[min(index, len(cpus) - 1)],) for index, name in enumerate([*reader_names, *others])}
        spin_pauses = SPIN_PAUSES
    if slave:
        plan["ha-slave"] = plan.pop("write")
        del plan["ha"]
    return Placement(plan, spin_pauses)
