"""Two askers and an answerer die at any crash point of an ask's way; test_crash_points.py runs this.

Each turn of a role is a process of its own, so that nothing is known but what stands in shared memory. The answerer
takes an ask, gives its room back, does it, then answers: a death loses what it has in its hand, and does nothing twice.
"""

import mmap
import random
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from crash_kit import in_child, points
from plane_kit import Kit
from test_asks import ANSWERER, PLAN, ROLE

from ringmq.native import ffi, lib

ASKERS = (lib.RMQ_ROLE_READ, lib.RMQ_ROLE_READ + 1)
ASKS = 60
ASK_POINTS = [*points("inbox-claimed", "inbox-filled"), "worker-activation-requested"]
TAKE_POINTS = points("inbox-given-up", "inbox-padded", "inbox-cleared", "inbox-zeroed", "inbox-taken")
ANSWER_POINTS = [*TAKE_POINTS, *points("answerer-", "verdict-")]


@dataclass
class Scene:
    """What outlives every process of the case, beside the plane."""

    kit: Kit
    done: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, ASKS))
    """How often each ask was done."""
    answered: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, ASKS))
    """Answers that askers have seen."""
    put: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, ASKS * 16))
    """Position + 1 in the inbox and time of each ask that was put, 0 = its asker died first."""

    def position(self, token: int) -> tuple[int, int]:
        position, received_ns = struct.unpack_from("=Qq", self.put, token * 16)
        return position - 1, received_ns


def ask(scene: Scene, role: int, token: int, *, is_late: bool) -> None:
    """Send one ask. `is_late`: it expires in 3 ms."""
    head, position = ffi.new("struct rmq_inbox_record *"), ffi.new("uint64_t *")
    received_ns = time.monotonic_ns() - (lib.RMQ_ASK_TIMEOUT_MS * 1_000_000 - 3_000_000 if is_late else 0)
    head.type, head.role, head.pending = lib.RMQ_INBOX_COLD_FRAME, role, token
    head.role_generation, head.received_mono_ns = scene.kit.header.roles[role].generation, received_ns
    assert lib.rmq_inbox_put(scene.kit.plane, ANSWERER, head, bytes(token), token, position) == 0
    struct.pack_into("=Qq", scene.put, token * 16, position[0] + 1, received_ns)


def answer(scene: Scene, *, begins: bool) -> None:
    """Run a turn of the answerer over all asks in its inbox."""
    plane = scene.kit.plane
    if begins:
        lib.rmq_inbox_start(plane, ANSWERER)
    while (record := lib.rmq_inbox_take(plane, ANSWERER)) != ffi.NULL or lib.rmq_inbox_unblock(plane, ANSWERER):
        if record == ffi.NULL:
            continue
        copy = ffi.new("struct rmq_inbox_record *", record[0])
        is_void = lib.rmq_ask_is_void(plane, ANSWERER, record)
        assert copy.length == ffi.sizeof("struct rmq_inbox_record") + copy.pending, "a record is complete"
        lib.rmq_inbox_done(plane, ANSWERER, record)
        if is_void:
            continue
        scene.done[copy.pending] += 1
        head = ffi.new("struct rmq_verdict *")
        head.type, head.pending, head.asker_generation = lib.RMQ_VERDICT_PAYLOAD, copy.pending, copy.role_generation
        assert lib.rmq_verdict_put(plane, ANSWERER, copy.role, head, b"", 0) == 0


def take_answers(scene: Scene, role: int) -> None:
    """Read the answers of an asker."""
    plane, generation = scene.kit.plane, scene.kit.header.roles[role].generation
    while (answered := lib.rmq_verdict_take(plane, ANSWERER, role)) != ffi.NULL:
        if answered.asker_generation == generation:
            scene.answered[answered.pending] += 1
        lib.rmq_verdict_done(plane, ANSWERER, role, answered)


