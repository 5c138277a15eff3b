"""The memory of a broker's role, and the parts of which its decisions are made (`tenure_core`)."""

from __future__ import annotations

from msgspec import Struct, field

from ringmq.ha import tenure_records, tenure_rules
from ringmq.ha.epochs import new_epoch, position
from ringmq.ha.tenure_events import (
    Accepted,
    Ask,
    Changed,
    Demote,
    Effect,
    Ended,
    MayStop,
    Order,
    Peer,
    Promote,
    Publish,
    WriteFile,
)
from ringmq.ha.tenure_states import STEPS, State
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.store.tenure_file import Addresses, Policy, TenureRecord

STEP_MS_MAX = 10_000
"""Time of a step. Later a promotion is given up, and the step of a demotion is ordered again."""


class Own(Struct, frozen=True):
    """This broker by its configuration. broker: its port. policy: of a master, also if the configuration names a slave.

    start_alone: haStartAlone (tenure_rules).
    """

    broker: str
    broker_id: int
    is_master: bool
    policy: Policy = Policy()
    start_alone: str = tenure_rules.BY_POLICY


class TenureMemory(Struct):
    """`record`: as on the disk, or as the configuration says while there is no file."""

    own: Own
    record: TenureRecord
    state: State = State.BEGINNING
    failure: str = ""
    """The reason why the last change was given up, or why it waits. "" = there is none."""
    taking: int = 0
    """The epoch for which this broker tries to be promoted, as peers see it. 0 = it does not."""
    due_ms: int | None = None
    """Time of the next Tick that matters."""
    _has_file: bool = False
    _knows_policy: bool = False
    """The record has the policy and the peers of the last master."""
    _is_sure: bool = True
    """False: the disk may have another record."""
    _epoch: int = 0
    """The epoch of a promotion, or of a master that goes on."""
    _seen: int = 0
    """The highest epoch that was seen, also of promotions that were given up."""
    _wanted: TenureRecord | None = None
    _then: tuple[Effect, ...] = ()
    _else: tuple[Effect, ...] = ()
    """Effects behind the write of NOTES, and behind its failure."""
    _accepted: Accepted | None = None
    """A master that waits while the state is not SLAVE."""
    _rival: Peer | None = None
    """The peer that has shown the highest epoch above that of the record."""
    _order: Promote | Demote | None = None
    _was_held: bool = False
    """The demotion under way was ordered in HOLDS."""
    _round: int = 0
    _answers: dict[str, Peer] = field(default_factory=dict)
    _asked: tuple[str, ...] = ()
    _own_names: set[str] = field(default_factory=set)
    """Other addresses that have answered with the brokerId of this broker, in the last round and its promises."""
    _meets_itself: bool = False
    """A question of this broker has come back to it. So an address with its brokerId is an old one of its own."""
    _end: int = 0
    """The end of the own log when `write` took the journal."""
    _published: Tenure | None = None
    _stops: bool = False

    @property
    def others(self) -> tuple[str, ...]:
        """The broker ports of the known peers."""
        record = self.record
        return tenure_records.peers_of((record.master.broker, *record.peers, *self._asked), self.own.broker)

    @property
    def _counted(self) -> tuple[str, ...]:
        """The known peers, without further addresses of this broker."""
        return tuple(name for name in self.others if name not in self._own_names)

    @property
    def shown(self) -> Tenure:
        """The state that the word has, and the epoch that the file has."""
        state = TenureState.TAKING if self._published is None else self._published.state
        return Tenure(state, self.record.epoch)

    def describe(self, addresses: Addresses, end: int, *, is_linked: bool) -> Peer:
        """This broker as it shows itself to peers. end: of the log. is_linked: a slave that streams from a master."""
        return Peer(
            addresses=addresses,
            broker_id=self.own.broker_id,
            tenure=self.shown,
            position=position(self.record.history, end),
            taking=self.taking,
            promised=max((promise.epoch for promise in self.record.promises), default=0),
            is_linked=is_linked,
        )

    # -- the epoch of a promotion, and its risk ------------------------------------------------------------------------

    def _choose_epoch(self) -> str:
        """Choose the epoch of a promotion. Returns the reason if there is none."""
        try:
            self._epoch = new_epoch((self._seen, tenure_records.floor(self.record)), self.own.broker_id)
        except ValueError as error:
            return str(error)
        return ""

    def _losses(self, end: int, epoch: int = 0) -> tuple[str, ...]:
        own, is_known = position(self.record.history, end), self._knows_policy
        return tenure_rules.losses(own, self._policy_of_log(), self._counted, self._answers, epoch, is_known=is_known)

    def _policy_of_log(self) -> Policy:
        """The policy under which the last messages of the log were acknowledged."""
        return self._policy_as_master() if self.record.is_master else self.record.policy

    def _policy_as_master(self) -> Policy:
        """That of the configuration, if it names a master. Else that of the last master."""
        return self.own.policy if self.own.is_master else self.record.policy

    def _same_id(self) -> str:
        """The reason why two brokers with one brokerId are not promoted: they would choose the same epochs. "" = there
        are none."""
        if not self._own_names or self._meets_itself:
            return ""
        names = ", ".join((self.own.broker, *sorted(self._own_names)))
        return f"{names} have brokerId = {self.own.broker_id}: set another one on each broker of the group"

    def _is_double(self, peer: Peer) -> bool:
        """True for another master of the own epoch, which both brokers had before they met."""
        is_other = peer.addresses.broker != self.own.broker and not self._meets_itself
        return is_other and bool(peer.tenure.epoch) and peer.tenure == Tenure(TenureState.MASTER, self.record.epoch)

    # -- parts of effects ----------------------------------------------------------------------------------------------

    def _settle(self, state: State) -> list[Effect]:
        """A state that may last. A broker that stops ends here, and the next start goes on by the file."""
        self.state, self.due_ms = State.ENDED if self._stops else state, None
        return [MayStop()] if self._stops else []

    def _wake(self, now_ms: int, after_ms: int) -> list[Effect]:
        """Have a Tick then. It is no effect itself."""
        self.due_ms = None if self.state is State.ENDED else now_ms + after_ms
        return []

    def _is_due(self, now_ms: int) -> bool:
        return self.due_ms is not None and now_ms >= self.due_ms

    def _publish(self, state: TenureState, epoch: int) -> list[Effect]:
        before, after = self._published, Tenure(state, epoch)
        self._published = after
        if before == after:
            return []
        is_settled = before is not None and state in (TenureState.SLAVE, TenureState.MASTER)
        return [Publish(after), Changed(after)] if is_settled else [Publish(after)]

    def _ask(self, state: State, peers: tuple[str, ...], epoch: int = 0, *, uses_name_servers: bool = False) -> Ask:
        self._round, self._answers = self._round + 1, {}
        if state is not State.PREPARES:
            self._own_names, self._meets_itself = set(), False
        self.state, self.due_ms = state, None
        return Ask(self._round, peers, epoch, uses_name_servers)

    def _perform(self, state: State, now_ms: int) -> list[Effect]:
        self.state = state
        return [Order(STEPS[state]), *self._wake(now_ms, STEP_MS_MAX)]

    def _write(self, state: State, record: TenureRecord) -> WriteFile:
        self.state, self.due_ms, self._wanted = state, None, record
        return WriteFile(record)

    def _took(self) -> None:
        assert self._wanted is not None
        self.record, self._is_sure, self._has_file = self._wanted, True, True

    def _end_order(self, failure: str = "") -> list[Effect]:
        order, self._order = self._order, None
        return [] if order is None else [Ended(failure)]
