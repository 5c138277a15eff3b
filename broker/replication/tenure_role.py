"""The shell of the core of this broker's role (`ha/tenure_core.py`) in control.

It shows the role to brokers of the group (270010), makes promises to them, notes the epoch of a master before this
slave reports to it, and carries out changes of the role. A stock master, and a RingMQ that does not know the request,
have epoch 0.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.file_role import FirstRole, difference
from ringmq.broker.config.identity import Identity
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.outbound_calls import OutboundCalls, Outcome
from ringmq.broker.replication.peer_rounds import PeerRounds
from ringmq.broker.replication.role_desk import RoleDesk, Standing
from ringmq.broker.replication.view import FREE, ReplicationView
from ringmq.ha.control_messages import REASON_CHARS_MAX, AcceptedNews, Master, MessageError, Verdict
from ringmq.ha.tenure_core import TenureCore
from ringmq.ha.tenure_events import (
    Accepted,
    Ask,
    Began,
    Changed,
    Effect,
    Ended,
    Event,
    FileFailed,
    FileWritten,
    Follow,
    Log,
    MayStop,
    Order,
    PeerSeen,
    Plan,
    PromiseAsked,
    Publish,
    Refuse,
    Register,
    Reject,
    Release,
    Released,
    Step,
    StepDone,
    StepFailed,
    Stop,
    Stream,
    Tick,
    Unfollow,
    WriteFile,
)
from ringmq.ha.tenure_memory import Own
from ringmq.ha.tenure_messages import SHOW, Group, Question, Showing, answer_of, question_body
from ringmq.ha.tenure_states import State
from ringmq.ipc.audit import Actor, AuditTrail
from ringmq.ipc.tenure import Tenure, TenureState, tenure_of
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.role_bodies import RoleState
from ringmq.store.tenure_file import Addresses, Found, TenureRecord, UnsyncedTenureError, write_tenure

log = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 3000


class MasterLink(Protocol):
    """The connection of a slave to its master, in control (`slave_role`)."""

    def follow(self, master: Master) -> None:
        """Look for a master. The known one, unless its ha port is ""."""

    def unfollow(self) -> None:
        """Leave the master, and look for none."""


class RoleModes(Protocol):
    """The workers and the parts of control, which change with the role."""

    def publish(self, tenure: Tenure) -> None:
        """Store the word of the watermark page, and have all workers look at it."""

    def order(self, step: Step) -> None:
        """Begin a step. It takes the place of one under way."""

    def outcomes(self) -> list[StepDone | StepFailed]:
        """Steps that have ended since the last call."""


class TenureRole(Struct):
    """The shell. `turn` takes what has happened since."""

    core: TenureCore
    first: FirstRole
    identity: Identity
    live: LiveConfig
    view: ReplicationView
    calls: OutboundCalls
    rounds: PeerRounds
    desk: RoleDesk
    modes: RoleModes | None = None
    """None without workers: the role does not change."""
    on_register: Callable[[TenureRecord], None] | None = None
    """Takes the new role to the configuration in use, and registers the broker with it."""
    registers: bool = True
    """False while a start as master asks its peers: clients must not hear of a master that may be none."""
    may_stop: bool = False
    """True if the role is settled since `stop`, or if the next start settles it."""
    link: MasterLink | None = None
    """None on a master."""
    accepted: AcceptedNews | None = None
    """The master that has accepted this slave, until worker ha has its verdict."""
    is_let: bool = False
    """True from a verdict for a master until worker ha tells how its link goes on."""
    registered_epoch: int | None = None
    """The epoch of the last registration. The brokerId of a slave follows from it."""
    is_shown: bool = False
    """True if the core has heard of the master of `accepted`, and not only of one that was accepted before."""
    _open: Counter[str] = field(default_factory=Counter)
    """Address of a master -> questions without an outcome, those for earlier attempts included."""

    @classmethod
    def of(
        cls,
        first: FirstRole,
        found: Found,
        identity: Identity,
        live: LiveConfig,
        view: ReplicationView,
        calls: OutboundCalls,
        peer_calls: OutboundCalls,
        audit: AuditTrail,
    ) -> TenureRole:
        """The role of a broker whose configuration names `first`, and that has found this file."""
        alone = live.config.ha_start_alone
        own = Own(identity.address, first.owner.broker_id, first.is_master, first.policy(live.config), alone)
        rounds = PeerRounds(Group(first.owner.cluster, first.owner.broker_name), live, peer_calls)
        core = TenureCore.of(own, found)
        state = TenureState.MASTER if core.record.is_master else TenureState.SLAVE
        desk = RoleDesk(first.owner.broker_name, core, audit, Tenure(state, core.record.epoch))
        return cls(core, first, identity, live, view, calls, rounds, desk)

    @property
    def group(self) -> Group:
        """The group of this broker."""
        return self.rounds.group

    @property
    def is_linked(self) -> bool:
        """True if the log of a master streams in, or may at any moment."""
        return self.live.follows_master and (self.is_let or self.view.link().state != FREE)

    def begin(self, now_ms: int, *, is_first: bool) -> None:
        """Go on with the published tenure. is_first: this process is the first control of the start."""
        tenure = tenure_of(self.live.marks)
        self.registers = tenure.state is not TenureState.TAKING or not self.core.record.is_master
        self._step(Began(tenure, is_first), now_ms)

    def turn(self, now_ms: int) -> None:
        """Do the due work."""
        for outcome in self.calls.outcomes():
            self._on_outcome(outcome, now_ms)
        for event in self.rounds.events(now_ms, self.view.marks().append_offset):
            self._step(event, now_ms)
        for step in self.modes.outcomes() if self.modes is not None else ():
            self._step(step, now_ms)
        due_ms = self.core.due_ms
        if due_ms is not None and now_ms >= due_ms:
            self._step(Tick(), now_ms)

    def stop(self, now_ms: int) -> None:
        """The broker shall stop: `may_stop` follows. Each call but the first changes nothing."""
        if self.core.state is not State.ENDED:
            self._step(Stop(), now_ms)

    def close(self, timeout_s: float) -> None:
        """End the calls."""
        self.calls.close(timeout_s)
        self.rounds.calls.close(timeout_s)

    def showing(self) -> Showing:
        """This broker as it shows itself."""
        core, config = self.core, self.live.config
        addresses = Addresses(self.identity.address, self.identity.ha_address(config))
        peer = core.describe(addresses, self.view.marks().append_offset, is_linked=self.is_linked)
        return Showing(self.group, peer, core.record.policy, core.others, core.record.history)

    def note(self) -> str:
        """The line for /ready: the reason why a start as master waits, or a configuration with another role than the
        tenure file. "" if there is none."""
        return self.core.failure if self.core.state is State.HOLDS else difference(self.first, self.core.record)

    def on_link(self) -> None:
        """Worker ha has told how its link goes on."""
        self.is_let = False

    def take_question(self, question: Question, host: str, now_ms: int) -> str:
        """A peer shows itself, and asks for a promise or gives it back. Returns the reason of a refusal, or "".

        host: of its connection. Any host may look, and only named ones count.
        """
        is_named = self.rounds.is_named(host)
        if not is_named and question.operation != SHOW:
            return f"haAllowedNetworks does not name {host}: no promise is made to it"
        if is_named:
            self._step(PeerSeen(question.peer), now_ms)
        match question.operation:
            case "promise":
                address = question.peer.addresses.broker
                self._step(PromiseAsked(question.epoch, address, self.is_linked), now_ms)
            case "release":
                self._step(Released(question.epoch), now_ms)
        return ""

    def take_order(self, choice: str, actor: Actor, obstacles: tuple[str, ...], now_ms: int, *, accepts: bool) -> None:
        """An operator's order (270009). obstacles: reasons why the store cannot be a master's. accepts: a loss. Raises
        RoleBusyError."""
        standing = Standing(obstacles, self.is_linked, bool(self.live.config.ha_allowed_networks))
        self._perform(self.desk.take_order(choice, actor, standing, now_ms, accepts_loss=accepts), now_ms)

    def state(self) -> RoleState:
        """The answer to an operator."""
        return self.desk.state(self.rounds.advice())

    def on_accepted(self, news: AcceptedNews, now_ms: int) -> None:
        """A master has accepted this slave. Its epoch has to be known before the first report."""
        self.accepted, self.is_let, self.is_shown = news, False, False
        if news.stock:
            self._take_accepted(Accepted(Addresses(news.broker, news.master), is_stock=True), now_ms)
            return
        body = question_body(Question(SHOW, 0, self.group, self.showing().peer))
        self._open[news.broker] += 1
        self.calls.call(news.broker, RemotingCommand.request(RequestCode.HA_TENURE, {}, body), ASK_TIMEOUT_MS)

    def _is_of_attempt(self, outcome: Outcome) -> bool:
        """Count an outcome. Calls to one address end in their order, so the last one is that of the present attempt.

        A master may be demoted and promoted between two attempts: its answer to the first has an older epoch.
        """
        self._open[outcome.address] -= 1
        news = self.accepted
        if self._open[outcome.address]:
            return False
        del self._open[outcome.address]
        return news is not None and not news.stock and news.broker == outcome.address

    def _on_outcome(self, outcome: Outcome, now_ms: int) -> None:
        news = self.accepted
        if not self._is_of_attempt(outcome) or news is None:
            return
        master, answer = Addresses(news.broker, news.master), outcome.answer
        if answer is not None and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._take_accepted(Accepted(master), now_ms)
            return
        if answer is None or outcome.error is not None:
            self._answer(f"it does not show its epoch: {outcome.error}")
            return
        try:
            showing = answer_of(bytes(answer.body))
        except MessageError as error:
            self._answer(f"it does not show its epoch: {error}")
            return
        if showing.group != self.group:
            self._answer(f"it is of {showing.group.cluster}/{showing.group.broker_name}")
        elif showing.peer.tenure.state is not TenureState.MASTER:
            self._answer("it is no master any more")
        else:
            epoch = showing.peer.tenure.epoch
            self._take_accepted(Accepted(master, epoch, showing.history, showing.policy, showing.peers), now_ms)

    def _take_accepted(self, event: Accepted, now_ms: int) -> None:
        self.is_shown = True
        self._step(event, now_ms)

    def _step(self, event: Event, now_ms: int) -> None:
        self._perform(self.core.step(event, now_ms), now_ms)

    def _perform(self, effects: Iterable[Effect], now_ms: int) -> None:
        """The answer to PromiseAsked shows whether the promise is made, so AnswerPromise has nothing to do."""
        for effect in effects:
            match effect:
                case Publish(tenure=tenure) if self.modes is not None:
                    self.modes.publish(tenure)
                case Order(step=step) if self.modes is not None:
                    self.modes.order(step)
                case Register():
                    self.registers = True
                    self._register()
                case Release():
                    self.rounds.release(effect, self.showing().peer)
                case Refuse() | Plan() | Ended() | Changed():
                    self.desk.hear(effect)
                case MayStop():
                    self.may_stop = True
                case WriteFile(record=record):
                    self._step(self._written(record), now_ms)
                case Stream() if self.is_shown:
                    if self.core.record.epoch != self.registered_epoch:
                        self._register()
                    self._answer("")
                case Reject(why=why) if self.is_shown:
                    self._answer(why)
                case Ask():
                    record = self.core.record
                    master = "" if record.is_master else record.master.broker
                    self.rounds.begin(effect, self.showing().peer, master, now_ms)
                case Follow(master=master) if self.link is not None:
                    self.link.follow(Master(master.ha, master.broker))
                case Unfollow() if self.link is not None:
                    self.accepted = None
                    self.link.unfollow()
                case Log(text=text, level=level):
                    log.log(level, "%s", text)

    def _register(self) -> None:
        self.registered_epoch = self.core.record.epoch
        if self.on_register is not None:
            self.on_register(self.core.record)

    def _written(self, record: TenureRecord) -> FileWritten | FileFailed:
        try:
            write_tenure(Path(self.live.config.store_path_root_dir), self.first.owner, record)
        except OSError as error:
            return FileFailed(str(error), is_old_kept=not isinstance(error, UnsyncedTenureError))
        return FileWritten()

    def _answer(self, why_not: str) -> None:
        """Give ha the verdict. If its ring is full, ha tries the master again."""
        news, self.accepted = self.accepted, None
        if news is not None:
            given = self.view.give(Verdict(news.attempt, why_not[:REASON_CHARS_MAX]))
            self.is_let = given and not why_not


def default_role(
    config: BrokerConfig, identity: Identity, live: LiveConfig, view: ReplicationView, audit: AuditTrail
) -> TenureRole:
    """The role of a broker without a store: that of its configuration."""
    calls, peer_calls = OutboundCalls(lambda: None), OutboundCalls(lambda: None)
    return TenureRole.of(FirstRole.of(config), Found(), identity, live, view, calls, peer_calls, audit)
