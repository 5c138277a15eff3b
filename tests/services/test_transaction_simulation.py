"""A seeded simulation of transactions: deaths at each step, ends of the log cut, doubled and late ends, clock jumps.

The model is the log itself: the open halves of a recovered service are those that all records together leave open.
"""

import pytest

from tests.services.transaction_world import World

EVENTS = 400


@pytest.mark.parametrize("seed", range(30))
def test_transactions_end_once(seed: int) -> None:
    world = World(seed)
    service_events = {"submit": 6, "write": 6, "refuse": 1}
    world_events = {
        "send_half": 8, "end": 6, "check": 2, "answer_checks": 3, "pass_time": 2, "sync": 1, "die": 1, "cut": 1,
    }  # fmt: skip
    names = [*service_events, *world_events]
    weights = [*service_events.values(), *world_events.values()]
    for name in world.dice.choices(names, weights, k=EVENTS):
        if name in service_events:
            getattr(world.service, name)()
        elif name in ("die", "cut"):
            world.die(cut=name == "cut")
        else:
            getattr(world, name)()
        world.look_at_log()
    world.settle()
    assert world.deaths > 5 and len(world.log.all) > 50, "the run did little"


def test_the_judge_sees_a_second_commit() -> None:
    world = World(0)
    world.send_half()
    world.producers[0].is_commit = True
    world.end(0)
    world.service.submit()
    world.service.write()
    world.look_at_log()
    committed = world.log.queue("T")[0]
    world.log.append("T", "", 0, prepared=committed.prepared_transaction_offset, flags=8)
    with pytest.raises(AssertionError, match="committed twice"):
        world.look_at_log()
