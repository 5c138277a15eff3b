"""Entry point of the worker `services`: `python -m ringmq.services.worker NAME SPEC`."""

from __future__ import annotations

import logging
import random
import sys
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
from ringmq.services.answering import Answering
from ringmq.services.appends import Appends
from ringmq.services.arenas import APPEND_SLOTS, RECALL_SLOTS, RECALLS_BYTES, appends_bytes
from ringmq.services.config_watcher import ConfigWatcher
from ringmq.services.control_asks import ControlAsks
from ringmq.services.kit.clocks import wall_ms
from ringmq.services.kit.loop import ServiceLoop
from ringmq.services.kit.shared_port import SharedPort
from ringmq.services.log_view import LogView
from ringmq.services.recalls import Recall, RecallService
from ringmq.services.send_back.batches import CopyBatches
from ringmq.services.send_back.gone_messages import GoneMessages
from ringmq.services.send_back.rows import Rows
from ringmq.services.send_back.service import HIDDEN_TOPICS, SendBackService
from ringmq.services.send_back.targets import Targets
from ringmq.services.staged.events import Effect
from ringmq.services.staged.writes import StagedWrites
from ringmq.services.topics import Topics
from ringmq.store.message_store import MessageStore
from ringmq.store.record_copy import CopyLimits

log = logging.getLogger(__name__)

REST_AFTER_MS = 30_000
"""Time without work after which the worker ends, unless control holds it for consumers that may send messages back.
Its next start takes some 0.1 s."""


def make_loop(spec: WorkerSpec, plane: Plane) -> ServiceLoop:
    """The loop with all services. A new service is constructed here."""
    config = ConfigWatcher(Path(spec.config_path))
    port = plane.port_of(spec.role)
    plane.map_arena(port)
    log_view = LogView(plane, MessageStore(store_config(config())))
    outbox, inbox = Outbox(), Inbox(plane, spec.role)
    topic_creator = ControlAsks(Asker(plane, spec.role, lib.RMQ_ROLE_CONTROL))
    shared_port, slots = SharedPort(plane, port), appends_bytes(config())
    appends: Appends[Effect] = Appends(plane, shared_port, slots, APPEND_SLOTS)
    topics = Topics(plane)
    staged = StagedWrites(
        plane=plane,
        log=log_view,
        topics=topics,
        config=config,
        appends=appends,
        topic_creator=topic_creator,
        outbox=outbox,
        log_line=log.warning,
        wall_ms=wall_ms,
    )
    copies, rows = (slots + RECALLS_BYTES, len(shared_port.arena)), Rows(HIDDEN_TOPICS)
    limits = CopyLimits(int(plane.header.settings.message_bytes_max))
    replies = ReplyQueues(plane.readers, inbox)
    send_back = SendBackService(
        plane=plane,
        role=spec.role,
        inbox=inbox,
        rows=rows,
        batches=CopyBatches(plane, inbox.answerer, rows, shared_port, copies, limits),
        log=log_view,
        topics=topics,
        targets=Targets(topics, plane.admission_rules, random.randrange),
        config=config,
        control=topic_creator,
        outbox=outbox,
        replies=replies,
        on_gone=GoneMessages(plane.role(spec.role).counters, log.warning).add,
    )
    recalls: Appends[Recall] = Appends(plane, shared_port, RECALLS_BYTES, RECALL_SLOTS, first_byte=slots)
    recall = RecallService(
        topics=topics,
        rules=plane.admission_rules,
        config=config,
        appends=recalls,
        outbox=outbox,
        wall_ms=wall_ms,
    )
    answering = Answering(
        plane,
        spec.role,
        inbox,
        [staged, send_back, recall],
        topic_creator,
        outbox,
        config,
        log_view,
        log.warning,
        replies=replies,
        plain=send_back,
        on_rest=appends.rest,
    )
    return ServiceLoop(plane, spec.role, [config, answering], rest_after_ms=REST_AFTER_MS)


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Run until SIGTERM, or until there has been no work for a while."""
    loop = make_loop(spec, plane)
    bound_collections()
    return loop.run(stop)


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
