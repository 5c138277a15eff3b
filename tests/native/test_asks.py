"""Asks of an answerer beside control: read workers find it by the code, wait for its start, and lose nothing."""

import errno
import mmap
import os
import random
import struct
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from plane_kit import ROWS, Kit
from reader_kit import BOTH, ReaderKit, connected, request
from waiting import wait_until

from ringmq.ipc.answerers import AnswererPlan
from ringmq.ipc.workers import answerer_plans
from ringmq.native import ffi, lib
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame

ROLE, ANSWERER = 25, len(answerer_plans(ROWS))
"""Its row of the table is the last."""
CODE, OTHER, SHARED = 270_099, 105, 300
TIMEOUT_NS = lib.RMQ_ASK_TIMEOUT_MS * 1_000_000
INBOX_BYTES = 1 << 16
MARGIN_NS = 20_000_000
"""Time from the begin of a round to the end of the ask's time-out."""
READY, BEGIN_NS = 0, 1
"""Words that both processes of a race share."""
PLAN = AnswererPlan(ROLE, frozenset({lib.RMQ_ROLE_READ, lib.RMQ_ROLE_READ + 1}), INBOX_BYTES, INBOX_BYTES, (CODE,))


class AnswererKit(ReaderKit):
    """A read worker that may ask the answerer ROLE; the test is the answerer."""

    @property
    def row(self) -> Any:
        return self.header.asks.answerer[ANSWERER]

    def begin(self) -> None:
        """A process of the answerer starts."""
        self.header.roles[ROLE].generation += 1
        lib.rmq_inbox_start(self.plane, ANSWERER)

    def die(self) -> None:
        """As the supervisor leaves the block of a dead worker."""
        self.header.roles[ROLE].state = 0
        self.header.roles[ROLE].claim_position = 2**64 - 1

    def ask_waits(self) -> bool:
        """The reader has put an ask that nobody has taken."""
        return bool(self.row.inbox.head != self.row.inbox.tail)


@pytest.fixture
def kit(tmp_path: Path) -> Any:
    made = AnswererKit(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES)
    made.header.roles[ROLE].name = b"echo"
    made.start("read")
    yield made
    made.close()


def answer_frame(opaque: int, remark: str = "") -> bytes:
    return encode_frame(RemotingCommand(code=0, opaque=opaque, flag=1, remark=remark or None))


def ask(kit: AnswererKit, opaque: int = 1) -> bytes:
    return request(CODE, {}, b"what", opaque=opaque)


def test_each_code_goes_to_its_answerer_and_its_answer_comes_back(kit: AnswererKit) -> None:
    kit.begin()
    with connected(kit) as client:
        client.send(ask(kit, 1), request(OTHER, {}, opaque=2))
        mine, payload = kit.take(ANSWERER)
        others, _ = kit.take()
        assert (mine.type, mine.role, payload) == (lib.RMQ_INBOX_COLD_FRAME, lib.RMQ_ROLE_READ, ask(kit, 1))
        kit.verdict(others, lib.RMQ_VERDICT_SEND, answer_frame(2, "control"))
        assert client.answer().remark == "control", "one does not wait for the other"
        kit.verdict(mine, lib.RMQ_VERDICT_SEND, answer_frame(1, "echo"), answerer=ANSWERER)
        assert client.answer().remark == "echo"


def test_a_large_header_with_many_fields_goes_to_no_service(kit: AnswererKit) -> None:
    """Python decodes each of its fields while other requests wait."""
    kit.begin()
    many = {f"field{number}": "x" * 400 for number in range(45)}
    with connected(kit) as client:
        client.send(request(CODE, many, opaque=3))
        answer = client.answer()
        assert (answer.code, answer.opaque) == (ResponseCode.MESSAGE_ILLEGAL, 3)
        assert "at most 16384 bytes with nested, odd or over 40 fields" in (answer.remark or "")
        client.send(request(CODE, {"long": "x" * 20_000}, opaque=4))
        assert kit.take(ANSWERER)[0].frame_length > 20_000
        client.send(request(CODE, dict.fromkeys(many, "x"), opaque=5), request(OTHER, many, opaque=6))
        assert kit.take(ANSWERER)[0].frame_length < 16_384 < kit.take()[0].frame_length


