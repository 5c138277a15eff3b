"""A start compares units with the records that it reads, and writes wrong ones again."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ringmq.native import ffi, lib
from ringmq.store import layout, markers
from ringmq.store.config import StoreConfig
from ringmq.store.consume_queue import UNIT_BYTES, ConsumeQueue, Unit
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import recover
from ringmq.store.recovery_state import CHECKPOINT, CLEAN, SAME_BOOT
from ringmq.store.recovery_unit_check import is_decodable
from tests.store.damage_kit import messages, messages_after
from tests.store.golden_stores import basic_config, crashed_config

Copy = Callable[[str], Path]
WINDOW = 1 << 30
FILE_BYTES = 262144


def _unit(config: StoreConfig, number: int) -> Unit:
    queue = MessageStore(config).queue("CrashA", 0)
    assert isinstance(queue, ConsumeQueue)
    unit = queue.unit(number)
    assert unit is not None
    return unit


def _flip(root: Path, random: Random) -> str:
    """Flip a bit of a unit. Return what was damaged, for the output of a failed test."""
    path = random.choice(
        [path for path in sorted((root / "consumequeue").glob("*/*/*")) if path.read_bytes().rstrip(b"\0")]
    )
    data = bytearray(path.read_bytes())
    at = random.randrange((len(data.rstrip(b"\0")) - 1) // UNIT_BYTES + 1) * UNIT_BYTES + random.randrange(UNIT_BYTES)
    data[at] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return f"{path.relative_to(root)} byte {at % UNIT_BYTES} of unit {at // UNIT_BYTES}"


@pytest.mark.parametrize("mode", [CLEAN, SAME_BOOT, CHECKPOINT])
@pytest.mark.parametrize("seed", range(4))
def test_a_start_mends_flipped_bits_of_units_of_records_that_it_reads(crashed_copy: Copy, mode: str, seed: int) -> None:
    root, random = crashed_copy("crash-kill9"), Random(seed)
    config = crashed_config(root)
    recover(config)
    if mode == CLEAN:
        markers.remove_abort(root)
    elif mode == SAME_BOOT:
        markers.write_boot_marker(root)
    before, clean = messages(config), MessageStore(config)
    tags = {
        (topic, queue_id, unit.queue_offset): unit.tags_code
        for topic, queue_id in {place[:2] for place in before}
        if (queue := clean.queue(topic, queue_id)) is not None
        for unit in queue.units(0, WINDOW)
    }
    damages = [_flip(root, random) for _ in range(random.randint(1, 3))]
    result = recover(config, window_bytes=WINDOW)
    assert result.mode == mode
    after = messages_after(config, result)
    assert after == {place: at for place, at in before.items() if place in after}, damages
    lost = {place: at for place, at in before.items() if place not in after}
    assert not lost, damages
    left = MessageStore(config)
    for (topic, queue_id), state in result.queues.items():
        queue = left.queue(topic, queue_id)
        for unit in () if queue is None else queue.units(state.min_offset, state.max_offset):
            assert unit.tags_code == tags[topic, queue_id, unit.queue_offset], damages
    assert recover(config, window_bytes=WINDOW).queues == recover(config, window_bytes=WINDOW).queues


def test_a_mended_unit_is_named(basic_copy: Path) -> None:
    config = basic_config(basic_copy)
    place = max(messages(config).items(), key=lambda item: item[1])[0]
    topic, queue_id, number = place
    queue = MessageStore(config).queue(topic, queue_id)
    assert queue is not None
    at = number * queue.unit_bytes
    start = queue.files.start_of(at)
    assert start is not None
    path = Path(queue.files.path(start))
    whole = path.read_bytes()
    data = bytearray(whole)
    data[at - start + 19] ^= 1  # of the tags code
    path.write_bytes(data)
    result = recover(config)
    assert [line for line in result.reasons if line.startswith(f"{topic}/{queue_id}: unit {number} named ")]
    assert path.read_bytes() == whole
    assert recover(config).reasons == []


@pytest.mark.parametrize("mode", [CLEAN, SAME_BOOT])
@pytest.mark.parametrize("number", [730, 736], ids=["inside", "last"])
@pytest.mark.parametrize(("at", "is_stepped_over"), [(4, True), (87, True), (3, False)])
def test_pulls_step_over_a_record_that_no_client_can_decode(
    crashed_copy: Copy, mode: str, number: int, at: int, is_stepped_over: bool
) -> None:
    """Of magic code and length of the body. RocketMQ's decoder does not use the size in front."""
    root = crashed_copy("crash-kill9")
    config = crashed_config(root)
    recover(config)
    markers.remove_abort(root) if mode == CLEAN else markers.write_boot_marker(root)
    unit = _unit(config, number)
    before = messages(config)
    path = root / "commitlog" / layout.file_name(unit.commit_log_offset // FILE_BYTES * FILE_BYTES)
    whole = path.read_bytes()
    data = bytearray(whole)
    data[unit.commit_log_offset % FILE_BYTES + at] ^= 2
    path.write_bytes(data)
    first = recover(config, window_bytes=WINDOW)
    for result in (first, recover(config, window_bytes=WINDOW)):
        assert any(f"the record at {unit.commit_log_offset} is damaged" in reason for reason in result.reasons)
        assert result.queues["CrashA", 0].next_offset == 737
        after = messages_after(config, result)
        gone = {place for place in before if after.get(place) != before[place]}
        assert gone == ({("CrashA", 0, number)} if is_stepped_over else set())
    assert _unit(config, number).is_filler is is_stepped_over
    assert any("pulls step over it" in reason for reason in first.reasons) is is_stepped_over
    path.write_bytes(whole)  # from a copy
    restored = recover(config, window_bytes=WINDOW)
    assert _unit(config, number) == unit and messages_after(config, restored) == before


def test_units_of_services_stay_for_their_own_handling(basic_copy: Path) -> None:
    config = basic_config(basic_copy)
    place, at = max(
        ((place, at) for place, at in messages(config).items() if place[0].startswith("rmq_sys_")),
        key=lambda item: item[1],
    )
    start = MessageStore(config).commit_log.files.start_of(at)
    assert start is not None
    path = basic_copy / "commitlog" / layout.file_name(start)
    data = bytearray(path.read_bytes())
    data[at - start + 4] ^= 2
    path.write_bytes(data)
    result = recover(config)
    assert any(f"the record at {at} is damaged" in reason for reason in result.reasons)
    assert messages_after(config, result)[place] == at


@pytest.mark.parametrize("magic", [layout.MAGIC_V1, layout.MAGIC_V2])
def test_a_whole_record_is_decodable_and_a_longer_or_shorter_one_is_not(magic: int) -> None:
    width = 1 if magic == layout.MAGIC_V1 else 2
    for flags, more in ((0, 0), (layout.BORN_HOST_V6, 12), (layout.BORN_HOST_V6 | layout.STORE_HOST_V6, 24)):
        head = bytearray(84 + more)
        head[4:8], head[36:40] = magic.to_bytes(4, "big"), flags.to_bytes(4, "big")
        rest = (
            (4).to_bytes(4, "big") + b"body" + (5).to_bytes(width, "big") + b"topic" + (2).to_bytes(2, "big") + b"p\1"
        )
        whole = bytes(head) + rest
        assert is_decodable(memoryview(whole))
        assert not is_decodable(memoryview(whole + b"x")) and not is_decodable(memoryview(whole[:-1]))
        negative = whole.replace((5).to_bytes(width, "big") + b"topic", (-1 % (1 << 8 * width)).to_bytes(width, "big"))
        assert not is_decodable(memoryview(negative))


def _digest(units: list[tuple[int, int, int]], without_tags: bool) -> int:
    """The twin of rmq_cq_digest."""
    digest, mask = 0, (1 << 64) - 1
    for place, size, tags_code in units:
        digest = ((digest ^ place) & mask) * 0x9E3779B97F4A7C15 & mask
        digest = (digest ^ digest >> 32 ^ size) * 0x9E3779B97F4A7C15 & mask
        digest = ((digest ^ digest >> 32) ^ (0 if without_tags else tags_code) & mask) * 0x9E3779B97F4A7C15 & mask
        digest ^= digest >> 32
    return digest


def test_digests_are_the_same_in_c_and_python() -> None:
    random, met = Random(31), set()
    for _ in range(300):
        units = [
            (random.getrandbits(62), random.getrandbits(31), random.randrange(-(1 << 63), 1 << 63))
            for _ in range(random.randrange(5))
        ]
        data = b"".join(layout.CONSUME_QUEUE_UNIT.pack(*unit) for unit in units)
        for without_tags in (False, True):
            cut = random.randrange(len(units) + 1)
            first = lib.rmq_cq_digest(0, ffi.from_buffer(data), cut, without_tags)
            found = lib.rmq_cq_digest(first, ffi.from_buffer(data[cut * UNIT_BYTES :]), len(units) - cut, without_tags)
            assert found == _digest(units, without_tags)
            met.add(found)
    assert len(met) > 400
