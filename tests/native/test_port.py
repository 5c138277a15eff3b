"""The table of ports: weights, caps, order after a refusal, and what a replacement does."""

import random
from pathlib import Path
from typing import Any

import pytest
from plane_kit import Kit

from ringmq.ipc.plane import Capacity, Plane, plane_bytes
from ringmq.ipc.ports import COMPLETIONS_MAX, Port, PortPlan, mark_of, parts_of_mark, refusal_at, tally
from ringmq.ipc.workers import WORKERS, port_plans
from ringmq.native import ffi, lib

ROLE = 24
"""A role of no worker that there is."""
SERVICE = 3
"""Its port, behind those of the kit."""
ORDERED = PortPlan(ROLE, flags=lib.RMQ_PORT_ORDERED, weight=1)
HELD = lib.RMQ_HOLD_LONGER_SLAVE


class PlaneOfKit:
    """What Port asks of a Plane."""

    def __init__(self, kit: Kit) -> None:
        self.struct = kit.plane


def make(root: Path, plan: PortPlan = ORDERED, **kit: Any) -> tuple[Kit, Port, int]:
    """A kit with one port more, claimed by its first owner, and a topic."""
    made = Kit(root, ports=(plan,), **kit)
    made.header.roles[ROLE].generation = 1
    port = Port(PlaneOfKit(made), SERVICE)
    port.claim()
    return made, port, made.topic(b"T")


def requests(kit: Kit, topic: int, tokens: list[int]) -> Any:
    """Requests whose bodies are their tokens."""
    made = ffi.new("struct rmq_request[]", len(tokens))
    for request, token in zip(made, tokens, strict=True):
        body = b"%d" % token
        request.body_at, request.body_length = kit.keep(SERVICE, body), len(body)
        request.token, request.kind, request.topic_id = token, lib.RMQ_APPEND_SINGLE, topic
        request.queue_slot = kit.queue_slot(topic, 0)
    return made


def stored(kit: Kit) -> list[int]:
    """The tokens in the log, in its order."""
    return [int(data[view.body_at :][: view.body_length]) for _, data, view in kit.records()]


def answers(kit: Kit, ring: str = "appended") -> list[tuple[int, int, int]]:
    """(token, code, cause) of each completion."""
    return [(done.token, done.code, done.cause) for done in kit.completions(SERVICE, ring)]


def test_requests_come_back_by_their_tokens(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path)
    tokens = [1, 1 << 40, (1 << 64) - 1]
    assert port.submit(requests(kit, topic, tokens), 3) == 3
    assert port.settled_end is None and not port.answered
    with kit.writer() as write:
        write()
    assert port.settled_end == kit.marks.append_offset and port.answered and port.has_answers
    found = ffi.new("struct rmq_completion[4]")
    assert port.peek(lib.RMQ_PORT_APPENDED, found, 2) == 2
    assert [done.token for done in found[0:2]] == tokens[:2]
    port.done(lib.RMQ_PORT_APPENDED, 2)
    last = port.take()
    assert last is not None and (last.token, last.code) == (tokens[2], 0)
    assert last.commit_log_offset + last.bytes == kit.marks.append_offset
    assert port.take() is None and not port.has_answers


def test_a_full_ring_takes_what_has_room(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, request_slots=8)
    assert port.submit(requests(kit, topic, list(range(12))), 12) == 8
    assert port.submit(requests(kit, topic, [99]), 1) == 0
    with kit.writer() as write:
        write()
    assert stored(kit) == list(range(8))


@pytest.mark.parametrize("weights", [(4, 1), (4, 4), (1, 7), (64, 1, 1)])
def test_a_batch_is_shared_by_weight(tmp_path: Path, weights: tuple[int, ...]) -> None:
    plans = [PortPlan(ROLE + number, weight=weight) for number, weight in enumerate(weights)]
    kit = Kit(tmp_path, ports=tuple(plans), request_slots=1024, segment_bytes=1 << 20)
    topic = kit.topic(b"T")
    ports = range(SERVICE, SERVICE + len(weights))
    for port in ports:
        for _ in range(1024):
            kit.request(topic, 0, b"x", producer=port)
    with kit.writer() as write:
        while kit.marks.append_offset == 0:
            write(1)
    first_batch_end = [view.physical_offset for _, _, view in kit.records()[:512]][-1]
    early = [sum(done.commit_log_offset <= first_batch_end for done in kit.completions(port)) for port in ports]
    assert sum(early) == 512
    for count, weight in zip(early, weights, strict=True):
        assert abs(count - 512 * weight / sum(weights)) <= len(weights)