def test_an_answer_of_another_answerer_is_nobodys(kit: AnswererKit) -> None:
    kit.begin()
    with connected(kit) as client:
        client.send(ask(kit))
        record, _ = kit.take(ANSWERER)
        kit.verdict(record, lib.RMQ_VERDICT_SEND, answer_frame(1, "forged"))
        wait_until(lambda: kit.header.asks.answerer[0].answers[lib.RMQ_ROLE_READ].tail != 0, "it is read")
        kit.verdict(record, lib.RMQ_VERDICT_SEND, answer_frame(1, "own frame"), pending=lib.RMQ_NONE, answerer=ANSWERER)
        kit.verdict(record, lib.RMQ_VERDICT_SEND, answer_frame(1, "right"), answerer=ANSWERER)
        assert client.answer().remark == "right"


def test_the_first_ask_wants_the_worker_and_waits_for_it(kit: AnswererKit) -> None:
    with connected(kit) as client:
        client.send(ask(kit))
        wait_until(lambda: kit.header.roles[ROLE].activation_requested == 1, "the supervisor is told")
        assert client.is_quiet(0.2)
        kit.begin()
        record, _ = kit.take(ANSWERER)
        assert not lib.rmq_ask_is_void(kit.plane, ANSWERER, record)
        kit.verdict(record, lib.RMQ_VERDICT_SEND, answer_frame(1, "awake"), answerer=ANSWERER)
        assert client.answer().remark == "awake"


def test_an_answerer_sleeps_through_asks_until_it_is_woken_behind_them(kit: AnswererKit) -> None:
    bell, supervisor = kit.header.roles[ROLE].bell, kit.header.roles[lib.RMQ_ROLE_SUPERVISOR].bell
    bell.sleeping = supervisor.sleeping = lib.RMQ_BELL_ASLEEP
    head = ffi.new("struct rmq_inbox_record *")
    head.type, head.role = lib.RMQ_INBOX_COLD_FRAME, lib.RMQ_ROLE_READ
    for _ in range(2):
        assert lib.rmq_inbox_add(kit.plane, ANSWERER, head, b"12345678", 8, ffi.NULL) == 0
    assert kit.ask_waits() and bell.sleeping and supervisor.sleeping
    lib.rmq_answerer_wake(kit.plane, ANSWERER)
    assert not bell.sleeping and not supervisor.sleeping and kit.header.roles[ROLE].activation_requested


def test_frames_of_one_turn_wake_their_answerer_behind_the_last(kit: AnswererKit) -> None:
    kit.begin()
    with connected(kit) as client:
        bell = kit.header.roles[ROLE].bell
        bell.sleeping = lib.RMQ_BELL_ASLEEP
        client.send(ask(kit, 1), ask(kit, 2))
        wait_until(lambda: not bell.sleeping, "the reader wakes it")
        taken = 0
        while (record := lib.rmq_inbox_take(kit.plane, ANSWERER)) != ffi.NULL:
            lib.rmq_inbox_done(kit.plane, ANSWERER, record)
            taken += 1
        assert taken == 2


def test_an_ask_that_no_start_has_met_in_time_is_refused_and_void(kit: AnswererKit) -> None:
    with connected(kit) as client:
        began = time.monotonic()
        client.send(ask(kit))
        answer = client.answer()
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_BUSY,
            "[OVERLOAD]the broker's echo process has not started in time, try again",
        )
        assert time.monotonic() - began > lib.RMQ_ASK_TIMEOUT_MS / 1000 - 0.1
        kit.begin()
        record = lib.rmq_inbox_take(kit.plane, ANSWERER)
        assert lib.rmq_ask_is_void(kit.plane, ANSWERER, record), "the late process does nothing for it"


