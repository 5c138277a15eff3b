"""The core of the role keeps its promises in simulated groups under faults; and broken rules are noticed.

RINGMQ_SIMULATION_SEEDS says how many seeds (150 by default). `python -m tests.ha.tenure_simulation --seeds 20000` runs
as many without pytest and tells the story of each one that fails.
"""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ringmq.ha import tenure_core, tenure_memory, tenure_records, tenure_rules, tenure_slave
from ringmq.ha.epochs import Position
from ringmq.ha.tenure_events import Effect, Publish
from ringmq.ha.tenure_states import STEPS, State
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.store.tenure_file import TenureRecord
from tests.ha.tenure_simulation import TenureSimulation

SEEDS = int(os.environ.get("RINGMQ_SIMULATION_SEEDS", "150"))
BROKEN_RULE_SEEDS = 400
Patch = pytest.MonkeyPatch


def first_broken(seeds: int) -> tuple[int, list[str]] | None:
    """The first seed that breaks a promise, and which."""
    results = ((seed, TenureSimulation(seed).run()) for seed in range(seeds))
    return next(((seed, problems) for seed, problems in results if problems), None)


@pytest.mark.timeout(0)
def test_what_was_promised_holds() -> None:
    assert first_broken(SEEDS) is None


def test_a_seed_tells_the_same_story_twice() -> None:
    first, second = TenureSimulation(7), TenureSimulation(7)
    first.run(), second.run()
    assert first.ledger == second.ledger
    assert first.ledger.acknowledged


RARE = {("UNDO_FILE", "HOLDS"), ("TAKE_FILE", "YIELD_STAND"), ("YIELD_JOURNAL", "NOTES"), ("UNDO_JOURNAL", "NOTES")}
"""Arrows that some thousand seeds take."""


@pytest.mark.timeout(0)
def test_the_seeds_reach_what_they_are_about() -> None:
    """Each arrow from a step to another state, promises, cuts, refusals."""
    counts: Counter[str] = Counter()
    acknowledged = 0
    for seed in range(400):
        simulation = TenureSimulation(seed)
        simulation.run()
        counts.update(simulation.ledger.counts)
        acknowledged += len(simulation.ledger.acknowledged)
    walked = {tuple(key.split(" ", 1)) for key in counts}
    steps = {state.name for state in (*STEPS, State.TAKE_FILE, State.YIELD_FILE, State.UNDO_FILE, State.NOTES)}
    arrows = {
        (state.name, then.name)
        for (state, _), cell in tenure_core.TRANSITIONS.items()
        for then in cell.to
        if state.name in steps and then is not State.ENDED
    }
    assert arrows - RARE <= walked, arrows - walked
    assert {"promised", "not promised", "cut", "rejected", "order done", "order refused", "helped"} <= set(counts)
    assert acknowledged > 400 * 50


# -- broken rules ------------------------------------------------------------------------------------------------------


def _epochs_without_a_broker(patch: Patch) -> None:
    real = tenure_memory.new_epoch
    patch.setattr(tenure_memory, "new_epoch", lambda seen, broker_id: real(seen, 0))


def _master_before_the_file(patch: Patch) -> None:
    real = tenure_memory.TenureMemory._write

    def write(core: Any, state: State, record: TenureRecord) -> Effect:
        effect = real(core, state, record)
        if state is not State.TAKE_FILE:
            return effect
        core._published = Tenure(TenureState.MASTER, record.epoch)
        return Publish(core._published)

    patch.setattr(tenure_memory.TenureMemory, "_write", write)


def _a_promise_is_forgotten_by_a_restart(patch: Patch) -> None:
    patch.setattr(tenure_records, "with_promise", lambda record, event: record)


def _silent_brokers_do_not_count(patch: Patch) -> None:
    patch.setattr(tenure_rules, "group_size", lambda *_: 1)


def _longer_logs_do_not_count(patch: Patch) -> None:
    real = tenure_rules.losses

    def losses(own: Position, *rest: Any, **more: Any) -> tuple[str, ...]:
        return real(Position(own.epoch, 1 << 62), *rest, **more)

    patch.setattr(tenure_rules, "losses", losses)


def _a_start_serves_at_once(patch: Patch) -> None:
    patch.setattr(tenure_rules, "may_serve", lambda *_: True)


def _a_higher_epoch_ends_no_mastership(patch: Patch) -> None:
    real = tenure_slave.TenureSlave._note_peer

    def note(core: Any, event: Any, now_ms: int) -> list[Effect]:
        effects = real(core, event, now_ms)
        core._rival = None
        return effects

    patch.setattr(tenure_slave.TenureSlave, "_note_peer", note)


BROKEN_RULES = [
    _epochs_without_a_broker,
    _master_before_the_file,
    _a_promise_is_forgotten_by_a_restart,
    _silent_brokers_do_not_count,
    _longer_logs_do_not_count,
    _a_start_serves_at_once,
    _a_higher_epoch_ends_no_mastership,
]
"""What somebody could get wrong; each is seen within some hundred seeds. `test_tenure_scenarios` has rarer ones."""


@pytest.mark.timeout(0)
@pytest.mark.parametrize("broken_rule", BROKEN_RULES, ids=lambda rule: rule.__name__.strip("_"))
def test_a_broken_rule_is_noticed(broken_rule: Callable[[Patch], None], monkeypatch: Patch) -> None:
    broken_rule(monkeypatch)
    assert first_broken(BROKEN_RULE_SEEDS) is not None
