"""What a reader finds in a store without an owner: what recovery would find, with nothing written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringmq.store import layout, markers
from ringmq.store.checkpoint import read_checkpoint, write_checkpoint
from ringmq.store.consume_queue import UNIT_BYTES
from ringmq.store.dispatch_backlog import dispatch_backlog
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import recover, survey
from ringmq.store.recovery_state import CLEAN, SAME_BOOT
from tests.store.golden_stores import basic_config, crashed_config

Copy = Callable[[str], Path]


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _take_back_units(root: Path, topic: str, queue_id: int, count: int) -> None:
    """Zero the newest units of a queue, as a death in front of dispatch leaves it."""
    store = MessageStore(crashed_config(root))
    queue = store.queue(topic, queue_id)
    assert queue is not None
    end = queue.trusted_end()[0]
    for number in range(end - count, end):
        start = queue.files.start_of(number * UNIT_BYTES)
        assert start is not None
        with queue.files.path(start).open("r+b") as file:
            file.seek(number * UNIT_BYTES - start)
            file.write(bytes(UNIT_BYTES))


@pytest.mark.parametrize("variant", ["crash-kill9", "crash-live", "crash-torn-body", "crash-torn"])
@pytest.mark.parametrize("same_boot", [False, True])
def test_it_finds_what_recovery_finds(crashed_copy: Copy, variant: str, same_boot: bool) -> None:
    root = crashed_copy(variant)
    if same_boot:
        markers.write_boot_marker(root)
    _take_back_units(root, "CrashA", 1, 3)
    before = _files(root)
    found = survey(crashed_config(root))
    assert _files(root) == before, "a reader writes nothing"
    assert (found.mode == SAME_BOOT) == same_boot
    tails = dispatch_backlog(MessageStore(crashed_config(root)), found)
    recovered = recover(crashed_config(root))
    assert found.append_offset == recovered.append_offset
    assert found.next_offsets == recovered.next_offsets
    for name, tail in tails.items():
        offsets = [record.queue_offset + number for record in tail for number in range(record.messages)]
        assert offsets == list(range(found.queues[name].max_offset, recovered.next_offsets[name]))
    assert len(tails["CrashA", 1]) >= 3


def test_a_torn_record_at_the_end_is_not_counted(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-torn-body")
    found = survey(crashed_config(root))
    tails = dispatch_backlog(MessageStore(crashed_config(root)), found)
    assert all(record.commit_log_offset < 1342373 for tail in tails.values() for record in tail)
    assert found.append_offset == 1342373


def test_a_queue_that_was_never_dispatched_is_found_in_the_log(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    folder = root / layout.CONSUME_QUEUE / "CrashB" / "0"
    count = MessageStore(crashed_config(root)).max_offset("CrashB", 0, 1 << 62)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    found = survey(crashed_config(root))
    tail = dispatch_backlog(MessageStore(crashed_config(root)), found)["CrashB", 0]
    assert tail[-1].queue_offset == count - 1


@pytest.mark.parametrize("beyond", [0, 1, 40])
def test_what_replicas_had_not_confirmed_is_left_out(crashed_copy: Copy, beyond: int) -> None:
    """An owner that waited for replicas left word how far they were: a record that ends behind it stays unread."""
    root = crashed_copy("crash-kill9")
    config = crashed_config(root)
    store, end = MessageStore(config), survey(config).append_offset
    last = [offset for offset, _ in store.commit_log.places(end - end % config.commit_log_file_bytes, end)][-8:]
    for name in store.queue_names():
        queue = store.queue(name.topic, name.queue_id)
        assert queue is not None
        _take_back_units(root, name.topic, name.queue_id, queue.trusted_end()[0] - queue.offsets_at((last[0],))[0])
    write_checkpoint(root, replace(read_checkpoint(root), confirm_offset=last[4] + beyond))
    found = survey(config)
    assert found.append_offset == last[4]
    tails = dispatch_backlog(MessageStore(config), found)
    assert sorted(record.commit_log_offset for tail in tails.values() for record in tail) == last[:4]
    assert recover(config).append_offset == end, "an owner goes on with all of it"


def test_a_clean_store_is_not_scanned(golden_basic: Path, expected: dict[str, Any]) -> None:
    found = survey(basic_config(golden_basic))
    assert (found.mode, found.scanned_records) == (CLEAN, 0)
    assert found.append_offset == expected["commitLogMaxOffset"]
    assert dispatch_backlog(MessageStore(basic_config(golden_basic)), found) == {}


def test_a_newest_file_without_bytes_is_passed_over(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    end = survey(crashed_config(root)).append_offset
    newest = max((root / layout.COMMIT_LOG).iterdir())
    newest.write_bytes(b"")
    before = _files(root)
    assert survey(crashed_config(root)).append_offset == end
    assert _files(root) == before


def test_offsets_at_log_borders_are_those_of_the_records(golden_basic: Path, manifest: list[dict[str, Any]]) -> None:
    store = MessageStore(basic_config(golden_basic))
    borders = [0, 1, *(entry["commitLogOffset"] for entry in manifest[97::97]), 1 << 62]
    for name in store.queue_names():
        own = [e for e in manifest if (e["topic"], e["queueId"]) == (name.topic, name.queue_id)]
        own = [e for e in own if e["dispatchQueueOffset"] >= 0 and e["sysFlag"] & 0xC not in (0x4, 0xC)]
        end = own[-1]["dispatchQueueOffset"] + (own[-1]["batchSize"] if name.is_batch else 1)
        queue = store.queue(name.topic, name.queue_id)
        assert queue is not None
        expected = [
            next((e["dispatchQueueOffset"] for e in own if e["commitLogOffset"] >= border), end) for border in borders
        ]
        assert queue.offsets_at(borders) == expected, name
