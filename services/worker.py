"""Entry point of the worker `services`: `python -m ringmq.services.worker NAME SPEC`."""

from __future__ import annotations

import logging
import random
import sys
import time
from pathlib import Path

from ringmq.broker.config.run_config import store_config
from ringmq.broker.requests.reply_queue import ReplyQueues
from ringmq.broker.requests.request import Outbox
from ringmq.ipc.asks import Asker, Inbox
from ringmq.ipc.collector import bound_collections
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import StopFlag, WorkerSpec
from ringmq.native import lib
from ringmq.services.appends import RECALL_SLOTS, RECALLS_BYTES, Appends, copies_bytes, slots_bytes
from ringmq.services.config_watcher import ConfigWatcher
from ringmq.services.control_asks import ControlAsks
from ringmq.services.log_view import LogView
from ringmq.services.loop import ServiceLoop
from ringmq.services.recalls import Recall, RecallService
from ringmq.services.send_back.batches import SendBackBatches
from ringmq.services.send_back.copies import Copies
from ringmq.services.send_back.gone_messages import GoneMessages
from ringmq.services.send_back.service import HIDDEN_TOPICS, SendBackService
from ringmq.services.shared_port import SharedPort
from ringmq.services.staged.events import Effect
from ringmq.services.staged.writes import StagedWrites
from ringmq.services.topics import Topics
from ringmq.store.message_store import MessageStore
from ringmq.store.record_copy import CopyLimits

log = logging.getLogger(__name__)

REST_AFTER_MS = 30_000
"""Time without work after which the worker ends, unless control holds it for consumers that may send messages back.
Its next start takes some 0.1 s."""


def now_ms() -> int:
    """The monotonic clock of all deadlines of the worker. A wall clock that is set back would delay them all."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """The wall clock, by which timer messages are due."""
    return time.time_ns() // 1_000_000


def make_loop(spec: WorkerSpec, plane: Plane) -> tuple[ServiceLoop, Appends[Effect]]:
    """The loop with all services, and the worker's port. A new service is constructed here."""
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
        tell=log.warning,
        wall_ms=wall_ms,
    )
    single_copies_at = slots + RECALLS_BYTES
    copies_at = single_copies_at + copies_bytes(config())
    limits = CopyLimits(int(plane.header.settings.message_bytes_max))
    send_back = SendBackService(
        log=log_view,
        topics=topics,
        rules=plane.admission_rules,
        config=config,
        copies=Copies(shared_port, (single_copies_at, copies_at), limits),
        control=topic_creator,
        outbox=outbox,
        random=random.randrange,
        on_gone=GoneMessages(plane.role(spec.role).counters, now_ms, log.warning).add,
    )
    replies = ReplyQueues(plane.readers, inbox)
    batches = SendBackBatches(
        plane, spec.role, inbox, shared_port, (copies_at, len(shared_port.arena)), limits, HIDDEN_TOPICS, replies,
        send_back, lambda: config().slow_request_ms,
    )  # fmt: skip
    recalls: Appends[Recall] = Appends(plane, shared_port, RECALLS_BYTES, first_byte=slots, slots=RECALL_SLOTS)
    recall = RecallService(
        topics=topics,
        rules=plane.admission_rules,
        config=config,
        appends=recalls,
        outbox=outbox,
        wall_ms=wall_ms,
    )
    loop = ServiceLoop(
        plane,
        spec.role,
        inbox,
        [batches, staged, send_back, recall],
        topic_creator,
        outbox,
        config,
        log_view,
        log.warning,
        rest_after_ms=REST_AFTER_MS,
        replies=replies,
        plain=batches,
    )
    return loop, appends


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Run until SIGTERM, or until there has been no work for a while."""
    loop, appends = make_loop(spec, plane)
    bound_collections()
    return loop.run(stop, now_ms, appends.rest)


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
