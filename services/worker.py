"""Entry point of the worker `services`: `python -m ringmq.services.worker NAME SPEC`."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from ringmq.broker.config.run_config import store_config
from ringmq.broker.requests.request import Outbox
from ringmq.ipc.asks import Asker, Inbox
from ringmq.ipc.collector import bound_collections
from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_RESTED
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import STATE_STOPPING, StopFlag, WorkerSpec
from ringmq.native import lib
from ringmq.services.appends import Appends, slots_bytes
from ringmq.services.config_watcher import ConfigWatcher
from ringmq.services.control_asks import ControlAsks
from ringmq.services.log_view import LogView
from ringmq.services.loop import ServiceLoop
from ringmq.services.send_back.copies import Copies
from ringmq.services.send_back.gone_messages import GoneMessages
from ringmq.services.send_back.service import SendBackService
from ringmq.services.shared_port import SharedPort
from ringmq.services.staged.events import Effect
from ringmq.services.staged.writes import StagedWrites
from ringmq.services.topics import Topics
from ringmq.store.message_store import MessageStore
from ringmq.store.record_copy import CopyLimits

REST_AFTER_MS = 30_000
"""Time without work after which the worker ends. Its next start takes some 0.2 s."""


def log(text: str) -> None:
    """Write a log line."""
    print(f"ringmq: services: {text}", file=sys.stderr, flush=True)


def now_ms() -> int:
    """The monotonic clock of all deadlines of the worker. A wall clock that is set back would delay them all."""
    return time.monotonic_ns() // 1_000_000


def make_loop(spec: WorkerSpec, plane: Plane) -> tuple[ServiceLoop, Inbox, Appends[Effect]]:
    """The loop with all services, the worker's inbox, and its port. A new service is constructed here."""
    config = ConfigWatcher(Path(spec.config_path))
    port = plane.port_of(spec.role)
    plane.map_arena(port)
    log_view = LogView(plane, MessageStore(store_config(config())))
    outbox, inbox = Outbox(), Inbox(plane, spec.role)
    topic_creator = ControlAsks(Asker(plane, spec.role, lib.RMQ_ROLE_CONTROL))
    shared_port, slots = SharedPort(plane, port), slots_bytes(config())
    appends: Appends[Effect] = Appends(plane, shared_port, slots)
    topics = Topics(plane)
    staged = StagedWrites(
        plane=plane,
        log=log_view,
        topics=topics,
        config=config,
        appends=appends,
        topic_creator=topic_creator,
        outbox=outbox,
        tell=log,
    )
    send_back = SendBackService(
        log=log_view,
        topics=topics,
        rules=plane.admission_rules,
        config=config,
        copies=Copies(shared_port, slots, CopyLimits(int(plane.header.settings.message_bytes_max))),
        control=topic_creator,
        outbox=outbox,
        random=random.randrange,
        on_gone=GoneMessages(plane.role(spec.role).counters, now_ms, log).add,
    )
    loop = ServiceLoop(
        plane,
        spec.role,
        inbox,
        [staged, send_back],
        topic_creator,
        outbox,
        config,
        log_view,
        log,
        rest_after_ms=REST_AFTER_MS,
    )
    return loop, inbox, appends


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Run until SIGTERM, or until there has been no work for a while."""
    role, rests = plane.role(spec.role), False
    loop, inbox, appends = make_loop(spec, plane)
    bound_collections()
    inbox.begin()
    while not stop.is_set:
        if loop.turn(now_ms()):
            continue
        if rests := loop.may_rest(now_ms()):
            appends.rest()
            break
        loop.park(now_ms())
    # Askers may give up asks to a worker that does not serve (native/src/asks.h), so its state is serving to its end.
    loop.close(now_ms(), takes_more=not rests)
    role.state = STATE_STOPPING
    return EXIT_RESTED if rests else EXIT_CLEAN


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
