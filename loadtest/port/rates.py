"""The row of `make bench-port` about a service that republishes a topic by itself, on a broker's default CPUs."""

import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.targets import COMMON_SETTINGS
from ringmq.loadtest.load.tools import Loader, Tools
from ringmq.loadtest.measuring.measurement import RATE, Measurement
from ringmq.loadtest.measuring.rounds import Row
from ringmq.loadtest.measuring.tables import Column
from ringmq.loadtest.port.worker import MODULE, TASK, WATCHED, Task

SOURCE, TARGET = "port_bench_source", "port_bench_target"
TIMEOUT_S = 60.0
SYNC = {"flushDiskType": "SYNC_FLUSH"}
ROW = Row("republished", "records that a service republishes", RATE, "records/s", ())
COLUMNS = (
    Column("Records/s", RATE),
    *(Column(f"{name}, us a record", f"{name}_us", "{:.2f}") for name in ("republish", *WATCHED)),
    Column("Worker's CPU", "worker_cpu", "{:.2f}"),
)


def measure(
    folder: Path, tools: Tools, *, records: int, body: int, seconds: float, sync: bool, profile: bool
) -> Measurement:
    """Run one round on a fresh broker."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    task = Task(SOURCE, TARGET, records, seconds, str(folder / "result.json"), profile)
    settings = {**COMMON_SETTINGS, **(SYNC if sync else {})}
    prefix, environment = [sys.executable, "-m", MODULE], {TASK: json.dumps(asdict(task))}
    with RunningBroker(folder / "store", settings, prefix=prefix, environment=environment) as broker:
        loader = Loader(tools, broker.port)
        loader.run("create", topic=TARGET, queues=1)
        loader.run("batch", topic=SOURCE, create=True, queues=1, size=body, connections=8, depth=2, messages=records)
        deadline = time.monotonic() + TIMEOUT_S + seconds
        while not Path(task.result).exists():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the worker has no result:\n{broker.log_tail()}")
            time.sleep(0.1)
        result = json.loads(Path(task.result).read_text())
        result["read"] = _read_back(loader, result["submitted"])
    shutil.rmtree(folder, ignore_errors=True)
    return measurement_of(result)


def measurement_of(result: Mapping[str, Any]) -> Measurement:
    """Return the rates of the worker's counts. Counts if no copy was refused and the target holds every copy."""
    refused = result["refused_copies"] + result["refused_requests"]
    is_whole = not refused and result["read"] == result["submitted"]
    note = "" if is_whole else f"{refused} refused, {result['read']} of {result['submitted']} in the target"
    values = {RATE: result["completed"] / result["seconds"]}
    values |= {f"{name}_us": used / result["completed"] * 1e6 for name, used in result["cpu_s"].items()}
    values["worker_cpu"] = result["cpu_s"]["republish"] / result["seconds"]
    return Measurement(values, is_whole, note, result)


def _read_back(loader: Loader, submitted: int) -> int:
    """Return the number of copies in the target. The last ones become visible some time after their submission."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        read = int(loader.run("verify", topic=TARGET)["read"])
        if read >= submitted or time.monotonic() > deadline:
            return read
