"""Cases for the build with crash points: tables of control, write and flush (test_crash_points.py)."""

import errno
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_kit import Load, crash_until_hit, flush_all, in_child, make_kit, points, write_all, write_rest
from plane_kit import CONTROL, SLICE_NS, Kit, die_with_parent, filter_found, filter_put

from ringmq.ipc.admission import Rule, RuleKind, publish_rules, published_rules
from ringmq.native import ffi, lib
from ringmq.store.crash_points import passed


def test_the_checker_sees_planted_faults(tmp_path: Path) -> None:
    """Loss, a second answer, a doubled queue offset, a swap and bytes above the end."""

    def loaded(name: str) -> Load:
        load = Load(make_kit(tmp_path / name, False), 3)
        load.put(30)
        in_child(lambda: write_all(load.kit))
        load.collect()
        load.check()
        return load

    def patch(load: Load, at: int, data: bytes) -> None:
        with (load.kit.root / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(at)
            file.write(data)

    def lose(load: Load) -> None:
        load.answers.popitem()

    def answer_twice(load: Load) -> None:
        next(iter(load.answers.values())).append(None)

    def double_offset(load: Load) -> None:
        records = [(o, v) for o, _, v in load.kit.records() if v.queue_offset == 1]
        patch(load, records[0][0] + 20, bytes(8))

    def swap(load: Load) -> None:
        (first, a), (second, b) = list(load.answers.items())[:2]
        load.answers[first], load.answers[second] = b, a

    def leave_bytes(load: Load) -> None:
        load.kit.marks.append_offset = load.kit.records()[-1][0]

    for fault in (lose, answer_twice, double_offset, swap, leave_bytes):
        load = loaded(fault.__name__)
        fault(load)
        with pytest.raises((AssertionError, KeyError)):
            load.check()


def make_replicated_kit(root: Path) -> Kit:
    """Sends wait for replicas, which have everything, and not for the flush."""
    kit = make_kit(root, False)
    kit.header.settings.sync_replication, kit.header.settings.slave_timeout_ms = 1, 60_000
    kit.marks.replicated_offset = 1 << 62
    return kit


def wanted(kit: Kit, pair: tuple[int, int]) -> tuple[int, int]:
    """(kind, subVersion) that a reader finds."""
    copy = ffi.new("struct rmq_subscription_copy *")
    lib.rmq_subscription_get(kit.plane, *pair, copy)
    return copy.kind, copy.sub_version


def want(kit: Kit, pair: tuple[int, int]) -> None:
    """Every version is its pair's own."""
    version = 100 * pair[0] + pair[1]
    assert lib.rmq_subscription_set(kit.plane, *pair, lib.RMQ_SUBSCRIPTION_ALL, version, ffi.NULL, 0) == 0


@pytest.mark.parametrize("does", ["replace", "clear"])
@pytest.mark.parametrize("point", points("control-subscription-"))
def test_a_table_of_subscriptions_that_control_left_half_done(tmp_path: Path, point: str, does: str) -> None:
    """A reader sees a pair's own subscription or none; the next control process clears the table and fills it."""
    kit = make_kit(tmp_path, False)
    pairs = [(group, topic) for group in range(1, 14) for topic in range(1, 6)]
    for pair in pairs[:64]:
        want(kit, pair)

    def work() -> None:
        if does == "clear":
            lib.rmq_subscriptions_clear(kit.plane)
            want(kit, pairs[64])
        else:
            assert lib.rmq_subscription_replace(kit.plane, *pairs[20], *pairs[64]) == 0
            want(kit, pairs[64])

    hit = in_child(work, point)
    assert hit or (does, point) in {
        ("replace", "control-subscription-counted"),
        ("clear", "control-subscription-unlinked"),
    }
    for group, topic in pairs:
        assert wanted(kit, (group, topic)) in ((0, 0), (lib.RMQ_SUBSCRIPTION_ALL, 100 * group + topic))
    lib.rmq_subscriptions_clear(kit.plane)
    assert {wanted(kit, pair) for pair in pairs} == {(0, 0)}
    for pair in pairs[1:]:
        want(kit, pair)
    assert [wanted(kit, pair)[1] for pair in pairs[1:]] == [100 * group + topic for group, topic in pairs[1:]]


@pytest.mark.parametrize("point", points("control-rules-"))
def test_a_set_of_rules_that_control_left_half_done(tmp_path: Path, point: str) -> None:
    """Readers see the old set or the new one; the next control process publishes its own."""
    kit = make_kit(tmp_path, False)
    sizes = (3, 16, 1, 2)
    sets = [(Rule(RuleKind.REFUSE, b"DELAY", code=code),) * size for code, size in enumerate(sizes)]
    for old, new in itertools.pairwise(sets):
        publish_rules(kit.plane, old)
        assert in_child(lambda new=new: publish_rules(kit.plane, new), point)  # type: ignore[misc]
        assert published_rules(kit.plane) == (new if point == "control-rules-published" else old)


@pytest.mark.parametrize("point", points("control-filter-"))
def test_a_filter_that_control_left_half_done(tmp_path: Path, point: str) -> None:
    """A reader finds an expression's own program or none; the next control process withdraws all."""
    kit = make_kit(tmp_path, False)
    old = filter_put(kit, 5, b"a = 1", b"one")
    assert filter_put(kit, 6, b"a = 2", b"two") % 2 == old % 2 == 1
    assert in_child(lambda: filter_put(kit, 5, b"a = 3", b"three"), point)
    is_whole = point == "control-filter-published"
    assert [filter_found(kit, text) for text in (b"a = 1", b"a = 2", b"a = 3")] == [
        None, b"two", b"three" if is_whole else None,
    ]  # fmt: skip
    room = ffi.new("char[]", lib.RMQ_FILTER_PROGRAM_MAX)
    assert lib.rmq_filter_copy(kit.plane, 5, old, room) == 0
    lib.rmq_filters_clear(kit.plane)
    assert [filter_found(kit, text) for text in (b"a = 1", b"a = 2", b"a = 3")] == [None] * 3
    assert filter_put(kit, 5, b"a = 4", b"four") > old
    assert filter_found(kit, b"a = 4") == b"four"


def test_a_wish_whose_process_dies_before_it_rings_stands(tmp_path: Path) -> None:
    """The supervisor sleeps, and finds the word with its next look."""
    kit = Kit(tmp_path)
    role, supervisor = lib.RMQ_ROLES_MAX - 1, kit.header.roles[lib.RMQ_ROLE_SUPERVISOR]
    lib.rmq_role_arm(kit.plane, lib.RMQ_ROLE_SUPERVISOR)
    assert in_child(lambda: lib.rmq_worker_activate(kit.plane, role), "worker-activation-requested")
    assert kit.header.roles[role].activation_requested == 1 and supervisor.bell.sleeping == 1
    assert not in_child(lambda: lib.rmq_worker_activate(kit.plane, role), "worker-activation-requested"), (
        "nothing is left to do"
    )
    lib.rmq_worker_deactivate(kit.plane, role)
    assert not in_child(lambda: lib.rmq_worker_activate(kit.plane, role))
    assert kit.header.roles[role].activation_requested == 1 and supervisor.bell.sleeping == 0, "a new wish rings"


def test_a_point_of_python_is_switched_on_like_one_of_c() -> None:
    def step_twice() -> None:
        passed("pop-image-made")
        passed("pop-image-made")

    assert in_child(step_twice, "pop-image-made") and in_child(step_twice, "pop-image-made:2")
    assert not in_child(step_twice, "pop-image-made:3") and not in_child(step_twice, "pop-image")


@pytest.mark.parametrize("waits_for", ["nothing", "flush", "replicas"])
@pytest.mark.parametrize("point", points("write-"))
def test_write(tmp_path: Path, point: str, waits_for: str) -> None:
    def prepare(repeat: int) -> tuple[Callable[[], None], Callable[[], None]]:
        root = tmp_path / str(repeat)
        kit = make_replicated_kit(root) if waits_for == "replicas" else make_kit(root, waits_for == "flush")
        load = Load(kit, repeat)

        def work() -> None:
            with kit.writer() as write:
                for _ in range(3):
                    write(1)
                write_rest(kit, write)

        def check() -> None:
            load.put(20)
            if repeat % 2:
                in_child(lambda: write_all(kit), f"{point}:2")  # once more, perhaps while it repairs
            in_child(lambda: write_all(kit))
            if waits_for != "nothing":
                in_child(lambda: flush_all(kit))
            load.collect()
            load.check()

        load.put(40)
        return work, check

    crash_until_hit(point, prepare)


@pytest.mark.parametrize("waits_for", ["nothing", "flush"])
@pytest.mark.parametrize("point", points("write-"))
def test_a_port_is_answered_when_its_completions_are_there(tmp_path: Path, point: str, waits_for: str) -> None:
    """A replacement that looks while write is dead must not take a completion that is to come for one that is not."""

    def prepare(repeat: int) -> tuple[Callable[[], None], Callable[[], None]]:
        kit = make_kit(tmp_path / str(repeat), waits_for == "flush")
        load = Load(kit, repeat)
        load.put(40)

        def flush_once() -> None:
            with kit.flusher() as flush:
                flush(1)

        def look() -> None:
            for producer in (0, 1, CONTROL):
                if lib.rmq_port_answered(kit.plane, producer):
                    load.collect()
                    assert {sent for sent in load.sent if sent[0] == producer} <= load.answers.keys()

        def check() -> None:
            look()
            in_child(flush_once)
            look()
            in_child(lambda: write_all(kit))
            in_child(lambda: flush_all(kit))
            look()
            assert all(lib.rmq_port_answered(kit.plane, producer) for producer in (0, 1, CONTROL))
            load.check()

        return lambda: write_all(kit), check

    crash_until_hit(point, prepare)


@pytest.mark.parametrize("point", [p for p in points("flush-") if p != "flush-fault"])
def test_flush(tmp_path: Path, point: str) -> None:
    def prepare(repeat: int) -> tuple[Callable[[], None], Callable[[], None]]:
        kit = make_kit(tmp_path / str(repeat), True)
        load = Load(kit, repeat)

        def work() -> None:
            flush_all(kit)

        def check() -> None:
            load.collect()
            load.put(20)
            in_child(lambda: write_all(kit))
            if repeat % 2:
                in_child(lambda: flush_all(kit), f"{point}:1")
            in_child(lambda: flush_all(kit))
            load.collect()
            load.check()
            assert kit.marks.flushed_offset == kit.marks.append_offset

        load.put(40)
        in_child(lambda: write_all(kit))
        return work, check

    crash_until_hit(point, prepare)


@pytest.mark.parametrize("point", ["flush-answer", "flush-completed-head", "flush-parked-tail"])
def test_lost_replicas(tmp_path: Path, point: str) -> None:
    """Half of what is parked has come to replicas before they went: each is answered once, by what is true of it."""

    def prepare(repeat: int) -> tuple[Callable[[], None], Callable[[], None]]:
        kit = make_replicated_kit(tmp_path / str(repeat))
        load = Load(kit, repeat)
        load.put(40)
        in_child(lambda: write_all(kit))
        kit.marks.replicated_offset = kit.marks.append_offset // 2
        kit.marks.replication_state = lib.RMQ_REPLICATION_LOST
        load.collect()
        at_once = set(load.answers)

        def check() -> None:
            load.collect()
            in_child(lambda: flush_all(kit))
            load.collect()
            assert load.answers.keys() == load.sent.keys()
            for name, answers in load.answers.items():
                (answer,) = answers
                safe = name in at_once or answer.commit_log_end <= kit.marks.replicated_offset
                expected = (0, 0) if safe else (11, lib.RMQ_CAUSE_SLAVE_LOST)
                assert (answer.code, answer.cause) == expected
            assert {answer.code for (answer,) in load.answers.values()} == {0, 11}

        return lambda: flush_all(kit), check

    crash_until_hit(point, prepare)


def test_failed_sync_stays_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = make_kit(tmp_path / "store", True)
    load = Load(kit, 1)
    load.put(10)
    in_child(lambda: write_all(kit))
    switch = tmp_path / "switch"
    switch.write_text("fail")
    monkeypatch.setenv("RINGMQ_SYNC_SWITCH", str(switch))
    assert in_child(lambda: flush_all(kit), "flush-fault")
    switch.unlink()
    in_child(lambda: flush_all(kit))
    assert (kit.marks.store_fault, kit.marks.store_fault_errno) == (lib.RMQ_FAULT_FSYNC, 5)
    assert kit.marks.flushed_offset == 0
    load.collect()
    parked = [c for answers in load.answers.values() for c in answers if c.code]
    assert parked and {(c.code, c.cause, c.cause_errno) for c in parked} == {(14, lib.RMQ_FAULT_FSYNC, 5)}


def test_a_name_that_cannot_be_synced_is_a_fault_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The appender has the file from the moment it has a name: taken away, what goes there would be nowhere."""
    kit = Kit(tmp_path / "store")
    topic, switch = kit.topic(b"T"), tmp_path / "switch"
    monkeypatch.setenv("RINGMQ_SYNC_SWITCH", str(switch))

    def put(write: Callable[[], int]) -> None:
        kit.request(topic, 0, b"x" * 30_000)
        write()

    def roll() -> None:
        with kit.writer() as write, kit.flusher() as flush:
            put(write)
            while kit.marks.flushed_offset < kit.marks.append_offset:
                flush(SLICE_NS)
            synced = kit.marks.flushed_offset
            switch.write_text("names fail")
            kit.create_segment(65536)
            for _ in range(2):
                put(write)
            assert kit.marks.append_offset > 65536
            while not kit.marks.store_fault:
                flush(SLICE_NS)
            switch.unlink()
            put(write)
            flush(SLICE_NS)
            assert kit.marks.flushed_offset == synced

    assert not in_child(roll)
    assert (kit.marks.store_fault, kit.marks.store_fault_errno) == (lib.RMQ_FAULT_FSYNC, errno.EIO)
    assert [answer.code for answer in kit.completions()] == [0, 0, 0, 14]
    assert len(kit.records()) == 3, "what was acknowledged is in files that can be found"


def test_replicas_that_go_are_told_while_the_disk_is_stalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = make_replicated_kit(tmp_path / "store")
    kit.header.settings.sync_flush = 1
    kit.marks.replicated_offset = 0
    topic = kit.topic(b"T")
    kit.request(topic, 0, b"x")
    in_child(lambda: write_all(kit))
    switch = tmp_path / "switch"
    switch.write_text("stall")
    monkeypatch.setenv("RINGMQ_SYNC_SWITCH", str(switch))
    pid = os.fork()
    if not pid:
        die_with_parent()
        with kit.flusher() as flush:
            flush(10 * SLICE_NS)
        os._exit(0)
    progress = kit.header.roles[lib.RMQ_ROLE_FLUSH]
    while progress.progress < 3:  # it is in the stalled sync: only that goes round without an end of the slice
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    assert kit.completions(0, "completed") == []
    deadline = time.monotonic() + 60
    kit.marks.replication_state = lib.RMQ_REPLICATION_STALLED
    lib.rmq_role_wake(kit.plane, lib.RMQ_ROLE_FLUSH)
    while not (answers := kit.completions(0, "completed")):
        assert time.monotonic() < deadline
    assert [(c.code, c.cause) for c in answers] == [(12, lib.RMQ_CAUSE_SLAVE_TIMEOUT)]
    assert kit.marks.flushed_offset == 0, "the stall lasts until the switch is gone"
    switch.unlink()
    os.waitpid(pid, 0)


def test_stalled_sync_shows_nothing_and_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = make_kit(tmp_path / "store", True)
    kit.header.settings.sync_flush_timeout_ms = 50
    topic = kit.topic(b"T")
    kit.request(topic, 0, b"x")
    in_child(lambda: write_all(kit))
    switch = tmp_path / "switch"
    switch.write_text("stall")
    monkeypatch.setenv("RINGMQ_SYNC_SWITCH", str(switch))

    def stalled() -> None:
        with kit.flusher() as flush:
            flush(SLICE_NS)

    pid = os.fork()
    if not pid:
        die_with_parent()
        stalled()
        os._exit(0)
    while not (answers := kit.completions(0, "completed")):
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    assert [(c.code, c.cause) for c in answers] == [(10, lib.RMQ_CAUSE_FLUSH_TIMEOUT)]
    assert kit.marks.flushed_offset == 0
    assert lib.rmq_confirm_offset(kit.marks) == 0
    switch.unlink()
    os.waitpid(pid, 0)
    assert kit.marks.flushed_offset == kit.marks.append_offset
    assert kit.completions(0, "completed") == []
