"""Whole changes of a role, by their effects: epochs, records, words, and the sentences for an operator."""

import pytest

from ringmq.ha.epochs import BROKER_ID_MAX, Position
from ringmq.ha.tenure_core import TenureCore
from ringmq.ha.tenure_events import (
    Accepted,
    AnswerPromise,
    Ask,
    Began,
    Changed,
    Demote,
    Effect,
    Ended,
    Event,
    FileFailed,
    FileWritten,
    Follow,
    Log,
    Order,
    Peer,
    PeerSeen,
    Plan,
    PromiseAsked,
    Promote,
    Publish,
    Refuse,
    Register,
    RoundEnded,
    Step,
    StepDone,
    Stream,
    Tick,
    Unfollow,
    WriteFile,
)
from ringmq.ha.tenure_memory import Own
from ringmq.ha.tenure_rules import UNKNOWN_POLICY
from ringmq.ha.tenure_states import State
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.store.tenure_file import Addresses, EpochStart, Found, Policy, Promise, TenureRecord

SYNC = Policy("SYNC_MASTER")
OWN = Own("b:1", 1, is_master=False, policy=Policy())
A, B = Addresses("a:1", "a:2"), Addresses("b:1", "b:2")
E1 = 65537


def steps(core: TenureCore, *events: Event) -> list[Effect]:
    """The effects of the last event, but for log lines."""
    effects: list[Effect] = []
    for event in events:
        effects = [effect for effect in core.step(event, 0) if not isinstance(effect, Log)]
    return effects


def follower() -> TenureCore:
    """A slave whose role has never changed. Its master has the policy SYNC_MASTER."""
    core = TenureCore.of(OWN, Found())
    assert steps(core, Began(), Accepted(A, policy=SYNC)) == [Stream()]  # without a file
    return core


def test_a_promotion_from_the_order_to_the_word() -> None:
    core = follower()
    tenure = Tenure(TenureState.TAKING, E1)
    record = TenureRecord(True, E1, SYNC, A, ("a:1",), (EpochStart(E1, 4096),))
    assert steps(core, Promote()) == [Ask(1, ("a:1",), uses_name_servers=True)]
    assert steps(core, RoundEnded(1, 4000)) == [Unfollow("this broker is promoted"), Ask(2, (), E1)]
    assert steps(core, RoundEnded(2, 4096)) == [Publish(tenure), Order(Step.STAND)]
    assert steps(core, StepDone(Step.STAND)) == [Order(Step.WRITE)]
    assert steps(core, StepDone(Step.WRITE, 4096)) == [Order(Step.SERVE)]
    assert steps(core, StepDone(Step.SERVE)) == [WriteFile(record)]
    assert steps(core, FileWritten()) == [
        Publish(Tenure(TenureState.MASTER, E1)), Changed(Tenure(TenureState.MASTER, E1)), Register(True, E1), Ended(),
        Ask(3, ("a:1",), uses_name_servers=True),
    ]  # fmt: skip
    assert core.record == record
    assert core.describe(B, 5000, is_linked=False).position == Position(E1, 5000)


def test_a_demotion_from_the_order_to_the_word() -> None:
    core = TenureCore.of(OWN, Found(TenureRecord(True, E1, SYNC, A, ("a:1",))))
    master = Tenure(TenureState.MASTER, E1)
    steps(core, Began(master))
    assert steps(core, Demote()) == [Publish(Tenure(TenureState.YIELDING, E1)), Order(Step.STAND)]
    record = TenureRecord(False, E1, SYNC, Addresses(), ("a:1",))
    assert steps(core, StepDone(Step.STAND)) == [WriteFile(record)]
    assert steps(core, FileWritten()) == [Order(Step.CLOSE)]
    assert steps(core, StepDone(Step.CLOSE)) == [Order(Step.RECEIVE)]
    slave = Tenure(TenureState.SLAVE, E1)
    assert steps(core, StepDone(Step.RECEIVE)) == [
        Publish(slave), Changed(slave), Register(False, E1), Ended(), Follow(Addresses()),
    ]  # fmt: skip


