"""The placement plan: every CPU count from 1 to 64 gives a sound plan."""

import pytest

from ringmq.ipc.placement import READERS_MAX, default_readers, place

WORKERS = {"write", "flush", "dispatch", "control", "ha", "services", "delay", "transactions", "timer", "pop"}


@pytest.mark.parametrize("count", range(1, 65))
def test_every_cpu_count_has_a_plan(count: int) -> None:
    plan = place(list(range(count)))
    assert plan.readers == default_readers(count)
    assert set(plan.cpus_by_worker) - {f"read-{i}" for i in range(plan.readers)} == WORKERS
    used = {cpu for cpus in plan.cpus_by_worker.values() for cpu in cpus}
    assert used <= set(range(count))
    if count >= plan.readers + 4:
        assert len(used) == min(count, plan.readers + len(WORKERS)), "with enough CPUs nobody shares"
    else:
        assert plan.spin_pauses == 0, "nobody spins on a shared CPU"


def test_two_cpus_keep_the_data_plane_together() -> None:
    plan = place([4, 7])
    assert plan.cpus_by_worker["read-0"] == plan.cpus_by_worker["write"] == (4,)
    assert plan.cpus_by_worker["flush"] == (7,)


@pytest.mark.parametrize("readers", [0, READERS_MAX + 1])
def test_reader_counts_out_of_range_are_refused(readers: int) -> None:
    with pytest.raises(ValueError, match=f"readers={readers} is outside 1..16"):
        place([0, 1], readers)


def test_flush_joins_the_data_plane_where_answers_wait_for_it() -> None:
    assert place([0, 1], sync_flush=True).cpus_by_worker["flush"] == (0,)


@pytest.mark.parametrize("name", ["ha", "flush"])
def test_who_answers_for_slaves_joins_the_data_plane_where_sends_wait_for_them(name: str) -> None:
    assert place([0, 1]).cpus_by_worker[name] == (1,)
    assert place([0, 1], sync_replication=True).cpus_by_worker[name] == (0,)


@pytest.mark.parametrize("count", range(1, 65))
def test_a_slave_appends_where_its_master_would_write(count: int) -> None:
    master, slave = place(list(range(count))), place(list(range(count)), slave=True)
    assert slave.cpus_by_worker["ha"] == slave.cpus_by_worker["write"] == master.cpus_by_worker["write"]
    assert set(slave.cpus_by_worker) == set(master.cpus_by_worker)
