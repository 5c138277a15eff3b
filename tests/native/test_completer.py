"""What a parked send is answered, and when: flush and replicas as two conditions; the twin in plain Python agrees."""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plane_kit import FLUSH_TIMEOUT_MS, NO_WAIT, Kit
from waiting import wait_until

from ringmq.ha.waiter import WaitSettings, Watermarks, refusal, verdict
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import ffi, lib
from tests.speed import WALL, allowed

SLAVE_TIMEOUT_MS = FLUSH_TIMEOUT_MS - 20_000
LOST, STALLED = lib.RMQ_REPLICATION_LOST, lib.RMQ_REPLICATION_STALLED
FAULTS = {0: 0, 10: lib.RMQ_CAUSE_FLUSH_TIMEOUT, 11: lib.RMQ_CAUSE_SLAVE_LOST, 12: lib.RMQ_CAUSE_SLAVE_TIMEOUT}
FAULTS |= {2: lib.RMQ_CAUSE_YIELDED, 14: lib.RMQ_FAULT_FSYNC}


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    yield replicated_kit(tmp_path)


def replicated_kit(root: Path, *, sync: bool = False) -> Kit:
    """A master whose sends wait for replicas, and for the flush with `sync`."""
    kit = Kit(root / "store", sync=sync)
    kit.header.settings.sync_replication = 1
    kit.header.settings.slave_timeout_ms = SLAVE_TIMEOUT_MS
    kit.marks.confirm_policy |= lib.RMQ_CONFIRM_LIMITED
    return kit


def park(kit: Kit, end: int, waited_ms: int = 0) -> None:
    """What write does for a request that waits; the kit's first producer alone."""
    ring = kit.header.ports.parked
    entry = kit.slot("struct rmq_parked *", ring, ring.head)
    ffi.memmove(entry, bytes(64), 64)
    entry.completion.commit_log_offset, entry.completion.token = end, ring.head
    entry.parked_mono_ms = time.monotonic_ns() // 1_000_000 - waited_ms
    entry.completed_position = ring.head
    ring.head += 1


def codes(kit: Kit) -> list[int]:
    """Codes answered since the last look; each says its own cause."""
    answers = kit.completions(0, "completed")
    assert [answer.cause for answer in answers] == [FAULTS[answer.code] for answer in answers]
    return [answer.code for answer in answers]


def counters(kit: Kit, *names: str) -> list[int]:
    return [int(kit.header.roles[lib.RMQ_ROLE_FLUSH].counters[getattr(lib, f"RMQ_FLUSH_{name}")]) for name in names]


@pytest.mark.parametrize("sync", [False, True])
def test_a_send_is_answered_when_replicas_have_it(tmp_path: Path, sync: bool) -> None:
    kit = replicated_kit(tmp_path, sync=sync)
    topic = kit.topic(b"T")
    for _ in range(3):
        kit.request(topic, 0, b"x" * 100)
    with kit.writer() as write, kit.flusher() as flush:
        write()
        flush()
        parked = [kit.slot("struct rmq_parked *", kit.header.ports.parked, at).completion for at in range(3)]
        ends = [entry.commit_log_offset + entry.bytes for entry in parked]
        assert codes(kit) == [], "flushed, but nobody else has it"
        kit.marks.replicated_offset = ends[1] - 1
        flush()
        assert codes(kit) == [0]
        kit.marks.replicated_offset = ends[2]
        flush()
        assert codes(kit) == [0, 0]
    assert counters(kit, "COMPLETED", "SLAVE_LOST", "SLAVE_TIMEOUTS") == [3, 0, 0]


def test_replicated_is_not_enough_while_the_disk_has_not_got_it(tmp_path: Path) -> None:
    kit = replicated_kit(tmp_path, sync=True)
    park(kit, 100)
    kit.marks.replicated_offset = 100
    with kit.flusher() as flush:
        flush()
        assert codes(kit) == []
        kit.marks.append_offset = kit.marks.flushed_offset = 100
        flush()
    assert codes(kit) == [0]


