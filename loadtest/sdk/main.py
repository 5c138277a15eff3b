"""`make bench-sdk`: RingMQ's SDK beside the 4.x client `rocketmq` 0.4.4 of PyPI, one process each, one broker."""

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ringmq.loadtest.bench.measurement import PEER, RINGMQ, Goal, Measurement, summarize
from ringmq.loadtest.bench.report import Document, goal_documents, goal_text, machine, number_text, summary_document
from ringmq.loadtest.bench.sdk import BATCH
from ringmq.loadtest.load.beforehand import prepare_results
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.sigterm import ended_by_sigterm
from ringmq.loadtest.load.targets import COMMON_SETTINGS
from ringmq.loadtest.load.tools import Loader, Report, ToolError, build_tools, run_json
from ringmq.loadtest.stock.java import cache_dir

FORMAT = 1
PEER_REQUIREMENT = "rocketmq==0.4.4"
PROGRAM = Path(__file__).with_name("rocketmq_client_bench.py")
RATE = "messages_per_s"
CONSUMED_MAX = 512_000
QUICK_CONSUMED_MAX = 20_000
Results = dict[str, dict[str, list[Measurement]]]  # row -> system -> runs


@dataclass(frozen=True)
class SdkRow:
    """A mode of `bench/sdk.py` and of `rocketmq_client_bench.py`."""

    name: str
    title: str
    at_least: float  # times the peer
    consumes: bool = False

    @property
    def goals(self) -> tuple[Goal, ...]:
        """The goal, one ratio."""
        return (Goal(RATE, "peer", at_least=self.at_least),)


ROWS = (
    SdkRow("batch", "batches of 20, 16 in flight", 3),
    SdkRow("pipelined", "256 in flight", 3),
    SdkRow("one", "one at a time, blocking", 1),
    SdkRow("consume", "consume from the first message on", 3, consumes=True),
)


@dataclass
class SdkBench:
    """One broker, and both clients against it in turn."""

    folder: Path
    broker: RunningBroker
    loader: Loader
    peer_python: Path
    seconds: float
    consumed_max: int
    say: Callable[[str], None]
    results: Results = field(default_factory=dict)
    topics: int = 0

    def run(self, rows: Sequence[SdkRow], rounds: int) -> Results:
        """Run rounds of all rows. The order of the clients changes from round to round."""
        for number in range(rounds):
            self.say(f"round {number + 1} of {rounds}")
            for row in rows:
                systems = (RINGMQ, PEER) if number % 2 == 0 else (PEER, RINGMQ)
                measured = self._consume(row, systems) if row.consumes else self._send(row, systems)
                for system, measurement in measured.items():
                    self.results.setdefault(row.name, {}).setdefault(system, []).append(measurement)
                    value = measurement.values.get(RATE, 0.0)
                    self.say(f"  {system:8} {row.name:12} {value:>14,.0f} msg/s  {measurement.note}")
        return self.results

    def _send(self, row: SdkRow, systems: Sequence[str]) -> dict[str, Measurement]:
        return {system: self._send_once(row, system) for system in systems}

    def _send_once(self, row: SdkRow, system: str) -> Measurement:
        topic = self._topic(row)
        self.loader.run("create", topic=topic)
        try:
            report = self._client(system, row, topic, 0)
        except ToolError as error:
            return _failed(error)
        back = self.loader.run("verify", topic=topic)
        sent = int(report["all_messages"])
        # RocketMQ 5.3.3, too, takes this client's batch for one message whose body is the batch
        stored = sent // BATCH if system == PEER and row.name == "batch" else sent
        same = back["read"] == stored and back["read_crc_sum"] == report.get("crc_sum", back["read_crc_sum"])
        note = "" if same else f"{stored} acknowledged, {back['read']} read back"
        if same and stored != sent:
            note = "each batch is stored as one message, as by stock"
        if report.get("failed"):
            note = f"{report['failed']} failed; {note}"
        return Measurement({RATE: float(report[RATE])}, ok=bool(back["ok"]) and same, note=note, raw=report)

    def _consume(self, row: SdkRow, systems: Sequence[str]) -> dict[str, Measurement]:
        """Run both clients on the same topic, which is in the page cache."""
        topic = self._topic(row)
        shape = {"size": 1024, "connections": 8, "depth": 2, "messages": self.consumed_max}
        filled = self.loader.run("batch", topic=topic, create=True, check=True, read_back=True, **shape)
        there = int(filled["check"]["acked"])
        measured = {}
        for system in systems:
            try:
                report = self._client(system, row, topic, there)
            except ToolError as error:
                measured[system] = _failed(error)
                continue
            whole = report["bytes"] == 1024 * report["messages"] > 0
            note = "" if whole else f"{report['messages']} messages of {there} with {report['bytes']} bytes"
            measured[system] = Measurement({RATE: float(report[RATE])}, ok=whole, note=note, raw=report)
        return measured

    def _client(self, system: str, row: SdkRow, topic: str, messages: int) -> Report:
        words = [sys.executable, "-m", "ringmq.loadtest.bench.sdk"]
        if system == PEER:
            # its library writes logs under $HOME
            words = ["env", f"HOME={self.folder}", str(self.peer_python), str(PROGRAM)]
        words += ["--namesrv", self.broker.namesrv, "--topic", topic, "--mode", row.name]
        words += ["--seconds", str(self.seconds), "--messages", str(messages)]
        return run_json(words, timeout_s=60 + 4 * self.seconds)

    def _topic(self, row: SdkRow) -> str:
        self.topics += 1
        return f"sdk_{row.name}_{self.topics}"


