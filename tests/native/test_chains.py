"""Tied requests (RMQ_APPEND_FLAG_WITH_NEXT): a chain is planned, refused, dropped and stored as one."""

import struct
from pathlib import Path
from typing import Any

import pytest
from plane_kit import Kit, element
from test_port import HELD, ORDERED, ROLE, SERVICE, PlaneOfKit, answers, make, stored

from ringmq.ipc.ports import Port, PortPlan, tie
from ringmq.native import ffi, lib

TIED = lib.RMQ_APPEND_FLAG_WITH_NEXT
REFUSED = lib.RMQ_CAUSE_CHAIN_REFUSED
BROKEN = lib.RMQ_CAUSE_CHAIN_BROKEN
PLAIN = PortPlan(ROLE)


def requests(kit: Kit, topic: int, lengths: list[int], first: int = 1, queue: int = 0) -> Any:
    """Chains of these lengths, whose bodies are their tokens: first, first + 1, ..."""
    made = ffi.new("struct rmq_request[]", sum(lengths))
    flags = [TIED * (number < length) for length in lengths for number in range(1, length + 1)]
    for token, (request, flag) in enumerate(zip(made, flags, strict=True), first):
        body = b"%d" % token
        request.body_at, request.body_length = kit.keep(SERVICE, body), len(body)
        request.token, request.kind, request.topic_id, request.flags = token, lib.RMQ_APPEND_SINGLE, topic, flag
        request.queue_id, request.queue_slot = queue, kit.queue_slot(topic, queue)
    return made


def batches(kit: Kit) -> int:
    """Batches that write has committed."""
    return int(kit.header.ports.journal.generation)


def publish(kit: Kit, made: Any) -> None:
    """As a broken owner does, past rmq_port_submit."""
    ring = kit.header.ports.port[SERVICE].request
    for request in made:
        slot = kit.slot("struct rmq_request *", ring, ring.head)
        slot[0] = request
        slot.generation = kit.header.ports.port[SERVICE].generation
        ring.head += 1


# -- submitting ------------------------------------------------------------------------------------------


def test_a_chain_is_submitted_with_its_end_or_not_at_all(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PLAIN, request_slots=8)
    assert port.submit(requests(kit, topic, [3, 3, 3]), 9) == 6
    assert port.submit(requests(kit, topic, [3], 7), 3) == 0
    assert port.submit(requests(kit, topic, [1, 2], 7), 2) == 1, "the end is not among what is submitted"
    with kit.writer() as write:
        write()
    assert stored(kit) == [1, 2, 3, 4, 5, 6, 7]


def test_a_tie_has_bounds(tmp_path: Path) -> None:
    kit, _, topic = make(tmp_path, PLAIN)
    made = requests(kit, topic, [1] * 65)
    tie(made, 1, 3)
    tie(made, 4, 1)
    assert [bool(request.flags & TIED) for request in made[0:6]] == [False, True, True, False, False, False]
    tie(made, 1, 2)
    assert not made[2].flags & TIED, "a chain that was longer before"
    for count in (0, 65):
        with pytest.raises(ValueError, match="a chain has 1 to 64 requests"):
            tie(made, 0, count)


# -- stored as one ---------------------------------------------------------------------------------------


def test_a_chain_of_different_queues_topics_and_kinds_is_stored_in_one_batch(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PLAIN)
    other = kit.topic(b"Other", 3)
    made = requests(kit, topic, [4])
    made[1].topic_id, made[1].queue_id, made[1].queue_slot = other, 2, kit.queue_slot(other, 2)
    body = element(b"21") + element(b"22")
    made[2].kind, made[2].body_at, made[2].body_length = lib.RMQ_APPEND_BATCH, kit.keep(SERVICE, body), len(body)
    assert port.submit(made, 4) == 4
    with kit.writer() as write:
        write()
    assert batches(kit) == 1
    assert stored(kit) == [1, 2, 21, 22, 4]
    assert [view.queue_offset for _, _, view in kit.records()] == [0, 0, 1, 2, 3]
    assert [(token, code) for token, code, _ in answers(kit)] == [(1, 0), (2, 0), (3, 0), (4, 0)]