def test_a_dry_run_says_the_epoch_and_the_losses() -> None:
    core = follower()
    steps(core, Promote(is_dry_run=True))
    living = PeerSeen(Peer(A, 0, Tenure(TenureState.MASTER), Position(0, 9000)), 1)
    plan, *_ = steps(core, living, RoundEnded(1, 4096))
    assert plan == Plan(E1, ("master a:1 lives: it may acknowledge messages behind offset 4096",))
    assert core.state is State.SLAVE


def test_a_running_stream_is_a_master_that_lives() -> None:
    """Also if its broker port does not answer."""
    core = follower()
    (ended, *_) = steps(core, Promote(is_linked=True), RoundEnded(1, 4096))
    assert ended == Ended("this broker follows a master that lives, and that may go on to acknowledge messages")


ACCEPTED, STOCK = Accepted(A, policy=SYNC), Accepted(A, is_stock=True)
DEMOTED = [Demote(), StepDone(Step.STAND), FileWritten(), StepDone(Step.CLOSE), StepDone(Step.RECEIVE)]


@pytest.mark.parametrize(
    ("record", "before", "is_known"),
    [
        (None, [Began()], False),
        (None, [Began(Tenure(TenureState.SLAVE))], False),  # a new control, perhaps beside a link
        (None, [Began(), ACCEPTED], True),
        (None, [Began(), STOCK], False),
        (None, [Began(), ACCEPTED, STOCK], False),
        (TenureRecord(False, 65536, SYNC, A, ("a:1",)), [Began()], True),
        (TenureRecord(False, promises=(Promise(3 << 16, "c:1"),)), [Began()], False),
        (TenureRecord(False, 65537, SYNC), [Began()], False),  # a demoted one may have followed a stock master
        (TenureRecord(False, 65537, SYNC), [Began(), Accepted(A, 2 << 16, policy=SYNC), FileWritten()], True),
        (TenureRecord(True, 65537, SYNC), [Began(Tenure(TenureState.MASTER, 65537)), *DEMOTED], True),
    ],
)
def test_a_broker_knows_the_policy_of_the_last_master_or_says_so(
    record: TenureRecord | None, before: list[Event], is_known: bool
) -> None:
    core = TenureCore.of(OWN, Found(record))
    (asked,) = steps(core, *before, Promote(is_dry_run=True))
    assert isinstance(asked, Ask)
    (plan, *_) = steps(core, RoundEnded(asked.round, 4096))
    assert isinstance(plan, Plan)
    assert is_known is not any(UNKNOWN_POLICY in line for line in plan.losses)
    if record is None and not is_known:
        assert plan.losses[-1].endswith(f", and this broker would be {core.record.policy.broker_role}")
        assert plan.losses[0].startswith("1 of 2 brokers agree, and perhaps the last master keeps a message on 1: ")


def test_a_living_master_is_named_beside_other_losses() -> None:
    core = TenureCore.of(OWN, Found())
    (plan, *_) = steps(core, Began(), Promote(is_linked=True, is_dry_run=True), RoundEnded(1, 4096))
    assert isinstance(plan, Plan) and len(plan.losses) == 3
    assert "this broker follows a master that lives" in plan.losses[0]


def test_a_promotion_without_a_list_has_to_be_accepted() -> None:
    core = follower()
    (ended, *_) = steps(core, Promote(names_peers=False), RoundEnded(1, 4096))
    assert isinstance(ended, Ended) and ended.failure.startswith("haAllowedNetworks is empty: no broker of the group")
    asked = steps(core, Promote(names_peers=False, accepts_loss=True), RoundEnded(2, 4096))
    assert asked[-1] == Ask(3, (), E1)


def test_the_next_epoch_is_above_each_one_that_was_seen() -> None:
    core = follower()
    for taking, promised in ((7 << 16, 0), (0, 9 << 16 | 3)):
        steps(core, PeerSeen(Peer(A, 0, Tenure(TenureState.SLAVE), Position(0, 0), taking, promised)))
    asked = steps(core, Promote(), RoundEnded(1, 0))
    assert asked[-1] == Ask(2, (), 10 << 16 | 1)


