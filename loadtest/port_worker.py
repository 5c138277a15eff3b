"""The worker of `make bench-port`: a republisher with a port of its own, which a row of the worker table starts.

As a script it is a broker's command line with that row: `python port_worker.py PYTHON -m MODULE ...`.
"""

import cProfile
import json
import os
import pstats
import runpy
import sys
import time
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from ringmq.loadtest.process_stats import cpu_seconds
from ringmq.loadtest.republisher import Place, Republisher

ORDER = "RINGMQ_PORT_BENCH"
"""Names the variable with the order, as JSON."""
MODULE = "ringmq.loadtest.port_worker"
ARENA_BYTES = 16 << 20
WAIT_MS = 2
NAME, ROLE = "republish", 24
WATCHED = ("write", "flush", "dispatch")


@dataclass(frozen=True, slots=True)
class Order:
    """Republish `source` as `target` for so long, once it has so many records. The result goes into a file."""

    source: str
    target: str
    records: int
    seconds: float
    result: str
    profile: bool = False


def arena_bytes(config: Any) -> int:
    """What the row names as the size of its port's arena."""
    return ARENA_BYTES


def serve(spec: Any, plane: Any, stop: Any) -> int:
    """Carry the order out, then wait for SIGTERM."""
    from ringmq.ipc.exit_status import EXIT_CLEAN
    from ringmq.ipc.ports import Port
    from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING

    role, order = plane.role(spec.role), Order(**json.loads(os.environ[ORDER]))
    result = Path(order.result)
    role.state = STATE_SERVING
    while not stop.is_set:
        role.progress += 1
        source, target = _queue(plane, order.source), _queue(plane, order.target)
        if source and target and not result.exists() and plane.queue(source[1]).max_offset >= order.records:
            port = Port(plane, plane.port_of(spec.role))
            plane.map_arena(port.number)
            port.claim()
            republisher = Republisher(plane.struct, port, source[1], Place(*target, 0))
            part = result.with_suffix(".part")
            part.write_text(json.dumps(_measure(spec.role, plane, republisher, order, port)))
            part.rename(result)
        plane.wait(spec.role, 50)
    role.state = STATE_STOPPING
    return EXIT_CLEAN


def _queue(plane: Any, topic: str) -> tuple[int, int] | None:
    topic_id = plane.topic_find(topic)
    slot = None if topic_id is None else plane.queue_find(topic_id, 0)
    return None if topic_id is None or slot is None else (topic_id, slot)


def _measure(number: int, plane: Any, republisher: Republisher, order: Order, port: Any) -> dict[str, Any]:
    from ringmq.ipc.workers import WORKERS

    role, counts, waits = plane.role(number), republisher.counts, 0
    pids = {name: int(plane.role(WORKERS.row(name).role).pid) for name in WATCHED}
    used = {name: cpu_seconds([pid]) for name, pid in pids.items()}
    profile = cProfile.Profile()
    if order.profile:
        profile.enable()
    began, own = time.monotonic(), time.process_time()
    while time.monotonic() - began < order.seconds:
        role.progress += 1
        if republisher.step():
            continue
        if republisher.offset >= order.records:
            republisher.offset = 0  # once more: the source is in memory
            continue
        waits += 1
        plane.arm(number)
        if port.has_answers:
            plane.disarm(number)
        else:
            plane.wait(number, WAIT_MS)
    seconds, own = time.monotonic() - began, time.process_time() - own
    profile.disable()
    text = StringIO()
    if order.profile:
        pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(12)
    cpu = {"republish": own, **{name: cpu_seconds([pid]) - used[name] for name, pid in pids.items()}}
    return {**asdict(counts), "seconds": seconds, "cpu_s": cpu, "waits": waits, "profile": text.getvalue()}


def run_broker(arguments: list[str]) -> None:
    """Register the row, then run the command behind it in this process."""
    from ringmq.ipc.ports import PortRow
    from ringmq.ipc.workers import WORKERS, CpuClass, StopPhase, WorkerRow
    from ringmq.native import lib

    port = PortRow(f"{MODULE}:arena_bytes", lib.RMQ_PORT_ORDERED, weight=1)
    WORKERS.add(WorkerRow(NAME, ROLE, MODULE, StopPhase.CONTROL, CpuClass.SERVICE, is_optional=True, port=port))
    module = arguments.index("-m") + 1
    sys.argv = arguments[module:]
    runpy.run_module(arguments[module], run_name="__main__")


def main(arguments: list[str]) -> int:
    """As a worker, or as a broker's command line."""
    if "-m" in arguments:
        run_broker(arguments)
        return 0
    from ringmq.ipc.role_loop import run_worker

    return run_worker(arguments, serve)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