def test_a_chain_goes_over_its_ports_share_and_pays_for_it(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE, weight=1), request_slots=2048, segment_bytes=1 << 20)
    kit.header.ports.port[0].weight = 63  # the service's share of a batch is 8
    for _ in range(2048):
        kit.request(topic, 0, b"9999")
    assert port.submit(requests(kit, topic, [64] * 5), 320) == 320
    with kit.writer() as write:
        while kit.header.ports.port[0].request.tail < 2048:
            write(1)
    early = [done for done in stored(kit)[:2048] if done != 9999]
    assert early == list(range(1, 65)), "64 of 2048: 4 batches with a share of 8, and one chain"


def test_a_chain_without_place_in_the_batch_leaves_it_to_the_next_port(tmp_path: Path) -> None:
    """Of five ports with a share of 102, three have chains of 50: behind 102 + 150 + 150 + 100 none fits."""
    plans = tuple(PortPlan(ROLE + number) for number in range(4))
    kit = Kit(tmp_path, ports=plans, request_slots=256, segment_bytes=1 << 20)
    topic = kit.topic(b"T")
    for producer in (0, SERVICE + 3):
        for _ in range(200):
            kit.request(topic, flag=producer, producer=producer)
    for number in range(3):
        kit.header.roles[ROLE + number].generation = 1
        port = Port(PlaneOfKit(kit), SERVICE + number)
        port.claim()
        made = requests(kit, topic, [50] * 4)
        for request in made:
            request.flag = 1000 + number
        assert port.submit(made, 200) == 200
    with kit.writer() as write:
        while batches(kit) < 3:
            write(1)
    first = [view.flag for _, _, view in kit.records()[:512]]
    assert [first.count(flag) for flag in (0, 1000, 1001, 1002, SERVICE + 3)] == [102, 150, 150, 100, 10]


def test_a_chain_rolls_into_the_next_file_once(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PLAIN, segment_bytes=4096)
    kit.create_segment(4096)
    kit.request(topic, 0, bytes(3000))
    assert port.submit(requests(kit, topic, [20]), 20) == 20
    with kit.writer() as write:
        while kit.header.ports.port[SERVICE].request.tail < 20:
            write()
    places = [position for position, *_ in kit.records()][1:]
    assert len(places) == 20 and places[0] < 4096 <= places[-1]


def test_a_chain_waits_for_the_next_file_as_a_whole(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PLAIN, segment_bytes=4096)
    kit.request(topic, 0, b"777" * 1000)
    assert port.submit(requests(kit, topic, [20, 1]), 21) == 21
    with kit.writer() as write:
        write()
        write()
        assert kit.header.ports.port[SERVICE].request.tail == 0 and len(kit.records()) == 1
        kit.create_segment(4096)
        while kit.header.ports.port[SERVICE].request.tail < 21:
            write()
    assert stored(kit)[1:] == list(range(1, 22))


@pytest.mark.timeout(30)
def test_a_file_that_does_not_come_refuses_the_chain_as_one(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PLAIN, segment_bytes=4096)
    kit.request(topic, 0, b"777" * 1000)
    assert port.submit(requests(kit, topic, [20, 1]), 21) == 21
    with kit.writer() as write:
        while kit.header.ports.port[SERVICE].request.tail < 21:
            write()
    found = answers(kit)
    assert {code for _, code, _ in found[:20]} == {1}
    causes = [cause for *_, cause in found]
    fault = causes.index(lib.RMQ_CAUSE_SEGMENT_LATE)
    assert fault > 0 and causes == [REFUSED] * fault + [lib.RMQ_CAUSE_SEGMENT_LATE] + [REFUSED] * (19 - fault) + [0]
    assert stored(kit)[1:] == [21], "what fits into the file behind it goes on"


