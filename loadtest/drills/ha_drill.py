"""The replication drill: faults of a master and a slave under load, then a check of everything.

    python -m ringmq.loadtest.drills.ha_drill --seed 1 --rounds 100

Faults are kills, stops, partitions and false reports. SYNC_MASTER with one slave: acknowledged messages are on both,
whichever was hit. With --auto the master may continue alone (enableAutoInSyncReplicas): acknowledged messages are on
both in the end, and the master loses nothing then. All randomness comes from the seed. The checker uses the client's
own record, and the slave's file at each answer. Partitions need root (network namespaces and packet filter rules), a
full disk needs root (a small file system).
"""

import asyncio
import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.ha_faults import NEEDS_DISK, NEEDS_NETWORK, WEIGHTS, Fault, FaultInjector, plan_faults
from ringmq.loadtest.drills.ha_group import HaGroup, Node
from ringmq.loadtest.drills.ha_load import HaLoad
from ringmq.loadtest.drills.ha_net import Network, missing_for_network
from ringmq.loadtest.load.sigterm import ended_by_sigterm

AUTO = "enableAutoInSyncReplicas"
RETURN_TIMEOUT_S = 60.0
DISK_BYTES = 2 << 30  # sparse
ROUNDS_PER_LINE = 10


@dataclass(slots=True)
class HaDrillReport:
    """The result of a replication drill."""

    seed: int
    rounds: Counter[str] = field(default_factory=Counter)
    left_out: tuple[str, ...] = ()
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    degraded: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    log_bytes: int = 0
    violations: list[Violation] = field(default_factory=list)

    def text(self) -> str:
        """Return one paragraph for a person."""
        kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.rounds.items()))
        answers = ", ".join(f"{count} {name}" for name, count in sorted(self.answers.items()))
        lines = [
            f"replication drill with seed {self.seed}: {self.rounds.total()} rounds ({kinds}); {self.sent} sends "
            f"({answers}), {self.read} read while it ran, {self.log_bytes >> 20} MiB of log, {self.seconds:.0f} s; "
            f"degraded mode entered {self.degraded[0]} times, left {self.degraded[1]} times: "
            f"{len(self.violations)} violations"
        ]
        lines += [f"  left out: {kind}" for kind in self.left_out]
        return "\n".join([*lines, *(f"  {violation.kind}: {violation.text}" for violation in self.violations[:20])])


@contextlib.contextmanager
def slave_disk(folder: Path) -> Iterator[Path]:
    """Yield a separate file system for a slave: ext4 in a sparse file. Needs root and a loop device."""
    image, mount_point = folder / "slave.img", folder / "slave-disk"
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    mount_point.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mount_point)], check=True)
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], check=True)


def kinds_possible() -> tuple[str, ...]:
    """Return the kinds of faults that this machine allows."""
    without: tuple[str, ...] = NEEDS_NETWORK if missing_for_network() else ()
    if missing_for_network() or shutil.which("mkfs.ext4") is None or not Path("/dev/loop-control").exists():
        without += NEEDS_DISK
    return tuple(kind for kind in WEIGHTS if kind not in without)


async def run_rounds(
    group: HaGroup,
    faults: list[Fault],
    report: HaDrillReport,
    folder: Path,
    disk: Path | None,
    log_line: Callable[[str], None],
) -> None:
    """Load, inject round after round, settle, check. Raises RuntimeError if the service does not come back."""
    began = time.monotonic()
    async with HaLoad(group, must_hold=AUTO not in group.settings) as load:
        injector = FaultInjector(group, load, folder, disk, report.seed)
        try:
            await load.service(RETURN_TIMEOUT_S)
            for number, fault in enumerate(faults, 1):
                await injector.inject(fault)
                await load.service(RETURN_TIMEOUT_S)
                report.rounds[fault.kind] += 1
                if number % ROUNDS_PER_LINE == 0:
                    seconds = time.monotonic() - began
                    log_line(
                        f"{number} of {len(faults)} rounds, {load.report.acknowledged} acknowledged, {seconds:.0f} s"
                    )
            report.violations += await load.finish()
            if not await injector.degraded_mode_ends(RETURN_TIMEOUT_S):
                report.violations.append(Violation("degraded", "the slave has all, and its master is in degraded mode"))
        except TimeoutError:
            state = "\n".join(f"--- {node.store.name}\n{node.broker.log_tail()}" for node in group.nodes)
            kind = faults[report.rounds.total()].kind if report.rounds.total() < len(faults) else "the end"
            raise RuntimeError(
                f"the service did not return within {RETURN_TIMEOUT_S:.0f} s of: {kind}\n{state}"
            ) from None
        finally:
            await injector.close()
            report.sent, report.acknowledged = load.report.sent, load.report.acknowledged
            report.read, report.answers = load.report.read, load.report.answers


