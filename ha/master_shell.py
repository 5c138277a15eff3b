"""The master's HA writer in its process: passes events of the C loop to the core, and the core's effects to C.

The C loop (native/src/ha/ha_sender.c) moves the bytes. It returns when the state of a connection has changed, when
control has a command, or when its slice is over. This module does no work per message.
"""

import errno
import logging
import time
from collections import deque
from collections.abc import Mapping
from ipaddress import ip_address
from os import strerror
from typing import Any

from ringmq.ha import master_events as events
from ringmq.ha.control_messages import Identity, MessageError, News, command_of, news_bytes
from ringmq.ha.log_range import LogRange
from ringmq.ha.master_core import MasterCore
from ringmq.ha.replica_watermark import Requirement
from ringmq.ha.settings import HaSettings
from ringmq.ipc.exit_status import EXIT_CLEAN
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import RoleError, opened
from ringmq.ipc.worker import STATE_SERVING, WorkerSpec
from ringmq.native import ffi, lib
from ringmq.remoting.log_throttle import LogThrottle

log = logging.getLogger(__name__)

SLICE_MS = 100
"""Longest time between two progress events of the core."""
PEER_LINES_PER_MINUTE = 60
NEWS_KEPT = 1024
"""Events kept while control takes none. The newest ones are kept."""
COUNTERS = {
    events.DEGRADED_ENTERED: lib.RMQ_HA_DEGRADED_ENTERED,
    events.DEGRADED_LEFT: lib.RMQ_HA_DEGRADED_LEFT,
    events.REFUSED_NETWORK: lib.RMQ_HA_REFUSED_NETWORK,
    events.REFUSED_SILENT: lib.RMQ_HA_REFUSED_SILENT,
    events.REFUSED_REPLACED: lib.RMQ_HA_REFUSED_REPLACED,
    events.REFUSED_UNNAMED: lib.RMQ_HA_REFUSED_UNNAMED,
}
WHY = {
    lib.RMQ_HA_WHY_PEER: "the slave closed the connection",
    lib.RMQ_HA_WHY_SILENT: "the slave sent nothing for haHousekeepingInterval",
    lib.RMQ_HA_WHY_JUNK: "the slave sent an invalid offset",
    lib.RMQ_HA_WHY_BACKWARD: "the slave reported less than before",
    lib.RMQ_HA_WHY_BEYOND: "the slave reported more than was sent",
    lib.RMQ_HA_WHY_LOG: "the log file that the slave needs next cannot be mapped",
    lib.RMQ_HA_WHY_ORDERED: "this broker closed the connection",
}
_FALSE_REPORTS = (lib.RMQ_HA_WHY_JUNK, lib.RMQ_HA_WHY_BACKWARD, lib.RMQ_HA_WHY_BEYOND)


