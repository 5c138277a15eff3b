"""A seeded simulation of transactions: deaths at each step, ends of the log cut, doubled and late ends, clock jumps.

The model is the log itself: the open halves of a recovered service are those that all records together leave open.
"""

import pytest

from ringmq.broker.requests.turns import finish
from ringmq.services.transactions import records
from ringmq.services.transactions.half_table import HalfTable
from ringmq.services.transactions.recovery import Recovery
from ringmq.store.layout import HALF_TOPIC, OP_HALF_TOPIC
from tests.services.transaction_world import Log, World

EVENTS = 400


@pytest.mark.parametrize("seed", range(30))
def test_transactions_end_once(seed: int) -> None:
    world = World(seed)
    service_events = {"submit": 6, "write": 6, "refuse": 1}
    world_events = {
        "send_half": 8, "end": 6, "check": 2, "answer_checks": 3, "pass_time": 2, "sync": 1, "die": 1, "cut": 1,
        "stock_dies": 1,
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


@pytest.mark.parametrize("key", ["", "UNIQ_KEY\x01K\x02"])
def test_a_copy_of_a_stock_broker_ends_no_foreign_half(key: str) -> None:
    """Clients may leave out UNIQ_KEY, and two of them may choose the same one."""
    log = Log()
    for group, born_ms in (("A", 1000), ("B", 1001)):
        log.append(HALF_TOPIC, f"PGROUP\x01{group}\x02{key}", born_ms)
    log.append(HALF_TOPIC, f"PGROUP\x01A\x02{key}TRANSACTION_CHECK_TIMES\x011\x02", 1000)
    table = HalfTable()
    found = finish(Recovery(log, table).run(-1))
    assert [half.newest for half in table.following(0, 9)] == [1, 2]
    assert found.renamed == {0: 2}


@pytest.mark.parametrize(("low", "is_named"), [(3, False), (1, False), (4, True), (1 << 40, True)])
def test_a_low_offset_beyond_the_half_queue_hides_no_open_half(low: int, is_named: bool) -> None:
    """Op records tell which halves are done."""
    log, table, lines = Log(), HalfTable(), []
    for group in "ABC":
        log.append(HALF_TOPIC, f"PGROUP\x01{group}\x02", 1000)
    log.append(OP_HALF_TOPIC, "TAGS\x01d\x02", 1000, prepared=records.op_mark(low), body=b"0,")
    finish(Recovery(log, table, lines.append).run(-1))
    assert [half.first for half in table.following(0, 9)] == ([1, 2] if is_named or low == 1 else [])
    assert len(lines) == is_named and (not is_named or f"offset {low} is beyond the end of its queue, 3" in lines[0])


def test_a_start_tells_its_progress() -> None:
    log, table = Log(), HalfTable()
    for _ in range(5):
        log.append(HALF_TOPIC, "PGROUP\x01A\x02", 1000)
    log.append(OP_HALF_TOPIC, "TAGS\x01d\x02", 1000, prepared=records.op_mark(1), body=b"2,")
    recovery, seen = Recovery(log, table), set[tuple[int, int]]()
    for _ in recovery.run(-1):
        seen.add((recovery.read, recovery.halves))
    assert {(1, 4), (2, 4), (4, 4)} <= seen, "halves from the low offset on"
    assert len(table) == 3


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
