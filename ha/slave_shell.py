"""The worker `ha` of a slave: the C receiver, the core's decisions about the master, and the code that performs them.

The C loop (native/src/ha/ha_receiver.c) receives the stream. It returns when its slice is over, control has sent a
command or the connection has ended. The shell steps the core (slave_core.py) with the events and performs its effects.
A thread (master_calls.py) sends the requests beside the stream.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ringmq.ha import slave_events as events
from ringmq.ha.control_messages import Master, MessageError, Verdict, command_of, news_bytes
from ringmq.ha.epochs import position
from ringmq.ha.handshake import UNKNOWN_EPOCH, PeerClaim
from ringmq.ha.master_calls import MasterCalls
from ringmq.ha.received_bodies import ReceivedBodies
from ringmq.ha.settings import HaSettings
from ringmq.ha.slave_core import SlaveCore
from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_RESTART_STORE
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import RoleError, opened
from ringmq.ipc.worker import STATE_SERVING, WorkerSpec
from ringmq.native import ffi, lib
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import ConfigFileError
from ringmq.store.message_store import MessageStore
from ringmq.store.store_task import StoreTask, write_task
from ringmq.store.tail_checksums import tail_checksums
from ringmq.store.tenure_file import Owner, read_tenure

log = logging.getLogger(__name__)

SLICE_MS = 100
CALL_SLICE_MS = 10
"""Slice while a call runs. Its outcome does not wake a busy C loop."""
FAULT_REST_MS = 5000
"""Pause after a store fault before the next append."""
_FAULTS = {
    lib.RMQ_FAULT_FSYNC: "an fsync of the log failed",
    lib.RMQ_FAULT_DISK_FULL: "the disk is full",
    lib.RMQ_FAULT_CREATE_FILE: "the next log file cannot be made",
}


class SlaveShell:
    """The shell. The worker owns it; all calls come from its main thread."""

    def __init__(self, plane: Plane, properties: Mapping[str, str], receiver: Any) -> None:
        self._plane = plane
        self._marks = plane.watermarks
        self._link = plane.header.replication.link
        self._receiver = receiver
        self._settings = HaSettings.from_properties(properties)
        settings = self._settings
        self._owner = Owner(settings.broker_cluster_name, settings.broker_name, settings.broker_id)
        self._root = Path(properties["storePathRootDir"])
        self._store_config = StoreConfig.from_properties(self._root, properties)
        self._broker_address = f"{properties['brokerIP1']}:{properties['listenPort']}"
        self._received_before = 0
        self._core = SlaveCore(self._settings, self._snapshot())
        self._calls = MasterCalls(lambda: plane.wake(lib.RMQ_ROLE_HA))
        self._calling = False
        self._faulty_since_ms: int | None = None
        self._restarting = False
        self._bodies = ReceivedBodies(self._store_config, plane.role(lib.RMQ_ROLE_HA), int(self._marks.append_offset))

    def run(self) -> int | None:
        """Serve until the clean stop, or until the store has to be closed. Returns the exit status, or None if the
        journal goes to write. Raises RoleError."""
        while True:
            reason = int(lib.rmq_receiver_run(self._receiver, self._slice_ns()))
            if reason < 0:
                raise RoleError(f"ha: {os.strerror(-reason)}")
            self._take_commands()
            self._step(events.Tick(self._snapshot()))  # first: what has come on a link counts when its end is told
            if reason == lib.RMQ_RUN_LINK:
                self._step(self._link_ended())
            for event in self._calls.outcomes():
                self._calling = False
                self._step(event)
            self._watch_store()
            self._bodies.step(int(self._marks.append_offset), _now_ms())
            if self._restarting:
                return EXIT_RESTART_STORE
            if reason == lib.RMQ_RUN_STOPPED:
                return EXIT_CLEAN
            if reason == lib.RMQ_RUN_YIELDED:
                return None

    def close(self) -> None:
        """Disconnect from the master. confirm_limit keeps its last value."""
        self._calls.close()
        lib.rmq_receiver_detach(self._receiver)

    # -- what has happened ---------------------------------------------------------------------------------------------

    def _slice_ns(self) -> int:
        due_ms = self._core.due_ms()
        left_ms = SLICE_MS if due_ms is None else due_ms - _now_ms()
        return max(1, min(CALL_SLICE_MS if self._calling else SLICE_MS, left_ms)) * 1_000_000

    def _take_commands(self) -> None:
        while (data := self._plane.ha_command_take()) is not None:
            try:
                order = command_of(data)
            except MessageError as error:
                log.error("a command of control is ignored: %s", error)
                continue
            match order:
                case Master(ha=ha, broker=broker):
                    self._step(events.MasterIs(ha, broker))
                case Verdict(attempt=attempt, why_not=""):
                    self._step(events.Stream(attempt))
                case Verdict(attempt=attempt, why_not=why):
                    self._step(events.Reject(attempt, why))

    def _link_ended(self) -> events.Event:
        state = ffi.new("struct rmq_receiver_state *")
        lib.rmq_receiver_state(self._receiver, state)
        match state.reason:
            case lib.RMQ_LINK_STARTS_AT:
                return events.StreamStartsAt(int(state.offset))
            case lib.RMQ_LINK_STORE:
                return self._fault(os.strerror(state.error))
        return events.Closed(link_text(state.reason, int(state.offset), state.error))

    def _watch_store(self) -> None:
        fault = int(self._marks.store_fault)
        if fault and self._faulty_since_ms is None:
            self._step(self._fault(os.strerror(self._marks.store_fault_errno)))
        elif not fault and self._faulty_since_ms is not None and _now_ms() - self._faulty_since_ms >= FAULT_REST_MS:
            self._faulty_since_ms = None
            self._step(events.StoreRecovered())

    def _fault(self, cause: str) -> events.Event:
        self._faulty_since_ms = _now_ms()
        return events.StoreFault(f"{_FAULTS.get(int(self._marks.store_fault), 'the log cannot be written')}: {cause}")

    def _snapshot(self) -> events.Snapshot:
        marks, link = self._marks, self._link
        return events.Snapshot(
            min_offset=int(marks.min_offset),
            append_offset=int(marks.append_offset),
            flushed_offset=int(marks.flushed_offset),
            received_bytes=int(link.received_bytes) - self._received_before,
            last_read_ms=int(link.last_read_mono_ms),
        )

    # -- what is to be done --------------------------------------------------------------------------------------------

    def _step(self, event: events.Event) -> None:
        for effect in self._core.step(event, _now_ms()):
            self._perform(effect)

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.Connect(address=address):
                self._link.attempts += 1
                self._calling = True
                self._calls.connect(address)
            case events.Handshake(address=address, local_port=port, windows_end=windows_end):
                self._calling = True
                self._calls.shake_hands(address, lambda: self._claim(port, windows_end))
            case events.StartTransfer():
                self._start_transfer()
            case events.Disconnect():
                self._calls.give_up()
                lib.rmq_receiver_detach(self._receiver)
            case events.AskConfirm(address=address):
                self._calling = True
                self._calls.ask_confirm(address, lambda: replace(self._who(), operation="confirm"))
            case events.Limit(offset=offset):
                lib.rmq_receiver_limit(self._receiver, offset)
            case events.RestartStore(order=order):
                self._restart(order)
            case events.NotifyControl(news=news):
                self._plane.ha_event_put(news_bytes(news))
            case events.Log(text=text, level=level):
                log.log(level, "%s", text)

    def _start_transfer(self) -> None:
        link = self._calls.take_link()
        if link is not None:
            self._received_before = int(self._link.received_bytes)
            lib.rmq_receiver_attach(self._receiver, link.detach())

    def _restart(self, order: StoreTask) -> None:
        try:
            write_task(self._root, order)
        except OSError as error:
            raise RoleError(f"ha: the task to {order.action} the store cannot be saved: {error}") from error
        self._restarting = True

    def _who(self) -> PeerClaim:
        """The claim of this slave, without its tail. The thread of the calls calls it."""
        settings, marks = self._settings, self._marks
        return PeerClaim(
            cluster=settings.broker_cluster_name,
            broker_name=settings.broker_name,
            broker_id=settings.broker_id,
            start_id=f"{int(marks.start_id):x}",
            min_offset=int(marks.min_offset),
            max_offset=int(marks.append_offset),
            file_bytes=settings.file_bytes,
            broker_addr=self._broker_address,
            room=settings.room,
            report_level="flushed" if settings.flush_disk_type == "SYNC_FLUSH" else "cached",
        )

    def _claim(self, local_port: int, windows_end: int | None) -> PeerClaim:
        """The claim with checksums of the windows before `windows_end`, None = the log's end. No stream runs
        meanwhile."""
        claim = self._who()
        log = MessageStore(self._store_config).commit_log
        end = claim.max_offset if windows_end is None else windows_end
        tail = tuple(tail_checksums(log, claim.min_offset, end))
        return replace(claim, ha_port=local_port, last_epoch=self._last_epoch(claim.max_offset), tail=tail)

    def _last_epoch(self, end: int) -> int:
        """The epoch of the last byte of a log that ends at `end`. Control has written the file before its master's
        bytes came."""
        try:
            found = read_tenure(self._root, self._owner, syncs=False)
        except ConfigFileError as error:
            log.error("%s: the master is not told of which epoch this log is", error)
            return UNKNOWN_EPOCH
        record = found.record or found.copied
        return UNKNOWN_EPOCH if record is None else position(record.history, end).epoch


def link_text(reason: int, offset: int, error: int) -> str:
    """The reason for the end of a connection, in a log line: RMQ_LINK_*, the log offset concerned, errno."""
    return {
        lib.RMQ_LINK_EOF: "the master closed the connection",
        lib.RMQ_LINK_ERROR: os.strerror(error),
        lib.RMQ_LINK_SILENT: "the master sent nothing for haHousekeepingInterval",
        lib.RMQ_LINK_GAP: f"the stream jumps to offset {int(ffi.cast('int64_t', offset))}",
        lib.RMQ_LINK_SIZE: f"the transfer at offset {offset} has an impossible size",
        lib.RMQ_LINK_FILE_END: f"the transfer at offset {offset} exceeds the end of a log file",
        lib.RMQ_LINK_RECORD: f"the bytes at offset {offset} are no record",
    }.get(reason, f"reason {reason}")


def follow(spec: WorkerSpec, plane: Plane, properties: Mapping[str, str]) -> int | None:
    """Append what a master sends, with the log open, until the clean stop or until the store has to be closed. Then
    returns the exit status. None: the journal went to write. Other slaves' connections are closed at once."""
    error = ffi.new("int *")
    receiver = opened(spec.name, lib.rmq_receiver_open(plane.struct, error), error)
    refused = int(lib.rmq_receiver_listen(receiver, spec.listen_fds[0]))
    if refused:
        raise RoleError(f"{spec.name}: the replication port: {os.strerror(-refused)}")
    shell = SlaveShell(plane, properties, receiver)
    lib.rmq_journal_opened(plane.struct)
    plane.role(lib.RMQ_ROLE_HA).state = STATE_SERVING
    status = shell.run()
    shell.close()
    lib.rmq_receiver_close(receiver)
    if status is None:
        lib.rmq_journal_give(plane.struct, lib.RMQ_ROLE_HA, lib.RMQ_ROLE_WRITE)
    return status


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