class MasterShell:
    """The shell. The worker `ha` of a master owns it."""

    def __init__(self, plane: Plane, sender: Any, core: MasterCore) -> None:
        self._plane = plane
        self._sender = sender
        self._core = core
        self._unsent: deque[bytes] = deque(maxlen=NEWS_KEPT)
        """Events that did not fit into control's inbox yet."""
        self._of_peers = LogThrottle(PEER_LINES_PER_MINUTE)
        self._ordered_away: dict[int, str] = {}
        """The reason why the core closes a peer, until C has closed it."""

    def run(self) -> int | None:
        """Serve until the clean stop is complete. Returns the exit status, or None if this broker is the master no
        more. Raises RoleError if the C loop cannot go on."""
        while True:
            reason = int(lib.rmq_ha_sender_run(self._sender, self._slice_ns()))
            if reason < 0:
                raise RoleError(f"ha: {strerror(-reason)}")
            self._take_commands()
            self._take_events()
            self.look()
            if reason == lib.RMQ_RUN_STOPPED:
                return EXIT_CLEAN
            if reason == lib.RMQ_RUN_YIELDED:
                return None

    def look(self) -> None:
        """Step the core with the slaves' progress and the time."""
        self._step(self._progress())
        self._step(events.Tick())
        self._notify_rest()

    def _slice_ns(self) -> int:
        due_ms = self._core.due_ms()
        left_ms = SLICE_MS if due_ms is None else due_ms - _now_ms()
        return max(1, min(SLICE_MS, left_ms)) * 1_000_000

    # -- what C has to say -----------------------------------------------------------------------------------

    def _take_commands(self) -> None:
        while (command := self._plane.ha_command_take()) is not None:
            try:
                taken = command_of(command)
            except MessageError as error:
                log.error("a command of control is ignored: %s", error)
                continue
            if isinstance(taken, Identity):
                self._step(events.Identified(taken))

    def _take_events(self) -> None:
        event = ffi.new("struct rmq_ha_event *")
        while lib.rmq_ha_sender_event(self._sender, event):
            match event.kind:
                case lib.RMQ_HA_EVENT_CONNECTED:
                    self._ordered_away.pop(event.peer, None)
                    self._step(events.Connected(event.peer, _host(event), event.port))
                case lib.RMQ_HA_EVENT_FULL:
                    self._step(events.TurnedAway(_host(event)))
                case lib.RMQ_HA_EVENT_FIRST_REPORT:
                    self._step(events.FirstReport(event.peer, event.offset, self._log_range()))
                case lib.RMQ_HA_EVENT_CLOSED:
                    why = self._ordered_away.pop(event.peer, None) or _why(event)
                    self._step(events.Closed(event.peer, why))

    def _log_range(self) -> LogRange:
        marks = self._plane.watermarks
        return LogRange(int(marks.min_offset), int(marks.append_offset))

    def _progress(self) -> events.Progress:
        log = self._log_range()
        rows = self._plane.header.replication.peers
        peers = tuple(
            events.PeerProgress(peer, rows[peer].reported_offset, rows[peer].silent_since_mono_ms)
            for peer in range(lib.RMQ_HA_PEERS_MAX)
            if rows[peer].state == lib.RMQ_HA_TRANSFER
        )
        return events.Progress(peers, log)

    # -- what the core wants -----------------------------------------------------------------------------------

    def _step(self, event: events.Event) -> None:
        for effect in self._core.step(event, _now_ms()):
            self._perform(effect)

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.Mark():
                flags = lib.RMQ_HA_PEER_COUNTS if effect.counts else 0
                flags |= lib.RMQ_HA_PEER_IN_SYNC if effect.in_sync else 0
                room = effect.room.encode()
                lib.rmq_ha_sender_mark(self._sender, effect.peer, effect.broker_id, effect.level, flags, room)
            case events.Require(answer=answer, confirm=confirm):
                lib.rmq_ha_sender_require(self._sender, requirement_struct(answer), requirement_struct(confirm))
            case events.State(replication_state=state, in_sync_replicas=count):
                lib.rmq_ha_sender_state(self._sender, state, count)
            case events.StartTransfer(peer=peer, offset=offset):
                if lib.rmq_ha_sender_start(self._sender, peer, offset) == -errno.EINVAL:  # ENOTCONN: its Closed follows
                    self._perform(events.Close(peer, f"the log from {offset} on cannot be sent"))
            case events.Close(peer=peer, why=why):
                self._ordered_away[peer] = why
                lib.rmq_ha_sender_disconnect(self._sender, peer)
            case events.NotifyControl(news=news):
                self._notify_control(news)
            case events.Log(text=text, level=level, is_of_peer=is_of_peer):
                line = self._of_peers.line(text, _now_ms()) if is_of_peer else text
                if line is not None:
                    log.log(level, "%s", line)
            case events.Count(name=name):
                self._plane.role(lib.RMQ_ROLE_HA).counters[COUNTERS[name]] += 1

    def _notify_control(self, news: News) -> None:
        self._unsent.append(news_bytes(news))
        self._notify_rest()

    def _notify_rest(self) -> None:
        while self._unsent and self._plane.ha_event_put(self._unsent[0]):
            self._unsent.popleft()


def requirement_struct(requirement: Requirement) -> Any:
    """struct rmq_ha_requirement."""
    struct = ffi.new("struct rmq_ha_requirement *")
    struct.count = len(requirement.conditions)
    for index, condition in enumerate(requirement.conditions):
        into = struct.conditions[index]
        into.peers, into.count, into.level = condition.peers, condition.count, condition.level
    return struct


def send_log(spec: WorkerSpec, plane: Plane, properties: Mapping[str, str]) -> int | None:
    """Send the log to slaves until the clean stop, and return the exit status. None: this broker is the master no
    more, and the connections are closed."""
    error = ffi.new("int *")
    sender = opened(spec.name, lib.rmq_ha_sender_open(plane.struct, spec.listen_fds[0], error), error)
    shell = MasterShell(plane, sender, MasterCore(HaSettings.from_properties(properties)))
    shell.look()  # the words say what holds without a slave before anybody is told that this broker is ready
    plane.role(spec.role).state = STATE_SERVING
    status = shell.run()
    lib.rmq_ha_sender_close(sender)
    return status


def _host(event: Any) -> str:
    return str(ip_address(bytes(ffi.buffer(event.host, event.host_bytes))))


def _why(event: Any) -> str:
    if event.why in _FALSE_REPORTS:
        return f"{WHY[event.why]} (offset {int(ffi.cast('int64_t', event.offset))})"
    return f"{WHY[event.why]} ({strerror(event.error)})" if event.error else WHY[event.why]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
