"""The rule of staged writes: one decision per micro-batch, its pieces exactly once, through crashes at any step."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.names import MAX_TOPIC_CHARS
from ringmq.remoting.staged_writes import CommitRequest, StagedChunk
from ringmq.services.staged.commit_records import (
    CommitRecord,
    DoneRecord,
    Piece,
    decode_record,
    mark_of,
    piece_of_mark,
    pieces_max,
)
from ringmq.services.staged.commits import (
    ANSWER_WITHIN_MS,
    ASKED_MAX,
    HOUR_MS,
    IN_FLIGHT_MAX,
    INSPECTED_AT_ONCE,
    OPEN_MAX,
    QUERIES_MAX,
    REMEMBERED_HOURS,
    RETRY_MS,
    SKIPPED_MAX,
    SKIPPED_MS,
    StagedCommits,
)
from ringmq.services.staged.events import (
    Answer,
    AppendCommit,
    AppendDone,
    CommitRequested,
    Effect,
    Inspect,
    Inspected,
    Log,
    NotStored,
    Publish,
    Stored,
    Tick,
    Unsound,
)

NOW = 1_000_000
EVERYTHING = 1 << 60


def request(batch: int, chunks: int, query: str = "q", first: int = 0) -> CommitRequest:
    made = (StagedChunk(0, 0, number, first + number, 10, 1) for number in range(chunks))
    return CommitRequest(query, batch, tuple(made))


def pieces_of(inspect: Inspect, queues: int = 2) -> tuple[Piece, ...]:
    return tuple(
        Piece(chunk.commit_log_offset, "T", chunk.sequence % queues, 1 + chunk.sequence % 3) for chunk in inspect.chunks
    )


@dataclass
class Entry:
    """One append of the simulated log."""

    offset: int
    kind: str
    number: int = -1
    record: CommitRecord | DoneRecord | None = None
    mark: int = 0
    piece: Piece | None = None
    messages: int = 0


@dataclass
class World:
    """A log, the core over it, and clients that ask until they are told that it is done."""

    random: random.Random
    log: list[Entry] = field(default_factory=list)
    snapshot: tuple[dict[str, Any], int] | None = None
    core: StagedCommits = field(default_factory=StagedCommits)
    submitted: list[Effect] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    answers: list[tuple[Any, int]] = field(default_factory=list)
    now_ms: int = NOW
    crashes: int = 0
    waiting: deque[CommitRequested] = field(default_factory=deque)
    """Requests that the core does not take yet."""

    def start(self) -> None:
        """A new control: what the log says, and maybe a snapshot."""
        self.core = StagedCommits()
        self.events.clear()
        self.waiting.clear()
        numbered = [entry for entry in self.log if entry.record is not None]
        first = 0
        if self.snapshot is not None and self.snapshot[1] <= len(self.log):
            first = self.core.load(self.snapshot[0], len(self.log))
        for entry in numbered[first:]:
            assert entry.record is not None
            record = decode_record(entry.record.encode())
            self.core.replay(entry.number, record, entry.offset, entry.offset + 1, NOW)
        since = self.core.open_since()
        if since is not None:
            for entry in self.log[since:]:
                if entry.mark:
                    self.core.saw_published(entry.mark, entry.messages, len(self.log))
        self.core.finish_recovery()
        self.step(Tick())

    def crash(self) -> None:
        """Everybody dies: write has taken some of what it was asked for; the last of it may be there in part."""
        self.crashes += 1
        taken = self.random.randrange(len(self.submitted) + 1)
        for effect in self.submitted[:taken]:
            self.append(effect)
        for effect in self.submitted[taken : taken + 1]:
            if isinstance(effect, Publish) and effect.piece.messages - effect.skip > 1:
                self.append(effect).messages = self.random.randrange(1, effect.piece.messages - effect.skip)
        self.submitted.clear()
        self.start()

    def append(self, effect: Effect) -> Entry:
        offset = len(self.log)
        match effect:
            case AppendCommit(record) | AppendDone(record):
                number = sum(entry.record is not None for entry in self.log)
                entry = Entry(offset, "record", number, record)
            case Publish(number, chunk, piece, skip):
                mark = mark_of(number, chunk)
                entry = Entry(offset, "piece", mark=mark, piece=piece, messages=piece.messages - skip)
            case _:
                raise AssertionError(effect)
        self.log.append(entry)
        return entry

    def step(self, event: Any) -> None:
        if isinstance(event, CommitRequested) and not self.core.takes_commits:
            self.waiting.append(event)
            return
        for effect in self.core.step(event, self.now_ms, EVERYTHING):
            match effect:
                case Inspect():
                    self.events.append(Inspected(pieces_of(effect)))
                case Answer(token, code, _):
                    self.answers.append((token, code))
                case Log():
                    pass
                case _:
                    self.submitted.append(effect)
        if self.waiting and self.core.takes_commits:
            self.step(self.waiting.popleft())

    def move(self) -> bool:
        """One thing that can happen next; False when nothing can."""
        if self.events:
            self.step(self.events.pop(0))
        elif self.submitted:
            effect = self.submitted.pop(0)
            if self.random.random() < 0.1:
                self.step(NotStored(effect, ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full"))
            else:
                entry = self.append(effect)
                self.step(Stored(effect, entry.number, entry.offset, entry.offset + 1))
        else:
            before = len(self.submitted)
            self.now_ms += RETRY_MS
            self.step(Tick())
            return len(self.submitted) > before
        return True


def check(world: World) -> None:
    """Every decided piece is in the log once, in the order of its queue, and no micro-batch was decided twice."""
    commits = [entry for entry in world.log if isinstance(entry.record, CommitRecord)]
    keys = [(entry.record.query_id, entry.record.batch_id) for entry in commits]  # type: ignore[union-attr]
    assert len(set(keys)) == len(keys)
    published = [entry for entry in world.log if entry.kind == "piece"]
    expected = {
        mark_of(entry.number, chunk): piece
        for entry in commits
        for chunk, piece in enumerate(entry.record.pieces)  # type: ignore[union-attr]
    }
    messages = Counter[int]()
    for entry in published:
        messages[entry.mark] += entry.messages
    assert messages == {mark: piece.messages for mark, piece in expected.items()}
    assert all(entry.piece == expected[entry.mark] for entry in published)
    last: dict[tuple[int, int], int] = {}
    for entry in published:
        number, chunk = piece_of_mark(entry.mark)
        assert entry.piece is not None
        queue = number, entry.piece.queue_id
        assert chunk >= last.get(queue, -1)
        last[queue] = chunk


@pytest.mark.parametrize("seed", range(40))
def test_crashes_at_any_step_leave_every_piece_exactly_once(seed: int) -> None:
    world = World(random.Random(seed))
    world.start()
    batches = 6
    for batch in range(batches):
        for query in ("a", "b"):
            attempt = 0
            while True:  # a driver asks until it hears SUCCESS; after a crash maybe with other chunks
                token = (query, batch, attempt)
                chunks = world.random.randrange(not batch, 3 * IN_FLIGHT_MAX)
                asked = request(batch, chunks, query, 100 * attempt)
                world.step(CommitRequested(token, asked, world.now_ms, world.now_ms))
                for _ in range(200):
                    if world.random.random() < 0.06:
                        world.crash()
                        break
                    if world.random.random() < 0.1:
                        world.snapshot = world.core.snapshot()
                    if not world.move():
                        break
                if (token, ResponseCode.SUCCESS) in world.answers:
                    break
                attempt += 1
    while world.move():
        pass
    check(world)
    assert world.crashes
    done = sum(isinstance(entry.record, DoneRecord) for entry in world.log)
    assert done >= 2 * batches


def started() -> World:
    world = World(random.Random(1))
    world.random.random = lambda: 1.0  # type: ignore[method-assign]
    world.start()
    return world


def run(world: World) -> None:
    while world.move():
        pass


def test_the_second_commit_of_a_batch_adds_nothing() -> None:
    world = started()
    world.step(CommitRequested("first", request(7, 3), NOW, NOW))
    world.step(CommitRequested("same time", request(7, 2, first=50), NOW, NOW))
    run(world)
    world.step(CommitRequested("again", request(7, 5, first=90), NOW, NOW))
    world.step(CommitRequested("older", request(6, 5, first=90), NOW, NOW))
    run(world)
    assert [code for _, code in world.answers] == [ResponseCode.SUCCESS] * 4
    offsets = [entry.piece.commit_log_offset for entry in world.log if entry.piece]
    assert sorted(offsets) == [0, 1, 2]


def test_nothing_is_published_before_the_decision_is_stored() -> None:
    world = started()
    world.step(CommitRequested("one", request(0, 2), NOW, NOW))
    world.step(world.events.pop(0))
    assert [type(effect) for effect in world.submitted] == [AppendCommit]
    run(world)
    assert [entry.kind for entry in world.log] == ["record", "piece", "piece", "record"]


def test_an_unsound_chunk_refuses_the_whole_commit_and_leaves_the_batch_open() -> None:
    world = started()
    world.step(CommitRequested("bad", request(0, 2), NOW, NOW))
    world.events.clear()
    world.step(Unsound(29, "wrong CRC"))
    assert world.answers == [("bad", 29)]
    world.step(CommitRequested("good", request(0, 1), NOW, NOW))
    run(world)
    assert world.answers[-1] == ("good", ResponseCode.SUCCESS)


def test_a_refused_decision_is_told_and_may_be_asked_for_again() -> None:
    world = started()
    world.step(CommitRequested("one", request(0, 1), NOW, NOW))
    world.step(world.events.pop(0))
    (effect,) = world.submitted
    world.submitted.clear()
    world.step(NotStored(effect, 14, "the disk is full"))
    assert world.answers == [("one", 14)]
    world.step(CommitRequested("two", request(0, 1), NOW, NOW))
    run(world)
    assert world.answers[-1] == ("two", ResponseCode.SUCCESS)


def test_what_can_never_be_published_is_told_and_does_not_hold_up_the_rest() -> None:
    world = started()
    world.step(CommitRequested("one", request(0, 3), NOW, NOW))
    while not any(isinstance(effect, Publish) for effect in world.submitted):
        world.move()
    lost = next(effect for effect in world.submitted if isinstance(effect, Publish))
    world.submitted.remove(lost)
    world.step(NotStored(lost, 1, "the topic was deleted", final=True))
    run(world)
    assert world.answers == [("one", ResponseCode.SYSTEM_ERROR)]
    assert sum(entry.kind == "piece" for entry in world.log) == 2
    assert isinstance(world.log[-1].record, DoneRecord)


def lose_a_piece_while_nobody_asks(world: World) -> None:
    """A commit that takes so long that its client was told to ask again, and fails for good before it does."""
    world.step(CommitRequested("first", request(7, 3), NOW, NOW))
    while not any(isinstance(effect, Publish) for effect in world.submitted):
        world.move()
    world.now_ms += ANSWER_WITHIN_MS + 1
    lost = next(effect for effect in world.submitted if isinstance(effect, Publish))
    world.submitted.remove(lost)
    world.step(NotStored(lost, 1, "the topic was deleted", final=True))
    assert world.answers == [("first", ResponseCode.SYSTEM_BUSY)]
    world.answers.clear()


def code_of(world: World, batch: int) -> int:
    """What a client is told that asks for the batch now."""
    world.answers.clear()
    world.step(CommitRequested("later", request(batch, 1), world.now_ms, world.now_ms))
    ((_, code),) = world.answers
    return code


def test_who_asks_again_hears_that_rows_are_lost() -> None:
    world = started()
    lose_a_piece_while_nobody_asks(world)
    while not any(isinstance(effect, AppendDone) for effect in world.submitted):
        world.move()
    assert code_of(world, 7) == ResponseCode.SYSTEM_ERROR, "before the done record is stored"
    run(world)
    assert code_of(world, 7) == ResponseCode.SYSTEM_ERROR, "and behind it"
    assert code_of(world, 6) == ResponseCode.SUCCESS
    for snapshot in (None, world.core.snapshot()):
        world.snapshot = snapshot
        world.start()
        assert code_of(world, 7) == ResponseCode.SYSTEM_ERROR
        assert code_of(world, 6) == ResponseCode.SUCCESS
    world.step(CommitRequested("next", request(8, 1), world.now_ms, world.now_ms))
    run(world)
    assert code_of(world, 8) == ResponseCode.SUCCESS


def test_requests_are_taken_one_at_a_time_once_the_log_is_read() -> None:
    core = StagedCommits()
    assert not core.takes_commits
    core.finish_recovery()
    assert core.takes_commits
    core.step(CommitRequested("one", request(0, 1), NOW, NOW), NOW, EVERYTHING)
    assert not core.takes_commits


def test_chunks_that_are_not_inspected_yet_are_asked_for_again() -> None:
    core = StagedCommits()
    core.finish_recovery()
    effects = core.step(CommitRequested("one", request(0, 2 * INSPECTED_AT_ONCE), NOW, NOW), NOW, EVERYTHING)
    found = list[Piece]()
    while isinstance(inspect := effects[0], Inspect):
        assert inspect.chunks[0].sequence == len(found)
        found += pieces_of(inspect)[:5]
        effects = core.step(Inspected(pieces_of(inspect)[:5]), NOW, EVERYTHING)
    assert effects == [AppendCommit(CommitRecord("q", 0, tuple(found)))] and len(found) == 2 * INSPECTED_AT_ONCE


@pytest.mark.parametrize("record_bytes", [2048, 65_536, 4 << 20])
def test_a_decision_of_as_many_pieces_as_may_be_fits_into_its_message(record_bytes: int) -> None:
    count = pieces_max(record_bytes)
    assert count > 0
    topics = (f"{number:0{MAX_TOPIC_CHARS}d}" for number in range(count))
    worst = CommitRecord("\x01" * 128, (1 << 63) - 1, tuple(Piece((1 << 63) - 1, t, 1 << 31, 1 << 31) for t in topics))
    assert len(worst.encode()) <= record_bytes


def test_no_more_commits_are_under_way_than_are_kept_in_memory() -> None:
    world = started()
    for number in range(OPEN_MAX + 1):
        world.step(CommitRequested(number, request(0, 1, f"q{number}"), NOW, NOW))
        while world.events or any(isinstance(effect, AppendCommit) for effect in world.submitted):
            if world.events:
                world.step(world.events.pop(0))
                continue
            effect = next(effect for effect in world.submitted if isinstance(effect, AppendCommit))
            world.submitted.remove(effect)
            entry = world.append(effect)
            world.step(Stored(effect, entry.number, entry.offset, entry.offset + 1))
    assert sum(isinstance(entry.record, CommitRecord) for entry in world.log) == OPEN_MAX
    run(world)
    assert {code for _, code in world.answers} == {ResponseCode.SUCCESS} and len(world.answers) == OPEN_MAX + 1


def test_a_snapshot_waits_for_the_done_record_that_it_leaves_out() -> None:
    world = started()
    world.step(CommitRequested("one", request(0, 1), NOW, NOW))
    run(world)
    assert isinstance(world.log[-1].record, DoneRecord)
    value, end = world.core.snapshot()
    assert (value["replayFrom"], end) == (world.log[-1].number + 1, len(world.log))


def test_what_is_left_of_a_piece_goes_on_where_it_ends() -> None:
    core = StagedCommits()
    core.replay(0, CommitRecord("q", 0, (Piece(0, "T", 0, 5), Piece(1, "T", 1, 5))), 10, 20, NOW)
    core.saw_published(mark_of(0, 0), 2, 100)
    core.saw_published(mark_of(0, 1), 5, 100)
    core.saw_published(mark_of(0, 0), 1, 100)
    core.finish_recovery()
    assert core.step(Tick(), NOW, EVERYTHING) == [Publish(0, 0, Piece(0, "T", 0, 5), 3)]


def test_success_is_not_said_before_the_messages_are_readable() -> None:
    world = started()
    world.step(CommitRequested("one", request(0, 1), NOW, NOW))
    while not any(isinstance(effect, Publish) for effect in world.submitted):
        world.move()
    (effect,) = world.submitted
    world.submitted.clear()
    (answer, done) = world.core.step(Stored(effect, 0, 5, 6), NOW, 5)
    assert isinstance(answer, Answer) and answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert isinstance(done, AppendDone)
    (again,) = world.core.step(CommitRequested("again", request(0, 1), NOW, NOW), NOW, 6)
    assert isinstance(again, Answer) and again.code == ResponseCode.SUCCESS


def test_large_commits_are_inspected_in_parts() -> None:
    world = started()
    world.step(CommitRequested("one", request(0, 3 * INSPECTED_AT_ONCE + 1), NOW, NOW))
    parts = 0
    while world.events:
        parts += 1
        world.step(world.events.pop(0))
    assert parts == 4


def test_the_query_that_has_been_silent_longest_is_forgotten() -> None:
    core = StagedCommits()
    for number in range(QUERIES_MAX + 1):
        core.replay(2 * number, CommitRecord(f"q{number}", 3, ()), 2 * number, 2 * number + 1, NOW)
        core.replay(2 * number + 1, DoneRecord(2 * number), 2 * number + 1, 2 * number + 2, NOW)
    value, end = core.snapshot()
    assert (len(value["queries"]), value["queries"][0][0], value["replayFrom"]) == (
        QUERIES_MAX,
        "q1",
        2 * QUERIES_MAX + 2,
    )
    assert end == 2 * QUERIES_MAX + 2


def ask(world: World, batch: int, chunks: int, query: str = "q", wall_ms: int = NOW) -> tuple[int, str]:
    """(code, remark) for one commit that is carried through."""
    found: list[Answer] = []
    world.answers.clear()
    for effect in world.core.step(CommitRequested("one", request(batch, chunks, query), NOW, wall_ms), NOW, EVERYTHING):
        match effect:
            case Answer():
                found.append(effect)
            case Inspect():
                world.events.append(Inspected(pieces_of(effect)))
            case _:
                world.submitted.append(effect)
    run(world)
    if found:
        return found[0].code, found[0].remark
    ((_, code),) = world.answers
    return code, ""


def pieces_in(world: World) -> int:
    return sum(entry.kind == "piece" for entry in world.log)


@pytest.mark.parametrize("chunks", [0, 1])
def test_a_batch_far_ahead_is_refused_and_the_writer_goes_on(chunks: int) -> None:
    world = started()
    assert ask(world, 7, 1)[0] == ResponseCode.SUCCESS
    code, remark = ask(world, 10**12, chunks)
    assert code == ResponseCode.INVALID_PARAMETER
    assert "batchId = 1000000000000" in remark and f"above {8 + SKIPPED_MAX}" in remark
    assert ask(world, 8, 1)[0] == ResponseCode.SUCCESS and pieces_in(world) == 2


def test_a_writer_may_skip_batches_that_take_their_time() -> None:
    world = started()
    ask(world, 0, 1)
    limit = 1 + SKIPPED_MAX
    later = NOW + 10 * SKIPPED_MS
    for batch, wall_ms, code in (
        (limit + 1, NOW, ResponseCode.INVALID_PARAMETER),
        (limit + 1, NOW - HOUR_MS, ResponseCode.INVALID_PARAMETER),  # the clock was set back
        (limit + 11, later, ResponseCode.INVALID_PARAMETER),
        (limit + 10, later, ResponseCode.SUCCESS),
    ):
        assert ask(world, batch, 1, wall_ms=wall_ms)[0] == code, (batch, wall_ms)
    assert ask(world, 10**12, 1, "begins late")[0] == ResponseCode.SUCCESS


@pytest.mark.parametrize("is_saved", [False, True])
def test_the_limit_of_a_batch_is_the_same_after_a_crash(is_saved: bool) -> None:
    world = started()
    ask(world, 0, 1)
    world.snapshot = world.core.snapshot() if is_saved else None
    world.start()
    assert ask(world, 2 + SKIPPED_MAX, 1)[0] == ResponseCode.INVALID_PARAMETER
    assert ask(world, 2 + SKIPPED_MAX, 1, wall_ms=NOW + SKIPPED_MS)[0] == ResponseCode.SUCCESS


def test_commits_without_chunks_of_unknown_queries_leave_no_trace() -> None:
    world = started()
    ask(world, 3, 1, "writer")
    log, table = len(world.log), world.core.snapshot()
    for number in range(2 * ASKED_MAX):
        assert ask(world, number, 0, f"q{number}")[0] == ResponseCode.SUCCESS
    assert (len(world.log), world.core.snapshot(), world.core.dirty) == (log, table, False)
    assert ask(world, 3, 1, "q3")[0] == ResponseCode.SUCCESS and pieces_in(world) == 2


def test_a_known_querys_batch_without_chunks_is_decided() -> None:
    world = started()
    ask(world, 0, 1)
    assert ask(world, 1, 0)[0] == ResponseCode.SUCCESS
    assert ask(world, 1, 5)[0] == ResponseCode.SUCCESS and pieces_in(world) == 1


def full(wall_ms: int = NOW) -> World:
    """A table of QUERIES_MAX queries, each with batch 3. The commit of the oldest is NOW, those of the others later."""
    world = started()
    for number in range(QUERIES_MAX):
        at, stored_ms = 2 * number, NOW if not number else wall_ms
        world.core.replay(at, CommitRecord(f"q{number}", 3, ()), at, at + 1, stored_ms)
        world.core.replay(at + 1, DoneRecord(at), at + 1, at + 2, stored_ms)
    return world


def test_a_table_full_of_young_queries_refuses_a_new_one_and_forgets_none() -> None:
    world, young_ms = full(), NOW + REMEMBERED_HOURS * HOUR_MS - 1
    code, remark = ask(world, 0, 1, "new", young_ms)
    assert code == ResponseCode.SYSTEM_BUSY and f"{QUERIES_MAX} queries" in remark
    assert ask(world, 3, 1, "q0", young_ms)[0] == ResponseCode.SUCCESS and not pieces_in(world), "a repeated batch"
    assert ask(world, 0, 0, "empty", young_ms)[0] == ResponseCode.SUCCESS


def test_a_new_query_takes_the_place_of_an_old_one() -> None:
    old_ms = NOW + REMEMBERED_HOURS * HOUR_MS
    world = full(wall_ms=old_ms)
    assert ask(world, 0, 1, "new", old_ms)[0] == ResponseCode.SUCCESS
    queries = [entry[0] for entry in world.core.snapshot()[0]["queries"]]
    assert (len(queries), queries[0], queries[-1]) == (QUERIES_MAX, "q1", "new")
    assert ask(world, 0, 1, "newer", old_ms)[0] == ResponseCode.SYSTEM_BUSY


def test_an_open_commit_keeps_the_place_of_its_query() -> None:
    world = started()
    world.core.replay(0, CommitRecord("open", 0, (Piece(0, "T", 0, 1),)), 0, 1, NOW)
    for number in range(1, QUERIES_MAX):
        world.core.replay(2 * number, CommitRecord(f"q{number}", 3, ()), 2 * number, 2 * number + 1, NOW)
        world.core.replay(2 * number + 1, DoneRecord(2 * number), 2 * number + 1, 2 * number + 2, NOW)
    old_ms = NOW + REMEMBERED_HOURS * HOUR_MS
    effects = world.core.step(CommitRequested("one", request(0, 1, "new"), NOW, old_ms), NOW, EVERYTHING)
    assert [effect.code for effect in effects if isinstance(effect, Answer)] == [ResponseCode.SYSTEM_BUSY]


def test_entries_of_older_files_are_old() -> None:
    core = StagedCommits()
    core.load({"queries": [["three fields", 5, 100], ["four", 6, 100, 2]]}, 100)
    assert core.snapshot()[0]["queries"] == [["three fields", 5, 100, 0, 0], ["four", 6, 100, 2, 0]]


def test_a_snapshot_that_is_ahead_of_the_log_is_believed_only_as_far() -> None:
    core = StagedCommits()
    core.load({"replayFrom": 4, "queries": [["kept", 5, 100], ["lost", 9, 101]]}, 100)
    assert [entry[0] for entry in core.snapshot()[0]["queries"]] == ["kept"]


def test_everybody_who_waits_hears_of_a_stop() -> None:
    world = started()
    world.step(CommitRequested("publishing", request(0, 1), NOW, NOW))
    while not any(isinstance(effect, Publish) for effect in world.submitted):
        world.move()
    world.step(CommitRequested("deciding", request(1, 1), NOW, NOW))
    told = world.core.abandon("stop")
    assert {answer.token for answer in told if isinstance(answer, Answer)} == {"deciding", "publishing"}
