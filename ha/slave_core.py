"""A slave's decisions about its master: `step(event, now_ms) -> effects`, without sockets and log.

`TRANSITIONS` holds every pair of state and event. docs/state-machines.md draws it.

The first attempt is made at once, later ones after up to 5 s as in stock's DefaultHAClient. There, a link that carried
anything counts as a success. Without the address of the master's broker port there is no handshake. If no name server
is set that could give the address (haMasterAddress alone), the stream starts on the offset alone. If one is set, the
stream waits for it. Otherwise a stream might append behind a tail that the master does not have, and no later handshake
need find that. When the address of a running stream's master becomes known, the stream starts again with a handshake.

confirm_limit is the end of the log that consumers may see here. With a RingMQ master it is the last confirm offset of
the master. While the master holds this slave off, it is the part of that which both have. With a stock master it is
everything. A master that may not cut this log hides no record that was here before its link. A lost link does not mean
that the master is gone. The slave shows everything received after MASTER_UNKNOWN_MS of attempts without a sign of one.
Control notes the epoch of a master that has accepted this slave. The first report follows that.
A slave whose own store takes no bytes makes no attempts, and learns nothing of its master.
"""

from __future__ import annotations

from enum import Enum
from logging import ERROR, WARNING

from msgspec import Struct, field
from msgspec.structs import replace

from ringmq.ha import handshake
from ringmq.ha.control_messages import AcceptedNews, LinkNews
from ringmq.ha.handshake import HandshakeAnswer
from ringmq.ha.settings import HaSettings
from ringmq.ha.slave_events import (
    EVENTS,
    NO_LIMIT,
    Answered,
    AskConfirm,
    Closed,
    Confirmed,
    ConfirmFailed,
    Connect,
    Connected,
    ConnectFailed,
    Disconnect,
    Effect,
    Event,
    Handshake,
    HandshakeFailed,
    Limit,
    Log,
    MasterIs,
    NotifyControl,
    NotSupported,
    Reject,
    RestartStore,
    Snapshot,
    StartTransfer,
    StoreFault,
    StoreRecovered,
    Stream,
    StreamStartsAt,
    Tick,
)
from ringmq.ipc.transitions import Cell, Table, ignored, transitions
from ringmq.store.store_task import CUT, REBASE, StoreTask

BACK_OFF_MS = (0, 250, 500, 1000, 2000, 4000, 5000)
STOCK_ADDRESS_CHARS_MIN = 6
"""Length below which a value of haMasterAddress counts as none, as in stock."""
HELD_OFF_MS = 5000
"""Pause after a hold or refusal, which an operator has to resolve, and while the broker address of the master is
unknown.
"""
CONNECT_TIMEOUT_MS = 3000
HANDSHAKE_TIMEOUT_MS = 10_000
CONTROL_TIMEOUT_MS = 10_000
"""Time of control, which asks the master for its epoch and syncs a file."""
COMPARES_MAX = 4
"""Requests in one handshake. The master's end moves during the comparison."""
START_OFFSET_MAX = 1 << 62
"""Largest start of a log. Above it, offsets of the log would not fit into 64 bits."""
FLUSH_LOOK_MS = 5
CONFIRM_PERIOD_MS = 100
CONFIRM_TIMEOUT_MS = 3000
MASTER_UNKNOWN_MS = 5000
"""Time without a sign of a master after which it counts as gone, and time that a name server has to give its broker
port.
"""


class State(Enum):
    """State of the link."""

    IDLE = "no master is known"
    WAITING = "the next attempt is not due"
    CONNECTING = "an attempt to connect is under way"
    HANDSHAKE = "the master's broker is asked for its verdict"
    ACCEPTED = "control notes the epoch of the master"
    TRANSFER = "the stream runs"
    FAULTY = "the own store takes no bytes"
    RESTARTING = "the store is closed and opened again"


