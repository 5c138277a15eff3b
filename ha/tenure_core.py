"""The role of a broker: `step(event, now_ms) -> effects`, without network, files and workers.

`TRANSITIONS` holds every pair of state and event. docs/state-machines.md draws it.

A promotion (LOOKS, PREPARES, TAKE_*) asks the peers, gets their promise to follow no older master, takes the journal
from the receiver, and syncs the file. Then the word says MASTER. A demotion (YIELD_*) stores the journal, syncs the
file, and gives the journal to the receiver. A broker demotes itself as soon as a peer shows a higher epoch.

Until the file says master, a death or a failure leads back to SLAVE (UNDO_*). Behind it the next process goes on. The
word is TAKING or YIELDING meanwhile, so no worker takes requests for a master. If a sync has failed, either record may
be on the disk. The broker is neither until a record is there for certain.

A slave syncs the epoch of a master before it reports to it (NOTES). So an old master that starts again learns of the
new one from each slave that has helped to acknowledge a message.
"""

from __future__ import annotations

from logging import ERROR, WARNING

from ringmq.ha import tenure_records, tenure_rules
from ringmq.ha.tenure_events import (
    Accepted,
    Began,
    Demote,
    Effect,
    Event,
    FileFailed,
    FileWritten,
    Log,
    Peer,
    PeerSeen,
    Plan,
    PromiseAsked,
    Promote,
    Refuse,
    Register,
    Release,
    Released,
    RoundEnded,
    StepDone,
    StepFailed,
    Stop,
    Tick,
    Unfollow,
)
from ringmq.ha.tenure_memory import STEP_MS_MAX, Own
from ringmq.ha.tenure_slave import ASK_PERIOD_MS, TenureSlave, unwritten
from ringmq.ha.tenure_states import STEPS, TAKING, YIELDING, State
from ringmq.ipc.tenure import TenureState
from ringmq.ipc.transitions import Cell, Table, ignored, impossible, transitions
from ringmq.store.tenure_file import Found, TenureRecord

RETRY_MS = 1000
"""Pause before a record that could not be written is written again."""


