"""Write dies at any crash point while chains cross the ends of rings and files; their owner is replaced now and then.

test_crash_points.py runs these cases with the build that has the crash points.
"""

import random
from pathlib import Path

import pytest
from crash_kit import flush_all, in_child, points
from plane_kit import NO_WAIT, SHORT_SLICE_NS, Kit, element
from test_chains import requests
from test_port import ORDERED, ROLE, SERVICE, PlaneOfKit

from ringmq.ipc.ports import Port, PortPlan
from ringmq.native import lib

BATCH = lib.RMQ_APPEND_BATCH
LENGTHS = [18, 1, 5, 12, 2]
BEFORE = 50
"""Requests that move the ring's head close to its end."""
OTHERS = 777
FILES = 16


def write_all(kit: Kit) -> None:
    """Until every port is taken: what lacks room for its answers is not among these cases."""
    ports = kit.header.ports.port
    with kit.writer() as write:
        while any(ports[number].request.tail < ports[number].request.head for number in (0, 1, SERVICE)):
            write(SHORT_SLICE_NS)


def made(root: Path, plan: PortPlan, waits_for_disk: bool) -> tuple[Kit, Port, int]:
    """A kit in which chains cross the end of their ring, and those of files of 4 KiB."""
    kit = Kit(root, segment_bytes=4096, ports=(plan,), sync=waits_for_disk)
    kit.header.roles[ROLE].generation = 1
    for number in range(1, FILES):
        kit.create_segment(number * 4096)
    port = Port(PlaneOfKit(kit), SERVICE)
    port.claim()
    topic = kit.topic(b"T", 2)
    port.submit(requests(kit, topic, [1] * BEFORE, 1000), BEFORE)
    in_child(lambda: write_all(kit))
    in_child(lambda: flush_all(kit))
    for ring in ("appended", "completed"):
        kit.completions(SERVICE, ring)
    return kit, port, topic


def chains_of(tokens: list[int]) -> list[int]:
    """Of each chain the requests that are among the tokens: their number."""
    starts = [1 + sum(LENGTHS[:number]) for number in range(len(LENGTHS))]
    return [
        sum(start <= token < start + length for token in tokens) for start, length in zip(starts, LENGTHS, strict=True)
    ]


def stored_tokens(kit: Kit) -> list[int]:
    """In the log as far as it is committed and redone."""
    found = [int(data[view.body_at :][: view.body_length]) for _, data, view in kit.records()]
    return [token for token in found if token < OTHERS]


def answered_tokens(kit: Kit) -> list[int]:
    """Completions that wait, and parked requests that will have one."""
    ports = kit.header.ports
    tokens = []
    for name in ("appended", "completed"):
        ring = getattr(ports.port[SERVICE], name)
        for at in range(ring.tail, ring.head):
            completion = kit.slot("struct rmq_completion *", ring, at)
            assert completion.bytes, "nothing is refused here"
            tokens.append(completion.token)
    for at in range(ports.parked.tail, ports.parked.head):
        entry = kit.slot("struct rmq_parked *", ports.parked, at)
        if entry.port == SERVICE and entry.completed_position >= ports.port[SERVICE].completed.head:
            tokens.append(entry.completion.token)
    return tokens


def is_whole(counts: list[int]) -> bool:
    """All or none of each chain."""
    return all(count in (0, length) for count, length in zip(counts, LENGTHS, strict=True))


@pytest.mark.parametrize("waits_for_disk", [False, True])
@pytest.mark.parametrize("plan", [PortPlan(ROLE), ORDERED], ids=["plain", "ordered"])
@pytest.mark.parametrize("point", points("write-"))
def test_each_chain_is_stored_and_answered_as_a_whole(
    tmp_path: Path, point: str, plan: PortPlan, waits_for_disk: bool
) -> None:
    chance, hits = random.Random(f"{point}-{plan.flags}-{waits_for_disk}"), 0
    for repeat in range(4):
        kit, port, topic = made(tmp_path / str(repeat), plan, waits_for_disk)
        head = int(port.row.request.head)
        for number in range(10):
            kit.request(topic, 1, b"%d" % OTHERS, producer=number % 2, flags=NO_WAIT)
        count = sum(LENGTHS)
        asked = requests(kit, topic, LENGTHS)
        for at in (2, LENGTHS[0] + 2):
            body = element(b"%d" % asked[at].token)
            asked[at].kind, asked[at].body_at, asked[at].body_length = BATCH, kit.keep(SERVICE, body), len(body)
        assert port.submit(asked, count) == count
        assert head < kit.header.ports.port[SERVICE].request.capacity < head + LENGTHS[0], "it crosses the ring's end"
        many = chance.randrange(1, 40) if point in ("write-record", "write-answer") else chance.randrange(1, 4)
        killed = in_child(lambda: write_all(kit), f"{point}:{1 if repeat == 0 else many}")  # noqa: B023
        hits += killed
        assert is_whole(chains_of(stored_tokens(kit)))
        assert is_whole(chains_of(answered_tokens(kit)))
        is_replaced = killed and chance.random() < 0.5
        if is_replaced:
            kit.header.roles[ROLE].generation += 1
            Port(PlaneOfKit(kit), SERVICE).claim()
        if chance.random() < 0.5:
            in_child(lambda: write_all(kit), f"{point}:1")  # noqa: B023 - again, perhaps while it repairs
        in_child(lambda: write_all(kit))  # noqa: B023
        found = stored_tokens(kit)
        assert is_whole(chains_of(found)) and found == sorted(set(found))
        assert sorted(answered_tokens(kit)) == found
        assert is_replaced or chains_of(found) == LENGTHS
        end = kit.marks.append_offset
        assert not any(kit.log(end, FILES * 4096)), "bytes above the append position"
    assert hits, f"{point} was never reached"


@pytest.mark.parametrize("point", points("port-request"))
def test_an_owner_dies_while_it_submits_a_chain(tmp_path: Path, point: str) -> None:
    """Its requests are seen by write as a whole or not at all."""
    for nth in (1, 2, 18, 30):
        kit, port, topic = made(tmp_path / str(nth), PortPlan(ROLE), False)
        asked = requests(kit, topic, LENGTHS)
        killed = in_child(lambda: port.submit(asked, len(asked)), f"{point}:{nth}")  # type: ignore[misc] # noqa: B023
        if not killed:
            assert point == "port-requests-published" and nth > 1
            continue
        is_published = point == "port-requests-published"
        in_child(lambda: write_all(kit))  # noqa: B023
        assert chains_of(stored_tokens(kit)) == (LENGTHS if is_published else [0] * len(LENGTHS))
        kit.header.roles[ROLE].generation += 1
        port.claim()
        in_child(lambda: write_all(kit))  # noqa: B023
        assert is_whole(chains_of(stored_tokens(kit)))


def test_the_check_sees_a_parted_chain() -> None:
    assert is_whole(chains_of([*range(1, 19), 20])) is False
    assert is_whole(chains_of([*range(1, 19), 19]))
