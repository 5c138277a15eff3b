"""The enqueuer tells where it has ended, and whether records are left that it could not read."""

from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.store.queue_reader import NotConfirmedError, NotMappedError
from ringmq.timer import enqueuer
from ringmq.timer.enqueuer import Enqueuer


class Reader:
    """Has no more records, or raises."""

    native = None

    def __init__(self, *_: object) -> None:
        self.error: Exception | None = None

    def hold(self, batch: Any, slot: int, offset: int) -> None:
        if self.error is not None:
            raise self.error
        batch.count, batch.next_offset = 0, offset


@pytest.mark.parametrize(
    ("error", "is_blocked"),
    [(None, False), (NotConfirmedError("later"), False), (NotMappedError("Too many open files"), True)],
)
def test_a_file_that_cannot_be_mapped_leaves_records_unread(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, is_blocked: bool
) -> None:
    monkeypatch.setattr(enqueuer, "QueueReader", Reader)
    index, lines = SimpleNamespace(reader=None), []
    store: Any = SimpleNamespace(
        slots=SimpleNamespace(work=SimpleNamespace(index=index)), plane=SimpleNamespace(struct=None),
        targets=SimpleNamespace(begin_turn=lambda now: None, begin_batch=lambda: None),
        queue=SimpleNamespace(queue_slot=0), log_line=lines.append,
    )  # fmt: skip
    reader: Any = Reader()
    of = Enqueuer(store, reader)
    for reader.error, expected in ((error, is_blocked), (None, False)):
        assert of.enqueue(7, 100) == 7
        assert of.is_blocked == expected and not of.has_more
    assert lines == (["waits: Too many open files"] if is_blocked else [])
