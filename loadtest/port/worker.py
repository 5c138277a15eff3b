"""The worker of `make bench-port`: a republisher with its own port, which a row of the worker table starts.

As a script it is a broker's command line with that row: `python worker.py PYTHON -m MODULE ...`.
"""

import cProfile
import json
import os
import pstats
import runpy
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from ringmq.loadtest.load.process_stats import cpu_seconds

TASK = "RINGMQ_PORT_BENCH"
"""Name of the variable with the task, as JSON."""
MODULE = "ringmq.loadtest.port.worker"
WAIT_MS = 2
PASSES_MAX = 40
"""The most passes over the source. Each is a lane of its own, because its offsets begin again."""
NAME, ROLE = "republish", 24
WATCHED = ("write", "flush", "dispatch")


@dataclass(frozen=True, slots=True)
class Task:
    """A task: republish `source` as `target`, once it has so many records, for so long.

    The result goes into a file. With `gate` the work continues only while the file of this name exists.
    """

    source: str
    target: str
    records: int
    seconds: float
    result: str
    profile: bool = False
    gate: str = ""


def _from_the_start(reader: Any, lane: int) -> Generator[None, None, int]:
    """Begin at the start: the plane is new with each run."""
    yield from ()
    return 0


def serve(spec: Any, plane: Any, stop: Any) -> int:
    """Carry out the task, then wait for SIGTERM."""
    from ringmq.ipc.exit_status import EXIT_CLEAN
    from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING
    from ringmq.services.republisher import Republisher, find_target

    role, task = plane.role(spec.role), Task(**json.loads(os.environ[TASK]))
    result = Path(task.result)
    role.state = STATE_SERVING
    while not stop.is_set:
        role.progress += 1
        source, target = find_target(plane, task.source), find_target(plane, task.target)
        is_over = bool(task.result) and result.exists()
        if source and target and not is_over and plane.queue(source.queue_slot).max_offset >= task.records:
            republisher = Republisher(
                plane, spec.role, _from_the_start, lambda text: print(text, flush=True), lanes=PASSES_MAX
            )
            if task.gate:
                _serve_gate(spec.role, plane, republisher, task, source.queue_slot, target, stop)
                break
            part = result.with_suffix(".part")
            part.write_text(json.dumps(_measure(spec.role, plane, republisher, task, source.queue_slot, target)))
            part.rename(result)
            while not stop.is_set:  # a slow disk answers the last requests later, and write waits for room
                role.progress += 1
                republisher.collect()
                republisher.wait(WAIT_MS)
        plane.wait(spec.role, 50)
    role.state = STATE_STOPPING
    return EXIT_CLEAN


class Passes:
    """A source that is republished repeatedly. Each pass is a lane, as its offsets begin again."""

    def __init__(self, republisher: Any, source: int, target: Any, records: int) -> None:
        self._republisher, self._source, self._target, self._records = republisher, source, target, records
        self._lane = 0

    def turn(self) -> bool:
        """Publish a batch. False if there was nothing to do."""
        republisher, lane = self._republisher, self._lane
        if republisher.collect() and republisher.publish(republisher.read(self._source, lane), self._target, lane):
            return True
        if republisher.next_offset(lane) >= self._records and lane + 1 < PASSES_MAX:
            self._lane += 1  # the source is in memory
            return True
        return False


def completed(words: Any) -> int:
    """Return the records whose copies are stored, from the words of the worker's role block."""
    from ringmq.ipc.republish_words import PROGRESS

    return sum(max(0, int(word) - 1) for word in words[PROGRESS : PROGRESS + PASSES_MAX])


def _serve_gate(
    number: int, plane: Any, republisher: Any, task: Task, source: int, target: Any, stop: Any
) -> None:  # fmt: skip
    role, passes, gate = plane.role(number), Passes(republisher, source, target, task.records), Path(task.gate)
    while not stop.is_set:
        role.progress += 1
        if not gate.exists():
            republisher.collect()
            republisher.wait(20)
        elif not passes.turn():
            republisher.wait(WAIT_MS)


def _measure(number: int, plane: Any, republisher: Any, task: Task, source: int, target: Any) -> dict[str, Any]:
    from ringmq.ipc.republish_words import REFUSED, SKIPPED, SUBMITTED
    from ringmq.ipc.workers import WORKERS

    role, waits, passes = plane.role(number), 0, Passes(republisher, source, target, task.records)
    pids = {name: int(plane.role(WORKERS.row(name).role).pid) for name in WATCHED}
    used = {name: cpu_seconds([pid]) for name, pid in pids.items()}
    profile = cProfile.Profile()
    if task.profile:
        profile.enable()
    began, own = time.monotonic(), time.process_time()
    while time.monotonic() - began < task.seconds:
        role.progress += 1
        if passes.turn():
            continue
        waits += 1
        republisher.wait(WAIT_MS)
    seconds, own = time.monotonic() - began, time.process_time() - own
    profile.disable()
    text = StringIO()
    if task.profile:
        pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(12)
    cpu = {"republish": own, **{name: cpu_seconds([pid]) - used[name] for name, pid in pids.items()}}
    words = {"submitted": SUBMITTED, "refused_copies": SKIPPED, "refused_requests": REFUSED}
    counts = {name: int(republisher.words[word]) for name, word in words.items()}
    counts["completed"] = completed(republisher.words)
    return {**counts, "seconds": seconds, "cpu_s": cpu, "waits": waits, "profile": text.getvalue()}


def run_broker(arguments: list[str]) -> None:
    """Register the row, then run the command behind it in this process."""
    from ringmq.ipc.ports import PortRow
    from ringmq.ipc.workers import WORKERS, CpuClass, StopPhase, WorkerRow
    from ringmq.native import lib

    port = PortRow("ringmq.services.arenas:republisher_bytes", lib.RMQ_PORT_ORDERED, weight=1)
    WORKERS.add(WorkerRow(NAME, ROLE, MODULE, StopPhase.CONTROL, CpuClass.SERVICE, is_optional=True, port=port))
    module = arguments.index("-m") + 1
    sys.argv = arguments[module:]
    runpy.run_module(arguments[module], run_name="__main__")


def main(arguments: list[str]) -> int:
    """Run as a worker, or as a broker's command line."""
    if "-m" in arguments:
        run_broker(arguments)
        return 0
    from ringmq.ipc.role_loop import run_worker

    return run_worker(arguments, serve)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