def test_wait_false_is_answered_at_once_and_taken_without_replicas(kit: Kit) -> None:
    topic = kit.topic(b"T")
    kit.marks.replication_state = LOST
    kit.request(topic, 0, b"x", flags=NO_WAIT)
    with kit.writer() as write:
        write()
    (answer,) = kit.completions()
    assert (answer.code, answer.commit_log_end) == (0, kit.marks.append_offset)
    assert kit.header.ports.parked.head == 0


@pytest.mark.parametrize("state", [LOST, STALLED])
def test_without_replicas_nothing_is_appended(kit: Kit, state: int) -> None:
    topic = kit.topic(b"T")
    kit.request(topic, 0, b"first")
    with kit.writer() as write:
        write()
        end = kit.marks.append_offset
        kit.marks.replication_state = state
        kit.request(topic, 0, b"refused")
        write()
        (answer,) = kit.completions()
        assert (answer.code, answer.cause) == (1, lib.RMQ_CAUSE_IN_SYNC_REPLICAS)
        assert (kit.marks.append_offset, kit.header.ports.parked.head) == (end, 1)
        assert kit.header.roles[lib.RMQ_ROLE_WRITE].counters[lib.RMQ_WRITE_TOO_FEW_REPLICAS] == 1
        kit.marks.replication_state = lib.RMQ_REPLICATION_OK
        kit.request(topic, 0, b"taken")
        write()
    assert kit.marks.append_offset > end
    bodies = [data[view.body_at :][: view.body_length] for _, data, view in kit.records()]
    assert bodies == [b"first", b"taken"]


@pytest.mark.parametrize("flags", [0, NO_WAIT])
def test_a_hold_refuses_every_send(kit: Kit, flags: int) -> None:
    topic = kit.topic(b"T")
    kit.marks.write_hold = lib.RMQ_HOLD_LONGER_SLAVE
    kit.request(topic, 0, b"x", flags=flags)
    with kit.writer() as write:
        write()
    (answer,) = kit.completions()
    assert (answer.code, answer.cause, kit.marks.append_offset) == (14, lib.RMQ_CAUSE_HELD, 0)


@pytest.mark.parametrize(("state", "code", "counter"), [(LOST, 11, "SLAVE_LOST"), (STALLED, 12, "SLAVE_TIMEOUTS")])
def test_what_is_parked_behind_the_replicas_is_answered_when_they_go(
    kit: Kit, state: int, code: int, counter: str
) -> None:
    for end in (100, 200, 300):
        park(kit, end)
    with kit.flusher() as flush:
        kit.marks.replicated_offset = 200
        kit.marks.replication_state = state
        flush()
        assert codes(kit) == [0, 0, code], "what replicas have is safe, whatever they do now"
        park(kit, 400)
        flush()
        assert codes(kit) == [code]
        kit.marks.replication_state = lib.RMQ_REPLICATION_OK
        park(kit, 500)
        flush()
        assert codes(kit) == [], "it has come back"
    assert counters(kit, counter) == [2]


@pytest.mark.parametrize("sync", [False, True])
def test_what_is_parked_is_given_up_when_the_broker_yields(tmp_path: Path, sync: bool) -> None:
    """Slaves report to another master from then on, so no report would answer it."""
    kit = replicated_kit(tmp_path, sync=sync)
    kit.marks.append_offset = kit.marks.flushed_offset = 100
    kit.marks.replicated_offset = 100
    for end in (100, 200, 300):
        park(kit, end)
    with kit.flusher() as flush:
        flush()
        assert codes(kit) == [0]
        kit.marks.tenure = Tenure(TenureState.YIELDING).word
        flush()
        assert codes(kit) == [2, 2]
        assert kit.header.ports.parked.tail == kit.header.ports.parked.head
    assert counters(kit, "YIELDED", "SLAVE_LOST", "SLAVE_TIMEOUTS") == [2, 0, 0]