CONNECTED = State.HANDSHAKE, State.ACCEPTED, State.TRANSFER
"""States with a connection."""
LINKED = State.CONNECTING, *CONNECTED
"""States with a connection, or an attempt to have one."""


class SlaveCore(Struct):
    """One slave's link. `snapshot`: the slave at its start."""

    settings: HaSettings
    snapshot: Snapshot
    state: State = State.IDLE
    _master: MasterIs = field(default=MasterIs("", ""))
    _since_ms: int | None = None
    _alone_since_ms: int | None = None
    """Start of the time without a sign of a live master. None: a master lives, or the slave looks for none."""
    _failures: int = 0
    _due_ms: int = 0
    _local_port: int = 0
    _attempt: int = 0
    """Number of masters that have accepted this slave."""
    _offered: tuple[str, int] = ("", NO_LIMIT)
    """(start id, confirm offset) of the master that has accepted this slave."""
    _ha_host: str = ""
    _compared: int = 0
    _master_start_id: str = ""
    _asked_ms: int | None = None
    _confirm_due_ms: int = 0
    _limit: int | None = None
    _floor: int = 0
    """Lower bound of confirm_limit: an unnamed master hides no record that was here before its link."""
    _last_logged: str = ""

    def due_ms(self) -> int | None:
        """Time of the next Tick that matters. None if none does before another event."""
        due = [at_ms for at_ms in (self._state_due_ms(), self._gone_ms()) if at_ms is not None]
        return min(due, default=None)

    def _gone_ms(self) -> int | None:
        """Time at which the master counts as gone. An open connection is awaited, because it has time limits of its
        own."""
        if self._alone_since_ms is None or self._limit == NO_LIMIT or self.state in CONNECTED:
            return None
        return self._alone_since_ms + MASTER_UNKNOWN_MS

    def _state_due_ms(self) -> int | None:
        since_ms = self._since_ms or 0
        match self.state:
            case State.WAITING:
                return self._due_ms
            case State.CONNECTING:
                return since_ms + CONNECT_TIMEOUT_MS
            case State.HANDSHAKE:
                return since_ms + HANDSHAKE_TIMEOUT_MS
            case State.ACCEPTED:
                return since_ms + CONTROL_TIMEOUT_MS
            case State.TRANSFER:
                silent_ms = self._last_frame_ms() + self.settings.housekeeping_ms + 1
                if not self._master_start_id:
                    return silent_ms
                return min(silent_ms, self._confirm_due_ms)
        return None

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """The effects of one event, in order."""
        if self._since_ms is None:
            self._since_ms = self._alone_since_ms = now_ms
        return list(TRANSITIONS[self.state, type(event)].act(self, event, now_ms))

    # -- towards a connection ------------------------------------------------------------------------------------------

    def _master_is(self, event: MasterIs, now_ms: int) -> list[Effect]:
        before, master = self._master, event
        if master.ha == before.ha and not master.broker:  # a control that was started again does not know it yet
            master = before
        self._master = master
        decided_now = self.state in (State.WAITING, State.TRANSFER) and not before.broker and master.broker
        if master.ha == before.ha and not decided_now:
            is_told = self.state is State.WAITING and event.broker  # by the master itself: no reason to wait is left
            return self._wait(now_ms, 0) if is_told else []
        if self.state is State.FAULTY:
            return []
        why = "the master has another address" if master.ha else "no master is known"
        if master.ha == before.ha:
            why = "the address of the master's broker is known now"
        effects = self._leave(before.ha, why)
        self._failures, self._alone_since_ms = 0, None
        if not master.ha:
            return [*effects, Log("no master is known", WARNING), *self._wait(now_ms, 0)]
        told_soon = self.settings.namesrv_addr and not master.broker
        return [*effects, *self._wait(now_ms, MASTER_UNKNOWN_MS if told_soon else 0)]

    def _wait(self, now_ms: int, delay_ms: int) -> list[Effect]:
        if not self._master.ha:
            self.state = State.IDLE
            self._alone(now_ms)
            return []
        self.state, self._due_ms = State.WAITING, now_ms + delay_ms
        return self.step(Tick(self.snapshot), now_ms)

    def _alone(self, now_ms: int) -> None:
        """Record that there is no sign of a live master, from now on or already."""
        if self._alone_since_ms is None:
            self._alone_since_ms = now_ms

    def _look(self, event: Tick, now_ms: int) -> list[Effect]:
        self.snapshot = event.snapshot
        gone_ms = self._gone_ms()
        if gone_ms is None or now_ms < gone_ms:
            return []
        return [Log(f"no sign of a master for {MASTER_UNKNOWN_MS} ms", WARNING), *self._limited(NO_LIMIT)]

    def _is_due(self, now_ms: int) -> bool:
        due_ms = self._state_due_ms()
        return due_ms is not None and now_ms >= due_ms

    def _tick_waiting(self, event: Tick, now_ms: int) -> list[Effect]:
        effects = self._look(event, now_ms)
        if not self._is_due(now_ms):
            return effects
        if self._unflushed():
            self._due_ms = now_ms + FLUSH_LOOK_MS
            return effects
        self.state, self._since_ms = State.CONNECTING, now_ms
        return [*effects, Connect(self._master.ha)]

    def _tick_connecting(self, event: Tick, now_ms: int) -> list[Effect]:
        effects = self._look(event, now_ms)
        if not self._is_due(now_ms):
            return effects
        return [
            *effects,
            *self._failed(f"no connection to master {self._master.ha} in {CONNECT_TIMEOUT_MS} ms", now_ms),
        ]

    def _tick_handshake(self, event: Tick, now_ms: int) -> list[Effect]:
        effects = self._look(event, now_ms)
        if not self._is_due(now_ms):
            return effects
        why = f"no answer of master {self._master.broker} in {HANDSHAKE_TIMEOUT_MS} ms"
        return [*effects, *self._failed(why, now_ms)]

    def _unflushed(self) -> bool:
        """True if the log has bytes to flush first. The first report gives the start of the stream. Under SYNC_FLUSH it
        also stands for the disk."""
        flushes = self.settings.flush_disk_type == "SYNC_FLUSH"
        return flushes and self.snapshot.flushed_offset < self.snapshot.append_offset

    def _connected(self, event: Connected, now_ms: int) -> list[Effect]:
        self._local_port, self._ha_host = event.local_port, event.host
        if not self._master.broker:
            told = self.settings.namesrv_addr
            return self._nobody_to_ask(now_ms) if told else self._accepted("", NO_LIMIT, now_ms)
        self.state, self._since_ms, self._compared = State.HANDSHAKE, now_ms, 0
        return [Handshake(self._master.broker, event.local_port)]

    def _nobody_to_ask(self, now_ms: int) -> list[Effect]:
        """Wait: the master lives, but the name servers do not answer, or do not know it (yet)."""
        self._alone_since_ms = None
        why = (
            f"master {self._master.ha} answers, but the name servers do not give the address of its broker: without "
            "the address the logs cannot be compared"
        )
        news = NotifyControl(LinkNews(self._master.ha, "waits", why=why))
        return [Disconnect(why), *self._log_once(why), news, *self._wait(now_ms, HELD_OFF_MS)]

    # -- the master's verdict ------------------------------------------------------------------------------------------

    def _answered(self, event: Answered, now_ms: int) -> list[Effect]:
        answer, host = event.answer, event.host
        own_end, self._alone_since_ms = self.snapshot.append_offset, None
        self._floor = 0 if self._may_cut(host) else own_end
        match answer.verdict:
            case handshake.COMPARE if self._compared < COMPARES_MAX:
                self._compared, self._since_ms = self._compared + 1, now_ms
                return [Handshake(self._master.broker, self._local_port, answer.offset)]
            case handshake.ACCEPT:
                return self._accepted(answer.start_id, answer.confirm_offset, now_ms)
            case handshake.START_AT if self._may_start_at(answer.offset) and (
                self.snapshot.empty or self._may_cut(host)
            ):
                return self._restart(StoreTask(REBASE, answer.offset), answer.reason)
            case handshake.CUT if self.snapshot.min_offset <= answer.offset < own_end and self._may_cut(host):
                return self._restart(StoreTask(CUT, answer.offset), answer.reason)
            case handshake.START_AT | handshake.CUT if not self._may_cut(host):
                return self._keep_log(answer, host, now_ms)
        why = f"master {self._master.broker} says {answer.verdict}{self._impossible(answer)}: {answer.reason}"
        effects = [Disconnect(why), *self._log_once(why)]
        if answer.verdict == handshake.HOLD:
            effects += self._limited(min(answer.offset, answer.confirm_offset))
            effects.append(NotifyControl(LinkNews(self._master.ha, "held", why=answer.reason)))
        return [*effects, *self._wait(now_ms, HELD_OFF_MS)]

    def _may_start_at(self, offset: int) -> bool:
        """True if a log file can begin at this offset. A restart with another offset would fail at each start of the
        broker."""
        return offset % self.settings.file_bytes == 0 and offset <= START_OFFSET_MAX

    def _impossible(self, answer: HandshakeAnswer) -> str:
        """The reason, in a log line, why a verdict over this log cannot be applied. "" for any other verdict."""
        if answer.verdict == handshake.START_AT:
            return f" at {answer.offset}, where no file of {self.settings.file_bytes} bytes can begin"
        if answer.verdict == handshake.CUT:
            log = self.snapshot
            return f" at {answer.offset}, outside of this log ({log.min_offset} to {log.append_offset})"
        return ""

    def _may_cut(self, host: str) -> bool:
        """True if haAllowedNetworks names the master, or if it has the host of haMasterAddress, to which the HA
        connection goes.

        An address from a name server is not enough: any peer may register a master there.
        """
        is_configured = len(self.settings.master_address) >= STOCK_ADDRESS_CHARS_MIN and host == self._ha_host != ""
        return is_configured or self.settings.allowed_networks.names(host)

    def _keep_log(self, answer: HandshakeAnswer, host: str, now_ms: int) -> list[Effect]:
        """Keep the log, which would lose records for a master that no property names. The slave asks again."""
        unnamed = f"this log stays, because neither haAllowedNetworks nor haMasterAddress names {host or 'that host'}"
        why = f"master {self._master.broker} says {answer.verdict} at {answer.offset}: {answer.reason}; {unnamed}"
        news = NotifyControl(LinkNews(self._master.ha, "held", why=f"{answer.verdict} at {answer.offset}: {unnamed}"))
        return [Disconnect(why), *self._log_once(why), news, *self._wait(now_ms, HELD_OFF_MS)]

    def _restart(self, order: StoreTask, reason: str) -> list[Effect]:
        self.state = State.RESTARTING
        text = f"the store is closed to {order.action} the log at {order.offset}: {reason}"
        return [Disconnect(text), Log(text, WARNING), RestartStore(order)]

    # -- the stream ----------------------------------------------------------------------------------------------------

    def _not_supported(self, event: NotSupported, now_ms: int) -> list[Effect]:
        return self._accepted("", NO_LIMIT, now_ms)

    def _accepted(self, start_id: str, confirm_offset: int, now_ms: int) -> list[Effect]:
        """Ask control before the first report, because an old master that starts again learns of a new one from its
        slaves. start_id: "" = a stock master, or one without a handshake."""
        self.state, self._since_ms = State.ACCEPTED, now_ms
        self._attempt, self._offered = self._attempt + 1, (start_id, confirm_offset)
        return [NotifyControl(AcceptedNews(self._attempt, self._master.ha, self._master.broker, not start_id))]

    def _stream(self, event: Stream, now_ms: int) -> list[Effect]:
        return self._transfer(*self._offered, now_ms) if event.attempt == self._attempt else []

    def _reject(self, event: Reject, now_ms: int) -> list[Effect]:
        if event.attempt != self._attempt:
            return []
        why = f"master {self._master.ha} is not followed: {event.why}"
        news = NotifyControl(LinkNews(self._master.ha, "held", why=event.why))
        return [Disconnect(why), *self._log_once(why), news, *self._wait(now_ms, HELD_OFF_MS)]

    def _tick_accepted(self, event: Tick, now_ms: int) -> list[Effect]:
        effects = self._look(event, now_ms)
        if not self._is_due(now_ms):
            return effects
        return [*effects, *self._failed(f"worker control has not answered in {CONTROL_TIMEOUT_MS} ms", now_ms)]

    def _transfer(self, start_id: str, confirm_offset: int, now_ms: int) -> list[Effect]:
        """Start the stream. start_id: "" = a stock master, or one without a handshake."""
        self.state, self._since_ms, self._master_start_id = State.TRANSFER, now_ms, start_id
        self._asked_ms, self._confirm_due_ms, self._alone_since_ms = None, now_ms + CONFIRM_PERIOD_MS, None
        self._last_logged, self.snapshot = "", replace(self.snapshot, received_bytes=0)
        kind = (
            "RingMQ master" if start_id else "stock master" if self._master.broker else "master, without a handshake,"
        )
        text = f"{kind} {self._master.ha} sends the log from {self.snapshot.append_offset} on"
        stock = bool(self._master.broker) and not start_id
        news = NotifyControl(LinkNews(self._master.ha, "transfer", stock=stock))
        effects = [*self._limited(confirm_offset), StartTransfer(), Log(text), news]
        if self.settings.allowed_networks and not self.settings.allowed_networks.names(self._ha_host):
            follows = f"haAllowedNetworks does not name master {self._ha_host}: this slave follows it"
            effects.append(Log(f"{follows}, but cuts its log only if haMasterAddress names the master", WARNING))
        return effects

    def _tick_transfer(self, event: Tick, now_ms: int) -> list[Effect]:
        effects = self._look(event, now_ms)
        if not self._is_due(now_ms):
            return effects
        if now_ms - self._last_frame_ms() > self.settings.housekeeping_ms:
            why = f"nothing from master {self._master.ha} for {self.settings.housekeeping_ms} ms"
            return self._failed(why, now_ms)
        self._confirm_due_ms = now_ms + CONFIRM_PERIOD_MS
        if self._asked_ms is not None and now_ms - self._asked_ms < CONFIRM_TIMEOUT_MS:
            return []
        self._asked_ms = now_ms
        return [AskConfirm(self._master.broker)]

    def _last_frame_ms(self) -> int:
        return max(self.snapshot.last_read_ms, self._since_ms or 0)

    def _stream_starts_at(self, event: StreamStartsAt, now_ms: int) -> list[Effect]:
        """The effects of a stream that starts elsewhere. Stock gives an empty slave its newest file alone. A slave with
        records never starts afresh by itself."""
        offset = event.offset
        why = f"the stream starts at {offset}, this log ends at {self.snapshot.append_offset}"
        if self.snapshot.empty and offset > 0 and self._may_start_at(offset):
            return self._restart(StoreTask(REBASE, offset), why)
        lacks = "" if offset < self.snapshot.append_offset else f": {self.snapshot.append_offset}..{offset} is missing"
        return self._failed(f"{why}{lacks}", now_ms)

    def _confirmed(self, event: Confirmed, now_ms: int) -> list[Effect]:
        self._asked_ms = None
        if event.start_id != self._master_start_id:
            return self._failed(f"master {self._master.broker} was started again", now_ms)
        return self._limited(event.offset)

    def _confirm_failed(self, event: ConfirmFailed, now_ms: int) -> list[Effect]:
        self._asked_ms = None
        return []

    # -- endings -------------------------------------------------------------------------------------------------------

    def _connect_failed(self, event: ConnectFailed, now_ms: int) -> list[Effect]:
        return self._lost(f"no connection to master {self._master.ha}: {event.why}", now_ms)

    def _handshake_failed(self, event: HandshakeFailed, now_ms: int) -> list[Effect]:
        return self._failed(f"no handshake with master {self._master.broker}: {event.why}", now_ms)

    def _closed(self, event: Closed, now_ms: int) -> list[Effect]:
        return self._lost(f"the connection to master {self._master.ha} is gone: {event.why}", now_ms)

    def _failed(self, why: str, now_ms: int) -> list[Effect]:
        return [Disconnect(why), *self._lost(why, now_ms)]

    def _lost(self, why: str, now_ms: int) -> list[Effect]:
        """The connection, or the attempt, has ended. Later attempts show if the master is gone, too."""
        was_linked = self.state is State.TRANSFER
        if was_linked and self.snapshot.received_bytes:
            self._failures = 0
        delay_ms = BACK_OFF_MS[min(self._failures, len(BACK_OFF_MS) - 1)]
        self._failures += 1
        self._alone(now_ms)
        effects = self._log_once(why)
        if was_linked:
            effects.append(NotifyControl(LinkNews(self._master.ha, "closed", why=why)))
        return [*effects, *self._wait(now_ms, delay_ms)]

    def _leave(self, master: str, why: str) -> list[Effect]:
        """End the connection, or the attempt. Control is told of the end of a stream."""
        if self.state not in LINKED:
            return []
        if self.state is not State.TRANSFER:
            return [Disconnect(why)]
        return [Disconnect(why), NotifyControl(LinkNews(master, "closed", why=why))]

    def _fault(self, event: StoreFault, now_ms: int) -> list[Effect]:
        effects = self._leave(self._master.ha, event.text)
        self.state, self._alone_since_ms = State.FAULTY, None
        return [*effects, Log(f"no log is received from the master: {event.text}", ERROR)]

    def _recovered(self, event: StoreRecovered, now_ms: int) -> list[Effect]:
        return [Log("the store accepts bytes again"), *self._wait(now_ms, 0)]

    def _limited(self, offset: int) -> list[Effect]:
        offset = max(offset, self._floor)
        if offset == self._limit:
            return []
        self._limit = offset
        return [Limit(offset)]

    def _log_once(self, why: str) -> list[Effect]:
        """The log line of a reason, once until the stream runs again. Attempts come every few seconds."""
        if why == self._last_logged:
            return []
        self._last_logged = why
        return [Log(why, WARNING)]