def test_no_more_of_a_port_wait_than_may(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE, parked_max=3), sync=True)
    port.submit(requests(kit, topic, list(range(8))), 8)
    kit.request(topic, 0, b"777")
    with kit.writer() as write, kit.flusher() as flush:
        write()
        assert sorted(stored(kit)) == [0, 1, 2, 777], "the others go on"
        flush()
        assert [token for token, code, _ in answers(kit, "completed") if code == 0] == [0, 1, 2]
        write()
        assert stored(kit)[4:] == [3, 4, 5]
        flush()
        write()
        flush()
        assert not port.answered or kit.header.ports.port[SERVICE].request.tail == 8
        write()
    assert stored(kit)[-2:] == [6, 7]


def test_write_sleeps_at_the_cap_of_a_port_until_the_completer_rings(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE, parked_max=3), sync=True)
    bell, sleeps = kit.header.roles[lib.RMQ_ROLE_WRITE].bell, kit.header.roles[lib.RMQ_ROLE_WRITE].counters
    with kit.writer() as write, kit.flusher() as flush:
        port.submit(requests(kit, topic, list(range(8))), 8)
        write(250_000_000)
        assert sleeps[lib.RMQ_WRITE_SLEEPS] <= 4, "of 100 ms"
        assert kit.header.ports.awaits_parked == 1
        bell.sleeping = lib.RMQ_BELL_ASLEEP
        flush()
        assert bell.sleeping == 0, "rung"
        while kit.header.ports.port[SERVICE].request.tail < 8:
            write()
            flush()
        write()
        assert kit.header.ports.awaits_parked == 0
        kit.request(topic, 0, b"777")
        write(1)
        bell.sleeping = lib.RMQ_BELL_ASLEEP
        flush()
        assert kit.marks.flushed_offset == kit.marks.append_offset and bell.sleeping == lib.RMQ_BELL_ASLEEP


def test_write_looks_often_at_a_port_whose_owner_takes_no_completion(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE), request_slots=8)
    with kit.writer() as write:
        for first in (0, 8):
            assert port.submit(requests(kit, topic, list(range(first, first + 8))), 8) == 8
            write()
        before = kit.header.roles[lib.RMQ_ROLE_WRITE].counters[lib.RMQ_WRITE_SLEEPS]
        write(250_000_000)
        assert kit.header.roles[lib.RMQ_ROLE_WRITE].counters[lib.RMQ_WRITE_SLEEPS] > before + 5
        assert kit.header.ports.awaits_parked == 0


def test_a_refusal_refuses_what_follows_until_it_is_acknowledged(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path)
    port.submit(requests(kit, topic, [1]), 1)
    with kit.writer() as write:
        write()
        kit.marks.write_hold = HELD
        port.submit(requests(kit, topic, [2, 3]), 2)
        write()
        kit.marks.write_hold = 0
        port.submit(requests(kit, topic, [4]), 1)
        write()
        behind = (1, lib.RMQ_CAUSE_BEHIND_REFUSED)
        assert answers(kit) == [(1, 0, 0), (2, 14, lib.RMQ_CAUSE_HELD), (3, *behind), (4, *behind)]
        port.submit(requests(kit, topic, [5]), 1)  # on its way when the owner acknowledges
        port.acknowledge()
        port.submit(requests(kit, topic, [2, 3, 4, 5]), 4)
        write()
    assert answers(kit) == [(5, *behind), (2, 0, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0)]
    assert stored(kit) == [1, 2, 3, 4, 5]


def test_other_ports_go_on_behind_a_refusal(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE))
    kit.marks.write_hold = HELD
    port.submit(requests(kit, topic, [1]), 1)
    with kit.writer() as write:
        write()
        kit.marks.write_hold = 0
        port.submit(requests(kit, topic, [2]), 1)
        write()
    assert [code for _, code, _ in answers(kit)] == [14, 0], "a port without order"


def test_the_refusal_outlives_write(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path)
    kit.marks.write_hold = HELD
    port.submit(requests(kit, topic, [1]), 1)
    with kit.writer() as write:
        write()
    kit.marks.write_hold = 0
    port.submit(requests(kit, topic, [2]), 1)
    with kit.writer() as write:
        write()
    assert [cause for _, _, cause in answers(kit)] == [lib.RMQ_CAUSE_HELD, lib.RMQ_CAUSE_BEHIND_REFUSED]


