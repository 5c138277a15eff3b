"""The queues of copies that go where the record says: C and Python agree."""

import random
from pathlib import Path

import pytest
from plane_kit import Kit

from ringmq.native import ffi, lib
from ringmq.store.copy_targets import CopyTarget, copy_target
from ringmq.store.native_copies import NativeCopies
from ringmq.store.record_copy import Cause, CopyLimits, CopyRefused, RecordCopy
from tests.store.copy_kit import both, stored

LIMITS = CopyLimits(1 << 20)
VALUES = {
    b"REAL_TOPIC": (b"Here", b"There", b"Half", b"Gone", b"t" * 300, b"\xff", b"a\x01b"),
    b"REAL_QID": (b"0", b"1", b"5", b"-1", b"+1", b"007", b"2147483648", b"99999999999999999999", b"x", b" 1"),
    b"OTHER": (b"Here", b"0"),
}


class Targets:
    """A plane with topics, one of them deleted, and both ways to find a record's queue."""

    def __init__(self, root: Path) -> None:
        self.kit = kit = Kit(root)
        self.here, self.there, self.half = kit.topic(b"Here", 2), kit.topic(b"There", 6), kit.topic(b"Half")
        gone = kit.topic(b"Gone", 2)
        lib.rmq_topic_set(kit.plane, gone, 0)

    def topic(self, name: bytes) -> int | None:
        topic_id = int(lib.rmq_topic_find(self.kit.plane, name, len(name)))
        return None if topic_id == lib.RMQ_NONE else topic_id

    def queue(self, topic_id: int, queue_id: int) -> int | None:
        slot = int(lib.rmq_queue_find(self.kit.plane, topic_id, queue_id))
        return None if slot == lib.RMQ_NONE else slot

    def both(self, properties: list[bytes]) -> list[CopyTarget | CopyRefused]:
        """The targets of records with these properties. C and Python agree on each."""
        raws = [stored(properties=text) for text in properties]
        native = NativeCopies([RecordCopy(raw) for raw in raws], LIMITS, bytearray(16), 0, 16)
        missing = lib.rmq_copy_targets(self.kit.plane, native.copies, len(raws), self.half)
        found = [self._of_copy(native.copies[number]) for number in range(len(raws))]
        assert found == [
            copy_target(_pairs(text), self.topic, self.queue, self.half) for text in properties
        ]  # fmt: skip
        assert missing == sum(isinstance(target, CopyRefused) for target in found)
        return found

    @staticmethod
    def _of_copy(copy: object) -> CopyTarget | CopyRefused:
        if copy.queue_slot == lib.RMQ_NONE:  # type: ignore[attr-defined]
            return CopyRefused(Cause(copy.cause), copy.detail)  # type: ignore[attr-defined]
        return CopyTarget(copy.topic_id, copy.queue_slot, copy.queue_id)  # type: ignore[attr-defined]


def _pairs(text: bytes) -> dict[bytes, bytes]:
    pieces = [piece.partition(b"\x01") for piece in text.split(b"\x02")]
    return {name: value for name, _, value in pieces if name and value}


@pytest.fixture
def targets(tmp_path: Path) -> Targets:
    return Targets(tmp_path)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (b"", CopyRefused(Cause.NO_PAIR, 1)),
        (b"REAL_QID\x010\x02", CopyRefused(Cause.NO_PAIR, 1)),
        (b"REAL_TOPIC\x01Here\x02", CopyRefused(Cause.NO_PAIR, 2)),
        (b"REAL_TOPIC\x01Here\x02REAL_QID\x01one\x02", CopyRefused(Cause.NO_PAIR, 2)),
        (b"REAL_TOPIC\x01Gone\x02REAL_QID\x010\x02", CopyRefused(Cause.NO_TOPIC)),
        (b"REAL_TOPIC\x01Half\x02REAL_QID\x010\x02", CopyRefused(Cause.NO_TOPIC)),
        (b"REAL_TOPIC\x01Here\x02REAL_QID\x012\x02", CopyRefused(Cause.NO_QUEUE, 2)),
        (b"REAL_TOPIC\x01Here\x02REAL_QID\x01-1\x02", CopyRefused(Cause.NO_QUEUE, -1)),
    ],
)
def test_a_record_without_a_target(targets: Targets, properties: bytes, expected: CopyRefused) -> None:
    assert targets.both([properties]) == [expected]
    raw = stored(properties=properties)
    assert both([RecordCopy(raw, no_target=expected)], LIMITS) == [expected]


def test_the_last_pair_of_a_name_counts(targets: Targets) -> None:
    twice = b"REAL_TOPIC\x01Here\x02REAL_QID\x010\x02REAL_TOPIC\x01There\x02REAL_QID\x015"
    slot = targets.queue(targets.there, 5)
    assert targets.both([twice]) == [CopyTarget(targets.there, slot, 5)]


def test_random_pairs(targets: Targets) -> None:
    dice = random.Random(29)
    texts = []
    for _ in range(3000):
        names = dice.choices(list(VALUES), k=dice.randrange(5))
        texts.append(b"".join(name + b"\x01" + dice.choice(VALUES[name]) + b"\x02" for name in names))
    kinds = {type(target) if isinstance(target, CopyTarget) else target.cause for target in targets.both(texts)}
    assert kinds == {CopyTarget, Cause.NO_PAIR, Cause.NO_TOPIC, Cause.NO_QUEUE}


def test_a_damaged_record_is_left_to_the_copy(targets: Targets) -> None:
    raw = stored(properties=b"REAL_TOPIC\x01Gone\x02REAL_QID\x010\x02")
    for cut in range(len(raw)):
        native = NativeCopies([RecordCopy(raw[:cut])], LIMITS, bytearray(16), 0, 16)
        assert lib.rmq_copy_targets(targets.kit.plane, native.copies, 1, lib.RMQ_NONE) == 0
        assert native.run() == 1
        assert native.copies[0].cause == lib.RMQ_COPY_DAMAGED
        assert native.requests[0].kind == 0
    assert ffi.sizeof("struct rmq_record_copy") == 112