def test_what_a_dead_answerer_had_taken_is_refused_and_the_rest_is_its_successors(kit: AnswererKit) -> None:
    kit.begin()
    with connected(kit) as client:
        client.send(ask(kit, 1))
        taken, _ = kit.take(ANSWERER)
        client.send(ask(kit, 2))
        wait_until(kit.ask_waits, "the second ask")
        kit.die()
        assert client.is_quiet(0.2), "nothing is known before the successor begins"
        kit.begin()
        gone = client.answer()
        assert (gone.opaque, gone.code) == (1, ResponseCode.SYSTEM_BUSY)
        assert gone.remark == "[OVERLOAD]the broker's echo process restarted, try again"
        kit.verdict(taken, lib.RMQ_VERDICT_SEND, answer_frame(1, "from the grave"), answerer=ANSWERER)
        record, _ = kit.take(ANSWERER)
        kit.verdict(record, lib.RMQ_VERDICT_SEND, answer_frame(2, "served"), answerer=ANSWERER)
        assert client.answer().remark == "served"


def test_what_a_dead_answerer_had_answered_is_answered(kit: AnswererKit) -> None:
    kit.begin()
    with connected(kit) as client:
        client.send(ask(kit, 1))
        record, _ = kit.take(ANSWERER)
        head = ffi.new("struct rmq_verdict *")
        head.type, head.last, head.pending = lib.RMQ_VERDICT_SEND, 1, record.pending
        head.connection, head.connection_generation = record.connection, record.connection_generation
        head.asker_generation = record.role_generation
        frame = answer_frame(1, "its last word")
        kit.die()
        kit.header.roles[ROLE].generation += 1
        lib.rmq_verdict_put(kit.plane, ANSWERER, record.role, head, frame, len(frame))
        lib.rmq_inbox_start(kit.plane, ANSWERER)
        assert client.answer().remark == "its last word"


def test_control_starting_anew_leaves_the_asks_of_others_alone(kit: AnswererKit) -> None:
    kit.begin()
    with connected(kit) as client:
        client.send(ask(kit, 1), request(OTHER, {}, opaque=2))
        record, _ = kit.take(ANSWERER)
        kit.take()
        kit.header.roles[lib.RMQ_ROLE_CONTROL].generation += 1
        assert client.answer().opaque == 2
        kit.verdict(record, lib.RMQ_VERDICT_SEND, answer_frame(1), answerer=ANSWERER)
        assert client.answer().opaque == 1


