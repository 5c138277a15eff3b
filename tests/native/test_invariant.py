"""Broken invariants: each word that another process has written and that is wrong ends the process at its line."""

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from plane_kit import Kit
from reader_kit import ReaderKit, pull_frame, request, send_frame
from test_admission import TIMER

from ringmq.ipc.admission import publish_rules
from ringmq.native import ffi, lib

FLUSH = lib.RMQ_ROLE_FLUSH
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
SOURCES = Path(__file__).parents[2] / "native" / "src"


def ended(work: Callable[[], object], arm: Kit | None = None, role: int = FLUSH) -> tuple[int, str]:
    """Run it in a forked process; (exit status, what it has written to standard error)."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(writing, 2)
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        try:
            if arm is not None:
                lib.rmq_invariant_arm(arm.plane, role)
            work()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(99)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as text:
        said = text.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    made = Kit(tmp_path / "store", sync=True)
    made.header.roles[FLUSH].name = b"flush"
    topic = made.topic(b"T")
    for _ in range(3):
        made.request(topic, 0, b"x" * 100)
    with made.writer() as write:
        write()
    return made


def flush(kit: Kit) -> None:
    with kit.flusher() as run:
        run()


def write(kit: Kit) -> None:
    with kit.writer() as run:
        run()


def give_journal(kit: Kit) -> None:
    lib.rmq_journal_give(kit.plane, lib.RMQ_ROLE_WRITE, lib.RMQ_ROLE_HA)


def dispatch(kit: Kit) -> None:
    kit.marks.flushed_offset = kit.marks.append_offset
    with kit.dispatcher() as run:
        run()


def answers(kit: Kit) -> None:
    found = ffi.new("struct rmq_completion[4]")
    lib.rmq_port_peek(kit.plane, 0, lib.RMQ_PORT_COMPLETED, found, 4)


def asked(kit: Kit) -> None:
    while (record := lib.rmq_inbox_take(kit.plane, 0)) != ffi.NULL:
        lib.rmq_inbox_done(kit.plane, 0, record)


def told(kit: Kit) -> None:
    lib.rmq_verdict_take(kit.plane, 0, lib.RMQ_ROLE_DISPATCH)


def drained(kit: Kit) -> None:
    lib.rmq_offset_drain(kit.plane)


def parked(kit: Kit, at: int = 0) -> Any:
    return kit.slot("struct rmq_parked *", kit.header.ports.parked, at)


def plant_ask(kit: Kit, length: int) -> None:
    inbox = kit.header.asks.answerer[0].inbox
    inbox.head = 64
    record = ffi.cast("struct rmq_inbox_record *", kit.plane.base + inbox.slots_at)
    record.type, record.length = lib.RMQ_INBOX_COLD_FRAME, length


def plant_verdict(kit: Kit, length: int) -> None:
    ring = kit.header.asks.answerer[0].answers[lib.RMQ_ROLE_DISPATCH]
    ring.head = 64
    verdict = ffi.cast("struct rmq_verdict *", kit.plane.base + ring.slots_at)
    verdict.type, verdict.length = lib.RMQ_VERDICT_PAYLOAD, length


def plant_commit(kit: Kit, group: int, slot: int) -> None:
    ring = kit.header.ports.port[0].commit
    commit = kit.slot("struct rmq_offset_commit *", ring, 0)
    commit.group_id, commit.queue_slot = group, slot
    ring.head = 1


def plant_answer(kit: Kit, token: int) -> None:
    port = kit.header.ports.port[0]
    completion = kit.slot("struct rmq_completion *", port.completed, 0)
    completion.token, completion.generation = token, port.generation
    port.completed.head = 1


def copied(kit: Kit) -> None:
    """The worker `pop` has no copy with write, and takes the answers of its port."""
    rows, opened = (ffi.new(f"{kind}[]", lib.RMQ_POP_COPIES_MAX) for kind in ("struct rmq_pop_copy", "uint32_t"))
    lib.rmq_pop_copies_answers(
        ffi.new("struct rmq_pop_copies *", {"plane": kit.plane, "port": 0, "rows": rows, "open": opened})
    )


def plant_far_queue(kit: Kit) -> None:
    """The last of the table's queues is beyond its end."""
    topic = kit.topic(b"Far", queues=3)
    kit.request(topic, 2, b"x")
    write(kit)
    kit.header.tables.queue_capacity = 3


