"""A slave's decisions about its master: `step(event, now_ms) -> effects`, without sockets and log.

    idle --MasterIs--> waiting --Tick, when due--> connecting --Connected--> handshake --accept, or stock--> transfer
      ^                   ^                            |                        |   |                           |
      |                   +-----failed, late-----------+-----hold, refuse-------+---|---closed, silent----------+
      +--no master any more                                                         +--start_at, cut--> restarting

    faulty: the own store takes no bytes; back to waiting when it does.

The first attempt is made at once, later ones after up to 5 s as in stock's DefaultHAClient. There, a link that carried
anything counts as a success. Without the address of the master's broker port there is no handshake. If no name server
is set that could give the address (haMasterAddress alone), the stream starts on the offset alone. If one is set, the
stream waits for it. Otherwise a stream might append behind a tail that the master does not have, and no later handshake
need find that. When the address of a running stream's master becomes known, the stream starts again with a handshake.

confirm_limit is the end of the log that consumers may see here. With a RingMQ master it is the last confirm offset of
the master. While the master holds this slave off, it is the part of that which both have. With a stock master it is
everything. A master that may not cut this log hides no record that was here before its link. A lost link does not mean
that the master is gone. The slave shows everything received after MASTER_UNKNOWN_MS of attempts without a sign of one.
A slave whose own store takes no bytes makes no attempts, and learns nothing of its master.
"""

from __future__ import annotations

from logging import ERROR, WARNING

from msgspec import Struct, field
from msgspec.structs import replace

from ringmq.ha import handshake
from ringmq.ha.control_messages import LinkNews
from ringmq.ha.handshake import HandshakeAnswer
from ringmq.ha.settings import HaSettings
from ringmq.ha.slave_events import (
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
    RestartStore,
    Snapshot,
    StartTransfer,
    StoreFault,
    StoreRecovered,
    StreamStartsAt,
    Tick,
)
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