def test_a_full_inbox_refuses_and_takes_again(kit: AnswererKit) -> None:
    kit.begin()
    with connected(kit) as client:
        large = request(CODE, {}, b"x" * (INBOX_BYTES // 4), opaque=7)
        client.send(*[large] * 4)
        refused = client.answer()
        assert (refused.code, refused.remark) == (
            ResponseCode.SYSTEM_BUSY,
            "[OVERLOAD]the broker's echo process cannot take more requests now, try again later",
        )
        kit.take(ANSWERER)
        client.send(ask(kit, 8))
        while kit.take(ANSWERER)[1] != ask(kit, 8):
            pass


def test_frames_for_one_answerer_wait_for_none_that_another_holds(kit: AnswererKit) -> None:
    kit.begin()
    most = 128 // 2
    with connected(kit) as client:
        client.send(*(request(OTHER, {}, opaque=number) for number in range(most)), ask(kit, 100))
        client.send(request(OTHER, {}, opaque=most), ask(kit, 101))
        assert kit.take(ANSWERER)[1] == ask(kit, 100), "control has as many of this connection as it may have"
        held = [kit.take()[0] for _ in range(most)]
        assert kit.inbox_take() is None and not kit.ask_waits(), "frames of a connection stay in order"
        for record in held:
            kit.verdict(record, lib.RMQ_VERDICT_DROP)
        assert kit.take()[1] == request(OTHER, {}, opaque=most)
        assert kit.take(ANSWERER)[1] == ask(kit, 101)


@pytest.mark.parametrize(("cold_max", "most"), [(0, 64 * 2 // 8), (5, 5)])
def test_a_slow_answerer_leaves_places_for_control(tmp_path: Path, cold_max: int, most: int) -> None:
    plan = structs.replace(PLAN, cold_max=cold_max)
    kit = AnswererKit(tmp_path / "slow", answerers=(plan,), request_slots=64, inbox_bytes=1 << 20)
    kit.start("read")
    kit.begin()
    try:
        with ExitStack() as stack:
            clients = [stack.enter_context(connected(kit)) for _ in range(24)]
            for client in clients:
                client.send(ask(kit))
            taken = [kit.take(ANSWERER) for _ in range(most)]
            refused = len(clients) - len(taken)
            wait_until(lambda: sum(not client.is_quiet(0) for client in clients) == refused, "the others are refused")
            assert not kit.ask_waits(), "an eighth of the pending entries, or the number of its row"
            other = stack.enter_context(connected(kit))
            other.send(request(OTHER, {}, opaque=3))
            kit.verdict(kit.take()[0], lib.RMQ_VERDICT_SEND, answer_frame(3))
            assert other.answer().opaque == 3
    finally:
        kit.close()


SHARES = {("G", "T"): 0, ("G", "U"): 1, ("H", "T"): 0, ("", ""): 1, ("Gä", "T"): 1, ("GT", ""): 0}
"""The answerer of each group and topic, behind ANSWERER. It has written their state to disk: these never change."""


def test_answerers_of_one_code_share_it_by_group_and_topic(tmp_path: Path) -> None:
    plans = [structs.replace(PLAN, role=role, codes=(SHARED,)) for role in (ROLE, 26)]
    kit = AnswererKit(tmp_path / "shared", answerers=tuple(plans), inbox_bytes=INBOX_BYTES)
    kit.start("read")
    try:
        with connected(kit) as client:
            for (group, topic), expected in SHARES.items():
                fields = {"consumerGroup": group, "topic": topic, "queueId": "1"}
                client.send(*(request(SHARED, fields, serialise=way) for way in BOTH))
                escaped = "".join(f"\\u{ord(letter):04x}" for letter in group)
                fields_text = f'"topic":"{topic}","consumerGroup":"no","consumerGroup":"{escaped}"'
                client.send(json_frame(fields_text))
                assert [group_of(kit.take(ANSWERER + expected)[1]) for _ in range(3)] == [group] * 3
            client.send(request(SHARED, {"topic": "T"}))
            kit.take(ANSWERER + lib.rmq_answerer_choose(3, b"", 0, b"T", 1))
            many = ",".join(f'"f{at}":""' for at in range(41))
            for odd in ('"topic":{}', '"topic":1.50', many):
                client.send(json_frame(odd))
                refused = client.answer()
                assert (refused.code, refused.opaque) == (ResponseCode.MESSAGE_ILLEGAL, 7)
                assert refused.remark == (
                    f"a request with code {SHARED} needs a plain group and topic in at most 40 fields, none nested: "
                    "they choose its worker"
                )
    finally:
        kit.close()


def json_frame(fields: str) -> bytes:
    header = f'{{"code":{SHARED},"flag":0,"language":"JAVA","opaque":7,"version":1,"extFields":{{{fields}}}}}'.encode()
    return struct.pack("!ii", 4 + len(header), len(header)) + header


def group_of(frame: bytes) -> str:
    return str(decode_frame(frame).ext_fields.get("consumerGroup", ""))


def test_groups_and_topics_are_spread_over_the_answerers_of_a_code() -> None:
    rows = 0b10110
    found = [lib.rmq_answerer_choose(rows, group := b"G%d" % at, len(group), b"T", 1) for at in range(3000)]
    assert set(found) == {1, 2, 4} and all(found.count(row) > 900 for row in (1, 2, 4))
    assert {lib.rmq_answerer_choose(1 << row, b"G", 1, b"T", 1) for row in range(8)} == set(range(8))


def test_the_end_of_a_connection_is_told_to_those_who_serve(kit: AnswererKit) -> None:
    kit.begin()
    for serves in (True, False):
        with connected(kit) as client:
            client.send(ask(kit, 1), request(OTHER, {}, opaque=2))
            kit.take(ANSWERER)
            kit.take()
            if not serves:
                kit.die()
        assert kit.take()[0].type == lib.RMQ_INBOX_CLOSED
        if serves:
            assert kit.take(ANSWERER)[0].type == lib.RMQ_INBOX_CLOSED
        else:
            assert not kit.ask_waits()


# --- the plane alone ----------------------------------------------------------------------------------------------


@pytest.fixture
def plane(tmp_path: Path) -> Any:
    return Kit(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES)


def put(kit: Kit, token: int, role: int = lib.RMQ_ROLE_READ, answerer: int = ANSWERER, received_ns: int = 0) -> int:
    """An ask; where it stands in the inbox, or an error."""
    head = ffi.new("struct rmq_inbox_record *")
    head.type, head.role, head.pending, head.received_mono_ns = lib.RMQ_INBOX_COLD_FRAME, role, token, received_ns
    position = ffi.new("uint64_t *")
    code = int(lib.rmq_inbox_put(kit.plane, answerer, head, b"", 0, position))
    return code or int(position[0])


def test_a_role_that_is_no_asker_is_refused(plane: Kit) -> None:
    assert put(plane, 1, role=lib.RMQ_ROLE_FLUSH) == -22
    assert put(plane, 1, answerer=ANSWERER + 1) == -22
    assert put(plane, 1, role=lib.RMQ_ROLE_DISPATCH, answerer=0) == 0


def test_roles_of_the_upper_half_ask_and_answer(tmp_path: Path) -> None:
    plan = AnswererPlan(62, frozenset({32, lib.RMQ_ROLES_MAX - 1}), INBOX_BYTES, INBOX_BYTES)
    kit = Kit(tmp_path, answerers=(plan,), inbox_bytes=INBOX_BYTES)
    assert lib.RMQ_ROLES_MAX == 64 and lib.rmq_answerer_find(kit.plane, 62) == ANSWERER
    assert [put(kit, 1, role=role) < 0 for role in (0, 31, 32, 33, 62, 63)] == [True, True, False, True, True, False]
    asked = []
    while (record := lib.rmq_inbox_take(kit.plane, ANSWERER)) != ffi.NULL:
        asked.append(record.role)
        lib.rmq_inbox_done(kit.plane, ANSWERER, record)
    assert asked == [32, 63]
    head = ffi.new("struct rmq_verdict *", {"type": lib.RMQ_VERDICT_PAYLOAD})
    assert [lib.rmq_verdict_put(kit.plane, ANSWERER, role, head, b"", 0) for role in (31, 63)] == [-errno.EINVAL, 0]
    assert lib.rmq_verdict_take(kit.plane, ANSWERER, 63) != ffi.NULL


def test_an_ask_that_no_waiting_gives_room_is_told_apart_from_a_full_inbox(plane: Kit) -> None:
    head = ffi.new("struct rmq_inbox_record *")
    head.type, head.role = lib.RMQ_INBOX_COLD_FRAME, lib.RMQ_ROLE_READ
    most = INBOX_BYTES // 2 - ffi.sizeof("struct rmq_inbox_record")
    assert lib.rmq_inbox_put(plane.plane, ANSWERER, head, bytes(most + 1), most + 1, ffi.NULL) == -errno.EMSGSIZE
    for _ in range(2):
        assert lib.rmq_inbox_put(plane.plane, ANSWERER, head, bytes(most), most, ffi.NULL) == 0
    assert lib.rmq_inbox_put(plane.plane, ANSWERER, head, bytes(most), most, ffi.NULL) == -errno.ENOBUFS


def test_an_orphan_in_one_inbox_is_freed_while_its_neighbour_is_claimed(plane: Kit) -> None:
    roles, asks = plane.header.roles, plane.header.asks
    first = asks.answerer[0].inbox
    first.head = 64  # somebody has claimed 64 bytes of control's inbox and died before the mark
    roles[lib.RMQ_ROLE_DISPATCH].claim_position = (ANSWERER << 56) | 0  # alive, in the other inbox, at a lower place
    assert lib.rmq_inbox_unblock(plane.plane, 0) == 1
    roles[lib.RMQ_ROLE_DISPATCH].claim_position = 0
    asks.answerer[ANSWERER].inbox.head = 64
    assert lib.rmq_inbox_unblock(plane.plane, ANSWERER) == 1, "claims in control's inbox are not in this one"


def test_an_ask_is_given_up_or_done_and_never_both(plane: Kit) -> None:
    """The start of the answerer and the end of the ask's time-out meet, in two processes, again and again.

    A round begins when both processes run. The next start moves towards the other outcome, the farther the longer the
    same one has come, until each has come often enough.
    """
    chance, role = random.Random(27), plane.header.roles[ROLE]
    outcomes = {"done": 0, "given up": 0}
    aim_ns, step_ns, last = 0, 100_000, ""
    shared = memoryview(mmap.mmap(-1, 16)).cast("q")
    while min(outcomes.values()) <= 20:
        number = sum(outcomes.values())
        assert number < 2000, outcomes
        role.state = 0
        role.generation += 1
        shared[READY] = shared[BEGIN_NS] = 0

        def answer() -> int:
            shared[READY] = 1
            while not shared[BEGIN_NS] or time.monotonic_ns() < shared[BEGIN_NS]:
                pass
            lib.rmq_inbox_start(plane.plane, ANSWERER)
            record = lib.rmq_inbox_take(plane.plane, ANSWERER)
            return int(lib.rmq_ask_is_void(plane.plane, ANSWERER, record))

        pid = os.fork()
        if not pid:
            os._exit(answer())
        while not shared[READY]:
            os.sched_yield()
        received_ns = time.monotonic_ns() - TIMEOUT_NS + MARGIN_NS
        position = put(plane, number, received_ns=received_ns)
        shared[BEGIN_NS] = received_ns + TIMEOUT_NS + aim_ns + chance.randrange(-300_000, 300_000)
        begun, given_up = False, False
        while not given_up and not begun:
            begun = plane.header.asks.answerer[ANSWERER].start_generation == role.generation
            now_ns = time.monotonic_ns()
            given_up = bool(lib.rmq_ask_is_lost(plane.plane, ANSWERER, position, received_ns, now_ns))
        is_void = bool(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        assert is_void == given_up, f"round {number}: void for the answerer {is_void}, given up by the asker {given_up}"
        outcome = "given up" if given_up else "done"
        outcomes[outcome] += 1
        step_ns = min(2 * step_ns, MARGIN_NS // 4) if outcome == last else 100_000
        aim_ns = max(-MARGIN_NS, aim_ns - step_ns) if given_up else min(MARGIN_NS, aim_ns + step_ns)
        last = outcome
        lib.rmq_inbox_done(plane.plane, ANSWERER, lib.rmq_inbox_take(plane.plane, ANSWERER))


def test_told_answers_reach_a_role_without_connections(plane: Kit) -> None:
    head = ffi.new("struct rmq_verdict *")
    head.type, head.pending, head.asker_generation = lib.RMQ_VERDICT_PAYLOAD, 7, 3
    asker = lib.RMQ_ROLE_DISPATCH
    for turn in range(3000):  # round the ring many times
        assert lib.rmq_verdict_put(plane.plane, 0, asker, head, b"yes" * (turn % 50), 3 * (turn % 50)) == 0
        told = lib.rmq_verdict_take(plane.plane, 0, asker)
        assert (told.pending, told.length) == (7, ffi.sizeof("struct rmq_verdict") + 3 * (turn % 50))
        lib.rmq_verdict_done(plane.plane, 0, asker, told)
        assert lib.rmq_verdict_take(plane.plane, 0, asker) == ffi.NULL
