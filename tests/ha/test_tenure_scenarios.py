"""Hand-written stories of three brokers, A to C, each with the broken rule that it is about."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from ringmq.ha import tenure_core, tenure_memory, tenure_records, tenure_slave
from ringmq.ha.epochs import Position
from ringmq.ha.tenure_events import Demote, Effect, FileFailed, Promote, Stream, WriteFile
from ringmq.ha.tenure_memory import Own
from ringmq.ha.tenure_states import State
from tests.ha.simulated_world import World
from tests.ha.tenure_world import Ledger, Names, Network, SimulatedBroker, policy_of

Patch = pytest.MonkeyPatch


class Group:
    """A is the configured master. A client sends to each master, 25 times a second."""

    def __init__(self) -> None:
        self.world, self.ledger, names = World(1), Ledger(), Names()
        self.network = Network(self.world)
        self.brokers: list[SimulatedBroker] = []
        for number in range(3):
            own = Own(f"b:{number}", number, number == 0, policy_of(3))
            self.brokers.append(SimulatedBroker(own, self.world, self.network, names, self.ledger))
        self.a, self.b, self.c = self.brokers
        self.tags = count(1)
        self.is_sending = True
        for broker in self.brokers:
            broker.group = self.brokers
            broker.start()
        self._produce()
        self.run(1500)
        assert self.a.core.state is State.MASTER and self.ledger.acknowledged

    def _produce(self) -> None:
        for broker in self.brokers if self.is_sending else ():
            broker.send(next(self.tags))
        self.world.after_ms(40, self._produce)

    def run(self, ms: int) -> None:
        """Let time pass."""
        self.world.run(self.world.now_ms + ms)

    def isolate(self, broker: SimulatedBroker, *others: SimulatedBroker) -> None:
        """Cut the ways between brokers, both directions."""
        for other in others:
            self.network.cuts |= {(broker.number, other.number), (other.number, broker.number)}

    def promote(self, broker: SimulatedBroker) -> None:
        """The operator's order, without the acceptance of a loss."""
        broker.last_answer = "it goes on"
        broker.step(Promote(is_linked=broker.to_master is not None))
        self.run(900)

    def acknowledged(self) -> int:
        """Records so far."""
        return len(self.ledger.acknowledged)


def an_old_master_starts_beside_a_helper_of_the_new_one() -> Group:
    """B and C acknowledge without A, then all die. A starts with C alone, and must learn from it of B."""
    group = Group()
    group.a.die(has_power_cut=False)
    group.run(500)
    group.promote(group.b)
    before = group.acknowledged()
    group.run(1000)
    assert group.acknowledged() > before
    group.b.die(has_power_cut=True)
    group.c.die(has_power_cut=True)
    group.a.start()
    group.c.start()
    group.run(3000)
    group.a.check_acknowledged("goes on alone", group.world.now_ms if group.a.core.state is State.MASTER else 0)
    return group


def a_slave_meets_its_old_master_after_its_promise() -> Group:
    """No stream shows that A lives. C promises B to follow no older master, then A can be reached again."""
    group = Group()
    group.is_sending = False
    group.run(300)
    group.isolate(group.a, group.b, group.c)
    group.run(500)
    group.b.step(Promote())
    for _ in range(500):
        if not group.c.core.record.promises:
            group.run(1)
    group.network.cuts.clear()
    group.isolate(group.a, group.b)
    group.is_sending = True
    group.run(3000)
    group.network.cuts.clear()
    group.run(4000)
    for broker in group.brokers:
        broker.check_acknowledged("ends", group.world.now_ms)
    return group


def an_old_master_has_the_longer_log() -> Group:
    """A writes alone for long. B and C acknowledge less, under a newer epoch. B dies, and A is promoted."""
    group = Group()
    group.isolate(group.a, group.b, group.c)
    group.run(3000)
    group.a.die(has_power_cut=False)
    group.promote(group.b)
    group.run(300)
    group.b.die(has_power_cut=False)
    group.isolate(group.c, group.a)
    group.a.start()
    group.run(500)
    assert len(group.a.disk.log) > len(group.c.disk.log)
    group.network.cuts.clear()
    group.run(30)
    group.promote(group.a)
    group.run(1000)
    return group


def a_promotion_whose_sync_has_failed_comes_back() -> Group:
    """B's file says master, and its sync said EIO. A and C acknowledge without B. A power cut has B start as master."""
    group = Group()
    group.a.die(has_power_cut=False)
    group.run(400)
    group.b.next_failure = FileFailed("EIO", is_old_kept=False)
    group.promote(group.b)
    group.run(300)
    group.isolate(group.b, group.a)
    group.a.start()
    group.run(2500)
    group.b.die(has_power_cut=True)
    group.network.cuts.clear()
    group.b.start()
    group.run(2000)
    return group


