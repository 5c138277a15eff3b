"""The decisions of a slave about masters and promises (`tenure_core`)."""

from __future__ import annotations

from logging import ERROR, WARNING

from ringmq.ha import tenure_records
from ringmq.ha.tenure_events import (
    Accepted,
    AnswerPromise,
    Effect,
    FileFailed,
    FileWritten,
    Follow,
    Log,
    PeerSeen,
    PromiseAsked,
    Register,
    Reject,
    Released,
    Stream,
    Tick,
    Unfollow,
)
from ringmq.ha.tenure_memory import TenureMemory
from ringmq.ha.tenure_states import State
from ringmq.ipc.tenure import TenureState

ASK_PERIOD_MS = 1000
"""Time between two questions: of a master, of a start that waits for its peers, of a slave that has promised."""


class TenureSlave(TenureMemory):
    """The part of the core that acts in SLAVE and NOTES, and what peers are told in any state."""

    def _slave(self, now_ms: int) -> list[Effect]:
        self._rival, self.taking = None, 0
        epoch = self.record.epoch
        effects = [*self._publish(TenureState.SLAVE, epoch), Register(False, epoch), *self._end_order(self.failure)]
        return [*effects, Follow(self.record.master), *self._as_slave(now_ms)]

    def _as_slave(self, now_ms: int) -> list[Effect]:
        """Be a slave, and take up the master that has waited. A slave with promises asks if they are needed."""
        effects = self._settle(State.SLAVE)
        if self.record.promises:
            self._wake(now_ms, ASK_PERIOD_MS)
        accepted, self._accepted = self._accepted, None
        if accepted is not None and self.state is State.SLAVE:
            effects += self._follow(accepted, now_ms)
        return effects

    def _ask_promised(self, event: Tick, now_ms: int) -> list[Effect]:
        if not self._is_due(now_ms):
            return []
        names = tenure_records.peers_of((promise.address for promise in self.record.promises), self.own.broker)
        asks = self._ask(State.SLAVE, names)
        self._wake(now_ms, ASK_PERIOD_MS)
        return [asks]

    def _follow(self, event: Accepted, now_ms: int) -> list[Effect]:
        """Report to a master once its epoch is on the disk. A broker whose role has never changed needs no file."""
        why = tenure_records.why_not_followed(self.record, event, self.own.broker_id)
        if why:
            return [Reject(why), Log(why, WARNING)]
        if event.is_stock:
            self._knows_policy = False
            return [Stream()]
        record = tenure_records.as_follower(self.record, event, self.own.broker)
        if not event.epoch and not self._has_file:
            self.record = record
        if record == self.record and self._is_sure:
            self._knows_policy = True
            return [Stream()]
        self._then, self._else = (Stream(),), (Reject("the tenure file cannot be written"),)
        return [self._write(State.NOTES, record)]

    def _keep_master(self, event: Accepted, now_ms: int) -> list[Effect]:
        self._accepted = event
        return []

    def _noted(self, event: FileWritten, now_ms: int) -> list[Effect]:
        self._took()
        self._knows_policy |= Stream() in self._then
        return [*self._then, *self._as_slave(now_ms)]

    def _not_noted(self, event: FileFailed, now_ms: int) -> list[Effect]:
        self._is_sure &= event.is_old_kept
        return [Log(unwritten(event), ERROR), *self._else, *self._as_slave(now_ms)]

    # -- peers and promises --------------------------------------------------------------------------------------------

    def _note_peer(self, event: PeerSeen, now_ms: int) -> list[Effect]:
        peer, name = event.peer, event.peer.addresses.broker
        shown = (peer.tenure.epoch, peer.taking, peer.promised)
        self._seen = max((self._seen, *(epoch for epoch in shown if epoch != self.taking)))
        self._meets_itself |= name == self.own.broker
        if self._is_answer(event) and peer.broker_id == self.own.broker_id and not peer.is_stock:
            self._own_names.add(name)
        elif self._is_answer(event):
            self._answers[name] = peer
        if peer.tenure.epoch > (self._rival.tenure.epoch if self._rival else self.record.epoch):
            self._rival = peer
        return []

    def _is_answer(self, event: PeerSeen) -> bool:
        """True for an answer to the newest questions. A peer's own question may have been on its way for long."""
        return event.round == self._round > 0

    def _peer_of_slave(self, event: PeerSeen, now_ms: int) -> list[Effect]:
        """A newer master may have been promoted, or the peer does not need the promise of this slave."""
        self._note_peer(event, now_ms)
        peer, self._rival = event.peer, None
        if peer.tenure.state is TenureState.MASTER and peer.tenure.epoch > self.record.epoch:
            return [Follow(peer.addresses)]
        epoch = tenure_records.needless_promise(self.record, peer) if self._is_answer(event) else 0
        return self._forget(epoch, now_ms) if epoch else []

    def _promise(self, event: PromiseAsked, now_ms: int) -> list[Effect]:
        """Promise to follow no older master. The log stays as it is from the answer on."""
        self._seen = max(self._seen, event.epoch)
        why = tenure_records.why_no_promise(self.record, event)
        if why or tenure_records.is_promised(self.record, event.epoch):
            return [AnswerPromise(event.address, event.epoch, why)]
        self._accepted = None
        failed = AnswerPromise(event.address, event.epoch, "its tenure file cannot be written")
        self._then, self._else = (AnswerPromise(event.address, event.epoch), Follow()), (failed, Follow())
        writes = self._write(State.NOTES, tenure_records.with_promise(self.record, event))
        return [Unfollow(f"broker {event.address} is promoted"), writes]

    def _no_promise(self, event: PromiseAsked, now_ms: int) -> list[Effect]:
        self._seen = max(self._seen, event.epoch)
        return [AnswerPromise(event.address, event.epoch, self.state.value)]

    def _released(self, event: Released, now_ms: int) -> list[Effect]:
        is_known = tenure_records.is_promised(self.record, event.epoch)
        return self._forget(event.epoch, now_ms) if is_known else []

    def _forget(self, epoch: int, now_ms: int) -> list[Effect]:
        """The promotion was given up: an older master may be followed again."""
        self._then, self._else = (Follow(),), ()
        return [self._write(State.NOTES, tenure_records.without_promise(self.record, epoch))]


def unwritten(event: FileFailed) -> str:
    """The line of a failed write."""
    return f"the tenure file cannot be written: {event.why}"
