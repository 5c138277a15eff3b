"""Submissions over thousands of seeds: deaths at each point, refusals, full rings and arenas, ties. The log judges."""

import pytest
from crash_kit import PORT_POINTS
from submission_world import POINTS, AloneWorld, OrderedWorld

SEEDS, AT_ONCE = 2000, 500
STEPS = 50


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_each_offset_is_stored_once_and_in_order(first: int) -> None:
    hits, stored, deaths = dict[str, int](), 0, 0
    for seed in range(first, first + AT_ONCE):
        world = OrderedWorld(seed)
        world.run(STEPS, loses=True)
        world.check()
        world.settle()
        world.check()
        stored, deaths = stored + len(world.port.log), deaths + world.deaths
        for name, count in world.port.point_hits.items():
            hits[name] = hits.get(name, 0) + count
    assert hits.keys() == POINTS.keys() and stored > 20 * AT_ONCE and deaths > AT_ONCE / 4, (hits, stored, deaths)


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_each_item_is_stored_and_its_result_is_true(first: int) -> None:
    hits, outcomes, deaths = dict[str, int](), dict[str, int](), 0
    for seed in range(first, first + AT_ONCE):
        world = AloneWorld(seed)
        world.run(STEPS, loses=False)
        world.check()
        world.settle()
        world.check()
        deaths += world.deaths
        for counts, of in ((hits, world.port.point_hits), (outcomes, world.outcomes)):
            for name, count in of.items():
                counts[name] = counts.get(name, 0) + count
    assert hits.keys() == POINTS.keys() - {"progress-written", "port-acknowledged"}
    assert min(outcomes[name] for name in ("stored", "refused", "again")) > AT_ONCE / 10 and deaths > AT_ONCE / 4


def test_the_table_has_each_crash_point_of_a_port() -> None:
    assert {name for name in POINTS if name.startswith("port-")} == set(PORT_POINTS)
