"""A slave's log is ahead of its topics: dispatch asks for a queue, control makes its entry, or refuses a name."""

from ringmq.broker.tables import protocols
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import ffi, lib
from tests.broker.control_kit import Harness, harness, now

__all__ = ["harness"]


def ask(harness: Harness, topic: bytes, queue_id: int, *, batch: bool = False) -> None:
    """As dispatch does (native/src/dispatch/dispatch_ask.c)."""
    head = ffi.new("struct rmq_inbox_record *")
    head.type, head.role = lib.RMQ_INBOX_QUEUE, lib.RMQ_ROLE_DISPATCH
    head.pending, head.frame_length = queue_id, int(batch)
    assert lib.rmq_inbox_put(harness.plane.struct, 0, head, topic, len(topic), ffi.NULL) == 0
    harness.loop.turn(now())


def flags(harness: Harness, topic: str) -> int:
    topic_id = harness.plane.topic_find(topic)
    return 0 if topic_id is None else int(harness.plane.topic(topic_id).config) >> 40


def test_a_queue_is_made_for_dispatch_alone(harness: Harness) -> None:
    harness.plane.watermarks.tenure = Tenure(TenureState.SLAVE).word
    harness.plane.watermarks.append_offset, harness.plane.watermarks.dispatched_offset = 5000, 3000
    ask(harness, b"Ahead", 2)
    ask(harness, b"Ahead", 7)
    topic_id = harness.plane.topic_find("Ahead")
    assert topic_id is not None
    slots = [harness.plane.queue_find(topic_id, queue_id) for queue_id in (2, 7)]
    assert None not in slots
    assert {int(harness.plane.queue(slot).replay_from) for slot in slots if slot is not None} == {3000}
    assert harness.plane.queue_find(topic_id, 3) is None
    assert flags(harness, "Ahead") & protocols.TOPIC_RECOVERED
    assert "Ahead" not in harness.loop.broker.topics


def test_a_queue_of_a_known_topic_changes_nothing_else(harness: Harness) -> None:
    before = flags(harness, "TBW102")
    ask(harness, b"TBW102", 200)
    topic_id = harness.plane.topic_find("TBW102")
    assert topic_id is not None
    assert harness.plane.queue_find(topic_id, 200) is not None
    assert flags(harness, "TBW102") == before


def test_records_of_a_topic_that_is_being_deleted_get_no_units(harness: Harness) -> None:
    harness.plane.watermarks.tenure = Tenure(TenureState.SLAVE).word
    harness.plane.watermarks.append_offset, harness.plane.watermarks.dispatched_offset = 5000, 3000
    harness.loop.broker.deletions.add("Gone", now())
    ask(harness, b"Gone", 0)
    topic_id = harness.plane.topic_find("Gone")
    assert topic_id is not None
    slot = harness.plane.queue_find(topic_id, 0)
    assert slot is not None
    assert int(harness.plane.queue(slot).replay_from) == 5000


def test_inner_batches_get_batch_queues(harness: Harness) -> None:
    ask(harness, b"Batches", 0, batch=True)
    assert flags(harness, "Batches") & protocols.TOPIC_BATCH_QUEUE


def test_a_name_that_leads_out_of_the_store_is_refused(harness: Harness) -> None:
    topics = int(harness.plane.header.tables.topic_count)
    for name in (b"../../etc", b"a/b", b"..", b"", b"nul\0nul", b"\xff/\xfe"):
        ask(harness, name, 0)
    assert int(harness.plane.header.tables.topic_count) == topics