# -- refused as one --------------------------------------------------------------------------------------


def spoil_queue(kit: Kit, request: Any) -> None:
    """A queue that another topic has."""
    request.queue_slot = kit.queue_slot(kit.topic(b"Another"), 0)


def spoil_topic(kit: Kit, request: Any) -> None:
    """A deleted topic."""
    gone = kit.topic(b"Gone")
    request.topic_id, request.queue_slot = gone, kit.queue_slot(gone, 0)
    lib.rmq_topic_set(kit.plane, gone, 0)


def spoil_size(kit: Kit, request: Any) -> None:
    """More than maxMessageSize."""
    kit.header.settings.message_bytes_max = 5000
    request.body_at, request.body_length = 0, 5001


def spoil_batch(kit: Kit, request: Any) -> None:
    """A batch whose body has no elements."""
    request.kind = lib.RMQ_APPEND_BATCH


SPOILT = [
    (spoil_queue, (1, lib.RMQ_CAUSE_QUEUE_SLOT)),
    (spoil_topic, (1, lib.RMQ_CAUSE_QUEUE_SLOT)),
    (spoil_size, (13, lib.RMQ_CAUSE_MESSAGE_SIZE)),
    (spoil_batch, (13, lib.RMQ_CAUSE_BATCH_ELEMENT)),
]


@pytest.mark.parametrize("at", [0, 1, 4])
@pytest.mark.parametrize(("spoil", "answer"), SPOILT)
def test_one_request_at_fault_refuses_the_chain(tmp_path: Path, spoil: Any, answer: tuple[int, int], at: int) -> None:
    kit, port, topic = make(tmp_path, PLAIN)
    made = requests(kit, topic, [1, 5, 1])
    spoil(kit, made[1 + at])
    assert port.submit(made, 7) == 7
    with kit.writer() as write:
        write()
    expected = [(2 + number, answer[0], answer[1] if number == at else REFUSED) for number in range(5)]
    assert answers(kit) == [(1, 0, 0), *expected, (7, 0, 0)]
    assert stored(kit) == [1, 7]
    assert [view.queue_offset for _, _, view in kit.records()] == [0, 1]


def test_a_hold_refuses_each_chain_whole_and_an_ordered_port_acknowledges_once(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, ORDERED)
    kit.marks.write_hold = HELD
    assert port.submit(requests(kit, topic, [3, 2]), 5) == 5
    with kit.writer() as write:
        write()
        kit.marks.write_hold = 0
        assert port.submit(requests(kit, topic, [2], 6), 2) == 2
        write()
        behind = lib.RMQ_CAUSE_BEHIND_REFUSED
        causes = [cause for *_, cause in answers(kit)]
        assert causes == [lib.RMQ_CAUSE_HELD, REFUSED, REFUSED, *[behind] * 4]
        assert kit.header.ports.journal.entry[batches(kit) & 1].port[SERVICE].refused_at == 3
        port.acknowledge()
        assert port.submit(requests(kit, topic, [3, 2]), 5) == 5
        write()
    assert stored(kit) == [1, 2, 3, 4, 5]


def test_a_fault_in_the_middle_of_an_ordered_ports_chain_refuses_all_behind_it(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, ORDERED)
    made = requests(kit, topic, [1, 3, 2, 1])
    spoil_queue(kit, made[2])
    assert port.submit(made, 7) == 7
    with kit.writer() as write:
        write()
    fault, behind = lib.RMQ_CAUSE_QUEUE_SLOT, lib.RMQ_CAUSE_BEHIND_REFUSED
    assert [cause for *_, cause in answers(kit)] == [0, REFUSED, fault, REFUSED, behind, behind, behind]
    assert kit.header.ports.journal.entry[batches(kit) & 1].port[SERVICE].refused_at == 4