class TenureCore(TenureSlave):
    """One broker's role."""

    @classmethod
    def of(cls, own: Own, found: Found) -> TenureCore:
        """The core of a broker that has found this file."""
        if found.record is not None:
            knows_policy = tenure_records.knows_policy(found.record, own.broker_id)
            return cls(own, found.record, _has_file=True, _is_sure=found.is_sure, _knows_policy=knows_policy)
        copied = found.copied or TenureRecord(is_master=False)
        record = TenureRecord(own.is_master, policy=own.policy, history=copied.history)
        return cls(own, record, _seen=tenure_records.floor(copied), _knows_policy=own.is_master)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """The effects of one event, in order."""
        return list(TRANSITIONS[self.state, type(event)].act(self, event, now_ms))

    # -- a start, and a new process of control -------------------------------------------------------------------------

    def _began(self, event: Began, now_ms: int) -> list[Effect]:
        self._published, is_master = event.word, self.record.is_master
        left = None if event.word is None else event.word.state
        self._is_sure &= left is None or event.is_first  # a dead control may have seen a failed sync
        if left is TenureState.YIELDING or (left is TenureState.MASTER and not is_master):
            return self._yield(now_ms)  # the file was removed, brokerRole names a slave
        if left is TenureState.MASTER:
            return self._master(now_ms)
        if is_master:  # a master with a higher epoch may have taken over since
            taking = self._publish(TenureState.TAKING, self.record.epoch)
            return [*taking, self._ask(State.ASKS, self.others, uses_name_servers=True)]
        if left is TenureState.TAKING:
            return self._undo(now_ms)
        return self._slave(now_ms)

    def _first_answers(self, event: RoundEnded, now_ms: int) -> list[Effect]:
        if event.round != self._round:
            return []
        self._asked = event.asked
        policy = self._policy_of_log()
        if tenure_rules.may_serve(policy, self._counted, self._answers, self.own.start_alone):
            return self._take(self.record.epoch, now_ms)
        silent = ", ".join(sorted(set(self._counted) - set(self._answers)))
        why = f"a start as {policy.broker_role} waits for its peers, and {silent} have not answered: start them, or "
        self.failure = f"{why}make this broker the master with ringmq ha promote"
        return [Log(self.failure, WARNING), *self._home(now_ms)]

    def _ask_again(self, event: Tick, now_ms: int) -> list[Effect]:
        return [self._ask(State.ASKS, self.others, uses_name_servers=True)] if self._is_due(now_ms) else []

    # -- orders of an operator -----------------------------------------------------------------------------------------

    def _promote(self, event: Promote, now_ms: int) -> list[Effect]:
        why = "; ".join(event.obstacles) or self._choose_epoch()
        if why:
            return [Refuse(why)]
        self._order, self.failure = event, ""
        return [self._ask(State.LOOKS, self.others, uses_name_servers=True)]

    def _looked(self, event: RoundEnded, now_ms: int) -> list[Effect]:
        order = self._order
        if event.round != self._round or not isinstance(order, Promote):
            return []
        self._asked = event.asked
        found = self._losses(event.end)
        if order.is_linked and not any(peer.tenure.state is TenureState.MASTER for peer in self._answers.values()):
            found = (tenure_rules.FOLLOWS_LIVING, *found)
        if not order.names_peers:
            found = (*found, tenure_rules.UNNAMED_PEERS)
        why = self._same_id() or self._choose_epoch()
        if order.is_dry_run and not why:
            self._order = None
            return [Plan(self._epoch, found), *self._home(now_ms)]
        if why or (found and not order.accepts_loss):
            return self._give_up(why or "; ".join(found), now_ms)
        helpers = tuple(name for name, peer in self._answers.items() if peer.tenure.state is not TenureState.MASTER)
        self._accepted, self.taking = None, self._epoch
        return [Unfollow("this broker is promoted"), self._ask(State.PREPARES, helpers, self._epoch)]

    def _prepared(self, event: RoundEnded, now_ms: int) -> list[Effect]:
        order = self._order
        if event.round != self._round or not isinstance(order, Promote):
            return []
        if self._seen > self._epoch:
            return self._give_up(f"another promotion has begun, epoch {self._seen}; try again", now_ms)
        found = self._losses(event.end, self._epoch)
        if found and not order.accepts_loss:
            return self._give_up("; ".join(found), now_ms)
        return self._take(self._epoch, now_ms)

    def _demote(self, event: Demote, now_ms: int) -> list[Effect]:
        self._order, self.failure, self._was_held = event, "", self.state is State.HOLDS
        return self._yield(now_ms)

    def _refuse(self, event: Promote | Demote, now_ms: int) -> list[Effect]:
        epoch = self.record.epoch
        if self.state is State.MASTER:
            return [Refuse(f"this broker is the master already, epoch {epoch}")]
        if self.state in (State.SLAVE, State.NOTES) and isinstance(event, Demote):
            return [Refuse(f"this broker is a slave already, epoch {epoch}")]
        return [Refuse(f"the role of this broker cannot change now ({self.state.value}), try again")]

    # -- peers ---------------------------------------------------------------------------------------------------------

    def _peer_of_master(self, event: PeerSeen, now_ms: int) -> list[Effect]:
        self._note_peer(event, now_ms)
        if self._rival is not None:
            return self._yield_to(self._rival, now_ms)
        if not self._is_double(event.peer):
            return []
        self._rival = event.peer
        names = f"{self.own.broker} and {event.peer.addresses.broker}"
        text = f"brokers {names} are masters of one epoch, so both have brokerId = {self.own.broker_id}: change one"
        return [Log(text, ERROR), *self._yield_to(self._rival, now_ms)]

    # -- to master -----------------------------------------------------------------------------------------------------

    def _take(self, epoch: int, now_ms: int) -> list[Effect]:
        self._epoch = epoch
        return [*self._publish(TenureState.TAKING, epoch), *self._perform(State.TAKE_STAND, now_ms)]

    def _next_of_taking(self, event: StepDone, now_ms: int) -> list[Effect]:
        if event.step is not STEPS[self.state]:
            return []
        rival = self._rival
        if rival is not None and rival.tenure.epoch > self._epoch:
            return self._give_up(f"broker {rival.addresses.broker} has epoch {rival.tenure.epoch}", now_ms)
        if self.state is State.TAKE_STAND:
            return self._perform(State.TAKE_JOURNAL, now_ms)
        if self.state is State.TAKE_JOURNAL:
            self._end = event.end
            return self._perform(State.TAKE_SERVE, now_ms)
        policy = self._policy_as_master()
        record = tenure_records.as_master(self.record, policy, self.others, self._epoch, self._end)
        if not record.epoch and not self._has_file:
            self.record = record
        if record == self.record and self._is_sure:
            return self._master(now_ms)
        return [self._write(State.TAKE_FILE, record)]

    def _master_on_disk(self, event: FileWritten, now_ms: int) -> list[Effect]:
        self._took()
        return self._master(now_ms)

    def _master(self, now_ms: int) -> list[Effect]:
        epoch = self.record.epoch
        if self._rival is not None and self._rival.tenure.epoch > epoch:
            return self._yield_to(self._rival, now_ms)
        self._rival, self.taking, self.failure, self._knows_policy = None, 0, "", True
        published = [*self._publish(TenureState.MASTER, epoch), Register(True, epoch), *self._end_order()]
        return [*published, *self._settle(State.MASTER), *self._announce(now_ms)]

    def _announce(self, now_ms: int) -> list[Effect]:
        """Show the peers this tenure, again and again: an old master may be stopped or cut off for a while."""
        if not self.record.epoch or self.state is not State.MASTER:
            return []
        asks = self._ask(State.MASTER, self.others, uses_name_servers=True)
        self._wake(now_ms, ASK_PERIOD_MS)
        return [asks]

    def _announce_again(self, event: Tick, now_ms: int) -> list[Effect]:
        return self._announce(now_ms) if self._is_due(now_ms) else []

    def _master_not_on_disk(self, event: FileFailed, now_ms: int) -> list[Effect]:
        why = unwritten(event)
        if event.is_old_kept and self._is_sure:
            return self._give_up(why, now_ms)
        self._is_sure, self.failure = False, why
        if self._stops:
            return [Log(why, ERROR), *self._settle(State.ENDED)]
        return [Log(why, ERROR), self._write(State.UNDO_FILE, self.record)]

    # -- back from a promotion -----------------------------------------------------------------------------------------

    def _give_up(self, why: str, now_ms: int) -> list[Effect]:
        """End a promotion of which nothing is on the disk."""
        self.failure = why
        helpers = tuple(name for name, peer in self._answers.items() if self.taking and peer.promised == self.taking)
        effects: list[Effect] = [Release(self.taking, helpers)] if helpers else []
        effects.append(Log(f"this broker does not become the master: {why}", WARNING))
        if self.state not in (State.LOOKS, State.PREPARES) and not self.record.is_master:
            return [*effects, *self._undo(now_ms)]
        return [*effects, *self._end_order(why), *self._home(now_ms)]

    def _home(self, now_ms: int) -> list[Effect]:
        """The state from which a promotion begins."""
        if not self.record.is_master:
            return self._slave(now_ms)
        self.taking = 0
        taking = self._publish(TenureState.TAKING, self.record.epoch)
        return [*taking, *self._settle(State.HOLDS), *self._wake(now_ms, ASK_PERIOD_MS)]

    def _undo(self, now_ms: int) -> list[Effect]:
        return self._perform(State.UNDO_JOURNAL, now_ms)

    def _undone(self, event: StepDone, now_ms: int) -> list[Effect]:
        if event.step is not STEPS[self.state]:
            return []
        return self._slave(now_ms)

    def _write_old(self, event: Tick, now_ms: int) -> list[Effect]:
        return [self._write(State.UNDO_FILE, self.record)] if self._is_due(now_ms) else []

    def _old_on_disk(self, event: FileWritten, now_ms: int) -> list[Effect]:
        self._took()
        return self._give_up(self.failure, now_ms)

    def _old_not_on_disk(self, event: FileFailed, now_ms: int) -> list[Effect]:
        return self._wake(now_ms, RETRY_MS)

    def _taking_failed(self, event: StepFailed, now_ms: int) -> list[Effect]:
        if event.step is not STEPS[self.state]:
            return []
        return self._give_up(f"{event.step.value}: {event.why}", now_ms)

    def _taking_late(self, event: Tick, now_ms: int) -> list[Effect]:
        if not self._is_due(now_ms):
            return []
        return self._give_up(f"not done in {STEP_MS_MAX} ms: {STEPS[self.state].value}", now_ms)

    # -- to slave ------------------------------------------------------------------------------------------------------

    def _yield_to(self, rival: Peer, now_ms: int) -> list[Effect]:
        self.failure = f"broker {rival.addresses.broker} has epoch {rival.tenure.epoch}, this one {self.record.epoch}"
        return [Log(f"this broker becomes a slave: {self.failure}", WARNING), *self._yield(now_ms)]

    def _yield(self, now_ms: int) -> list[Effect]:
        yielding = self._publish(TenureState.YIELDING, self.record.epoch)
        return [*yielding, *self._perform(State.YIELD_STAND, now_ms)]

    def _next_of_yielding(self, event: StepDone, now_ms: int) -> list[Effect]:
        if event.step is not STEPS[self.state]:
            return []
        if self.state is State.YIELD_STAND:
            return [self._write_slave()]
        if self.state is State.YIELD_CLOSE:
            return self._perform(State.YIELD_JOURNAL, now_ms)
        return self._slave(now_ms)

    def _write_slave(self) -> Effect:
        return self._write(State.YIELD_FILE, tenure_records.as_slave(self.record, self.others, self._rival))

    def _slave_on_disk(self, event: FileWritten, now_ms: int) -> list[Effect]:
        self._took()
        return self._perform(State.YIELD_CLOSE, now_ms)

    def _slave_not_on_disk(self, event: FileFailed, now_ms: int) -> list[Effect]:
        """An operator's order can be given up while the disk says master. A higher epoch cannot.

        A start that waited for its peers waits again: one of them may be a newer master.
        """
        self._is_sure &= event.is_old_kept
        why = unwritten(event)
        if self._order is not None and self._rival is None and self._is_sure:
            self._epoch = self.record.epoch
            effects = [Log(why, ERROR), *self._end_order(why)]
            if self._was_held:
                self.failure = why
                return [*effects, *self._home(now_ms)]
            effects += self._publish(TenureState.TAKING, self._epoch)
            return [*effects, *self._perform(State.TAKE_JOURNAL, now_ms)]
        return [Log(why, ERROR), *self._settle(State.YIELD_FILE), *self._wake(now_ms, RETRY_MS)]

    def _write_slave_again(self, event: Tick, now_ms: int) -> list[Effect]:
        return [self._write_slave()] if self._is_due(now_ms) else []

    def _repeat_step(self, event: StepFailed, now_ms: int) -> list[Effect]:
        """The next process of the worker performs it."""
        return self._perform(self.state, now_ms) if event.step is STEPS[self.state] else []

    def _repeat_late_step(self, event: Tick, now_ms: int) -> list[Effect]:
        if not self._is_due(now_ms):
            return []
        late = f"not done in {STEP_MS_MAX} ms, it is ordered again: {STEPS[self.state].value}"
        return [Log(late, WARNING), *self._perform(self.state, now_ms)]

    # -- the end -------------------------------------------------------------------------------------------------------

    def _stop(self, event: Stop, now_ms: int) -> list[Effect]:
        self._stops = True
        return self._settle(self.state)

    def _stop_promotion(self, event: Stop, now_ms: int) -> list[Effect]:
        self._stops = True
        return self._give_up("the broker stops", now_ms)

    def _stop_later(self, event: Stop, now_ms: int) -> list[Effect]:
        self._stops = True
        return []


