"""The rows of `make bench-starts`: what each process imports, and a start of `ringmq serve`."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ringmq.loadtest.load.process_stats import busy_seconds, family
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.measuring.measurement import Measurement
from ringmq.loadtest.measuring.rounds import Row

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
    "`pop`": "import ringmq.pop.worker",
    "`metrics`": "import ringmq.broker.exporter.worker",
}
"""Process -> the statements that load what it needs to serve."""
SETTINGS = {"mappedFileSizeCommitLog": 64 << 20}
_COUNT = "; import sys; print(*sys.modules, file=sys.stderr)"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
START = Row("`ringmq serve`", "from exec to the line `ready`, all processes", "cpu_s", "s", ())


def imported(statements: str, environment: Mapping[str, str], bare_ms: float = 0.0) -> Measurement:
    """Run the statements in a new interpreter, and return the processor time of the process above `bare_ms`.

    Raises RuntimeError with its output if it fails.
    """
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
    modules = text.split()
    own = sum(name.partition(".")[0] == "ringmq" for name in modules)
    cpu_ms = 1000 * (used.ru_utime + used.ru_stime) - bare_ms
    return Measurement({"modules": len(modules), "own": own, "cpu_ms": cpu_ms}, raw={"modules": modules})


def started(folder: Path, environment: Mapping[str, str]) -> Measurement:
    """Start a broker with an empty store."""
    shutil.rmtree(folder, ignore_errors=True)
    with RunningBroker(folder / "store", SETTINGS, environment=environment) as broker:
        pids = family(broker.process.pid)
        cpu_s = busy_seconds(pids) + _ended_seconds(pids)
    shutil.rmtree(folder, ignore_errors=True)
    return Measurement({"wall_s": broker.start_seconds, "cpu_s": cpu_s})


def _ended_seconds(pids: Iterable[int]) -> float:
    """Return the processor time of children that have ended before."""
    ticks = 0
    for pid in pids:
        text = Path(f"/proc/{pid}/stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        ticks += int(fields[13]) + int(fields[14])
    return ticks / _TICKS_PER_S
