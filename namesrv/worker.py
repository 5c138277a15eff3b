"""The name server as a worker of `ringmq serve`: `python -m ringmq.namesrv.worker namesrv SPEC`.

The supervisor owns the listening socket, which outlives this process. After a restart the registrations come back:
brokers repeat them as soon as their connections end.
"""

import asyncio
import json
import os
import socket
import sys

from ringmq.ipc import namesrv_counters
from ringmq.ipc.collector import bound_collections
from ringmq.ipc.logs import configure, level_number
from ringmq.ipc.plane import Plane
from ringmq.ipc.worker import STATE_SERVING, StopFlag, WorkerSpec, open_worker
from ringmq.namesrv.config import NamesrvConfig
from ringmq.namesrv.server import NamesrvServer

BEAT_S = 0.25


async def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> None:
    """Serve until SIGTERM."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    stop.on_set = lambda: loop.call_soon_threadsafe(stopped.set)
    if stop.is_set:
        stopped.set()
    config = NamesrvConfig()
    config.update(json.loads(spec.extra.get("properties", "{}")))
    configure(spec.name, is_json=config.log_format == "json", level=lambda: level_number(config.log_level))
    server = NamesrvServer(config)
    bound_collections()
    await server.start(socket.socket(fileno=os.dup(spec.listen_fds[0])))
    role = plane.role(spec.role)
    role.state = STATE_SERVING

    def beat() -> None:
        role.progress += 1
        incidents = server.handlers.incidents
        role.counters[namesrv_counters.REFUSED] = incidents.refused
        role.counters[namesrv_counters.DISPUTES] = incidents.disputes
        role.counters[namesrv_counters.LEFT_OUT] = incidents.left_out
        loop.call_later(BEAT_S, beat)

    beat()
    await stopped.wait()
    stop.on_set = None  # a second signal must not reach a loop that is closed
    await server.close()


def main(arguments: list[str]) -> int:
    """Run the worker that the arguments describe."""
    spec = WorkerSpec.from_json(arguments[1])
    plane, stop = open_worker(spec)
    asyncio.run(serve(spec, plane, stop))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