_RESTING = (State.ASKS, State.HOLDS, State.SLAVE, State.MASTER)
_PLANNING = (State.LOOKS, State.PREPARES)
_FILING = (State.NOTES, State.TAKE_FILE, State.UNDO_FILE, State.YIELD_FILE)
_ENDS = (State.BEGINNING, State.ENDED)
_UNDOING = (State.UNDO_JOURNAL, State.HOLDS)


def _but(*states: State) -> tuple[State, ...]:
    return tuple(state for state in State if state not in states)


_AGAIN = Cell(TenureCore._repeat_step, "orders the step again")
_LATE = Cell(TenureCore._repeat_late_step, "late: orders the step again")
TRANSITIONS: Table = transitions(
    (
        Began,
        State.BEGINNING,
        Cell(
            TenureCore._began,
            "goes on by the file and the word",
            (State.ASKS, State.SLAVE, State.MASTER, State.UNDO_JOURNAL, State.YIELD_STAND),
        ),
    ),
    (Began, _but(State.BEGINNING), impossible("control begins once")),
    (Promote, (State.SLAVE, State.HOLDS), Cell(TenureCore._promote, "asks the peers, or refuses", (State.LOOKS,))),
    (Promote, _but(State.SLAVE, State.HOLDS), Cell(TenureCore._refuse, "refuses")),
    (Demote, (State.MASTER, State.HOLDS), Cell(TenureCore._demote, "becomes a slave", (State.YIELD_STAND,))),
    (Demote, _but(State.MASTER, State.HOLDS), Cell(TenureCore._refuse, "refuses")),
    (
        PeerSeen,
        (State.ASKS, State.HOLDS, State.MASTER),
        Cell(
            TenureCore._peer_of_master,
            "yields to a higher epoch, and to a master of the same one",
            (State.YIELD_STAND,),
        ),
    ),
    (
        PeerSeen,
        State.SLAVE,
        Cell(TenureCore._peer_of_slave, "follows a newer master, or forgets a promise", (State.NOTES,)),
    ),
    (PeerSeen, _but(*_RESTING, *_ENDS), Cell(TenureCore._note_peer, "notes its epochs and its log")),
    (PeerSeen, _ENDS, ignored("a peer shows itself again each second")),
    (
        RoundEnded,
        State.ASKS,
        Cell(TenureCore._first_answers, "becomes the master, or waits", (State.TAKE_STAND, State.HOLDS)),
    ),
    (
        RoundEnded,
        State.LOOKS,
        Cell(
            TenureCore._looked,
            "asks for promises, or says what may be lost",
            (State.PREPARES, State.SLAVE, State.HOLDS, State.NOTES),
        ),
    ),
    (
        RoundEnded,
        State.PREPARES,
        Cell(
            TenureCore._prepared,
            "becomes the master, if enough peers have promised",
            (State.TAKE_STAND, State.SLAVE, State.HOLDS),
        ),
    ),
    (RoundEnded, _but(State.ASKS, *_PLANNING), ignored("no decision waits for these answers")),
    (PromiseAsked, State.SLAVE, Cell(TenureCore._promise, "syncs the promise, or refuses it", (State.NOTES,))),
    (PromiseAsked, _but(State.SLAVE), Cell(TenureCore._no_promise, "refuses the promise")),
    (Released, State.SLAVE, Cell(TenureCore._released, "forgets the promise", (State.NOTES,))),
    (Released, _but(State.SLAVE), ignored("a slave with a promise asks each second if it is needed")),
    (
        Accepted,
        State.SLAVE,
        Cell(TenureCore._follow, "syncs the master's epoch, then reports to it; or rejects it", (State.NOTES,)),
    ),
    (
        Accepted,
        (State.NOTES, State.LOOKS, State.UNDO_JOURNAL, State.YIELD_JOURNAL),
        Cell(TenureCore._keep_master, "keeps it until the state is slave"),
    ),
    (
        Accepted,
        _but(State.SLAVE, State.NOTES, State.LOOKS, State.UNDO_JOURNAL, State.YIELD_JOURNAL),
        ignored("the link has ended, by Unfollow or by a step"),
    ),
    (
        StepDone,
        State.TAKE_STAND,
        Cell(TenureCore._next_of_taking, "orders the next step", (State.TAKE_JOURNAL, *_UNDOING)),
    ),
    (
        StepDone,
        State.TAKE_JOURNAL,
        Cell(TenureCore._next_of_taking, "orders the next step", (State.TAKE_SERVE, *_UNDOING)),
    ),
    (
        StepDone,
        State.TAKE_SERVE,
        Cell(
            TenureCore._next_of_taking,
            "writes the file, or is the master",
            (State.TAKE_FILE, State.MASTER, *_UNDOING),
        ),
    ),
    (StepDone, State.UNDO_JOURNAL, Cell(TenureCore._undone, "is a slave", (State.SLAVE, State.NOTES, State.ENDED))),
    (StepDone, State.YIELD_STAND, Cell(TenureCore._next_of_yielding, "writes the file", (State.YIELD_FILE,))),
    (StepDone, State.YIELD_CLOSE, Cell(TenureCore._next_of_yielding, "orders the next step", (State.YIELD_JOURNAL,))),
    (
        StepDone,
        State.YIELD_JOURNAL,
        Cell(TenureCore._next_of_yielding, "is a slave", (State.SLAVE, State.NOTES, State.ENDED)),
    ),
    (StepDone, (*_RESTING, *_PLANNING, *_FILING, *_ENDS), ignored("its change was given up")),
    (StepFailed, TAKING, Cell(TenureCore._taking_failed, "gives the promotion up", _UNDOING)),
    (StepFailed, (State.UNDO_JOURNAL, *YIELDING), _AGAIN),
    (StepFailed, (*_RESTING, *_PLANNING, *_FILING, *_ENDS), ignored("its change was given up")),
    (
        FileWritten,
        State.NOTES,
        Cell(TenureCore._noted, "reports to the master, or promises", (State.SLAVE, State.ENDED)),
    ),
    (
        FileWritten,
        State.TAKE_FILE,
        Cell(
            TenureCore._master_on_disk,
            "is the master, unless a peer has a higher epoch by now",
            (State.MASTER, State.YIELD_STAND, State.ENDED),
        ),
    ),
    (FileWritten, State.UNDO_FILE, Cell(TenureCore._old_on_disk, "gives the promotion up", _UNDOING)),
    (FileWritten, State.YIELD_FILE, Cell(TenureCore._slave_on_disk, "orders the next step", (State.YIELD_CLOSE,))),
    (FileWritten, State.ENDED, ignored("the next start goes on by the file")),
    (FileWritten, _but(*_FILING, State.ENDED), impossible("no record is under way")),
    (
        FileFailed,
        State.NOTES,
        Cell(TenureCore._not_noted, "rejects the master, or the promise", (State.SLAVE, State.ENDED)),
    ),
    (
        FileFailed,
        State.TAKE_FILE,
        Cell(
            TenureCore._master_not_on_disk,
            "gives up, or writes the old record",
            (State.UNDO_FILE, *_UNDOING, State.ENDED),
        ),
    ),
    (FileFailed, State.UNDO_FILE, Cell(TenureCore._old_not_on_disk, "writes it again after a pause")),
    (
        FileFailed,
        State.YIELD_FILE,
        Cell(
            TenureCore._slave_not_on_disk,
            "writes it again after a pause, or gives an order up",
            (State.TAKE_JOURNAL, State.HOLDS, State.ENDED),
        ),
    ),
    (FileFailed, State.ENDED, ignored("the next start goes on by the file")),
    (FileFailed, _but(*_FILING, State.ENDED), impossible("no record is under way")),
    (Stop, (State.BEGINNING, State.UNDO_FILE, *_RESTING), Cell(TenureCore._stop, "may stop", (State.ENDED,))),
    (Stop, _PLANNING, Cell(TenureCore._stop_promotion, "gives the promotion up", (State.ENDED,))),
    (Stop, TAKING, Cell(TenureCore._stop_promotion, "gives the promotion up", (State.UNDO_JOURNAL, State.ENDED))),
    (
        Stop,
        (State.NOTES, State.TAKE_FILE, State.YIELD_FILE, State.UNDO_JOURNAL, *YIELDING),
        Cell(TenureCore._stop_later, "stops later"),
    ),
    (Stop, State.ENDED, ignored("it may stop already")),
    (Tick, State.HOLDS, Cell(TenureCore._ask_again, "asks the peers again", (State.ASKS,))),
    (Tick, State.SLAVE, Cell(TenureCore._ask_promised, "asks peers if they need its promise")),
    (Tick, State.MASTER, Cell(TenureCore._announce_again, "shows its epoch to the peers")),
    (Tick, TAKING, Cell(TenureCore._taking_late, "late: gives the promotion up", _UNDOING)),
    (Tick, (State.UNDO_JOURNAL, *YIELDING), _LATE),
    (Tick, State.UNDO_FILE, Cell(TenureCore._write_old, "writes the old record again")),
    (Tick, State.YIELD_FILE, Cell(TenureCore._write_slave_again, "writes the record again")),
    (Tick, (State.ASKS, State.NOTES, State.TAKE_FILE, *_PLANNING, *_ENDS), ignored("no time is awaited")),
)