def test_a_replacement_finds_out_what_became_of_its_predecessors_requests(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, sync=True)
    with kit.writer() as write, kit.flusher() as flush:
        port.submit(requests(kit, topic, [1, 2]), 2)
        write()
        port.submit(requests(kit, topic, [3]), 1)
        kit.header.roles[ROLE].generation = 2
        successor = Port(PlaneOfKit(kit), SERVICE)
        successor.claim()
        assert not successor.answered, "one is in the ring, two wait for the disk"
        write()
        assert successor.settled_end is not None and not successor.answered
        flush()
        assert successor.answered
        found = ffi.new("struct rmq_completion[4]")
        assert successor.peek(lib.RMQ_PORT_COMPLETED, found, 4) == 2
        assert [(done.token, done.generation, done.code) for done in found[0:2]] == [(1, 1, 0), (2, 1, 0)]
        assert successor.peek(lib.RMQ_PORT_APPENDED, found, 4) == 0
        successor.done(lib.RMQ_PORT_COMPLETED, 2)
        successor.submit(requests(kit, topic, [3]), 1)
        write()
        flush()
    assert stored(kit) == [1, 2, 3], "what the dead one had left in the ring was dropped"
    assert successor.take() is not None


def test_a_successor_is_answered_though_the_dead_one_took_no_completion(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE, parked_max=3), sync=True, request_slots=8)
    with kit.writer() as write, kit.flusher() as flush:
        for first in (0, 8):
            made = requests(kit, topic, list(range(first, first + 8)))
            for request in made:
                request.flags = lib.RMQ_APPEND_FLAG_NO_WAIT
            assert port.submit(made, 8) == 8
            write()
        assert kit.header.ports.port[SERVICE].request.tail == 8, "its ring of completions is full"
        kit.header.roles[ROLE].generation = 2
        successor = Port(PlaneOfKit(kit), SERVICE)
        successor.claim()
        write()
        flush()
        assert successor.answered
    assert stored(kit) == list(range(8))


def test_a_port_that_takes_no_completion_holds_up_nobody(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE), sync=True, request_slots=8)
    with kit.writer() as write, kit.flusher() as flush:
        for first in (0, 8):
            assert port.submit(requests(kit, topic, list(range(first, first + 8))), 8) == 8
            write()
            flush()
        kit.request(topic, 0, b"777")
        write()
        flush()
        assert [done.code for done in kit.completions(0, "completed")] == [0], "another port's is answered"
        assert kit.header.ports.parked.tail == kit.header.ports.parked.head == 9
        assert len(answers(kit, "completed")) == 8
        write()
        flush()
        assert [token for token, *_ in answers(kit, "completed")] == list(range(8, 16))


def test_a_stop_waits_for_no_owner_that_takes_no_completion(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE), request_slots=8)
    with kit.writer() as write:
        for first in (0, 8):
            assert port.submit(requests(kit, topic, list(range(first, first + 8))), 8) == 8
            write()
        kit.marks.stop_requested = lib.RMQ_STOP_WRITE
        kit.request(topic, 0, b"777")
        assert write() == lib.RMQ_RUN_STOPPED
    assert stored(kit) == [*range(8), 777]


def test_take_passes_over_a_predecessors_completions(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path)
    port.submit(requests(kit, topic, [1]), 1)
    with kit.writer() as write:
        write()
        kit.header.roles[ROLE].generation = 2
        port.claim()
        port.submit(requests(kit, topic, [2]), 1)
        write()
    taken = port.take()
    assert taken is not None and taken.token == 2
    assert port.take() is None


def test_a_port_without_connections_hears_arrivals(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE, flags=lib.RMQ_PORT_ARRIVALS))
    kit.header.settings.long_polling_enable = 0
    slot = kit.queue_slot(topic, 0)
    (kit.plane.base + port.row.parked_flags_at)[slot] = b"\x01"
    port.submit(requests(kit, topic, [1]), 1)
    with kit.writer() as write, kit.dispatcher() as dispatch:
        write()
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            dispatch()
    ring = port.row.arrived
    assert [kit.slot("uint32_t *", ring, at)[0] for at in range(ring.tail, ring.head)] == [slot]