def degraded_turns(log: str) -> tuple[int, int]:
    """Return how many times the master's log enters and leaves degraded mode."""
    entered, left, is_in = 0, 0, False
    for line in log.splitlines():
        was_in = is_in
        if "degraded mode left:" in line:
            is_in = False
        elif "degraded mode:" in line:
            is_in = True
        entered += is_in and not was_in
        left += was_in and not is_in
    return entered, left


def compare_logs(group: HaGroup) -> list[Violation]:
    """Check after a clean stop that all logs have the same bytes, and that the stores are consistent."""
    found: list[Violation] = []
    master = _log_of(group.master)
    for node in group.nodes:
        settings = [part for name, value in node.settings.items() for part in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "ringmq.cli.main", "store", "verify", "--quiet", *settings, str(node.store)]
        verified = subprocess.run(command, capture_output=True, text=True)
        if verified.returncode != 0:
            found.append(Violation("store", f"{node.store.name}: {verified.stdout[-2000:]}{verified.stderr[-2000:]}"))
        log = _log_of(node)
        if log != master:
            pairs = enumerate(zip(log, master, strict=False))
            common = next((at for at, (one, other) in pairs if one != other), min(len(log), len(master)))
            where = f"differs from the master's at {common}, {len(log)} and {len(master)} bytes"
            found.append(Violation("log", f"the log of {node.store.name} {where}"))
    return found


def _log_of(node: Node) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((node.store / "commitlog").glob("0*"))).rstrip(b"\0")


def run_drill(
    folder: Path, seed: int, faults: list[Fault], settings: dict[str, object], network: Network | None,
    log_line: Callable[[str], None] = lambda text: None,
) -> HaDrillReport:  # fmt: skip
    """Run one drill in `folder`."""
    report = HaDrillReport(seed)
    needs_disk = any(fault.kind in NEEDS_DISK for fault in faults)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(slave_disk(folder)) if needs_disk else None
        slave_store = (disk or folder) / "slave"
        allowed = {"haAllowedReplicas": "1", **settings}  # a lying peer that says it is new must not count
        group = HaGroup(folder, allowed, [slave_store], network)
        stack.callback(group.close)
        asyncio.run(run_rounds(group, faults, report, folder, disk, log_line))
        for node in reversed(group.nodes):
            status = node.broker.stop()
            if status != 0:
                report.violations.append(Violation("stop", f"{node.store.name} ended with status {status}"))
        report.violations += compare_logs(group)
        report.degraded = degraded_turns(group.master.log.read_text(errors="replace"))
        report.log_bytes = sum(path.stat().st_size for path in (group.master.store / "commitlog").glob("0*"))
    report.seconds = time.monotonic() - began
    return report


@click.command()
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=100, show_default=True, help="Faults.")
@click.option("--sync/--async", "sync", default=False, show_default=True, help="SYNC_FLUSH or ASYNC_FLUSH on both.")
@click.option("--auto", is_flag=True, help="enableAutoInSyncReplicas: the master goes on alone.")
@click.option(
    "--only", multiple=True, type=click.Choice(list(WEIGHTS)), help="These kinds of faults alone; repeatable."
)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the stores go; default: a temporary folder.")
@ended_by_sigterm()
def main(seed: int, rounds: int, sync: bool, auto: bool, only: tuple[str, ...], folder: Path | None) -> None:
    """Inject faults into a master and its slave under load. Exit status 1 if a guarantee was violated."""
    possible = tuple(kind for kind in kinds_possible() if not (auto and kind == "master loses tail"))
    kinds = tuple(kind for kind in possible if not only or kind in only)
    if left_out := tuple(kind for kind in WEIGHTS if kind not in possible and (not only or kind in only)):
        click.echo(f"left out, this machine or these options do not allow them: {', '.join(left_out)}", err=True)
    if not kinds:
        raise click.ClickException("no kind of fault is left (ip netns, mkfs.ext4, loop devices and root are needed)")
    settings: dict[str, object] = {"flushDiskType": "SYNC_FLUSH" if sync else "ASYNC_FLUSH"}
    if auto:
        settings |= {"inSyncReplicas": 2, AUTO: True}
    network = None if missing_for_network() else Network()
    with tempfile.TemporaryDirectory(prefix="ringmq-ha-drill-") as temporary:
        root = folder or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        try:
            faults = plan_faults(seed, rounds, kinds)
            report = run_drill(root, seed, faults, settings, network, partial(click.echo, err=True))
        finally:
            if network is not None:
                network.close()
    report.left_out = left_out
    click.echo(report.text())
    sys.exit(1 if report.violations else 0)


if __name__ == "__main__":
    main()
