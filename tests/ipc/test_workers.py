"""The worker table: what its rows say, and which rows it refuses."""

from importlib import import_module
from importlib.util import find_spec

import pytest
from msgspec.structs import replace

from ringmq.ipc.answerers import AnswerRow
from ringmq.ipc.placement import place
from ringmq.ipc.workers import (
    NAME_BYTES_MAX,
    READERS_MAX,
    WORKERS,
    AtStop,
    CpuClass,
    Start,
    StopPhase,
    WorkerRow,
    WorkerRowError,
    WorkerTable,
    answerer_plans,
    read_name,
)
from ringmq.native import ffi, lib

SERVICE = WorkerRow(
    "errand", 24, "ringmq.errands.worker", StopPhase.CONTROL, CpuClass.SERVICE, start=Start.ON_REQUEST, is_optional=True
)


def table(*more: WorkerRow) -> WorkerTable:
    """The rows of RingMQ and more, without touching the table that other tests use."""
    read, *rows = WORKERS
    return WorkerTable(read, (*rows, *more))


def test_every_row_names_a_module_and_functions_that_exist() -> None:
    for row in WORKERS:
        assert find_spec(row.module), row.name
        for name in filter(None, (row.listener, row.needed_at_once)):
            module, _, function = name.partition(":")
            assert callable(getattr(import_module(module), function)), name


def test_a_name_and_a_role_fit_into_the_plane() -> None:
    block = ffi.new("struct rmq_role *")
    assert len(block.name) == NAME_BYTES_MAX + 1
    assert lib.RMQ_ROLE_READ + READERS_MAX <= lib.RMQ_ROLES_MAX
    assert all(row.role < lib.RMQ_ROLES_MAX for row in WORKERS.rows(READERS_MAX))


def test_ha_is_a_worker_of_the_data_plane_while_it_appends() -> None:
    """A slave and a master have the same workers: one may become the other in place."""
    ha, write = WORKERS.row("ha"), WORKERS.row("write")
    appending = ha.beside(lib.RMQ_ROLE_HA)
    assert (appending.stop_phase, appending.cpu_class, appending.at_stop) == (
        write.stop_phase, write.cpu_class, write.at_stop,
    )  # fmt: skip
    assert ha.appends(lib.RMQ_ROLE_HA) and not ha.appends(lib.RMQ_ROLE_WRITE)
    assert ha.beside(lib.RMQ_ROLE_WRITE) == ha and ha.stop_phase is StopPhase.HA
    assert all(row.beside(lib.RMQ_ROLE_HA) == row for row in WORKERS if row is not ha)


def test_services_of_a_master_have_their_ports_and_inboxes_on_every_broker() -> None:
    """So a slave can become a master with the plane that it has."""
    assert {row.name for row in WORKERS if row.needs_master} == {"services", "delay", "transactions", "pop"}


def test_rows_of_read_workers_are_made_from_a_count() -> None:
    rows = [row for row in WORKERS.rows(READERS_MAX) if row.cpu_class is CpuClass.READ]
    assert [(row.name, row.role) for row in rows] == [
        (read_name(reader), lib.RMQ_ROLE_READ + reader) for reader in range(READERS_MAX)
    ]
    assert WORKERS.row("read-3") == rows[3]


def test_what_takes_work_in_stops_before_what_does_the_work() -> None:
    order = ["read-0", "pop", "control", "write", "flush", "dispatch", "ha", "namesrv"]
    phases = [WORKERS.row(name).stop_phase for name in order]
    assert phases == sorted(set(phases)) and WORKERS.last_phase == phases[-1]
    assert [row.name for row in WORKERS if row.at_stop is AtStop.FINISHER] == ["flush", "dispatch"]
    replaced = {row.name for row in WORKERS if row.at_stop is AtStop.REPLACEMENT}
    assert replaced == {"write", "control"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "write"}, "the table has a worker of this name"),
        ({"name": "read-1"}, "none of a reader"),
        ({"name": "read"}, "none of a reader"),
        ({"name": "Timer"}, "begins with a letter"),
        ({"name": "t" * (NAME_BYTES_MAX + 1)}, f"at most {NAME_BYTES_MAX}"),
        ({"role": lib.RMQ_ROLE_WRITE}, f"role {lib.RMQ_ROLE_WRITE} is that of worker 'write'"),
        ({"role": lib.RMQ_ROLE_READ + 5}, "one of the readers'"),
        ({"role": lib.RMQ_ROLE_SUPERVISOR}, "role 0 is outside"),
        ({"role": lib.RMQ_ROLES_MAX}, f"role {lib.RMQ_ROLES_MAX} is outside"),
        ({"start": Start.CONNECTION}, "has no listener"),
        ({"start": Start.OPEN_WORK}, "has no needed_at_once to ask"),
        ({"needed_at_once": "a.b:c"}, "it has needed_at_once, which a worker that starts by the word"),
        ({"listener": "a.b.c"}, "'a.b.c' is not of the form package.module:function"),
    ],
)
def test_a_row_that_clashes_or_contradicts_itself_is_refused(changes: dict[str, object], why: str) -> None:
    full = table()
    with pytest.raises(WorkerRowError) as refused:
        full.add(replace(SERVICE, **changes))  # type: ignore[arg-type]
    assert why in str(refused.value)
    assert len(list(full)) == len(list(WORKERS)), "nothing of it is in the table"


def test_workers_share_request_codes_when_all_of_them_say_so() -> None:
    shared = AnswerRow(codes=(270_050, 270_051), shares_codes=True)
    full = table(replace(SERVICE, answers=shared), replace(SERVICE, name="errand-2", role=25, answers=shared))
    for answers in (replace(shared, shares_codes=False), replace(shared, codes=(270_050,))):
        with pytest.raises(WorkerRowError, match="request code 270050 is answered by worker 'errand'"):
            full.add(replace(SERVICE, name="errand-3", role=26, answers=answers))
    plans = answerer_plans(full.rows(1))
    assert [plan.role for plan in plans if 270_050 in plan.codes] == [24, 25]


@pytest.mark.parametrize("count", range(1, 65))
def test_a_service_moves_no_other_worker(count: int) -> None:
    cpus = list(range(count))
    services = [replace(SERVICE, name=f"service-{number}", role=32 + number) for number in range(4)]
    plan, plain = place(cpus, table=table(*services)), place(cpus)
    placed = {name: plan.cpus_by_worker[name] for name in plain.cpus_by_worker}
    assert (placed, plan.spin_pauses) == (plain.cpus_by_worker, plain.spin_pauses)
    used = {cpu for cpu_set in plain.cpus_by_worker.values() for cpu in cpu_set}
    left = [cpu for cpu in cpus if cpu not in used]
    expected = [*left, *[plain.cpus_by_worker["control"][0]] * 4][:4]
    assert [plan.cpus_by_worker[row.name] for row in services] == [(cpu,) for cpu in expected]


def test_a_service_shares_the_cold_cpu_of_a_small_host() -> None:
    for sync in (False, True):
        plan = place([3, 5], sync_flush=sync, sync_replication=sync, table=table(SERVICE)).cpus_by_worker
        assert plan["errand"] == plan["control"] == (5,)


def test_a_worker_whose_listener_is_not_open_has_no_place() -> None:
    plan = place([0, 1], listening={"ha", "metrics"}).cpus_by_worker
    assert plan["metrics"] == plan["control"]
    assert "namesrv" not in plan and "ha" in plan