def mark_dead(kit: Kit, role: int) -> None:
    """Change the role as the supervisor does before it starts the replacement of a dead process."""
    kit.header.roles[role].state = 0
    kit.header.roles[role].claim_position = 2**64 - 1
    kit.header.roles[role].generation += 1


@pytest.mark.parametrize("seed", range(6))
def test_an_ask_is_answered_or_given_up_and_never_done_twice(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    scene = Scene(Kit(tmp_path, answerers=(PLAN,), inbox_bytes=4096))
    kit = scene.kit
    for role in (*ASKERS, ROLE):
        kit.header.roles[role].generation = 1
    owner: dict[int, tuple[int, int]] = {}
    given_up: dict[int, bool] = {}
    begins, hits, token = True, 0, 0
    while token < ASKS or set(owner) - set(given_up):
        if token < ASKS and chance.random() < 0.5:
            role = chance.choice(ASKERS)
            owner[token] = role, int(kit.header.roles[role].generation)
            point = chance.choice(ASK_POINTS) if chance.random() < 0.4 else None
            is_late = chance.random() < 0.3
            if in_child(lambda: ask(scene, role, token, is_late=is_late), point):  # noqa: B023
                mark_dead(kit, role)
                hits += 1
            token += 1
        elif chance.random() < 0.6:
            point = chance.choice(ANSWER_POINTS) if chance.random() < 0.5 else None
            killed = in_child(lambda: answer(scene, begins=begins), point)
            hits += killed
            if begins := killed or chance.random() < 0.2:  # killed, or it rests
                mark_dead(kit, ROLE)
        for role in ASKERS:
            take_answers(scene, role)
        now_ns = time.monotonic_ns()
        for number, (role, generation) in owner.items():
            position, received_ns = scene.position(number)
            if number in given_up:
                continue
            if generation != kit.header.roles[role].generation or scene.answered[number]:
                given_up[number] = False  # its asker is gone, or it is answered
            elif lib.rmq_ask_is_lost(kit.plane, ANSWERER, position, received_ns, now_ns):
                given_up[number] = True
    in_child(lambda: answer(scene, begins=True))
    in_child(lambda: answer(scene, begins=False))
    inbox = kit.header.asks.answerer[ANSWERER].inbox
    assert inbox.head == inbox.tail, "nothing is stuck"
    assert max(scene.done[:]) == 1, "nothing is done twice"
    assert hits > 5
    for number, was_given_up in given_up.items():
        position, _ = scene.position(number)
        if was_given_up and scene.done[number]:
            assert position < kit.header.asks.answerer[ANSWERER].start_position, "only a dead answerer may have done it"
    answered = [number for number in given_up if scene.answered[number]]
    assert answered and all(scene.done[number] and scene.answered[number] == 1 for number in answered)


@pytest.mark.parametrize("point", TAKE_POINTS)
def test_an_ask_in_the_hand_of_a_dying_answerer_is_given_up_and_no_other(tmp_path: Path, point: str) -> None:
    scene = Scene(Kit(tmp_path, answerers=(PLAN,), inbox_bytes=4096))
    kit, role = scene.kit, ASKERS[0]
    kit.header.roles[role].generation = kit.header.roles[ROLE].generation = 1
    in_child(lambda: answer(scene, begins=True))
    for token in (0, 1):
        in_child(lambda: ask(scene, role, token, is_late=False))  # noqa: B023
    assert in_child(lambda: answer(scene, begins=False), point)
    mark_dead(kit, ROLE)
    assert not in_child(lambda: lib.rmq_inbox_start(kit.plane, ANSWERER))
    lost = [
        bool(lib.rmq_ask_is_lost(kit.plane, ANSWERER, *scene.position(token), time.monotonic_ns())) for token in (0, 1)
    ]
    in_child(lambda: answer(scene, begins=False))
    take_answers(scene, role)
    assert lost == [True, False]
    assert (scene.done[0], scene.done[1], scene.answered[0], scene.answered[1]) == (0, 1, 0, 1)
    inbox = kit.header.asks.answerer[ANSWERER].inbox
    assert inbox.head == inbox.tail
