"""`make bench-port`: small records a second that a service republishes through its port, on a broker's default CPUs.

A topic is filled. Then a worker of the table (`port/worker.py`) republishes it for some seconds, again from the
beginning after its end. A round counts if no copy was refused and the target holds every copy.
"""

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ringmq.loadtest.bench.markdown import markdown_table
from ringmq.loadtest.load.beforehand import prepare_results
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.targets import COMMON_SETTINGS
from ringmq.loadtest.load.tools import Loader, Tools, build_tools
from ringmq.loadtest.port import pressure as port_pressure
from ringmq.loadtest.port.worker import MODULE, TASK, Task

SOURCE, TARGET = "port_bench_source", "port_bench_target"
TIMEOUT_S = 60.0
SYNC = {"flushDiskType": "SYNC_FLUSH"}


def measure(folder: Path, tools: Tools, *, records: int, body: int, seconds: float, sync: bool, profile: bool) -> Any:
    """Run one round on a fresh broker. Return the worker's counts, and `read`, the content of the target."""
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
    return result


def _read_back(loader: Loader, submitted: int) -> int:
    """Return the number of copies in the target. The last ones become visible some time after their submission."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        read = int(loader.run("verify", topic=TARGET)["read"])
        if read >= submitted or time.monotonic() > deadline:
            return read


def is_whole(result: Any) -> bool:
    """True if no copy was refused and the target holds every copy."""
    return not (result["refused_copies"] or result["refused_requests"]) and result["read"] == result["submitted"]


def table(results: Sequence[Any]) -> str:
    """Return a line per round, then the median of their rates and its spread."""
    lines, rates = [], []
    for number, result in enumerate(results, 1):
        rates.append(result["completed"] / result["seconds"])
        cpu = [f"{used / result['completed'] * 1e6:.2f}" for used in result["cpu_s"].values()]
        busy = f"{result['cpu_s']['republish'] / result['seconds']:.2f}"
        lines.append([str(number), f"{rates[-1]:,.0f}", *cpu, busy, "yes" if is_whole(result) else "NO"])
    names = [f"{name}, us a record" for name in results[0]["cpu_s"]]
    text = markdown_table(["Round", "Records/s", *names, "Worker's CPU", "Whole"], lines)
    return f"{text}\nmedian {statistics.median(rates):,.0f}/s, from {min(rates):,.0f} to {max(rates):,.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return exit status 1 if a round does not count."""
    parser = argparse.ArgumentParser(prog="python -m ringmq.loadtest.port", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--records", type=int, default=500_000, help="of the source")
    parser.add_argument("--body", type=int, default=100, help="bytes")
    parser.add_argument("--sync", action="store_true", help="SYNC_FLUSH")
    parser.add_argument("--profile", action="store_true", help="where the worker's time goes; it is slower meanwhile")
    parser.add_argument("--folder", type=Path, default=Path("build/port"))
    parser.add_argument("--pressure-rounds", type=int, default=5, help="of the second table: beside clients")
    parser.add_argument("--pressure-seconds", type=float, default=5.0)
    parser.add_argument("--pressure-records", type=int, default=port_pressure.RECORDS)
    chosen = parser.parse_args(arguments)
    prepare_results(chosen.folder, needed_bytes=chosen.records * chosen.body if chosen.rounds else 0)
    tools = build_tools()
    good = [run(chosen, tools) for run in (run_rates, run_pressure)]
    return 0 if all(good) else 1


def run_pressure(chosen: argparse.Namespace, tools: Tools) -> bool:
    """Print the second table. False if a round does not count."""
    rounds = []
    for number in range(chosen.pressure_rounds):
        rounds.append(
            port_pressure.measure_round(
                chosen.folder.resolve(), tools, seconds=chosen.pressure_seconds, records=chosen.pressure_records,
                service_first=number % 2 == 1, sync=chosen.sync,
            )
        )  # fmt: skip
        done = rounds[-1]
        print(
            f"round {number + 1} of {chosen.pressure_rounds}: clients {done.alone.rate:,.0f}/s, beside the service "
            f"{done.beside.rate:,.0f}/s, service {done.service_rate:,.0f}/s", flush=True,
        )  # fmt: skip
    if rounds:
        print(port_pressure.pressure_table(rounds))
    return all(done.ok for done in rounds)


def run_rates(chosen: argparse.Namespace, tools: Tools) -> bool:
    """Print the first table. False if a round does not count."""
    results: list[Any] = []
    for _ in range(chosen.rounds):
        results.append(
            measure(
                chosen.folder.resolve(), tools, records=chosen.records, body=chosen.body, seconds=chosen.seconds,
                sync=chosen.sync, profile=chosen.profile,
            )
        )  # fmt: skip
        print(results[-1]["profile"], end="")
    if results:
        print(table(results))
    return all(map(is_whole, results))