def test_too_few_replicas_refuse_a_chain_of_which_one_request_waits(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PLAIN)
    kit.header.settings.sync_replication, kit.marks.replication_state = 1, 1
    made = requests(kit, topic, [3, 1])
    made[0].flags |= lib.RMQ_APPEND_FLAG_NO_WAIT
    made[2].flags |= lib.RMQ_APPEND_FLAG_NO_WAIT
    made[3].flags |= lib.RMQ_APPEND_FLAG_NO_WAIT
    assert port.submit(made, 4) == 4
    with kit.writer() as write:
        write()
    assert [cause for *_, cause in answers(kit)] == [REFUSED, lib.RMQ_CAUSE_IN_SYNC_REPLICAS, REFUSED, 0]
    assert stored(kit) == [4]


def test_a_chain_of_too_many_bytes_is_refused_as_one(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PLAIN, segment_bytes=4096)
    made = requests(kit, topic, [3, 1])
    for request in made[0:3]:
        request.body_at, request.body_length = 0, 1300
    assert port.submit(made, 4) == 4
    with kit.writer() as write:
        write()
    assert [cause for *_, cause in answers(kit)] == [REFUSED, REFUSED, lib.RMQ_CAUSE_CHAIN_BYTES, 0]
    assert stored(kit) == [4]


def test_the_tally_names_the_request_at_fault(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PLAIN)
    made = requests(kit, topic, [1, 3, 1])
    spoil_queue(kit, made[2])
    port.submit(made, 5)
    with kit.writer() as write:
        write()
    kept, result = ffi.new("uint64_t[1]"), ffi.new("struct rmq_port_tally *")
    port.tally(lib.RMQ_PORT_APPENDED, kept, 1, result)
    assert (result.refused, result.first.token, result.first.cause) == (3, 3, lib.RMQ_CAUSE_QUEUE_SLOT)


# -- broken chains ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [PLAIN, ORDERED])
@pytest.mark.parametrize("length", [65, 600, 1000])
def test_a_chain_that_is_too_long_is_refused_whole(tmp_path: Path, plan: PortPlan, length: int) -> None:
    """Over more than a batch, and over a death of write between two of them."""
    kit, port, topic = make(tmp_path, plan, request_slots=1024)
    publish(kit, requests(kit, topic, [length, 1]))
    for _ in range(3):
        with kit.writer() as write:
            write(1)
    with kit.writer() as write:
        while kit.header.ports.port[SERVICE].request.tail <= length:
            write()
    ordered = plan is ORDERED
    causes = [cause for *_, cause in answers(kit)]
    rest = lib.RMQ_CAUSE_BEHIND_REFUSED if ordered else REFUSED
    assert causes == [BROKEN, *[rest] * (length - 1), rest if ordered else 0]
    assert stored(kit) == ([] if ordered else [length + 1])
    port.acknowledge()
    assert port.submit(requests(kit, topic, [2], 2000), 2) == 2
    with kit.writer() as write:
        write()
    assert stored(kit)[-2:] == [2000, 2001]


def test_a_chain_without_its_end_is_refused_and_waits_for_nothing(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PLAIN)
    publish(kit, requests(kit, topic, [3])[0:2])
    with kit.writer() as write:
        write()
        assert [cause for *_, cause in answers(kit)] == [BROKEN, REFUSED]
        port.submit(requests(kit, topic, [2], 7), 2)
        write()
    assert stored(kit) == [7, 8]


def test_a_chain_ends_where_another_owner_begins(tmp_path: Path) -> None:
    kit, _, topic = make(tmp_path, PLAIN)
    publish(kit, requests(kit, topic, [3])[0:2])
    kit.header.roles[ROLE].generation = 2
    port = Port(PlaneOfKit(kit), SERVICE)
    port.claim()
    port.submit(requests(kit, topic, [2, 1], 7), 3)
    with kit.writer() as write:
        write()
    assert stored(kit) == [7, 8, 9]
    assert [token for token, *_ in answers(kit)] == [7, 8, 9], "of the dead owner's chain there is no completion"


# -- room for answers ------------------------------------------------------------------------------------


