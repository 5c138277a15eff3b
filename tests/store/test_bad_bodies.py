"""Records with a damaged body or a damaged frame in a log whose later records are sound."""

import shutil
from pathlib import Path
from random import Random

import pytest

from ringmq.native import ffi, lib
from ringmq.store import bad_bodies, layout, markers
from ringmq.store.bad_bodies import BodyCheck, bad_body_lines
from ringmq.store.checkpoint import Checkpoint, write_checkpoint
from ringmq.store.message_store import MessageStore
from ringmq.store.record import Record, next_record
from ringmq.store.recovery import recover
from ringmq.store.recovery_state import CHECKPOINT, CLEAN, SAME_BOOT
from tests.store.damage_kit import leave_bounds, messages, messages_after
from tests.store.golden_stores import basic_config

LATE_MS = 1 << 47


def records_of(root: Path) -> list[Record]:
    log = MessageStore(basic_config(root)).commit_log
    return [record for _, record in log.scan(0, log.files.end_offset)]


def damage(root: Path, record: Record, at: int, value: bytes) -> None:
    files = MessageStore(basic_config(root)).commit_log.files
    start = files.start_of(record.commit_log_offset)
    assert start is not None
    with Path(files.path(start)).open("r+b") as file:
        file.seek(record.commit_log_offset - start + at)
        file.write(value)


def prepare(root: Path, mode: str, checkpoint_ms: int = LATE_MS) -> None:
    if mode == CLEAN:
        leave_bounds(basic_config(root))
        return
    (root / layout.ABORT).write_text("1")
    if mode == SAME_BOOT:
        markers.write_boot_marker(root)
    write_checkpoint(root, Checkpoint(checkpoint_ms, checkpoint_ms, checkpoint_ms))


