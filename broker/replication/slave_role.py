"""A slave's part of control: finds its master, passes the master's address to ha, and synchronises the master's tables.

`ControlLoop` passes the answers of name servers to it. Requests to the master run on a thread.

Tables are synchronised only while the log streams from that master. A master that came back without this slave's
records holds the slave off. It may have lost its tables, too, and the synchronisation would delete them here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec.structs import asdict

from ringmq.broker.config.identity import Identity
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.outbound_calls import OutboundCalls, Outcome
from ringmq.broker.replication.copied_files import CopiedFiles
from ringmq.broker.replication.master_finder import MasterFinder
from ringmq.broker.replication.slave_tables import SlaveTables
from ringmq.broker.replication.state import Replication
from ringmq.broker.replication.view import TRANSFER
from ringmq.broker.tables import file_entries
from ringmq.broker.tables.offsets import CommitKey
from ringmq.ha.control_messages import Master
from ringmq.ha.slave_sync import Ask, ConsumerOffsets, FileText, RequestModes, SlaveSync
from ringmq.ipc.audit import Kind
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting.admin_bodies import GroupConfigTable
from ringmq.remoting.client_headers import UpdateConsumerOffsetRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode, code_name
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import TopicConfigTable
from ringmq.remoting.errors import RemotingError

log = logging.getLogger(__name__)

SEARCH_PERIOD_MS = 1000
"""Period of requests to the name servers while the link to the master is down. With stock's 30 s, consumers would learn
late that the master is gone, or back.
"""
HAND_OVER_TIMEOUT_MS = 3000
SILENT_MS = 60_000
"""Time between two lines about troubles with one progress."""
NOTHING_ORDERED = Master(""), -1
NO_TROUBLE = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SLAVE_NOT_AVAILABLE)
"""Answers of a master that knows no such progress, that is a slave by now, or that waits for a slave's log."""


class ProgressSync(Protocol):
    """A schedule of requests for a master's progress. See `SlaveSync` for its methods."""

    def master_is(self, address: str, now_ms: int) -> None: ...

    def due(self, now_ms: int, own_end: int = 0) -> Ask | None: ...

    def answered(self, ask: Ask, answer: RemotingCommand, now_ms: int) -> None: ...

    def failed(self, ask: Ask, now_ms: int) -> None: ...

    def refused(self, ask: Ask, code: int, now_ms: int) -> None:
        """The master has answered with an error."""

    @property
    def needs_end(self) -> bool:
        """True if an answer counts only with the one that is asked for next."""


class SlaveProgress(Protocol):
    """The progress of a guest on the master, which a slave relies on once its log is as long as the master's was.

    A guest's row names its class.
    """

    what: str
    """The messages whose progress it is, for log lines."""

    @property
    def sync(self) -> ProgressSync:
        """The requests to the master."""

    @property
    def is_wanted(self) -> bool:
        """False if the configuration leaves the guest out."""

    def close(self) -> None:
        """Wait for files that are being written."""

    def save(self, own_end: int, now_ms: int) -> None:
        """Save the newest progress for which a log up to `own_end` is long enough. Raises OSError."""


