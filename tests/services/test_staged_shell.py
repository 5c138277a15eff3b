"""Staged writes when there is no room: nothing is refused for good that only has to wait."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.native import lib
from ringmq.remoting.codes import ResponseCode
from ringmq.services.kit.flight import Result
from ringmq.services.staged import writes as staged_writes
from ringmq.services.staged.commit_records import CommitRecord
from ringmq.services.staged.events import AppendCommit, Effect, Event, NotStored
from ringmq.services.staged.writes import StagedWrites
from tests.waiting import wait_until


class Core:
    """Wants what it is told to want; remembers what it hears."""

    def __init__(self, effects: list[Effect]) -> None:
        self.effects, self.heard = effects, list[Event]()
        self.dirty, self.recovering, self.is_idle = True, False, False

    takes_commits = True

    def step(self, event: Event, now_ms: int, confirm_offset: int) -> list[Effect]:
        self.heard.append(event)
        effects, self.effects = self.effects, []
        return effects

    def snapshot(self) -> tuple[dict[str, Any], int]:
        self.dirty = False
        return {"version": 1}, 100


class Refusing:
    """A way to write that refuses everything for this reason."""

    body_bytes_max = 1000
    port = SimpleNamespace(settled_end=None)
    code, cause = 0, 0

    def __init__(self) -> None:
        self.taken = list[Any]()

    def own_origin(self) -> None:
        return None

    def append(self, what: Any, *_: Any) -> bool:
        self.taken.append(what)
        return True

    def results(self) -> list[Result[Any]]:
        taken, self.taken = self.taken, []
        return [Result(what, self.code, self.cause, -1, -1, -1) for what in taken]


class Full:
    """A way to write that has no slot left."""

    body_bytes_max = 1000
    port = SimpleNamespace(settled_end=None)

    def results(self) -> list[Any]:
        return []

    def own_origin(self) -> None:
        return None

    def append(self, *_: Any) -> bool:
        return False


def shell(core: Core, root: Path, appends: Any = None, flushed_offset: int = 100) -> StagedWrites:
    plane = SimpleNamespace(
        header=SimpleNamespace(settings=SimpleNamespace(segment_bytes=4096)),
        watermarks=SimpleNamespace(flushed_offset=flushed_offset),
        confirm_offset=lambda: 100,
    )
    config = BrokerConfig(store_path_root_dir=str(root), flush_consumer_offset_interval=5000)
    topics = SimpleNamespace(find=lambda name: name, queue=lambda name, queue_id: (1, 1, queue_id))
    none = cast(Any, None)
    return StagedWrites(
        plane=cast(Any, plane), log=none, topics=cast(Any, topics), config=lambda: config, appends=appends,
        topic_creator=none, outbox=none, log_line=print, wall_ms=lambda: 0, core=cast(Any, core),
    )  # fmt: skip


@pytest.mark.parametrize(("query", "code"), [("q", ResponseCode.SYSTEM_BUSY), ("q" * 1000, ResponseCode.SYSTEM_ERROR)])
def test_a_decision_without_room_is_to_be_asked_for_again(tmp_path: Path, query: str, code: int) -> None:
    effect = AppendCommit(CommitRecord(query, 0, ()))
    core = Core([effect])
    made = shell(core, tmp_path, Full())
    made.turn(0)
    made.turn(0)
    made.turn(1)
    (refused,) = [event for event in core.heard if isinstance(event, NotStored)]
    assert (refused.what, refused.code, refused.final) == (effect, code, False)


@pytest.mark.parametrize(
    ("code", "cause", "told", "final"),
    [
        (ResponseCode.SYSTEM_ERROR, lib.RMQ_CAUSE_IN_SYNC_REPLICAS, ResponseCode.SYSTEM_BUSY, False),
        (ResponseCode.SYSTEM_ERROR, lib.RMQ_CAUSE_SEGMENT_LATE, ResponseCode.SYSTEM_BUSY, False),
        (ResponseCode.SERVICE_NOT_AVAILABLE, lib.RMQ_CAUSE_HELD, ResponseCode.SERVICE_NOT_AVAILABLE, False),
        (ResponseCode.SYSTEM_ERROR, lib.RMQ_CAUSE_QUEUE_SLOT, ResponseCode.SYSTEM_ERROR, True),
        (ResponseCode.MESSAGE_ILLEGAL, lib.RMQ_CAUSE_MESSAGE_SIZE, ResponseCode.MESSAGE_ILLEGAL, True),
    ],
)
def test_what_passes_is_to_be_asked_for_again(tmp_path: Path, code: int, cause: int, told: int, final: bool) -> None:
    appends = Refusing()
    appends.code, appends.cause = code, cause
    core = Core([AppendCommit(CommitRecord("q", 0, ()))])
    made = shell(core, tmp_path, appends)
    made.turn(0)
    made.turn(1)
    (refused,) = [event for event in core.heard if isinstance(event, NotStored)]
    assert (refused.code, refused.final) == (told, final)
    assert (told in {2, 10, 14}) == (not final)


def test_a_table_that_could_not_be_written_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, failures = list[Any](), [OSError("the disk is full")]

    def save(root: Path, store: Any, value: Any) -> Callable[[], None]:
        return lambda: saved.append(value) if not failures else raises(failures.pop())

    def raises(error: OSError) -> None:
        raise error

    monkeypatch.setattr(staged_writes, "save_snapshot", save)
    made = shell(Core([]), tmp_path)
    made.save_if_due(10_000)
    wait_until(lambda: not failures, "it failed")
    with pytest.raises(OSError, match="full"):
        wait_until(lambda: made.save_if_due(11_000), "the failure is told")
    made.save_if_due(11_000)
    assert saved == []
    made.save_if_due(15_000)
    wait_until(lambda: saved == [{"version": 1}], "it is saved")


def test_other_requests_do_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, saved = threading.Event(), list[Any]()

    def save(root: Path, store: Any, value: Any) -> Callable[[], None]:
        return lambda: saved.append(disk.wait(60.0))

    monkeypatch.setattr(staged_writes, "save_snapshot", save)
    core = Core([])
    core.is_idle = True
    made = shell(core, tmp_path, Full())
    made.turn(0)
    made.save_if_due(10_000)
    made.turn(10_001)
    made.save_if_due(20_000)
    assert saved == [] and not made.is_idle
    disk.set()
    wait_until(lambda: made.save_if_due(20_001) or made.is_idle, "it is saved")
    assert saved == [True]