Plant = Callable[[Kit], object]
STATES: dict[str, tuple[Plant, Plant, str]] = {
    "a parked entry of a port that is none": (
        lambda kit: setattr(parked(kit), "port", 77), flush, "completer.c:.* not p < ports->count; .* = 77, 3, 0",
    ),
    "a parked entry whose place is not the next": (
        lambda kit: setattr(parked(kit, 1), "completed_position", 9), flush,
        "completer.c:.* not entry->completed_position == heads\\[p\\]; .* = 9, 1, 0",
    ),
    "more parked than the ring has": (
        lambda kit: setattr(kit.header.ports.parked, "head", 1 << 40), flush, "ring.h:.* not waiting <= r->capacity",
    ),
    "completions beyond the ring": (
        lambda kit: setattr(kit.header.ports.port[0].completed, "tail", 5), flush, "ring.h:.* not used <= r->capacity",
    ),
    "flushed beyond the log": (
        lambda kit: setattr(kit.marks, "flushed_offset", 1 << 40), flush, "flusher.c:.* not flushed <= append",
    ),
    "requests beyond the ring": (
        lambda kit: setattr(kit.header.ports.port[1].request, "head", 1 << 33), write, "ring.h:.* not waiting <=",
    ),
    "a write without the journal": (
        lambda kit: setattr(kit.header.ports.journal, "owner", lib.RMQ_ROLE_HA), write,
        "writer.c:.* not rmq_journal_is_owned\\(plane, .*\\); .* = 6",
    ),
    "a journal given by another than its owner": (
        lambda kit: setattr(kit.header.ports.journal, "owner", lib.RMQ_ROLE_HA), give_journal,
        "journal.c:.* not owner == from; .* = 6, 2, 6",
    ),
    "a journal whose entry is another's": (
        lambda kit: setattr(kit.header.ports.journal.entry[1], "generation", 4), write,
        "writer.c:.* not entry->generation == generation; .* = 4, 1",
    ),
    "dispatched beyond the log": (
        lambda kit: setattr(kit.marks, "dispatched_offset", 1 << 40), dispatch, "dispatcher.c:.* not done <= end &&",
    ),
    "a record of a queue beyond the table": (
        lambda kit: plant_far_queue(kit), dispatch,
        r"dispatch_batch.c:.* not slot == RMQ_NONE \|\| slot < d->queue_capacity; .* = 3, 3, 2, 2",
    ),
    "more ports than rows": (
        lambda kit: setattr(kit.header.ports, "count", 99), dispatch,
        "dispatcher.c:.* not ports <= RMQ_PORTS_MAX; .* = 99",
    ),
    "a port of a role that is none": (
        lambda kit: setattr(kit.header.ports.port[1], "role", 99), dispatch,
        "dispatcher.c:.* not role < RMQ_ROLES_MAX; .* = 1, 99",
    ),
    "answers of a port beyond its ring": (
        lambda kit: setattr(kit.header.ports.port[0].completed, "head", 1 << 33), answers, "ring.h:.* not waiting <= r",
    ),
    "an ask that ends behind what is published": (
        lambda kit: plant_ask(kit, 600), asked, "asks.c:.* not RMQ_ALIGN8\\(\\(uint32_t\\)length\\) <= most",
    ),
    "an ask without a header": (lambda kit: plant_ask(kit, 8), asked, "asks.c:.* not record->type == RMQ_INBOX_PAD"),
    "an answer of length 0": (lambda kit: plant_verdict(kit, 0), told, "asks.c:.* not rmq_verdict_is_whole"),
    "an answer that ends behind what is published": (
        lambda kit: plant_verdict(kit, 65), told, "asks.c:.* not rmq_verdict_is_whole",
    ),
    "an offset of a group that is none": (
        lambda kit: plant_commit(kit, 1 << 20, 0), drained,
        "plane_tables.c:.* not c->group_id <= h->tables.group_capacity",
    ),
    "an offset of a queue that is none": (
        lambda kit: plant_commit(kit, 1, 1 << 20), drained,
        "plane_tables.c:.* not c->queue_slot < h->tables.queue_capacity",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_each_planted_state_ends_the_process_at_its_line(kit: Kit, name: str) -> None:
    plant, work, line = STATES[name]
    made = kit.header.roles[FLUSH]
    plant(kit)
    status, said = ended(lambda: work(kit), kit)
    assert status == lib.RMQ_EXIT_INVARIANT, said
    assert re.fullmatch(rf"{TIME} CRITICAL flush broken invariant, {line}.*\n", said), said
    first = int(made.invariant_line)
    assert first and made.invariant_failures == 1
    assert ended(lambda: work(kit), kit)[0] == lib.RMQ_EXIT_INVARIANT
    assert (made.invariant_line, made.invariant_failures) == (first, 2), "the same line has the same number"


@pytest.mark.parametrize(
    ("token", "line"),
    [
        (3, r"row->is_with_write; .* = 3, 0"),
        (4096, r"done.token < RMQ_POP_COPIES_MAX; .* = 4096"),
        (lib.RMQ_POP_COPY_ACK_TOKEN | 7, r"c->open\[batch\]; .* = 7"),
    ],
    ids=["a copy that has none to come", "a copy beyond the rows", "an acknowledgement that has none to come"],
)
def test_an_answer_that_nobody_has_asked_for_ends_pop(kit: Kit, token: int, line: str) -> None:
    assert ended(lambda: copied(kit), kit) == (0, "")
    plant_answer(kit, token)
    status, said = ended(lambda: copied(kit), kit)
    assert status == lib.RMQ_EXIT_INVARIANT
    assert re.search(r"pop_copies.c:\d+: not " + line, said), said


@pytest.mark.parametrize("work", dict.fromkeys(work for _, work, _ in STATES.values()))
def test_what_is_sound_ends_nobody(kit: Kit, work: Plant) -> None:
    assert ended(lambda: work(kit), kit) == (0, "")


def test_a_process_that_is_no_worker_ends_by_sigabrt_behind_its_line(kit: Kit) -> None:
    parked(kit).port = 77
    status, said = ended(lambda: flush(kit))
    assert (status, said.count("\n")) == (-signal.SIGABRT, 1)
    assert "CRITICAL (none) broken invariant, completer.c:" in said


def test_values_of_any_sign_and_number() -> None:
    values = ffi.new("int64_t[3]", [-(2**63), 0, 2**63 - 1])
    _, said = ended(lambda: lib.rmq_invariant_report(b"/a/b/file.c", 12, b"x", b"y, z, u", values, 3))
    assert said.partition(" ")[2] == (
        "CRITICAL (none) broken invariant, file.c:12: not x; y, z, u = -9223372036854775808, 0, 9223372036854775807\n"
    )
    _, said = ended(lambda: lib.rmq_invariant_report(b"file.c", 12, b"x" * 5000, b"y", values, 1))
    assert len(said) <= 768 + 50 and said.endswith("\n")


@contextmanager
def reading(root: Path) -> Iterator[ReaderKit]:
    kit = ReaderKit(root)
    yield kit
    kit.close()


def one_round(kit: ReaderKit) -> None:
    """The read worker looks at its rings once, in this process."""
    error = ffi.new("int *")
    main, vip = (listener.fileno() for listener in kit.listeners)
    reader = lib.rmq_reader_open(kit.plane, 0, main, vip, error)
    assert reader != ffi.NULL, os.strerror(-error[0])
    lib.rmq_reader_run(reader, 1_000_000)


def plant_completion(kit: ReaderKit) -> None:
    ring = kit.header.ports.port[0].completed
    completion = kit.slot("struct rmq_completion *", ring, 0)
    completion.token, completion.generation = 12, 1
    ring.head = 1


def plant_arrival(kit: ReaderKit) -> None:
    """Behind the start, which forgets what arrived before."""
    ring = kit.header.ports.port[0].arrived
    for at in range(ring.capacity):
        kit.slot("uint32_t *", ring, at)[0] = 1 << 30


def test_a_completion_that_nobody_has_asked_for_ends_the_reader(tmp_path: Path) -> None:
    with reading(tmp_path / "store") as kit:
        assert ended(lambda: one_round(kit), kit)[0] == 0
        plant_completion(kit)
        status, said = ended(lambda: one_round(kit), kit)
        assert status == lib.RMQ_EXIT_INVARIANT
        assert re.search(r"completions.c:\d+: not p && p->kind == RMQ_PENDING_APPEND; .* = 12, 0, 1", said)


def test_an_arrival_of_a_queue_that_is_none_ends_the_reader(tmp_path: Path) -> None:
    with reading(tmp_path / "store") as kit:
        plant_arrival(kit)

        def work() -> None:
            error = ffi.new("int *")
            main, vip = (listener.fileno() for listener in kit.listeners)
            reader = lib.rmq_reader_open(kit.plane, 0, main, vip, error)
            kit.header.ports.port[0].arrived.head += 1
            lib.rmq_reader_run(reader, 1_000_000)

        status, said = ended(work, kit)
        assert status == lib.RMQ_EXIT_INVARIANT
        assert re.search(r"parked_runs.c:\d+: not slot < slots", said)


@pytest.mark.parametrize(
    ("count", "role", "line"),
    [
        (9, 1, r"not answerer_count && answerer_count <= RMQ_ANSWERERS_MAX; .* = 9"),
        (1, 99, r"not role < RMQ_ROLES_MAX; .* = 0, 99"),
    ],
    ids=["more answerers than rows", "a role that is none"],
)
def test_answerers_that_cannot_be_end_the_reader(tmp_path: Path, count: int, role: int, line: str) -> None:
    with reading(tmp_path / "store") as kit:
        kit.header.asks.count, kit.header.asks.answerer[0].role = count, role
        status, said = ended(lambda: one_round(kit), kit)
        assert status == lib.RMQ_EXIT_INVARIANT
        assert re.search(r"cold.c:\d+: " + line, said)


def test_a_request_for_an_answerer_beyond_the_table_ends_the_reader(tmp_path: Path) -> None:
    """It would count the ask behind its counts."""
    with reading(tmp_path / "store") as kit:

        def work() -> None:
            error = ffi.new("int *")
            main, vip = (listener.fileno() for listener in kit.listeners)
            reader = lib.rmq_reader_open(kit.plane, 0, main, vip, error)
            asks = kit.header.asks
            asks.answerer[asks.count].code_count, asks.answerer[asks.count].codes[0] = 1, 4711
            asks.count += 1
            with socket.create_connection(kit.listeners[0].getsockname()) as client:
                client.sendall(request(4711, {}))
                for _ in range(5000):
                    lib.rmq_reader_run(reader, 1_000_000)

        number = int(kit.header.asks.count)
        status, said = ended(work, kit)
        assert status == lib.RMQ_EXIT_INVARIANT
        assert re.search(rf"cold.c:\d+: not f.answerer < cold->answerer_count; .* = {number}, {number}, 4711", said), (
            said
        )


def test_a_rule_that_names_a_topic_beyond_the_table_ends_the_reader(tmp_path: Path) -> None:
    """The answer would tell the client the name of a topic that is none."""
    with reading(tmp_path / "store") as kit:
        kit.wide_topic(b"TopicA")
        wheel = kit.wide_topic(b"rmq_sys_wheel_timer")
        publish_rules(kit.plane, [structs.replace(TIMER, topic_id=wheel, recall_topic_id=1 << 20)])

        def work() -> None:
            error = ffi.new("int *")
            main, vip = (listener.fileno() for listener in kit.listeners)
            reader = lib.rmq_reader_open(kit.plane, 0, main, vip, error)
            with socket.create_connection(kit.listeners[0].getsockname()) as client:
                client.sendall(send_frame("TopicA", b"later", "TIMER_DELAY_MS\x015000\x02"))
                for _ in range(5000):  # it ends when it has received the frame
                    lib.rmq_reader_run(reader, 1_000_000)

        status, said = ended(work, kit)
        assert status == lib.RMQ_EXIT_INVARIANT
        assert re.search(r"send_requests.c:\d+: not named <= topics; .* = 1048576, 2, 1", said)


FAR = r"parking.c:\d+: not queue_slot < parking->slot_count; .* = 3, 2"
LOST = r"parking.c:\d+: not flag == 1; .* = 0, 3, 1"


@pytest.mark.parametrize("line", [FAR, LOST], ids=["a queue beyond the table", "a flag that somebody has taken back"])
def test_a_parked_pull_that_dispatch_would_not_find_ends_the_reader(tmp_path: Path, line: str) -> None:
    """Else it would write behind its list of slots, or hold the pull although messages have come."""
    with reading(tmp_path / "store") as kit:
        topic = kit.wide_topic(b"TopicA")
        kit.subscribe(kit.group(b"GROUP"), topic)
        tables, flags = (
            kit.header.tables,
            ffi.cast("uint8_t *", kit.plane.base + kit.header.ports.port[0].parked_flags_at),
        )

        def work(*, broken: bool) -> None:
            error = ffi.new("int *")
            main, vip = (listener.fileno() for listener in kit.listeners)
            if broken and line is FAR:
                tables.queue_count = tables.queue_capacity = 2
            reader = lib.rmq_reader_open(kit.plane, 0, main, vip, error)
            with socket.create_connection(kit.listeners[0].getsockname()) as client:
                client.sendall(pull_frame("TopicA", "GROUP", 0, queue=3, sys_flag=2))
                while not flags[3]:
                    lib.rmq_reader_run(reader, 1_000_000)
            flags[3] = 0 if broken else 1
            for _ in range(5000):  # until it has seen that the client is gone
                lib.rmq_reader_run(reader, 1_000_000)
                if not flags[3] and not broken:
                    return

        assert ended(lambda: work(broken=False), kit) == (0, "")
        status, said = ended(lambda: work(broken=True), kit)
        assert status == lib.RMQ_EXIT_INVARIANT, said
        assert re.search(line, said), said


def test_consumers_look_at_positions_of_rings_by_the_checked_functions_alone() -> None:
    """A head of another process is read where it is checked, or is compared and takes nothing."""
    allowed = {
        "plane/ring.h",
        "plane/port.c",
        "plane/asks.c",
        "reader/reader.c",
        "write/writer.c",
        "reader/send_requests.c",
        "reader/sends.c",
        "write/write_plan.c",
        "reader/parking.c",
    }
    bare = re.compile(r"rmq_load(_relaxed)?\(&[^()]*[.>]head\)")
    found = {path for path in SOURCES.rglob("*.[ch]") if bare.search(path.read_text())}
    assert {str(path.relative_to(SOURCES)) for path in found} <= allowed