@pytest.mark.parametrize("flags", [0, NO_WAIT])
def test_write_refuses_what_is_in_the_rings_when_the_broker_yields(kit: Kit, flags: int) -> None:
    """Read workers have taken it before. Clients of stock send again after code 2."""
    topic = kit.topic(b"T")
    kit.marks.tenure = Tenure(TenureState.YIELDING).word
    for _ in range(3):
        kit.request(topic, 0, b"x", flags=flags)
    with kit.writer() as write:
        write()
    assert [(answer.code, answer.cause) for answer in kit.completions()] == [(2, lib.RMQ_CAUSE_NO_MASTER)] * 3
    assert (kit.marks.append_offset, kit.header.ports.parked.head) == (0, 0)
    assert kit.header.ports.port[0].request.tail == kit.header.ports.port[0].request.head


def test_each_condition_has_its_own_time(tmp_path: Path) -> None:
    kit = replicated_kit(tmp_path, sync=True)
    kit.marks.replicated_offset = 100
    park(kit, 100, waited_ms=SLAVE_TIMEOUT_MS + 1)  # the disk alone is late, and has time
    park(kit, 200, waited_ms=SLAVE_TIMEOUT_MS + 1)
    with kit.flusher() as flush:
        flush()
        assert codes(kit) == [], "answers keep the order of the log"
        kit.marks.append_offset = kit.marks.flushed_offset = 100
        flush()
        assert codes(kit) == [0, 12]
        park(kit, 300, waited_ms=FLUSH_TIMEOUT_MS + 1)
        kit.marks.replicated_offset = 300
        flush()
        assert codes(kit) == [10]


def test_a_stop_waits_three_seconds_for_replicas(kit: Kit) -> None:
    kit.header.settings.slave_timeout_ms = 3_600_000
    began = time.monotonic()
    park(kit, 100, waited_ms=2000)
    with kit.flusher() as flush:
        flush()
        kit.marks.stop_requested = lib.RMQ_STOP_READ
        flush()
        answered = codes(kit)
        assert not answered or time.monotonic() - began > 0.99
        kit.slot("struct rmq_parked *", kit.header.ports.parked, 0).parked_mono_ms -= 1000
        flush()
        assert answered + codes(kit) == [12]


# -- time ------------------------------------------------------------------------------------------------------


def answered_after_ms(kit: Kit, deed: Callable[[], None]) -> float:
    """Runs a flush worker that has gone to sleep, does `deed`; how long the parked request's answer then took."""
    with kit.flusher() as flush:
        flush()  # says that the next file is missing
        thread = threading.Thread(target=flush, args=(5_000_000_000,))
        thread.start()
        bell = kit.header.roles[lib.RMQ_ROLE_FLUSH].bell
        wait_until(lambda: bell.sleeping == lib.RMQ_BELL_ASLEEP, "it sleeps")
        began = time.monotonic()
        deed()
        wait_until(lambda: kit.header.ports.port[0].completed.head > 0, "it is answered")
        took_ms = (time.monotonic() - began) * 1000
        kit.marks.stop_requested = lib.RMQ_STOP_FLUSH
        lib.rmq_role_wake(kit.plane, lib.RMQ_ROLE_FLUSH)
        thread.join()
    return took_ms


@pytest.mark.timed(cpus=1)
def test_a_lost_link_is_told_within_50_ms(kit: Kit) -> None:
    park(kit, 100)

    def lose() -> None:
        kit.marks.replication_state = LOST
        lib.rmq_role_wake(kit.plane, lib.RMQ_ROLE_FLUSH)

    assert answered_after_ms(kit, lose) < allowed(50, WALL)
    assert codes(kit) == [11]


@pytest.mark.timed(cpus=1)
def test_a_time_out_is_kept_although_nobody_rings(kit: Kit) -> None:
    kit.header.settings.slave_timeout_ms = 150
    took_ms = answered_after_ms(kit, lambda: park(kit, 100))
    assert 148 < took_ms < allowed(400, WALL), "the clock counts whole milliseconds"
    assert codes(kit) == [12]


# -- the twin --------------------------------------------------------------------------------------------------


