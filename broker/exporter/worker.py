"""Entry point of the metrics worker: `python -m ringmq.broker.exporter.worker metrics SPEC`.

It starts at the first connection and stays. It reads shared memory and the store, sends no requests, and has a higher
nice value than the workers whose CPU it shares.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import read_run_config
from ringmq.broker.exporter.collect import Collector
from ringmq.broker.exporter.http_counts import HttpPort
from ringmq.broker.exporter.server import ExporterServer, Pages
from ringmq.broker.health import Heartbeats, liveness, readiness
from ringmq.ipc.logs import configure_worker
from ringmq.ipc.plane import Plane
from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING, StopFlag, WorkerSpec, open_worker
from ringmq.remoting.networks import networks

NICENESS = 10
"""Nice value. With 5 the p99 of sends is higher, and a scrape is no faster, because the shared CPU is not full."""
LOOK_S = 0.25
"""Time between two checks of the other workers. It equals the period of their idle loops."""


def pages_of(plane: Plane, config: BrokerConfig, beats: Heartbeats, port: HttpPort) -> Pages:
    """The pages of this broker for the server."""
    collector = Collector(plane, config, beats, port)

    def health() -> tuple[bool, dict[str, Any]]:
        told = liveness(plane, beats, time.monotonic_ns() // 1_000_000)
        return bool(told["alive"]), told

    def ready() -> tuple[bool, dict[str, Any]]:
        told = readiness(plane, config)
        return told.ready, {"broker": config.broker_name, **asdict(told)}

    return Pages(lambda: collector.scrape().text, health, ready)


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> None:
    """Answer until SIGTERM."""
    os.nice(NICENESS)
    role = plane.role(spec.role)
    config = read_run_config(Path(spec.config_path))
    beats = Heartbeats()
    port = HttpPort(public_endpoints=json.loads(spec.extra.get("public_endpoints", "[]")))
    beats.observe(plane, time.monotonic_ns() // 1_000_000)
    pages = pages_of(plane, config, beats, port)
    listener = socket.socket(fileno=os.dup(spec.listen_fds[0]))
    server = ExporterServer(listener, pages, networks(config.http_allowed_networks), port.counts)
    stop.on_set = server.shutdown

    def look() -> None:
        role.progress += 1
        beats.observe(plane, time.monotonic_ns() // 1_000_000)

    role.state = STATE_SERVING
    if not stop.is_set:  # set before there was something to shut down
        server.serve_forever(LOOK_S, look)
    role.state = STATE_STOPPING


def main(arguments: list[str]) -> int:
    """Run the worker that the arguments describe. The process ends with this call."""
    spec = WorkerSpec.from_json(arguments[1])
    plane, stop = open_worker(spec)
    configure_worker(spec.name, plane.header.settings)
    serve(spec, plane, stop)
    sys.stdout.flush()
    os._exit(0)  # the thread of a scrape may be in the middle of a read


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