def test_a_chain_waits_for_room_for_all_of_its_answers(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PLAIN, request_slots=8)
    assert port.submit(requests(kit, topic, [6]), 6) == 6
    with kit.writer() as write:
        write()
        assert port.submit(requests(kit, topic, [3], 7), 3) == 3
        kit.request(topic, 0, b"777")
        write()
        assert stored(kit) == [1, 2, 3, 4, 5, 6, 777], "another port goes on"
        assert len(answers(kit)) == 6
        write()
    assert stored(kit)[7:] == [7, 8, 9]


def test_a_stop_waits_for_no_chain_whose_owner_takes_nothing(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PLAIN, request_slots=8)
    with kit.writer() as write:
        assert port.submit(requests(kit, topic, [6]), 6) == 6
        write()
        assert port.submit(requests(kit, topic, [3], 7), 3) == 3
        kit.marks.stop_requested = lib.RMQ_STOP_WRITE
        assert write() == lib.RMQ_RUN_STOPPED
    assert stored(kit) == [1, 2, 3, 4, 5, 6]


def test_a_chain_waits_until_the_cap_on_parked_requests_lets_it_in(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE, parked_max=4), sync=True)
    assert port.submit(requests(kit, topic, [2, 3, 5, 2]), 12) == 12
    with kit.writer() as write, kit.flusher() as flush:
        write()
        assert stored(kit) == [1, 2], "five would be parked"
        flush()
        write()
        assert stored(kit) == [1, 2, 3, 4, 5]
        flush()
        write()
        flush()
        write()
    assert [cause for *_, cause in answers(kit)] == [BROKEN, *[REFUSED] * 4], (
        "longer than the cap: it would wait for ever"
    )
    assert stored(kit)[5:] == [11, 12]


def test_write_sleeps_at_the_cap_until_the_completer_makes_room_for_a_chain(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE, parked_max=4), sync=True)
    bell, counters = kit.header.roles[lib.RMQ_ROLE_WRITE].bell, kit.header.roles[lib.RMQ_ROLE_WRITE].counters
    assert port.submit(requests(kit, topic, [2, 3]), 5) == 5
    with kit.writer() as write, kit.flusher() as flush:
        write(250_000_000)
        assert counters[lib.RMQ_WRITE_SLEEPS] <= 4, "of 100 ms"
        assert kit.header.ports.awaits_parked == 1, "two may be parked, and three have to be"
        bell.sleeping = lib.RMQ_BELL_ASLEEP
        flush()
        assert bell.sleeping == 0, "rung"
        write()
    assert stored(kit) == [1, 2, 3, 4, 5]


def test_a_chain_gets_its_places_where_parked_is_short(tmp_path: Path) -> None:
    """Requests of two readers take each place that comes free, one at a time; the chain needs 24 of 32."""
    kit, port, topic = make(tmp_path, PortPlan(ROLE, weight=1), sync=True, request_slots=32)
    parked = fill_parked(kit, topic)
    with kit.writer() as write:
        write()
        assert parked.head - parked.tail == 32
        assert port.submit(requests(kit, topic, [24]), 24) == 24
        for turn in range(200):
            producer = turn % 2
            ring = kit.header.ports.port[producer].request
            if ring.head - ring.tail < 16:
                kit.request(topic, 0, b"9999", producer=producer)
            free(kit, producer)
            write(1)
            if kit.header.ports.port[SERVICE].request.tail:
                break
    assert kit.header.ports.port[SERVICE].request.tail == 24, "the others left it no room"


def fill_parked(kit: Kit, topic: int) -> Any:
    """Two readers take all 32 places of `parked`, which is returned."""
    parked = kit.header.ports.parked
    parked.capacity = 32
    for producer in (0, 1):
        for _ in range(16):
            kit.request(topic, 0, b"9999", producer=producer)
    return parked


def free(kit: Kit, producer: int) -> None:
    """The completer answers a parked request of the reader, which takes the answer."""
    kit.header.ports.parked.tail += 1
    kit.header.ports.port[producer].completed.head += 1
    kit.completions(producer, "completed")