class Stage:
    """One flush role whose words are set to anything, again and again."""

    def __init__(self, kit: Kit, flush: Callable[[int], int]) -> None:
        self.kit, self.flush = kit, flush

    def answer(self, waits: WaitSettings, end: int, waited_ms: int, marks: Watermarks) -> int | None:
        """What the completer makes of one entry."""
        kit, ours = self.kit, self.kit.header.settings
        ours.sync_flush, ours.sync_replication = int(waits.sync_flush), int(waits.sync_replication)
        ours.sync_flush_timeout_ms, ours.slave_timeout_ms = waits.sync_flush_timeout_ms, waits.slave_timeout_ms
        page = kit.marks
        page.append_offset = page.flushed_offset = marks.flushed_offset
        page.replicated_offset, page.replication_state = marks.replicated_offset, marks.replication_state
        page.store_fault = lib.RMQ_FAULT_FSYNC if marks.fsync_failed else 0
        page.stop_requested = lib.RMQ_STOP_READ if marks.stopping else 0
        page.tenure = Tenure(TenureState.MASTER if marks.is_master else TenureState.YIELDING).word
        ring = kit.header.ports.parked
        ring.tail = ring.head
        kit.header.ports.port[0].completed.head = kit.header.ports.port[0].completed.tail = ring.head
        park(kit, end, waited_ms)
        self.flush(1)
        found = codes(kit)
        return found[0] if found else None


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    kit = Kit(tmp_path_factory.mktemp("twin") / "store")
    with kit.flusher() as flush:
        yield Stage(kit, flush)


TIMEOUTS = st.sampled_from([1000, 3000, 5000, 10_000])
WAITS = st.builds(WaitSettings, st.booleans(), st.booleans(), TIMEOUTS, TIMEOUTS)
OFFSETS = st.integers(0, 3).map(lambda step: 100 * step)
MARKS = st.builds(
    Watermarks, OFFSETS, OFFSETS, st.sampled_from([0, LOST, STALLED]), st.booleans(), st.booleans(), st.booleans()
)


@settings(max_examples=200)
@given(waits=WAITS, end=OFFSETS, waited_ms=st.sampled_from([0, 500, 2500, 4000, 7000, 20_000]), marks=MARKS)
def test_the_twin_gives_the_same_verdict(
    stage: Stage, waits: WaitSettings, end: int, waited_ms: int, marks: Watermarks
) -> None:
    now_ms, began = 100_000, time.monotonic()
    answer = stage.answer(waits, end, waited_ms, marks)
    took_ms = int((time.monotonic() - began) * 1000)
    parked_ms = now_ms - waited_ms  # a stall of the machine is time, too
    assert answer in {verdict(waits, end, parked_ms - late_ms, marks, now_ms) for late_ms in range(0, took_ms + 1, 100)}


SIDES = [(TenureState.MASTER, *case) for case in product([0, LOST, STALLED], *[[False, True]] * 3)] + [
    (side, *case)
    for side in (TenureState.SLAVE, TenureState.TAKING, TenureState.YIELDING)
    for case in ((0, False, False, False), (LOST, True, True, True))
]
"""All cases of a master. Of another side, one in which it has a single reason to refuse, and one with all reasons."""


@pytest.mark.parametrize(("side", "state", "held", "wait", "replicates"), SIDES)
def test_the_twin_refuses_the_same_sends(
    tmp_path: Path, side: TenureState, state: int, held: bool, wait: bool, replicates: bool
) -> None:
    kit = replicated_kit(tmp_path)
    kit.header.settings.sync_replication = int(replicates)
    kit.marks.replication_state, kit.marks.write_hold = state, int(held)
    kit.marks.tenure = Tenure(side, epoch=5).word
    kit.request(kit.topic(b"T"), 0, b"x", flags=0 if wait else NO_WAIT)
    with kit.writer() as write:
        write()
    answers = [answer.code for answer in kit.completions()]
    waits = WaitSettings(sync_flush=False, sync_replication=replicates)
    marks = Watermarks(0, 0, state, is_master=side is TenureState.MASTER)
    expected = refusal(waits, marks, held, wait)
    parks = expected is None and replicates and wait
    assert answers == ([] if parks else [expected or 0])
    assert bool(kit.marks.append_offset) == (expected is None)
