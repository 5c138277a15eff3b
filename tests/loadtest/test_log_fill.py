"""The store generator: its text, its frames, and that a store holds what was counted."""

import re
from pathlib import Path

import numpy as np
import pytest

from ringmq.loadtest.load.tools import ToolError
from ringmq.loadtest.spark.log_fill import BORN_MARK, NUMBER_MARK, QUEUES, TOPICS, BatchFrame, batch_frames, make_store
from ringmq.loadtest.spark.log_text import SIZE_SPREAD, bodies, log_text
from ringmq.remoting.batch import decode_batch
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import decode_frame
from ringmq.remoting.properties import decode_properties
from ringmq.store.inferred_config import config_without_index
from ringmq.store.message_store import MessageStore


def test_the_text_depends_on_the_seed_alone() -> None:
    assert log_text(7, 5000) == log_text(7, 5000) != log_text(8, 5000)
    assert len(log_text(7, 5000)) == 5000
    assert re.match(rb'[\d.]+ - - \[\d\d/May/2026:\d\d:\d\d:05 \+0000\] "GET /', log_text(7, 5000))


@pytest.mark.parametrize("size", [200, 1024])
def test_bodies_keep_to_their_size(size: int) -> None:
    made = bodies(3, 500, size, b"#mark#")
    assert all(body.startswith(b"#mark#") for body in made)
    lengths = [len(body) for body in made]
    assert size * (1 - SIZE_SPREAD) - 1 <= min(lengths) < size < max(lengths) <= size * (1 + SIZE_SPREAD) + 1
    assert abs(np.mean(lengths) - size) < 0.02 * size


def test_a_frame_numbers_its_messages() -> None:
    (frame, *_) = batch_frames("T", 1024, seed=1)
    command = decode_frame(frame.numbered(0xABCDE, 1_700_000_000_123).tobytes())
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    fields = {name: command.ext_fields[name] for name in "bdegm"}
    assert fields == {"b": "T", "d": str(QUEUES), "e": "0", "g": "1700000000123", "m": "true"}
    elements = decode_batch(command.body)
    assert len(elements) == frame.messages == 16
    assert sum(len(element.body) for element in elements) == frame.body_bytes
    for number, element in enumerate(elements, 0xABCDE):
        properties = decode_properties(element.properties.decode())
        assert element.body.startswith(b"%012X" % number)
        assert properties["KEYS"] == f"K{number:012X}"
        assert properties["UNIQ_KEY"] == f"7F00000100000000000F{number:012X}"


def test_numbering_leaves_the_frame_as_it_was() -> None:
    frame = BatchFrame("T", 2, [NUMBER_MARK + b"a", NUMBER_MARK + b"b"])
    first, second = frame.numbered(1, 5), frame.numbered(2, 5)
    assert first.tobytes() != second.tobytes()
    assert first.tobytes() == frame.numbered(1, 5).tobytes()
    assert not any(mark in first.tobytes() for mark in (NUMBER_MARK, BORN_MARK))


def test_a_made_store_holds_what_was_counted(tmp_path: Path) -> None:
    filled = make_store(tmp_path / "store", 4 << 20, 1024)
    store = MessageStore(config_without_index(tmp_path / "store"))
    queues = {(name.topic, name.queue_id): store.queue(name.topic, name.queue_id) for name in store.queue_names()}
    counts = {key: queue.max_offset(1 << 62) for key, queue in queues.items() if key[0] in TOPICS}
    assert set(counts) == {(topic, queue_id) for topic in TOPICS for queue_id in range(QUEUES)}
    assert sum(counts.values()) == filled.messages
    assert min(counts.values()) > 0
    assert filled.log_bytes == pytest.approx(store.queue_end(), rel=0.01)
    with pytest.raises(ToolError, match="exists already"):
        make_store(tmp_path / "store", 1, 1024)