def test_arrivals_start_a_dormant_owner_and_fill_no_ring(tmp_path: Path) -> None:
    """More arrivals than the ring takes, then the owner goes to sleep: nothing is kept for it, and it is wanted."""
    kit, port, topic = make(tmp_path, PortPlan(ROLE, flags=lib.RMQ_PORT_ARRIVALS))
    ring, role = port.row.arrived, kit.header.roles[ROLE]
    topics = [kit.topic(b"T%d" % number) for number in range(2 * ring.capacity)]
    flags = kit.plane.base + port.row.parked_flags_at
    for other in topics:
        flags[kit.queue_slot(other, 0)] = b"\x01"
    with kit.writer() as write, kit.dispatcher() as dispatch:

        def arrive(token: int, *to: int) -> None:
            for number, other in enumerate(to):
                port.submit(requests(kit, other, [token + number]), 1)
                write()
            while kit.marks.dispatched_offset < kit.marks.append_offset:
                dispatch()

        arrive(1, *topics)
        assert ring.head - ring.tail == ring.capacity
        assert role.activation_requested == 1, "it may be about to rest"
        role.activation_requested, role.flags = 0, lib.RMQ_ROLE_DORMANT
        arrive(100, topic)
        assert role.activation_requested == 0, "the queue is not flagged"
        arrive(200, topics[0])
        assert role.activation_requested == 1
        ring.tail = ring.head  # its next process has taken what there was
        told = ring.head
        role.flags = 0
        dispatch()
        assert ring.head == told, "what did not fit was not kept"
        arrive(300, topics[1])
        assert ring.head == told + 1


@pytest.mark.parametrize("seed", range(20))
def test_the_rule_of_order_agrees_with_its_twin(tmp_path: Path, seed: int) -> None:
    """Random holds, submissions and acknowledgements: each answer is what the twin says, and no n is missing."""
    chance = random.Random(seed)
    kit, port, topic = make(tmp_path)
    refused_at = acknowledged = position = 0
    following = 1
    with kit.writer() as write:
        for _ in range(40):
            kit.marks.write_hold = HELD if chance.random() < 0.3 else 0
            tokens = list(range(following, following + chance.randrange(5)))
            if tokens:
                port.submit(requests(kit, topic, tokens), len(tokens))
                write()
            expected = []
            for token in tokens:
                refused_at = refusal_at(refused_at, acknowledged, position)
                if refused_at:
                    cause = lib.RMQ_CAUSE_BEHIND_REFUSED
                else:
                    cause = lib.RMQ_CAUSE_HELD if kit.marks.write_hold else 0
                    refused_at = position + 1 if cause else 0
                expected.append((token, cause))
                position += 1
            found = [(token, cause) for token, _, cause in answers(kit)]
            assert found == expected
            following += sum(not cause for _, cause in found)
            if refused_at and chance.random() < 0.6:
                port.acknowledge()
                acknowledged = position
    assert stored(kit) == list(range(1, following))


def test_an_owner_reports_consumer_offsets_to_control(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE, flags=lib.RMQ_PORT_COMMITS))
    group, slot, ring = int(lib.rmq_group_add(kit.plane, b"G", 1, 0)), kit.queue_slot(topic, 0), port.row.commit
    reports = ffi.new("struct rmq_offset_commit[]", [(group, slot, offset) for offset in range(100)])
    assert (ring.capacity, port.row.slow.capacity, port.row.pull_stats_at) == (64, 0, 0)
    for _ in range(3):  # the ring is passed around
        assert (port.commit(reports, 60), port.commit(reports + 60, 40)) == (60, 4)
        assert lib.rmq_offset_drain(kit.plane) == 64
        assert lib.rmq_offset_get(kit.plane, group, slot) == 63
        assert (port.commit(reports + 64, 36), lib.rmq_offset_drain(kit.plane)) == (36, 36)
        assert lib.rmq_offset_get(kit.plane, group, slot) == 99


def test_an_owner_without_the_flag_reports_no_offsets(tmp_path: Path) -> None:
    kit, port, _ = make(tmp_path, PortPlan(ROLE))
    with pytest.raises(ValueError, match=f"port {SERVICE} of role {ROLE} reports no offsets"):
        port.commit(ffi.new("struct rmq_offset_commit *"))
    assert lib.rmq_offset_drain(kit.plane) == 0


@pytest.mark.parametrize(
    "plans",
    [
        (PortPlan(ROLE), PortPlan(ROLE)),
        (PortPlan(lib.RMQ_ROLES_MAX),),
        (PortPlan(ROLE, weight=0),),
        (PortPlan(ROLE, weight=lib.RMQ_PORT_WEIGHT_MAX + 1),),
        (PortPlan(ROLE, parked_max=0),),
        (PortPlan(ROLE, request_slots=12),),
        (PortPlan(ROLE, flags=lib.RMQ_PORT_CONNECTIONS | lib.RMQ_PORT_COMMITS),),
        (PortPlan(ROLE, flags=lib.RMQ_PORT_CONNECTIONS | lib.RMQ_PORT_ARRIVALS),),
    ],
)
def test_impossible_tables_are_refused(tmp_path: Path, plans: tuple[PortPlan, ...]) -> None:
    with pytest.raises(ValueError, match="cannot be made"):
        Plane.create(f"ringmq-test-{tmp_path.name}", Capacity(64, 64, 64, 64, 64, ports=plans), tmp_path.stat(), 1)


