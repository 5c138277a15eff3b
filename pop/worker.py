"""Entry point of the worker `pop`: `python -m ringmq.pop.worker NAME SPEC`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import store_config
from ringmq.ipc.asks import Asker, Inbox
from ringmq.ipc.collector import bound_collections
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port
from ringmq.ipc.role_loop import RoleError, run_worker
from ringmq.ipc.worker import StopFlag, WorkerSpec
from ringmq.native import ffi, lib
from ringmq.pop import image_file
from ringmq.pop.backlog import Backlog
from ringmq.pop.copy_targets import CopyTargets
from ringmq.pop.desk import Desk
from ringmq.pop.drain import PopDrain
from ringmq.pop.gauges import Gauges
from ringmq.pop.hand_over import HandOver
from ringmq.pop.log_acks import LogAcks
from ringmq.pop.memory import PopMemory
from ringmq.pop.names import Names
from ringmq.pop.offsets import Offsets
from ringmq.pop.open_records import OpenRecords
from ringmq.pop.open_work import has_open_work
from ringmq.pop.order_file import OrderFile
from ringmq.pop.page_changes import open_changes
from ringmq.pop.pull_switch import PullSwitch
from ringmq.pop.questions import PopAsks
from ringmq.pop.record_log import RecordLog
from ringmq.pop.record_notice import KeptNotice
from ringmq.pop.recovery import Recovery
from ringmq.pop.revival import Revival
from ringmq.pop.service import PopService
from ringmq.pop.snapshots import Snapshots
from ringmq.pop.table_changes import TableChanges
from ringmq.pop.take_over import TakeOverError
from ringmq.pop.way_back import WayBack
from ringmq.pop.window_names import WindowNames
from ringmq.services.config_watcher import ConfigWatcher
from ringmq.services.kit.clocks import monotonic_ms, wall_ms
from ringmq.services.kit.loop import ServiceLoop
from ringmq.services.log_view import LogView
from ringmq.services.topics import Topics
from ringmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

REST_AFTER_MS = 30_000
"""Time without open messages after which the worker ends. Its next start takes some 0.1 s."""


def make_service(spec: WorkerSpec, plane: Plane, config: ConfigWatcher) -> PopService:
    """The service with all its parts. Raises PopMemoryError."""
    root = Path(config().store_path_root_dir)

    def log_view() -> LogView:
        return LogView(plane, MessageStore(store_config(config())))

    if not plane.is_pop_compared:
        compare_with_log(plane, config(), root)
    memory = PopMemory.open(root, plane, entries_max=config().pop_open_max, windows_max=config().offsets_max)
    windows, names, port = open_windows(memory), Names(memory.folder), claim_port(plane, spec.role)
    notice = KeptNotice(root)
    log_acks = LogAcks(plane, port, notice, config, log.warning)
    inbox, asker = Inbox(plane, spec.role), Asker(plane, spec.role, lib.RMQ_ROLE_CONTROL)
    control = PopAsks(asker)
    words = plane.role(spec.role).counters
    drain = PopDrain(windows, words, lambda: way_back.steps(), lambda: desk.resume(), log.info)
    desk = Desk(
        plane, inbox, memory, windows, names, config, control, log_view(), role=spec.role,
        log_acks=log_acks, rings=[*port.answer_rings, asker.ring], config_version=lambda: config.version,
        others={
            lib.RMQ_INBOX_RESET: lambda record, now_ms: changes.on_reset(record, now_ms),
            lib.RMQ_INBOX_DELETED: lambda record, now_ms: changes.on_deleted(record, now_ms),
            lib.RMQ_INBOX_LEAVE: lambda record, now_ms: switch.on_leave(record, now_ms),
        },
        drain=drain,
    )  # fmt: skip
    revival = Revival(
        plane=plane, port=port, memory=memory, windows=windows, names=desk.windows,
        targets=CopyTargets(Topics(plane), config), config=config, control=control, words=words,
        log_line=log.warning, on_made=desk.look_for_retries, log_acks=log_acks,
    )  # fmt: skip
    offsets = Offsets(
        plane, port.number, windows, desk.windows, int(memory.layout.windows_max), log.warning, desk.wake_group
    )
    changes = TableChanges(plane, inbox, desk.windows, offsets, desk.look_for_retries)
    snapshots = Snapshots(
        memory, log_view(), plane.watermarks, names, copies_from=revival.copies_from,
        used_entries=lambda: int(lib.rmq_pop_counts_of(windows).entries), wake=desk.serving.notify,
        changes=open_changes(memory.folder, int(memory.layout.bytes) // image_file.PAGE),
    )  # fmt: skip
    since = max(int(memory.header.copies_from), int(memory.header.marks_from))
    orders = open_orders(memory, plane, windows, desk.windows)

    def close_memory(is_saved: bool) -> None:
        log_acks.close()
        names.close()
        memory.close(clean=is_saved)

    gauges = Gauges(
        words, windows, int(memory.layout.entries_max), desk, offsets, snapshots,
        Backlog(windows, words, lambda: config().pop_revive_grace_ms),
    )  # fmt: skip
    record_log = RecordLog(
        plane=plane, port=port, windows=windows, control=control, config=config, log=log_view,
        offsets=offsets,
    )  # fmt: skip
    way_back, hand_over = make_ends(plane, config, windows, desk.windows, record_log, notice, log_acks, drain)
    records = OpenRecords(
        plane=plane, port=port, windows=windows, names=desk.windows, notice=notice, snapshots=snapshots, config=config,
        log=log_view,
    )  # fmt: skip
    switch = PullSwitch(desk.windows, windows, records, offsets, changes.answer, log.info)
    return PopService(
        plane=plane, role=spec.role, windows=windows, desk=desk, revival=revival, offsets=offsets, changes=changes,
        drain=drain, orders=orders, hand_over=hand_over, notice=notice, switch=switch, records=records,
        snapshots=snapshots, gauges=gauges, recovery=Recovery(plane, port, windows, log_view(), since),
        close_memory=close_memory, log_line=log.warning,
    )  # fmt: skip


def compare_with_log(plane: Plane, config: BrokerConfig, root: Path) -> None:
    """Do what a start of the broker does before any worker runs: this broker has become the master since. Raises
    RoleError if open messages may lie behind consumer offsets."""
    try:
        has_open_work(config, root)
    except TakeOverError as error:
        raise RoleError(f"pop: {error}") from error
    except OSError as error:
        log.warning("pop: its memory cannot be compared with the log: %s; groups go on at consumer offsets", error)
    plane.pop_is_compared()


def open_windows(memory: PopMemory) -> Any:
    """Read the windows of the memory. Raises MemoryError."""
    damaged = ffi.new("uint64_t *")
    windows = lib.rmq_pop_windows_open(memory.pages, memory.layout, wall_ms(), monotonic_ms(), damaged)
    if windows == ffi.NULL:
        raise MemoryError("no memory to read the windows of POP")
    if damaged[0]:
        log.warning("%s", f"{memory.folder}: {damaged[0]} windows and entries are damaged and were emptied")
    return windows


def claim_port(plane: Plane, role: int) -> Port:
    """The port of the worker, with its arena."""
    port = Port(plane, plane.port_of(role))
    plane.map_arena(port.number)
    port.claim()
    return port


def open_orders(memory: PopMemory, plane: Plane, windows: Any, names: WindowNames) -> OrderFile:
    """The file of batches. Those that it has are taken over if the memory may lack them."""
    orders = OrderFile(memory.root, plane, windows, names, log.warning)
    if memory.origin != "kept" or memory.is_of_start:
        orders.take_over(wall_ms(), monotonic_ms())
    return orders


def make_ends(
    plane: Plane, config: ConfigWatcher, windows: Any, names: WindowNames, records: RecordLog, notice: KeptNotice,
    log_acks: LogAcks, drain: PopDrain,
) -> tuple[WayBack, HandOver]:  # fmt: skip
    """The two ways in which a store is left: to an older version, and to a RocketMQ broker."""

    def store() -> MessageStore:
        return MessageStore(store_config(config()))

    way_back = WayBack(
        plane=plane, windows=windows, names=names, records=records, notice=notice, config=config, store=store,
        log_line=log.info, end_notice=log_acks.end_notice,
    )  # fmt: skip
    hand_over = HandOver(
        plane=plane, windows=windows, names=names, records=records, way_back=way_back, notice=notice, config=config,
        store=store, is_drained=lambda: drain.is_drained, log_line=log.info,
    )  # fmt: skip
    return way_back, hand_over


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Run until SIGTERM, or until no message has been open for a while."""
    config = ConfigWatcher(Path(spec.config_path), lambda: int(plane.header.settings.config_version))
    service = make_service(spec, plane, config)
    loop = ServiceLoop(plane, spec.role, [config, service], rest_after_ms=REST_AFTER_MS, wait=service.wait)
    bound_collections()
    return loop.run(stop)


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