def _failed(error: ToolError) -> Measurement:
    return Measurement({}, ok=False, note=str(error)[:300])


def peer_python() -> Path:
    """Return the Python of an environment with the peer's package, made once into the cache. Raises `ToolError`."""
    folder = cache_dir() / PEER_REQUIREMENT.replace("==", "-")
    python, ready = folder / "bin" / "python", folder / ".ready"
    with (cache_dir() / "peer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", PEER_REQUIREMENT]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if done.returncode != 0:
                raise ToolError(f"{PEER_REQUIREMENT} could not be installed into {folder}:\n{done.stderr[-1000:]}")
            ready.touch()
    return python


def document(rows: Sequence[SdkRow], results: Results, folder: Path, header: Mapping[str, object]) -> Document:
    """Return all measured values, with the circumstances, as plain JSON values."""
    return {
        "format": FORMAT,
        "header": {**machine(folder), "peer": PEER_REQUIREMENT, **header},
        "rows": [_row_document(row, results.get(row.name, {})) for row in rows],
    }


def _row_document(row: SdkRow, runs: Mapping[str, Sequence[Measurement]]) -> Document:
    summaries = {system: summarize(measured) for system, measured in runs.items()}
    return {
        "name": row.name,
        "title": row.title,
        "systems": {system: summary_document(summary, runs[system]) for system, summary in summaries.items()},
        "goals": goal_documents(row.goals, summaries),
    }


def print_table(report: Document) -> None:
    """Print medians with half of the spread, the ratio against its goal, then the runs that did not count."""
    header = report["header"]
    print(f"{header['processor']}, {header['cpus']} CPUs, Linux {header['kernel']}, {header['file_system']}")
    print(f"one process per client, 1 KiB, {header['rounds']} interleaved round(s) of {header['seconds']} s,")
    print("ASYNC_FLUSH; messages/s, median +- half of the spread\n")
    print(f"{'row':<36}{'ringmq':>20}{PEER_REQUIREMENT:>20}   ratio")
    notes = []
    for row in report["rows"]:
        cells = "".join(f"{_cell(row, system):>20}" for system in (RINGMQ, PEER))
        print(f"{row['title']:<36}{cells}   " + ", ".join(goal_text(goal, 1) for goal in row["goals"]))
        for system, measured in row["systems"].items():
            notes += [f"{row['name']}, {system}: {note}" for note in measured["notes"]]
    if notes:
        print("\nnotes\n  " + "\n  ".join(notes))


def _cell(row: Document, system: str) -> str:
    measured = row["systems"].get(system, {})
    value = measured.get("median", {}).get(RATE)
    return "-" if value is None else f"{number_text(value)} +- {number_text(measured['spread'][RATE] / 2)}"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line of `python -m ringmq.loadtest.sdk`."""
    parser = argparse.ArgumentParser(prog="sdk_compare", description=__doc__)
    names = [row.name for row in ROWS]
    parser.add_argument("--rows", default=",".join(names), help="names, comma separated (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/bench-sdk"), help="store, results (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    options = parser.parse_args(arguments)
    wanted = [name for name in options.rows.split(",") if name]
    if set(wanted) - set(names):
        parser.error(f"--rows: {', '.join(sorted(set(wanted) - set(names)))} unknown; there are {', '.join(names)}")
    options.row_list = [row for row in ROWS if row.name in wanted]
    if options.quick:
        options.rounds, options.seconds = 1, 0.5
    return options


@ended_by_sigterm()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table, write `bench.json`. Return 1 if a row of RingMQ has no run that counts."""
    options = parse(arguments)
    folder: Path = options.folder.resolve()
    consumed_max = QUICK_CONSUMED_MAX if options.quick else CONSUMED_MAX
    is_consuming = any(row.consumes for row in options.row_list)
    prepare_results(folder, "bench.json", needed_bytes=consumed_max * 1024 if is_consuming else 0)
    python = peer_python()
    store = folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    try:
        with RunningBroker(store, dict(COMMON_SETTINGS)) as broker:
            bench = SdkBench(
                folder=folder,
                broker=broker,
                loader=Loader(build_tools(), broker.port),
                peer_python=python,
                seconds=options.seconds,
                consumed_max=consumed_max,
                say=lambda text: print(text, file=sys.stderr, flush=True),
            )
            results = bench.run(options.row_list, options.rounds)
    finally:
        shutil.rmtree(store, ignore_errors=True)
    circumstances = {"rounds": options.rounds, "seconds": options.seconds, "loadavg_after": os.getloadavg()}
    report = document(options.row_list, results, folder, circumstances)
    (folder / "bench.json").write_text(json.dumps(report, indent=1) + "\n")
    print_table(report)
    print(f"\nwritten: {folder / 'bench.json'}")
    return 1 if any(not row["systems"][RINGMQ]["counted"] for row in report["rows"]) else 0
