"""Entry point of the worker `services`: `python -m ringmq.services.worker NAME SPEC`."""

from __future__ import annotations

import logging
import random
import sys
from pathlib import Path
from typing import NamedTuple

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
from ringmq.services.arenas import (
    APPEND_SLOTS,
    RECALL_SLOTS,
    RECALLS_BYTES,
    REPLY_PROPERTIES_BYTES,
    appends_bytes,
    replies_bytes,
)
from ringmq.services.config_watcher import ConfigWatcher
from ringmq.services.control_asks import ControlAsks
from ringmq.services.kit.arena import ArenaRing, ArenaSlots
from ringmq.services.kit.clocks import wall_ms
from ringmq.services.kit.loop import ServiceLoop
from ringmq.services.kit.shared_port import SharedPort
from ringmq.services.log_view import LogView
from ringmq.services.recalls import RecallService
from ringmq.services.replies.service import ReplyService
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


class Shared(NamedTuple):
    """The parts that services share."""

    plane: Plane
    role: int
    config: ConfigWatcher
    topics: Topics
    control: ControlAsks
    outbox: Outbox
    port: SharedPort


def make_loop(spec: WorkerSpec, plane: Plane) -> ServiceLoop:
    """The loop with all services. A new service is constructed here."""
    config = ConfigWatcher(Path(spec.config_path))
    port = plane.port_of(spec.role)
    plane.map_arena(port)
    log_view = LogView(plane, MessageStore(store_config(config())))
    outbox, inbox = Outbox(), Inbox(plane, spec.role)
    control = ControlAsks(Asker(plane, spec.role, lib.RMQ_ROLE_CONTROL))
    shared = Shared(plane, spec.role, config, Topics(plane), control, outbox, SharedPort(plane, port))
    recalls_at = appends_bytes(config())
    replies_at = recalls_at + RECALLS_BYTES
    copies_at = replies_at + replies_bytes(config())
    appends: Appends[Effect] = Appends(plane, shared.port, ArenaSlots(recalls_at // APPEND_SLOTS, APPEND_SLOTS))
    staged = StagedWrites(
        plane=plane,
        log=log_view,
        topics=shared.topics,
        config=config,
        appends=appends,
        topic_creator=control,
        outbox=outbox,
        log_line=log.warning,
        wall_ms=wall_ms,
    )
    replies = ReplyQueues(plane.readers, inbox)
    send_back = _send_back(shared, inbox, log_view, replies, copies_at)
    recall = _recall(shared, ArenaSlots(RECALLS_BYTES // RECALL_SLOTS, RECALL_SLOTS, recalls_at))
    reply = _reply(shared, ArenaRing(copies_at - replies_at, replies_at))
    answering = Answering(
        plane,
        spec.role,
        inbox,
        [staged, send_back, recall, reply],
        control,
        outbox,
        config,
        log_view,
        log.warning,
        replies=replies,
        plain=send_back,
        on_rest=appends.rest,
    )
    return ServiceLoop(plane, spec.role, [config, answering], rest_after_ms=REST_AFTER_MS)


def _send_back(
    shared: Shared, inbox: Inbox, log_view: LogView, replies: ReplyQueues, first_byte: int
) -> SendBackService:
    plane, rows, end = shared.plane, Rows(HIDDEN_TOPICS), len(shared.port.arena)
    limits = CopyLimits(int(plane.header.settings.message_bytes_max))
    return SendBackService(
        plane=plane,
        role=shared.role,
        inbox=inbox,
        rows=rows,
        batches=CopyBatches(plane, inbox.answerer, rows, shared.port, (first_byte, end), limits),
        log=log_view,
        topics=shared.topics,
        targets=Targets(shared.topics, plane.admission_rules, random.randrange),
        config=shared.config,
        control=shared.control,
        outbox=shared.outbox,
        replies=replies,
        on_gone=GoneMessages(plane.role(shared.role).counters, log.warning).add,
    )


def _recall(shared: Shared, arena: ArenaSlots) -> RecallService:
    return RecallService(
        topics=shared.topics,
        rules=shared.plane.admission_rules,
        config=shared.config,
        appends=Appends(shared.plane, shared.port, arena),
        outbox=shared.outbox,
        wall_ms=wall_ms,
    )


def _reply(shared: Shared, arena: ArenaRing) -> ReplyService:
    return ReplyService(
        topics=shared.topics,
        config=shared.config,
        appends=Appends(shared.plane, shared.port, arena, properties_bytes_max=REPLY_PROPERTIES_BYTES),
        control=shared.control,
        outbox=shared.outbox,
        words=shared.plane.role(shared.role).counters,
        wall_ms=wall_ms,
    )


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Run until SIGTERM, or until there has been no work for a while."""
    loop = make_loop(spec, plane)
    bound_collections()
    return loop.run(stop)


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
