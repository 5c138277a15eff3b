"""Record copies through the write role: what it stores is the record that was copied, but for what was told."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from plane_kit import ARENA_BYTES, Kit

from ringmq.native import lib
from ringmq.store.native_copies import NativeCopies
from ringmq.store.record_copy import CopiedRequest, CopyLimits, CopyRefused, EditKind, From, PairEdit, RecordCopy
from tests.store.copy_kit import both, encoded, parsed, stored

ADDITIONS = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
AT_ONCE = 48
FIELDS = (
    "body_at", "body_length", "properties_at", "properties_length", "flag", "sys_flag", "reconsume_times",
    "born_time_ms", "prepared_transaction_offset", "born_host", "born_port", "kind", "flags",
)  # fmt: skip


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path / "store", segment_bytes=4 << 20)


def publish(kit: Kit, run: Any, copies: Sequence[RecordCopy], limits: CopyLimits) -> list[bytes | CopyRefused]:
    """The records that `write` stores for these copies, and why others are refused."""
    outcomes: list[bytes | CopyRefused] = []
    for start in range(0, len(copies), AT_ONCE):
        some = copies[start : start + AT_ONCE]
        wanted = both(some, limits)
        native = NativeCopies(some, limits, kit._areas[0], 100, ARENA_BYTES)
        assert native.run() == len(some)
        begin = kit.marks.append_offset
        for request in native.requests:
            if request.kind:
                kit.request(request.topic_id, request.queue_id, **{name: getattr(request, name) for name in FIELDS})
        run()
        assert {(answer.code, answer.cause) for answer in kit.completions()} <= {(0, 0)}
        records = iter(kit.records(begin))
        outcomes += [next(records)[1] if isinstance(copy, CopiedRequest) else copy for copy in wanted]
        assert not list(records)
    return outcomes


@pytest.mark.parametrize(("topic", "host_bytes"), [(b"Target", 4), (b"t" * 127, 16), (b"t" * 128, 4), (b"t" * 255, 16)])
def test_golden_records(kit: Kit, golden_log: list[bytes], topic: bytes, host_bytes: int) -> None:
    topic_id = kit.topic(topic, 4)
    kit.header.settings.store_host_bytes = host_bytes
    edits = (
        PairEdit(EditKind.REMOVE, b"DELAY"), PairEdit(EditKind.DEFAULT, b"RETRY_TOPIC", From.TOPIC),
        PairEdit(EditKind.RENAME, b"TAGS", b"TAGS_BEFORE"), PairEdit(EditKind.SET, b"WAIT", b"false"),
    )  # fmt: skip
    copies = [
        RecordCopy(raw, topic_id, kit.queue_slot(topic_id, number % 4), number % 4, edits * (number % 2),
                   check_crc=True, sys_flag_clear=0xC, sys_flag_set=8 * (number % 3 == 0), reconsume_times_added=1,
                   prepared_transaction_offset=number)
        for number, raw in enumerate(golden_log[::5])
    ]  # fmt: skip
    limits = CopyLimits(kit.header.settings.message_bytes_max)
    with kit.writer() as run:
        outcomes = publish(kit, run, copies, limits)
    batches = 0
    for copy, outcome, told in zip(copies, outcomes, both(copies, limits), strict=True):
        source = parsed(bytes(copy.data))
        if isinstance(outcome, CopyRefused) or isinstance(told, CopyRefused):
            batches += bool(source.sys_flag & 0x80)
            continue
        assert encoded(told, topic, outcome) == outcome
        record = parsed(outcome)
        assert (record.body, record.flag, record.born_host, record.born_time_ms, record.reconsume_times) == (
            source.body, source.flag, source.born_host, source.born_time_ms, source.reconsume_times + 1,
        )  # fmt: skip
        if not copy.edits:
            assert record.properties == source.properties
    assert sum(isinstance(outcome, CopyRefused) for outcome in outcomes) == batches > 10


def test_nothing_is_added_to_a_copy(kit: Kit) -> None:
    kit.set_additions(ADDITIONS)
    topic_id = kit.topic(b"Target")
    limits = CopyLimits(100)
    full = b"F\x01" + b"f" * (lib.RMQ_PROPERTIES_BYTES_MAX - 3) + b"\x02"
    copies = [
        RecordCopy(stored(properties=properties), topic_id, kit.queue_slot(topic_id, 0), 0)
        for properties in (b"A\x011\x02" + ADDITIONS, b"A\x011\x02", full)
    ]
    with kit.writer() as run:
        first, second, third = publish(kit, run, copies, limits)
        assert isinstance(first, bytes) and isinstance(second, bytes) and isinstance(third, bytes)
        assert parsed(first).properties_raw == b"A\x011\x02" + ADDITIONS
        assert parsed(second).properties_raw == b"A\x011\x02"
        assert parsed(third).properties_raw == full
        (copied,) = publish(kit, run, [replace(copies[0], data=first)], limits)
        assert isinstance(copied, bytes) and parsed(copied).properties_raw == parsed(first).properties_raw
