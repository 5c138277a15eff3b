"""`make bench-starts`: modules and processor time of the imports of each process, and of a start of `ringmq serve`.

A start lasts from exec to the line `ready` and is counted over all processes. With `--old`, each round measures another
checkout first, so that a slow minute of the machine meets both.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringmq.loadtest.bench.markdown import markdown_table
from ringmq.loadtest.load.process_stats import busy_seconds, family
from ringmq.loadtest.load.running import RunningBroker

ENTRIES = {
    "`ringmq --help`": "from ringmq.cli.main import main; main(['--help'], standalone_mode=False)",
    "SDK: `import ringmq.client`": "import ringmq.client",
    "SDK: `ringmq.client.Producer`": "from ringmq.client import Producer",
    "SDK: `ringmq.client.blocking`": "from ringmq.client.blocking import Producer",
    "`ringmq serve`, `ringmq broker`": "import ringmq.cli.main, ringmq.cli.serve, ringmq.broker.server",
    "name server": "import ringmq.namesrv.worker, ringmq.namesrv.server",
    "`read`, `write`": "import ringmq.broker.worker",
    "`flush`": "import ringmq.broker.worker, ringmq.broker.flush_shell",
    "`dispatch`": "import ringmq.broker.worker, ringmq.broker.dispatch_shell",
    "`control`": "import ringmq.broker.worker, ringmq.broker.control_shell",
    "`ha`": "import ringmq.ha.worker",
    "`services`": "import ringmq.services.worker",
    "`delay`": "import ringmq.services.delay.worker",
    "`transactions`": "import ringmq.services.transactions.worker",
    "`timer`": "import ringmq.timer.worker",
    "`metrics`": "import ringmq.broker.exporter.worker",
}
"""Process -> the statements that load what it needs to serve."""
SETTINGS = {"mappedFileSizeCommitLog": 64 << 20}
_COUNT = "; import sys; print(*sys.modules, file=sys.stderr)"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Imported:
    """One interpreter that has run the statements of an entry."""

    modules: tuple[str, ...]
    cpu_seconds: float
    """User and system time of the whole process."""

    @property
    def own(self) -> int:
        """Modules of RingMQ."""
        return sum(name.partition(".")[0] == "ringmq" for name in self.modules)


@dataclass(frozen=True, slots=True)
class Started:
    """One start of `ringmq serve`."""

    wall_seconds: float
    cpu_seconds: float


def imported(statements: str, environment: Mapping[str, str]) -> Imported:
    """Run the statements in a new interpreter. Raises RuntimeError with its output if it fails."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-c", statements + _COUNT],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=output,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode:
        raise RuntimeError(f"{statements!r} ended with status {process.returncode}:\n{text}")
    return Imported(tuple(text.split()), used.ru_utime + used.ru_stime)


def started(folder: Path, environment: Mapping[str, str]) -> Started:
    """Start a broker with an empty store."""
    shutil.rmtree(folder, ignore_errors=True)
    with RunningBroker(folder / "store", SETTINGS, environment=environment) as broker:
        pids = family(broker.process.pid)
        found = Started(broker.start_seconds, busy_seconds(pids) + _ended_seconds(pids))
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _ended_seconds(pids: Iterable[int]) -> float:
    """Return the processor time of children that have ended before."""
    ticks = 0
    for pid in pids:
        text = Path(f"/proc/{pid}/stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        ticks += int(fields[13]) + int(fields[14])
    return ticks / _TICKS_PER_S


def tables(imports: Mapping[str, Sequence[Imported]], bare: Sequence[Imported], starts: Sequence[Started]) -> str:
    """Return both tables of a checkout: medians of the rounds, imports without the interpreter's own time."""
    interpreter = statistics.median(one.cpu_seconds for one in bare)
    lines = []
    for entry, rounds in imports.items():
        cpu_ms = 1000 * (statistics.median(one.cpu_seconds for one in rounds) - interpreter)
        lines.append((entry, str(len(rounds[0].modules)), str(rounds[0].own), f"{cpu_ms:.0f}"))
    text = markdown_table(("Process", "modules", "of RingMQ", "CPU ms"), lines)
    walls, cpus = [one.wall_seconds for one in starts], [one.cpu_seconds for one in starts]
    shown = [f"{statistics.median(walls):.2f}", f"{statistics.median(cpus):.2f}", f"{min(cpus):.2f} to {max(cpus):.2f}"]
    return text + "\n" + markdown_table(("Start", "wall s", "CPU s", "from, to"), [("`ringmq serve`", *shown)])


def _checkouts(old: Path | None) -> Iterator[tuple[str, dict[str, str]]]:
    if old is not None:
        yield f"{old}", {"PYTHONPATH": str(old)}
    yield "this checkout", {}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench and return the exit status."""
    parser = argparse.ArgumentParser(prog="make bench-starts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--old", type=Path, help="folder that holds the package `ringmq` of another checkout")
    parser.add_argument("--folder", type=Path, default=Path("build/starts"), help="for stores")
    options = parser.parse_args(argv)
    checkouts = dict(_checkouts(options.old))
    bare: dict[str, list[Imported]] = {name: [] for name in checkouts}
    starts: dict[str, list[Started]] = {name: [] for name in checkouts}
    imports: dict[str, dict[str, list[Imported]]] = {name: {entry: [] for entry in ENTRIES} for name in checkouts}
    for environment in checkouts.values():  # compiles the modules
        for statements in ENTRIES.values():
            imported(statements, environment)
    for _ in range(options.rounds):
        for name, environment in checkouts.items():
            bare[name].append(imported("pass", environment))
            starts[name].append(started(options.folder, environment))
            for entry, statements in ENTRIES.items():
                imports[name][entry].append(imported(statements, environment))
    for name in checkouts:
        print(f"\n{name}\n\n{tables(imports[name], bare[name], starts[name])}")
    return 0