def test_write_sleeps_while_a_chain_keeps_the_places_that_others_want(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE, weight=1), sync=True, request_slots=32)
    parked = fill_parked(kit, topic)
    counters = kit.header.roles[lib.RMQ_ROLE_WRITE].counters
    with kit.writer() as write:
        write()
        assert parked.head - parked.tail == 32
        assert port.submit(requests(kit, topic, [24]), 24) == 24
        write()
        for _ in range(10):
            free(kit, 0)
        kit.request(topic, 0, b"9999", producer=0)
        before = int(counters[lib.RMQ_WRITE_SLEEPS])
        write(250_000_000)
        assert kit.header.ports.awaits_parked == 1, "ten places are free, and the chain keeps them"
        assert counters[lib.RMQ_WRITE_SLEEPS] - before <= 4, "of 100 ms"
        for _ in range(14):
            free(kit, 1)
        write()
    assert kit.header.ports.port[SERVICE].request.tail == 24


def test_a_chain_that_waits_for_its_owner_keeps_no_places(tmp_path: Path) -> None:
    kit, port, topic = make(tmp_path, PortPlan(ROLE, weight=1), sync=True, request_slots=32)
    own = kit.header.ports.port[SERVICE]
    parked = kit.header.ports.parked
    parked.capacity = 32
    with kit.writer() as write:
        assert port.submit(requests(kit, topic, [1] * 20), 20) == 20
        write()
        parked.tail += 20
        own.completed.head += 20  # answered, and its owner takes nothing: no room for the answers of 24
        for _ in range(16):
            kit.request(topic, 0, b"9999", producer=0)
        write()
        assert port.submit(requests(kit, topic, [24], 21), 24) == 24
        write()
        for _ in range(16):
            kit.request(topic, 0, b"9999", producer=1)
        write()
    assert own.request.tail == 20
    assert parked.head - parked.tail == 32, "the readers have all places"


# -- the arena changes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rolls", [False, True])
def test_a_chain_whose_bytes_change_under_write_is_taken_back(tmp_path: Path, rolls: bool) -> None:
    """Write stores a place in the element of one batch, where the next one's element has the length of its body."""
    kit, port, topic = make(tmp_path, PLAIN, segment_bytes=4096)
    kit.create_segment(4096)
    element_bytes = struct.pack(">iIiii2sh", 24, 1, 4, 0, 2, b"ab", 0)  # 4: where the next one has its body's length
    made = requests(kit, topic, [1, 3, 1])
    body = b"%01900d" % 2
    made[1].body_at, made[1].body_length = kit.keep(SERVICE, body), len(body)
    at = kit.keep(SERVICE, bytes(8) + element_bytes)
    for request, start, length in ((made[2], at + 8, 24), (made[3], at, 26)):
        request.kind, request.body_at, request.body_length = lib.RMQ_APPEND_BATCH, start, length
    kit.request(topic, 0, b"%03000d" % 9 if rolls else b"9")
    assert port.submit(made, 5) == 5
    with kit.writer() as write:
        while kit.header.ports.port[SERVICE].request.tail < 5:
            write()
    assert answers(kit) == [
        (1, 0, 0), (2, 13, REFUSED), (3, 13, REFUSED), (4, 13, lib.RMQ_CAUSE_BATCH_ELEMENT), (5, 0, 0),
    ]  # fmt: skip
    assert batches(kit) in (2, 2 + rolls) and stored(kit) == [9, 1, 5]
    assert [view.queue_offset for _, _, view in kit.records()] == [0, 1, 2]
    assert not any(kit.log(kit.marks.append_offset, 8192))
    assert kit.header.roles[lib.RMQ_ROLE_WRITE].counters[lib.RMQ_WRITE_ROLLS] == 0
    assert kit.header.roles[lib.RMQ_ROLE_WRITE].counters[lib.RMQ_WRITE_MESSAGES] == 3