class SlaveCore(Struct):
    """One slave's link. `snapshot`: the slave at its start."""

    settings: HaSettings
    snapshot: Snapshot
    state: str = "idle"
    _master: MasterIs = field(default=MasterIs("", ""))
    _since_ms: int | None = None
    _alone_since_ms: int | None = None
    """Start of the time without a sign of a live master. None: a master lives, or the slave looks for none."""
    _failures: int = 0
    _due_ms: int = 0
    _local_port: int = 0
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
        if self._alone_since_ms is None or self._limit == NO_LIMIT or self.state in ("handshake", "transfer"):
            return None
        return self._alone_since_ms + MASTER_UNKNOWN_MS

    def _state_due_ms(self) -> int | None:
        since_ms = self._since_ms or 0
        match self.state:
            case "waiting":
                return self._due_ms
            case "connecting":
                return since_ms + CONNECT_TIMEOUT_MS
            case "handshake":
                return since_ms + HANDSHAKE_TIMEOUT_MS
            case "transfer":
                silent_ms = self._last_frame_ms() + self.settings.housekeeping_ms + 1
                if not self._master_start_id:
                    return silent_ms
                return min(silent_ms, self._confirm_due_ms)
        return None

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """The effects of one event, in order."""
        if self.state == "restarting":
            return []
        if self._since_ms is None:
            self._since_ms = self._alone_since_ms = now_ms
        match self.state, event:
            case _, Tick(snapshot=snapshot):
                self.snapshot = snapshot
                return self._tick(now_ms)
            case _, MasterIs():
                return self._master_is(event, now_ms)
            case _, StoreFault(text=text):
                return self._fault(text, now_ms)
            case "faulty", StoreRecovered():
                return [Log("the store accepts bytes again"), *self._wait(now_ms, 0)]
            case "connecting", Connected(local_port=port, host=host):
                self._ha_host = host
                return self._connected(port, now_ms)
            case "connecting", ConnectFailed(why=why):
                return self._lost(f"no connection to master {self._master.ha}: {why}", now_ms)
            case "handshake", Answered(answer=answer, host=host):
                return self._on_answer(answer, host, now_ms)
            case "handshake", NotSupported():
                return self._transfer("", NO_LIMIT, now_ms)
            case "handshake", HandshakeFailed(why=why):
                return self._failed(f"no handshake with master {self._master.broker}: {why}", now_ms)
            case "transfer", StreamStartsAt(offset=offset):
                return self._stream_starts_at(offset, now_ms)
            case "transfer", Confirmed(offset=offset, start_id=start_id):
                return self._confirmed(offset, start_id, now_ms)
            case "transfer", ConfirmFailed():
                self._asked_ms = None
            case "handshake" | "transfer", Closed(why=why):
                return self._lost(f"the connection to master {self._master.ha} is gone: {why}", now_ms)
        return []

    # -- towards a connection ------------------------------------------------------------------------------------------

    def _master_is(self, master: MasterIs, now_ms: int) -> list[Effect]:
        before = self._master
        if master.ha == before.ha and not master.broker:  # a control that was started again does not know it yet
            master = before
        self._master = master
        linked = self.state in ("connecting", "handshake", "transfer")
        decided_now = self.state in ("waiting", "transfer") and not before.broker and master.broker
        if master.ha == before.ha and not decided_now:
            return []
        is_same = master.ha == before.ha
        why = "the address of the master's broker is known now" if is_same else "the master has another address"
        effects: list[Effect] = [Disconnect(why)] if linked else []
        if self.state == "faulty":
            return effects
        self._failures, self._alone_since_ms = 0, None
        if not master.ha:
            return [*effects, Log("no master is known", WARNING), *self._wait(now_ms, 0)]
        told_soon = self.settings.namesrv_addr and not master.broker
        return [*effects, *self._wait(now_ms, MASTER_UNKNOWN_MS if told_soon else 0)]

    def _wait(self, now_ms: int, delay_ms: int) -> list[Effect]:
        if not self._master.ha:
            self.state = "idle"
            self._alone(now_ms)
            return []
        self.state, self._due_ms = "waiting", now_ms + delay_ms
        return self._tick(now_ms)

    def _alone(self, now_ms: int) -> None:
        """Record that there is no sign of a live master, from now on or already."""
        if self._alone_since_ms is None:
            self._alone_since_ms = now_ms

    def _tick(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        gone_ms, late_ms = self._gone_ms(), self._state_due_ms()
        if gone_ms is not None and now_ms >= gone_ms:
            effects = [Log(f"no sign of a master for {MASTER_UNKNOWN_MS} ms", WARNING), *self._limited(NO_LIMIT)]
        return effects if late_ms is None or now_ms < late_ms else [*effects, *self._tick_state(now_ms)]

    def _tick_state(self, now_ms: int) -> list[Effect]:
        match self.state:
            case "waiting" if self._unflushed():
                self._due_ms = now_ms + FLUSH_LOOK_MS
                return []
            case "waiting":
                self.state, self._since_ms = "connecting", now_ms
                return [Connect(self._master.ha)]
            case "connecting":
                why = f"no connection to master {self._master.ha} in {CONNECT_TIMEOUT_MS} ms"
                return [Disconnect(why), *self._lost(why, now_ms)]
            case "handshake":
                return self._failed(f"no answer of master {self._master.broker} in {HANDSHAKE_TIMEOUT_MS} ms", now_ms)
        return self._tick_transfer(now_ms)

    def _unflushed(self) -> bool:
        """True if the log has bytes to flush first. The first report gives the start of the stream. Under SYNC_FLUSH it
        also stands for the disk."""
        flushes = self.settings.flush_disk_type == "SYNC_FLUSH"
        return flushes and self.snapshot.flushed_offset < self.snapshot.append_offset

    def _connected(self, port: int, now_ms: int) -> list[Effect]:
        self._local_port = port
        if not self._master.broker:
            told = self.settings.namesrv_addr
            return self._nobody_to_ask(now_ms) if told else self._transfer("", NO_LIMIT, now_ms)
        self.state, self._since_ms, self._compared = "handshake", now_ms, 0
        return [Handshake(self._master.broker, port)]

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

    def _on_answer(self, answer: HandshakeAnswer, host: str, now_ms: int) -> list[Effect]:
        own_end, self._alone_since_ms = self.snapshot.append_offset, None
        self._floor = 0 if self._may_cut(host) else own_end
        match answer.verdict:
            case handshake.COMPARE if self._compared < COMPARES_MAX:
                self._compared, self._since_ms = self._compared + 1, now_ms
                return [Handshake(self._master.broker, self._local_port, answer.offset)]
            case handshake.ACCEPT:
                return self._transfer(answer.start_id, answer.confirm_offset, now_ms)
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
        self.state = "restarting"
        text = f"the store is closed to {order.action} the log at {order.offset}: {reason}"
        return [Disconnect(text), Log(text, WARNING), RestartStore(order)]

    # -- the stream ----------------------------------------------------------------------------------------------------

    def _transfer(self, start_id: str, confirm_offset: int, now_ms: int) -> list[Effect]:
        """Start the stream. start_id: "" = a stock master, or one without a handshake."""
        self.state, self._since_ms, self._master_start_id = "transfer", now_ms, start_id
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

    def _tick_transfer(self, now_ms: int) -> list[Effect]:
        if now_ms - self._last_frame_ms() > self.settings.housekeeping_ms:
            why = f"nothing from master {self._master.ha} for {self.settings.housekeeping_ms} ms"
            return [Disconnect(why), *self._lost(why, now_ms)]
        self._confirm_due_ms = now_ms + CONFIRM_PERIOD_MS
        if self._asked_ms is not None and now_ms - self._asked_ms < CONFIRM_TIMEOUT_MS:
            return []
        self._asked_ms = now_ms
        return [AskConfirm(self._master.broker)]

    def _last_frame_ms(self) -> int:
        return max(self.snapshot.last_read_ms, self._since_ms or 0)

    def _stream_starts_at(self, offset: int, now_ms: int) -> list[Effect]:
        """The effects of a stream that starts elsewhere. Stock gives an empty slave its newest file alone. A slave with
        records never starts afresh by itself."""
        why = f"the stream starts at {offset}, this log ends at {self.snapshot.append_offset}"
        if self.snapshot.empty and offset > 0 and self._may_start_at(offset):
            return self._restart(StoreTask(REBASE, offset), why)
        lacks = "" if offset < self.snapshot.append_offset else f": {self.snapshot.append_offset}..{offset} is missing"
        return self._failed(f"{why}{lacks}", now_ms)

    def _confirmed(self, offset: int, start_id: str, now_ms: int) -> list[Effect]:
        self._asked_ms = None
        if start_id != self._master_start_id:
            return self._failed(f"master {self._master.broker} was started again", now_ms)
        return self._limited(offset)

    # -- endings -------------------------------------------------------------------------------------------------------

    def _failed(self, why: str, now_ms: int) -> list[Effect]:
        return [Disconnect(why), *self._lost(why, now_ms)]

    def _lost(self, why: str, now_ms: int) -> list[Effect]:
        """The connection, or the attempt, has ended. Later attempts show if the master is gone, too."""
        was_linked = self.state == "transfer"
        if was_linked and self.snapshot.received_bytes:
            self._failures = 0
        delay_ms = BACK_OFF_MS[min(self._failures, len(BACK_OFF_MS) - 1)]
        self._failures += 1
        self._alone(now_ms)
        effects = self._log_once(why)
        if was_linked:
            effects.append(NotifyControl(LinkNews(self._master.ha, "closed", why=why)))
        return [*effects, *self._wait(now_ms, delay_ms)]

    def _fault(self, text: str, now_ms: int) -> list[Effect]:
        linked = self.state in ("connecting", "handshake", "transfer")
        effects: list[Effect] = [Disconnect(text)] if linked else []
        self.state, self._alone_since_ms = "faulty", None
        return [*effects, Log(f"no log is received from the master: {text}", ERROR)]

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