_IDLE, _WAITING, _CONNECTING, _HANDSHAKE, _ACCEPTED, _TRANSFER, _FAULTY, _RESTARTING = State
_AGAIN = "looks for the master again, soon or after a pause"
_OVER = ignored("its attempt was ended before, by Disconnect or Closed")
_LATE = ignored("it is for an attempt that was ended before")
_UNASKED = ignored("it answers a question of an earlier stream")
_OF_ATTEMPTS = Connected, ConnectFailed, Answered, NotSupported, HandshakeFailed, StreamStartsAt, Closed
_NEXT = _WAITING, _CONNECTING
TRANSITIONS: Table = transitions(
    (MasterIs, _IDLE, Cell(SlaveCore._master_is, "begins to look for it", _NEXT)),
    (MasterIs, _WAITING, Cell(SlaveCore._master_is, "looks for it from now on", (_IDLE, _CONNECTING))),
    (MasterIs, _CONNECTING, Cell(SlaveCore._master_is, "looks for another one instead", (_IDLE, _WAITING))),
    (MasterIs, CONNECTED, Cell(SlaveCore._master_is, "leaves its master for it", (_IDLE, *_NEXT))),
    (MasterIs, _FAULTY, Cell(SlaveCore._master_is, "keeps it for later")),
    (Tick, (_IDLE, _FAULTY), Cell(SlaveCore._look, "shows everything if no master is seen for long")),
    (Tick, _WAITING, Cell(SlaveCore._tick_waiting, "connects, once the log is flushed", (_CONNECTING,))),
    (Tick, _CONNECTING, Cell(SlaveCore._tick_connecting, "late: looks for the master again", (_WAITING,))),
    (Tick, _HANDSHAKE, Cell(SlaveCore._tick_handshake, "late: looks for the master again", _NEXT)),
    (Tick, _ACCEPTED, Cell(SlaveCore._tick_accepted, "late: looks for the master again", _NEXT)),
    (Tick, _TRANSFER, Cell(SlaveCore._tick_transfer, "asks for the confirm offset, or ends a silent stream", _NEXT)),
    (
        Connected,
        _CONNECTING,
        Cell(SlaveCore._connected, "asks the broker, if there is one, or control", (_HANDSHAKE, _ACCEPTED, _WAITING)),
    ),
    (ConnectFailed, _CONNECTING, Cell(SlaveCore._connect_failed, _AGAIN, (_WAITING,))),
    (Answered, _HANDSHAKE, Cell(SlaveCore._answered, "does as the verdict says", (_ACCEPTED, _RESTARTING, _WAITING))),
    (NotSupported, _HANDSHAKE, Cell(SlaveCore._not_supported, "asks control about a stock master", (_ACCEPTED,))),
    (HandshakeFailed, _HANDSHAKE, Cell(SlaveCore._handshake_failed, _AGAIN, _NEXT)),
    (Stream, _ACCEPTED, Cell(SlaveCore._stream, "takes the stream, if it is for this attempt", (_TRANSFER,))),
    (Reject, _ACCEPTED, Cell(SlaveCore._reject, "leaves the master, if it is for this attempt", (_WAITING,))),
    (
        StreamStartsAt,
        _TRANSFER,
        Cell(SlaveCore._stream_starts_at, "begins an empty log there, or leaves", (_RESTARTING, *_NEXT)),
    ),
    (Closed, (_HANDSHAKE, _TRANSFER), Cell(SlaveCore._closed, _AGAIN, _NEXT)),
    (Confirmed, _TRANSFER, Cell(SlaveCore._confirmed, "shows the log up to it, or leaves a new process", _NEXT)),
    (ConfirmFailed, _TRANSFER, Cell(SlaveCore._confirm_failed, "asks again at its time")),
    (StoreFault, (_IDLE, _WAITING), Cell(SlaveCore._fault, "makes no more attempts", (_FAULTY,))),
    (StoreFault, LINKED, Cell(SlaveCore._fault, "leaves the master", (_FAULTY,))),
    (StoreFault, _FAULTY, Cell(SlaveCore._fault, "logs this fault, too")),
    (StoreRecovered, _FAULTY, Cell(SlaveCore._recovered, _AGAIN, (_IDLE, *_NEXT))),
    (_OF_ATTEMPTS, (_IDLE, _WAITING, _FAULTY), _OVER),
    ((Answered, NotSupported, HandshakeFailed, StreamStartsAt, Closed), _CONNECTING, _OVER),
    ((Connected, ConnectFailed, StreamStartsAt), _HANDSHAKE, _OVER),
    ((Connected, ConnectFailed, Answered, NotSupported, HandshakeFailed), _TRANSFER, _OVER),
    ((Connected, ConnectFailed, Answered, NotSupported, HandshakeFailed, StreamStartsAt, Closed), _ACCEPTED, _OVER),
    ((Stream, Reject), (_IDLE, _WAITING, _CONNECTING, _HANDSHAKE, _TRANSFER, _FAULTY), _LATE),
    ((Confirmed, ConfirmFailed), (_IDLE, _WAITING, _CONNECTING, _HANDSHAKE, _ACCEPTED, _FAULTY), _UNASKED),
    (StoreRecovered, (_IDLE, _WAITING, *LINKED), ignored("no fault of the store is known")),
    (EVENTS, _RESTARTING, ignored("the worker ends, and its next process begins anew")),
)
"""A pause may be none: then the next attempt begins within the same step."""