def test_more_ports_than_the_table_takes_are_refused() -> None:
    plans = tuple(PortPlan(role) for role in range(lib.RMQ_PORTS_MAX + 1))
    with pytest.raises(ValueError, match="33 ports are more than the table's 32"):
        plane_bytes(Capacity(64, 64, 64, 64, 64, ports=plans))


def test_a_plane_has_the_ports_of_its_readers_alone() -> None:
    tables = [port_plans(WORKERS.rows(readers)) for readers in (1, 2, 3)]
    sizes = [plane_bytes(Capacity(64, 64, 64, 64, 64, ports=plans)) for plans in tables]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] > 0


@pytest.mark.parametrize("seed", range(10))
def test_the_tally_agrees_with_its_twin(tmp_path: Path, seed: int) -> None:
    """Random lanes, refusals and generations: what is stored is the twin's, and nothing is given back."""
    chance = random.Random(seed)
    kit, port, topic = make(tmp_path, PortPlan(ROLE))
    stored, result = ffi.new("uint64_t[4]", [0, 1 << 20, 5, 0]), ffi.new("struct rmq_port_tally *")
    inherited = 0
    with kit.writer() as write:
        for generation in (1, 2):
            kit.header.roles[ROLE].generation = generation
            port.claim()
            for _ in range(chance.randrange(1, 5)):
                kit.marks.write_hold = HELD if chance.random() < 0.3 else 0
                marks = [
                    mark_of(chance.choice((ROLE, lib.RMQ_ROLE_POP)), chance.randrange(6), chance.randrange(256))
                    for _ in range(chance.randrange(1, 20))
                ]
                assert port.submit(requests(kit, topic, marks), len(marks)) == len(marks)
                inherited += len(marks) * (generation == 1)
                write()
    found = ffi.new("struct rmq_completion[]", COMPLETIONS_MAX)
    count = port.peek(lib.RMQ_PORT_APPENDED, found, COMPLETIONS_MAX)
    expected = list(stored)
    refused = [one for one in found[0:count] if not one.bytes]
    assert tally(found[0:count], expected) == len(refused)
    assert port.tally(lib.RMQ_PORT_APPENDED, stored, 4, result) == count > 0
    assert (list(stored), result.refused, result.inherited) == (expected, len(refused), inherited)
    if refused:
        assert (result.first.token, result.first.cause) == (refused[0].token, lib.RMQ_CAUSE_HELD)
    assert port.has_answers
    port.done(lib.RMQ_PORT_APPENDED, count)
    assert port.tally(lib.RMQ_PORT_APPENDED, stored, 4, result) == 0 and list(stored) == expected


@pytest.mark.parametrize(
    ("parts", "mark"),
    [
        ((1, 0, 0), 0x0100_0000_0000_0000),
        ((31, 255, (1 << 48) - 1), 0x1FFF_FFFF_FFFF_FFFF),
        ((30, 17, 12345), 0x1E11_0000_0000_3039),
        ((29, 2, 5), 0x1D02_0000_0000_0005),
        ((28, 0, 1 << 47), 0x1C00_8000_0000_0000),
        ((63, 3, 7), 0x3F03_0000_0000_0007),
        ((lib.RMQ_ROLE_POP, (1 << 20) - 1, (1 << 36) - 1), 0x1BFF_FFFF_FFFF_FFFF),
        ((lib.RMQ_ROLE_POP, 0x12345, 0x9), 0x1B12_3450_0000_0009),
    ],
)
def test_a_mark_is_made_of_its_parts_and_stays_as_it_is_on_disk(parts: tuple[int, int, int], mark: int) -> None:
    assert mark_of(*parts) == mark and parts_of_mark(mark) == parts


@pytest.mark.parametrize("parts", [(30, 256, 0), (30, 0, 1 << 48), (lib.RMQ_ROLE_POP, 1 << 20, 0), (27, 0, 1 << 36)])
def test_a_part_that_its_range_has_no_bits_for_makes_no_mark(parts: tuple[int, int, int]) -> None:
    with pytest.raises(AssertionError):
        mark_of(*parts)