class SlaveRole:
    """The slave's part. `turn` does the due work."""

    def __init__(
        self,
        *,
        identity: Identity,
        live: LiveConfig,
        replication: Replication,
        tables: SlaveTables,
        files: CopiedFiles,
        root: Path,
        progress: Sequence[SlaveProgress],
        master_calls: OutboundCalls,
    ) -> None:
        self._replication = replication
        self._tables = tables
        self._files, self._root = files, root
        self._calls = master_calls
        self._finder = MasterFinder(identity.address, live.config.ha_master_address)
        self._sync = SlaveSync(live.config.slave_sync_period, files.rows)
        self._live = live
        self._progress = progress
        self._ask: Ask | None = None
        self._asks_for: SlaveProgress | None = None
        """The progress that the request is about. None: it is about tables."""
        self._handing_over: deque[CommitKey] = deque()
        self._is_following = True
        self._ordered: tuple[Master, int] = NOTHING_ORDERED
        self._failing: dict[str, str] = {}
        """The trouble of each table and each progress that is logged already."""
        self._silent_until_ms: dict[str, int] = {}
        """The time from which another trouble of each progress is logged."""

    @property
    def is_searching(self) -> bool:
        """True if there is no stream from a master, so the name servers should be asked sooner than usual."""
        return self._replication.view.link().state != TRANSFER

    def on_registration(self, outcome: Outcome) -> None:
        """Apply the outcome of our registration at a name server."""
        if outcome.error is not None:
            self._finder.lost(outcome.address)
            return
        before = self._finder.master
        if outcome.answer is not None and self._finder.on_answer(outcome.address, outcome.answer.ext_fields):
            audit = self._replication.audit
            with audit.caused_by(outcome.address, code_name(RequestCode.REGISTER_BROKER)):
                audit.add(Kind.ROLE, "master of this slave", asdict(before), asdict(self._finder.master))

    def turn(self, now_ms: int, ha_generation: int) -> None:
        """Pass the master's address to ha and the readers, and go on with the synchronisation."""
        replication = self._replication
        replication.master = self._finder.master
        replication.is_master_registered = self._finder.is_registered
        is_known = self._finder.is_registered if self._finder.has_answers else not self.is_searching
        replication.view.show_master(is_known)
        self._order(ha_generation)
        for outcome in self._calls.outcomes():
            self._on_outcome(outcome, now_ms)
        master = self._finder.master.broker if self._finder.is_registered else ""
        self._sync.master_is(master, now_ms)
        own_end = replication.view.marks().append_offset
        for progress in self._progress:
            progress.sync.master_is(master if progress.is_wanted else "", now_ms)
            self._save(progress, own_end, now_ms)
        if self._ask is None and not self.is_searching:
            self._ask_next(now_ms, own_end)

    def _ask_next(self, now_ms: int, own_end: int) -> None:
        """One request is in flight at a time. A pass of tables is short, and begins every 10 s."""
        self._ask, self._asks_for = self._sync.due(now_ms, own_end), None
        for progress in self._progress:
            if self._ask is None:
                self._ask, self._asks_for = progress.sync.due(now_ms, own_end), progress
        if self._ask is not None:
            self._calls.call(self._ask.address, self._ask.command(), self._ask.timeout_ms)

    def _save(self, progress: SlaveProgress, own_end: int, now_ms: int) -> None:
        try:
            progress.save(own_end, now_ms)
        except OSError as error:
            trouble = f"the master's progress with {progress.what} cannot be saved: {error}"
            self._log_progress(trouble, progress, now_ms)

    def close(self, timeout_s: float) -> None:
        """End the calls, and wait for files that are being written."""
        self._calls.close(timeout_s)
        for progress in self._progress:
            progress.close()

    def _order(self, ha_generation: int) -> None:
        """Send the master's address to ha, or withdraw it. A restarted ha has forgotten it."""
        wanted = (self._finder.master if self._is_following else Master(""), ha_generation)
        is_change = wanted != self._ordered and (wanted[0].ha or self._ordered[0].ha)
        if is_change and self._replication.view.give(wanted[0]):
            self._ordered = wanted

    def follow(self, master: Master) -> None:
        """Look for a master. The known one, unless its ha port is "" or haMasterAddress is set."""
        self._is_following = True
        self._finder.suggest(master)
        if master.ha:  # it has become the master: ha tries it at once, also if it has refused before
            self._ordered = (Master(""), 0)

    def unfollow(self) -> None:
        """Leave the master, and look for none."""
        self._is_following = False

    # ---- what the master answers ----

    def _on_outcome(self, outcome: Outcome, now_ms: int) -> None:
        if outcome.request_code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self._handed_over(outcome)
            return
        ask = self._ask
        if ask is None or (ask.address, ask.code) != (outcome.address, outcome.request_code):
            return
        self._ask = None
        if self._asks_for is not None:
            self._on_progress(self._asks_for, ask, outcome, now_ms)
            return
        if self.is_searching:  # the link was lost meanwhile: the answer may come from a former master
            self._sync.failed(ask, now_ms)
            return
        if outcome.error is None and outcome.answer is not None:
            with self._replication.audit.caused_by(ask.address, code_name(ask.code)):
                refused = self._take(ask, outcome.answer, now_ms)
            self._log_throttled(refused, code_name(ask.code))
            return
        trouble = f"request {ask.code} to the master at {outcome.address}: {outcome.error}"
        self._log_throttled(trouble, code_name(ask.code))
        if outcome.answer is None:
            self._sync.failed(ask, now_ms)
        else:
            self._sync.refused(ask, now_ms)

    def _on_progress(self, progress: SlaveProgress, ask: Ask, outcome: Outcome, now_ms: int) -> None:
        answer = outcome.answer
        if self.is_searching:
            progress.sync.failed(ask, now_ms)
            return
        trouble = outcome.error or ""
        if answer is None:
            progress.sync.failed(ask, now_ms)
        elif trouble:
            progress.sync.refused(ask, answer.code, now_ms)
            if answer.code in NO_TROUBLE:
                return
        else:
            try:
                progress.sync.answered(ask, answer, now_ms)
            except RemotingError as error:
                trouble = str(error)
        if trouble:
            trouble = f"request {ask.code} to the master at {ask.address}: {trouble}"
        if not progress.sync.needs_end:
            self._log_progress(trouble, progress, now_ms)

    def _take(self, ask: Ask, answer: RemotingCommand, now_ms: int) -> str:
        """Apply a table. Returns a line about entries that could not be applied, or ""."""
        tables = self._tables
        try:
            match self._sync.answered(ask, answer, now_ms):
                case TopicConfigTable() as topics:
                    return file_entries.joined(tables.take_topics(topics, now_ms))
                case GroupConfigTable() as groups:
                    return file_entries.joined(tables.take_groups(groups, now_ms))
                case ConsumerOffsets() as offsets:
                    self._hand_over(tables.newer_offsets(offsets))
                    return file_entries.joined(tables.take_offsets(offsets, now_ms))
                case RequestModes() as modes:
                    return file_entries.joined(tables.take_modes(modes))
                case FileText(code=code, text=text):
                    self._files.take(self._root, code, text)
        except (RemotingError, PlaneFullError, OSError) as error:
            return f"request {ask.code} to the master at {ask.address}: {error}"
        return ""

    def _hand_over(self, newer: dict[CommitKey, int]) -> None:
        """Send the master the offsets that consumers have committed here while there was no master. They may have
        committed later ones to the master since it answered."""
        for key, offset in newer.items():
            if key in self._handing_over:
                continue
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=key[0], topic=key[1], queue_id=key[2], commit_offset=offset, only_forward=True
            )
            command = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header.encode())
            self._handing_over.append(key)
            self._calls.call(self._sync.master, command, HAND_OVER_TIMEOUT_MS)

    def _handed_over(self, outcome: Outcome) -> None:
        key = self._handing_over.popleft()
        if outcome.answer is not None:  # taken, or refused for good: the group or topic is gone
            self._tables.offsets.committed_here.discard(key)

    def _log_progress(self, trouble: str, progress: SlaveProgress, now_ms: int) -> None:
        """Log a trouble, and none behind it for a minute: troubles of requests four times a second may come and go."""
        what = progress.what
        if trouble and trouble != self._failing.get(what, ""):
            if now_ms < self._silent_until_ms.get(what, 0):
                return
            self._silent_until_ms[what] = now_ms + SILENT_MS
        self._log_throttled(trouble, what)

    def _log_throttled(self, trouble: str, what: str) -> None:
        """Log each trouble of a table once, until it is over. "" = the table has none."""
        if trouble != self._failing.get(what, ""):
            self._failing[what] = trouble
            if trouble:
                log.warning("%s", trouble)