@pytest.mark.parametrize("mode", [CLEAN, SAME_BOOT, CHECKPOINT])
@pytest.mark.parametrize("part", ["body", "magic", "size", "zeros"])
def test_damage_of_a_record_that_was_whole_costs_this_record_alone(basic_copy: Path, mode: str, part: str) -> None:
    prepare(basic_copy, mode)
    before = messages(basic_config(basic_copy))
    last = MessageStore(basic_config(basic_copy)).commit_log.files.starts[-1]
    later = [record for record in records_of(basic_copy) if record.commit_log_offset >= last and record.body]
    record = later[len(later) // 2]
    at, value = {
        "body": (11, bytes([record.body_crc & 0xFF ^ 1])), "magic": (4, b"\0\0"), "size": (0, b"\0\1"),
        "zeros": (0, bytes(record.size)),
    }[part]  # fmt: skip
    damage(basic_copy, record, at, value)
    config = basic_config(basic_copy)
    result = recover(config)
    assert result.mode == mode
    assert result.append_offset > max(before.values())
    place = f"log offset {record.commit_log_offset} (topic {record.topic}, queue {record.queue_id}, offset"
    said = "; ".join(result.reasons)
    if part == "body":
        assert result.bad_bodies == 1 and f"the record at {place} {record.queue_offset})" in said
    else:
        assert result.bad_bodies == 0 and f"the record at {record.commit_log_offset} is damaged" in said
    assert messages_after(config, result) == before


def test_the_same_without_queues_leaves_the_log_whole(basic_copy: Path) -> None:
    prepare(basic_copy, CLEAN)
    end = max(records_of(basic_copy), key=lambda record: record.commit_log_offset)
    record = next(record for record in records_of(basic_copy)[40:] if record.body)
    damage(basic_copy, record, 4, b"junk")
    for folder in (layout.CONSUME_QUEUE, layout.BATCH_CONSUME_QUEUE, layout.INDEX):
        shutil.rmtree(basic_copy / folder, ignore_errors=True)
    result = recover(basic_config(basic_copy))
    assert result.append_offset == end.commit_log_offset + end.size
    assert result.redispatch_offset == 0


def test_a_body_newer_than_the_checkpoint_may_be_torn_and_ends_the_log(basic_copy: Path) -> None:
    last = records_of(basic_copy)[-1]
    prepare(basic_copy, CHECKPOINT, last.store_time_ms)
    damage(basic_copy, last, 11, bytes([last.body_crc & 0xFF ^ 1]))
    result = recover(basic_config(basic_copy))
    assert (result.append_offset, result.bad_bodies) == (last.commit_log_offset, 0)


def queue_files(root: Path, files_min: int) -> list[Path]:
    """The files of a queue with so many of them, oldest first."""
    queues = sorted((root / layout.CONSUME_QUEUE).glob("*/*"))
    return sorted(next(queue for queue in queues if len(list(queue.iterdir())) >= files_min).iterdir())


@pytest.mark.parametrize("mode", [SAME_BOOT, CHECKPOINT])
@pytest.mark.parametrize("lost", ["first", "newest", "all"])
def test_a_kill_and_a_lost_queue_file_cost_no_message(basic_copy: Path, mode: str, lost: str) -> None:
    """No clean stop has left the bounds of queues: the log goes on behind the end of the queue."""
    paths = queue_files(basic_copy, 2)
    config = basic_config(basic_copy)
    before = messages(config)
    prepare(basic_copy, mode)
    for path in {"first": paths[:1], "newest": paths[-1:], "all": paths}[lost]:
        path.unlink()
    result = recover(config, window_bytes=1 << 30 if mode == SAME_BOOT else 32 << 20)
    assert messages_after(config, result) == before
    assert recover(config).redispatch_offset <= result.redispatch_offset, "until the entries are made"


@pytest.mark.parametrize("seed", range(5))
def test_a_check_finds_each_bad_body_once(basic_copy: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(bad_bodies, "CHUNK_BYTES", random.choice([100, 5000, 256 << 10]))
    found = records_of(basic_copy)
    end = found[-1].commit_log_offset + found[-1].size
    wrong = sorted(random.sample([record.commit_log_offset for record in found if record.body], 7))
    for record in found:
        if record.commit_log_offset in wrong:
            damage(basic_copy, record, 11, bytes([record.body_crc & 0xFF ^ 1]))
    log = MessageStore(basic_config(basic_copy)).commit_log
    check, named = BodyCheck(0), []
    borders = sorted(random.sample([record.commit_log_offset for record in found], 5))
    for border in [*borders, end]:
        while check.position < border:
            before = check.position
            named += check.step(log, border, random.choice([1, 3000, 1 << 20]))
            assert before < check.position <= border
    assert (named, check.passed_bytes) == (wrong, 0)
    lines = bad_body_lines(log, 7, wrong[:5])
    assert len(lines) == 6 and "2 more records" in lines[-1]


def test_a_check_far_behind_goes_on_at_the_end(basic_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_bodies, "LAG_BYTES_MAX", 1000)
    found = records_of(basic_copy)
    end = found[-1].commit_log_offset + found[-1].size
    check = BodyCheck(0)
    log = MessageStore(basic_config(basic_copy)).commit_log
    assert check.step(log, end, 1 << 20) == []
    assert (check.position, check.passed_bytes) == (end, end)
    assert check.step(log, 500, 1 << 20) == [] and check.position == 500, "the log was cut"


@pytest.mark.parametrize("seed", range(20))
def test_the_next_record_is_that_of_the_twin(basic_copy: Path, seed: int) -> None:
    random = Random(seed)
    files = MessageStore(basic_config(basic_copy)).commit_log.files
    start = random.choice(files.starts)
    data = bytearray(Path(files.path(start)).read_bytes()[:20_000])
    for _ in range(random.randrange(60)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    begin = random.randrange(len(data))
    got = lib.rmq_log_next_record(ffi.from_buffer(data), begin, len(data), start)
    assert (None if got < 0 else got) == next_record(bytes(data), begin, start)