@pytest.mark.parametrize("is_dry_run", [True, False])
def test_a_broker_that_shares_its_id_is_not_promoted(is_dry_run: bool) -> None:
    core = follower()
    (asked,) = steps(core, Promote(is_dry_run=is_dry_run))
    assert isinstance(asked, Ask)
    double = PeerSeen(Peer(Addresses("c:1"), 1, Tenure(TenureState.SLAVE), Position(0, 0)), asked.round)
    (ended, *_) = steps(core, double, RoundEnded(asked.round, 4096))
    assert ended == Ended("b:1, c:1 have brokerId = 1: set another one on each broker of the group")
    assert steps(core, Promote(), RoundEnded(2, 4096))[-1] == Ask(3, (), E1)  # the other one was stopped


def test_a_broker_that_meets_itself_shares_its_id_with_no_other() -> None:
    """Its question has reached an address that it had before."""
    core = follower()
    steps(core, Promote(), PeerSeen(core.describe(B, 4096, is_linked=False)))
    itself = PeerSeen(core.describe(Addresses("b:9"), 4096, is_linked=False), 1)
    assert steps(core, itself, RoundEnded(1, 4096, ("b:9",)))[-1] == Ask(2, (), E1)
    assert steps(core, RoundEnded(2, 4096))[0] == Publish(Tenure(TenureState.TAKING, E1))


def test_two_masters_of_one_epoch_both_make_way() -> None:
    core = TenureCore.of(OWN, Found(TenureRecord(True, E1, SYNC, A, ("a:1",))))
    master = Tenure(TenureState.MASTER, E1)
    steps(core, Began(master))
    assert steps(core, PeerSeen(core.describe(B, 100, is_linked=False))) == []  # its own question
    assert steps(core, PeerSeen(Peer(Addresses("b:9"), 1, master, Position(E1, 100)), 1)) == []
    core.step(Tick(), 1000)
    assert steps(core, PeerSeen(Peer(Addresses("c:1"), 1, master, Position(E1, 90)))) == [
        Publish(Tenure(TenureState.YIELDING, E1)), Order(Step.STAND),
    ]  # fmt: skip
    assert "broker c:1 has epoch 65537, this one 65537" in core.failure


def test_a_broker_whose_id_fits_into_no_epoch_is_not_promoted() -> None:
    core = TenureCore.of(Own("b:1", BROKER_ID_MAX + 1, is_master=False), Found())
    assert steps(core, Began(), Promote()) == [Refuse("brokerId = 65536 cannot be part of an epoch, at most 65535 can")]


def test_a_start_that_waits_says_for_whom() -> None:
    core = TenureCore.of(Own("a:1", 0, True, SYNC), Found(TenureRecord(True, 65536, SYNC, peers=("b:1", "c:1"))))
    assert steps(core, Began()) == [
        Publish(Tenure(TenureState.TAKING, 65536)), Ask(1, ("b:1", "c:1"), uses_name_servers=True),
    ]  # fmt: skip
    steps(core, RoundEnded(1, 100))
    assert "a start as SYNC_MASTER waits for its peers, and b:1, c:1 have not answered: start them, or" in core.failure
    helper = PeerSeen(Peer(B, 1, Tenure(TenureState.SLAVE, 65536), Position(0, 0)), 2)
    core.step(Tick(), 1000)
    assert steps(core, helper, RoundEnded(2, 100)) == [Order(Step.STAND)]
    settled = steps(core, *(StepDone(step) for step in (Step.STAND, Step.WRITE, Step.SERVE)))
    assert settled[0] == Publish(Tenure(TenureState.MASTER, 65536))  # the file says so already


def test_a_start_does_not_count_itself() -> None:
    """Its file has a peer with the brokerId of this broker: it had another address before."""
    core = TenureCore.of(Own("a:1", 0, True, SYNC), Found(TenureRecord(True, 65536, SYNC, peers=("a:9",))))
    steps(core, Began())
    itself = Peer(Addresses("a:9"), 0, Tenure(TenureState.TAKING, 65536), Position(0, 0))
    assert steps(core, PeerSeen(itself, 1), RoundEnded(1, asked=("b:1",))) == []
    assert core.state is State.HOLDS and "b:1 have not answered" in core.failure and "a:9" not in core.failure


