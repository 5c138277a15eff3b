"""The check of staged chunks: cheap tests first, and loops over messages in C like their twins here."""

import random
import zlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.native import ffi, lib
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.staged_writes import STAGED_TOPIC, CommitRequest, StagedChunk
from ringmq.services.staged.bodies import StagedBodies
from ringmq.services.staged.commit_records import Piece
from ringmq.services.staged.events import Unsound
from tests.spark_bridge.made_store import Fields, inner_batch_bytes, record_bytes

BYTES_MAX = 4096


def inspected(body: bytes, damage: bool = False) -> Piece | Unsound:
    """What is found out about a chunk with this body."""
    said = StagedChunk(0, 0, 0, 0, len(body), zlib.crc32(body) & 0x7FFFFFFF)
    pairs = "".join(f"{name}\x01{value}\x02" for name, value in said.properties("q", 0, "T", 0).items())
    raw = bytearray(record_bytes(Fields(topic=STAGED_TOPIC, body=body, properties=pairs.encode()), 0, 0))
    if damage:
        raw[raw.find(body) + 30] ^= 1
    bounds = SimpleNamespace(min_offset=0, append_offset=len(raw), confirm_offset=len(raw))
    view = SimpleNamespace(bounds=lambda: bounds, record=lambda offset: memoryview(raw))
    topics = SimpleNamespace(find=lambda name: SimpleNamespace(write_queues=1), is_writable=lambda topic, perm: True)
    settings = ffi.new("struct rmq_settings *")
    settings.message_bytes_max, settings.segment_bytes, settings.store_host_bytes = BYTES_MAX, 1 << 20, 4
    bodies = StagedBodies(cast(Any, view), cast(Any, topics), BrokerConfig, settings)
    return bodies.inspect(CommitRequest("q", 0, (said,)), said)


def test_a_sound_chunk_is_a_piece() -> None:
    assert inspected(inner_batch_bytes([(b"x" * 40, b"")] * 3)) == Piece(0, "T", 0, 3)


def test_a_damaged_body_is_refused() -> None:
    found = inspected(inner_batch_bytes([(b"x" * 40, b"")] * 3), damage=True)
    assert isinstance(found, Unsound) and found.code == ResponseCode.INVALID_PARAMETER
    assert "commitLogOffset = 0" in found.remark and "damaged" in found.remark


def test_no_checksum_is_computed_over_a_body_that_is_too_large() -> None:
    """A damaged one shows that: its size is named, not its damage."""
    found = inspected(inner_batch_bytes([(b"x" * BYTES_MAX, b"")]), damage=True)
    assert isinstance(found, Unsound) and found.code == ResponseCode.MESSAGE_ILLEGAL
    assert f"over maxMessageSize {BYTES_MAX}" in found.remark


@pytest.mark.parametrize("seed", range(8))
def test_the_loop_over_messages_agrees_with_its_twin(seed: int) -> None:
    chance = random.Random(seed)

    def some() -> bytes:
        return b"".join(chance.choices((b"x", b"KEYS\x01k\x02", b""), k=chance.randrange(6)))

    for _ in range(100):
        messages = [(some(), some()) for _ in range(chance.randrange(1, 12))]
        body = inner_batch_bytes(messages)
        for count in range(len(messages) + 2):
            skipped = lib.rmq_batch_bytes_of(ffi.from_buffer("uint8_t *", body), len(body), count)
            assert skipped == len(inner_batch_bytes(messages[:count]))