def a_start_that_waits_cannot_be_demoted() -> Group:
    """B is the new master, and A starts without a way to it. The disk of A is full when an operator demotes it."""
    group = Group()
    group.a.die(has_power_cut=False)
    group.run(500)
    group.promote(group.b)
    group.run(1000)
    group.isolate(group.a, group.b, group.c)
    group.a.start()
    group.run(500)
    assert group.a.core.state is State.HOLDS
    group.a.next_failure = FileFailed("no space", is_old_kept=True)
    group.a.step(Demote())
    group.run(500)
    return group


# -- broken rules ------------------------------------------------------------------------------------------------------


def _a_slave_reports_before_its_file(patch: Patch) -> None:
    real = tenure_slave.TenureSlave._follow

    def follow(core: Any, event: Any, now_ms: int) -> list[Effect]:
        effects = real(core, event, now_ms)
        if not any(isinstance(effect, WriteFile) for effect in effects):
            return effects
        core.record, core.state = core._wanted, State.SLAVE
        return [Stream()]

    cells = dict(tenure_core.TRANSITIONS)
    cell = cells[State.SLAVE, tenure_core.Accepted]
    cells[State.SLAVE, tenure_core.Accepted] = type(cell)(follow, cell.text, cell.to)
    patch.setattr(tenure_core, "TRANSITIONS", cells)
    patch.setattr(tenure_slave.TenureSlave, "_follow", follow)


def _promises_do_not_bind(patch: Patch) -> None:
    patch.setattr(tenure_records, "floor", lambda record: record.epoch)


def _an_older_master_is_followed(patch: Patch) -> None:
    patch.setattr(tenure_records, "why_not_followed", lambda record, event, broker_id: "")


def _a_longer_log_beats_a_newer_epoch(patch: Patch) -> None:
    patch.setattr(tenure_memory, "position", lambda history, end: Position(0, end))


def _a_failed_sync_is_a_kept_file(patch: Patch) -> None:
    real = tenure_core.TenureCore._master_not_on_disk

    def failed(core: Any, event: Any, now_ms: int) -> list[Effect]:
        return real(core, FileFailed(event.why, is_old_kept=True), now_ms)

    cells = dict(tenure_core.TRANSITIONS)
    cell = cells[State.TAKE_FILE, FileFailed]
    cells[State.TAKE_FILE, FileFailed] = type(cell)(failed, cell.text, cell.to)
    patch.setattr(tenure_core, "TRANSITIONS", cells)


def _a_failed_demotion_leads_to_master(patch: Patch) -> None:
    real = tenure_core.TenureCore._slave_not_on_disk

    def failed(core: Any, event: Any, now_ms: int) -> list[Effect]:
        core._was_held = False
        return real(core, event, now_ms)

    cells = dict(tenure_core.TRANSITIONS)
    cell = cells[State.YIELD_FILE, FileFailed]
    cells[State.YIELD_FILE, FileFailed] = type(cell)(failed, cell.text, cell.to)
    patch.setattr(tenure_core, "TRANSITIONS", cells)


Story = Callable[[], Group]
STORIES: list[tuple[Story, Callable[[Patch], None]]] = [
    (an_old_master_starts_beside_a_helper_of_the_new_one, _a_slave_reports_before_its_file),
    (a_slave_meets_its_old_master_after_its_promise, _promises_do_not_bind),
    (a_slave_meets_its_old_master_after_its_promise, _an_older_master_is_followed),
    (an_old_master_has_the_longer_log, _a_longer_log_beats_a_newer_epoch),
    (a_promotion_whose_sync_has_failed_comes_back, _a_failed_sync_is_a_kept_file),
    (a_start_that_waits_cannot_be_demoted, _a_failed_demotion_leads_to_master),
]


@pytest.mark.parametrize("story", dict(STORIES), ids=lambda story: story.__name__)
def test_a_story_keeps_all_promises(story: Story) -> None:
    assert story().ledger.problems == []


@pytest.mark.parametrize(("story", "broken_rule"), STORIES, ids=lambda part: part.__name__.strip("_"))
def test_a_broken_rule_ruins_the_story(story: Story, broken_rule: Callable[[Patch], None], monkeypatch: Patch) -> None:
    broken_rule(monkeypatch)
    assert story().ledger.problems


def test_the_stories_end_as_they_should() -> None:
    group = an_old_master_starts_beside_a_helper_of_the_new_one()
    assert group.a.core.state is State.SLAVE and group.a.core.record.epoch == 65537
    group = a_slave_meets_its_old_master_after_its_promise()
    assert group.b.core.state is State.MASTER and group.a.core.state is State.SLAVE
    group = an_old_master_has_the_longer_log()
    assert "slave b:2 has the log up to" in group.a.last_answer and "rather promote that one" in group.a.last_answer
    group = a_start_that_waits_cannot_be_demoted()
    assert group.a.core.state in (State.HOLDS, State.ASKS) and "no space" in group.a.last_answer
    group = a_promotion_whose_sync_has_failed_comes_back()
    assert group.a.core.state is State.MASTER and group.a.core.record.epoch == 0