def test_the_policy_of_a_configured_master_is_its_own() -> None:
    """An operator who edits inSyncReplicas is not overruled by the file. A configured slave has that of its master."""
    old = TenureRecord(True, 65536, Policy(), peers=("b:1",))
    core = TenureCore.of(Own("a:1", 0, True, SYNC), Found(old))
    helper = PeerSeen(Peer(B, 1, Tenure(TenureState.SLAVE, 65536), Position(0, 0)), 1)
    done = [StepDone(step) for step in (Step.STAND, Step.WRITE, Step.SERVE)]
    (write,) = steps(core, Began(), helper, RoundEnded(1), *done)
    assert isinstance(write, WriteFile) and write.record.policy == SYNC


def test_a_copied_store_has_the_history_of_its_log_and_no_role() -> None:
    copied = TenureRecord(True, 9 << 16, history=(EpochStart(9 << 16, 50),), promises=(Promise(11 << 16, "c:1"),))
    core = TenureCore.of(OWN, Found(copied=copied))
    steps(core, Began())
    shown = core.describe(B, 60, is_linked=False)
    assert (shown.tenure, shown.position) == (Tenure(TenureState.SLAVE), Position(9 << 16, 60))
    assert steps(core, Promote(accepts_loss=True), RoundEnded(1, 60))[-1] == Ask(2, (), 12 << 16 | 1)


def test_a_promise_is_on_the_disk_before_it_is_given() -> None:
    core = follower()
    unfollow, write = steps(core, PromiseAsked(3 << 16, "c:1", is_linked=False))
    assert unfollow == Unfollow("broker c:1 is promoted")
    assert isinstance(write, WriteFile) and write.record.promises == (Promise(3 << 16, "c:1"),)
    assert steps(core, FileWritten()) == [AnswerPromise("c:1", 3 << 16), Follow()]
    assert steps(core, Accepted(A, policy=SYNC))[0] != Stream()
    full = follower()
    steps(full, PromiseAsked(3 << 16, "c:1", is_linked=False))
    failed = steps(full, FileFailed("disk full", is_old_kept=True))
    assert failed == [AnswerPromise("c:1", 3 << 16, "its tenure file cannot be written"), Follow()]
    assert steps(full, Accepted(A, policy=SYNC)) == [Stream()]


@pytest.mark.parametrize("is_old_kept", [True, False])
def test_a_broker_is_neither_until_the_disk_is_known(is_old_kept: bool) -> None:
    core = follower()
    before = core.record
    steps(core, Promote(), RoundEnded(1), RoundEnded(2), *(StepDone(step) for step in (Step.STAND, Step.WRITE)))
    steps(core, StepDone(Step.SERVE))
    failed = steps(core, FileFailed("it broke", is_old_kept=is_old_kept))
    if not is_old_kept:
        assert failed == [WriteFile(before)]
        assert core.describe(B, 0, is_linked=False).taking == E1  # peers keep their promises
        failed = steps(core, FileWritten())
    assert failed == [Order(Step.RECEIVE)]
    assert steps(core, StepDone(Step.RECEIVE)) == [
        Publish(Tenure(TenureState.SLAVE)), Changed(Tenure(TenureState.SLAVE)), Register(False, 0),
        Ended("the tenure file cannot be written: it broke"), Follow(A),
    ]  # fmt: skip


def test_a_promotion_that_comes_too_late_has_failed() -> None:
    """The file says master when the higher epoch is seen, so this broker yields as any master."""
    core = follower()
    steps(core, Promote(), RoundEnded(1), RoundEnded(2), *(StepDone(step) for step in (Step.STAND, Step.WRITE)))
    steps(core, StepDone(Step.SERVE), PeerSeen(Peer(A, 0, Tenure(TenureState.MASTER, 9 << 16), Position(0, 0))))
    assert steps(core, FileWritten()) == [Publish(Tenure(TenureState.YIELDING, E1)), Order(Step.STAND)]
    ended = steps(core, StepDone(Step.STAND), FileWritten(), StepDone(Step.CLOSE), StepDone(Step.RECEIVE))
    assert Ended(f"broker a:1 has epoch {9 << 16}, this one {E1}") in ended
    assert core.record.epoch == 9 << 16
