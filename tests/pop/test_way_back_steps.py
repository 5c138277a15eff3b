"""The order of the way back: consumer offsets, their file, acknowledgements, a sync, the offset of the revive group."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.pop import record_log, way_back
from ringmq.pop.check_points import HandOverError
from ringmq.pop.open_pops import OpenPop
from ringmq.pop.record_notice import RecordNotice, read_notice
from ringmq.pop.revive_records import Pop
from ringmq.remoting.errors import RequestError
from tests.pop.hand_over_stage import DUE_MS, Stage


def pop(start: int, *, queue: int = 1, topic: str = "T") -> OpenPop:
    """A pop of which a check point waits in the timer."""
    return OpenPop(Pop(topic, "G", queue, start, DUE_MS - 1000, "broker-a"), 1000, 0, {start, start + 1}, start + 2)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(tmp_path, monkeypatch)
    made.of_before_of_pops(pop(5), pop(9))
    yield made


def test_acknowledgements_follow_offsets_that_are_on_disk(stage: Stage) -> None:
    """Else a kill leaves no offset and no check point for a message."""
    stage.first_open = {2: 40}
    assert stage.run() == [
        "offsets 1", "save", "compare", "acknowledge (5, 6)", "acknowledge (9, 10)", "sync", "end notice",
        "handled {6}",
    ]  # fmt: skip
    assert stage.committed == {2: 40}
    assert read_notice(stage.root) == RecordNotice(), "the next stop compares nothing"


def test_offsets_that_are_at_open_messages_stay(stage: Stage) -> None:
    assert stage.run()[:2] == ["compare", "acknowledge (5, 6)"] and not stage.committed


def test_an_open_pop_with_a_check_point_ends_before_its_acknowledgement(stage: Stage) -> None:
    """A later check point would have the same name, and its messages would count as done."""
    stage.opened, stage.first_open = {9}, {1: 60}
    assert stage.run()[:4] == ["compare", "begin 1 at 60", "acknowledge (5, 6)", "acknowledge (9, 10)"]


def test_a_pop_of_a_topic_that_is_gone_is_acknowledged(stage: Stage) -> None:
    stage.pops, stage.opened = [pop(5, topic="gone")], {5}
    assert stage.run()[:2] == ["compare", "acknowledge (5, 6)"]


def test_many_records_are_acknowledged_in_parts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million of them would take 0.7 GB at once."""
    monkeypatch.setattr(way_back, "PART", 4)
    stage.waiting_records, stage.pops = 9, [pop(5)]
    assert stage.run() == ["compare", *["acknowledge (5, 6)"] * 3, "sync", "end notice", "handled {6}"]


def set_mode(stage: Stage, topic: str, group: str, mode: str) -> None:
    """As the request 401 leaves it."""
    bean = {"consumerGroup": group, "mode": mode, "popShareQueueNum": 0, "topic": topic}
    folder = stage.root / "config"
    folder.mkdir()
    (folder / "messageRequestMode.json").write_text(json.dumps({"messageRequestModeMap": {topic: {group: bean}}}))


def test_no_offset_goes_back_that_members_who_pull_would_commit_again(stage: Stage) -> None:
    """The check point of the open message would have ended by then."""
    stage.first_open = {2: 40}
    set_mode(stage, "T", "G", "PULL")
    with pytest.raises(HandOverError, match=r"group G pulls topic T.* wait until none is open \(ringmq pop drain"):
        stage.run()
    assert stage.steps == [] and not stage.committed and read_notice(stage.root).until_ms == DUE_MS
    stage.messages_open = 0
    assert stage.run()[:3] == ["offsets 1", "save", "compare"]


@pytest.mark.parametrize(("topic", "group", "mode"), [("T", "G", "POP"), ("T", "H", "PULL"), ("U", "G", "PULL")])
def test_offsets_of_groups_that_pop_go_back(stage: Stage, topic: str, group: str, mode: str) -> None:
    stage.first_open = {2: 40}
    set_mode(stage, topic, group, mode)
    assert stage.run()[:3] == ["offsets 1", "save", "compare"]


def test_modes_that_cannot_be_read_hold_offsets(stage: Stage) -> None:
    stage.first_open = {2: 40}
    set_mode(stage, "T", "G", "POP")
    (stage.root / "config" / "messageRequestMode.json").write_text("{")
    with pytest.raises(HandOverError, match=r"modes of groups cannot be read: .*messageRequestMode\.json"):
        stage.run()
    assert stage.steps == []


def test_files_without_records_of_pop_are_steps(stage: Stage) -> None:
    """A queue of millions of timers has many. Requests of consumers come between."""
    stage.is_slow = True
    with pytest.raises(HandOverError, match="time of the stop is over: the records that wait in the timer"):
        stage.run(within_ms=1000)
    assert stage.steps == ["compare"]


def test_without_records_only_the_revive_group_moves(stage: Stage) -> None:
    stage.notice.keep(RecordNotice())
    assert stage.run() == ["handled {6}"]


def test_without_a_revive_topic_offsets_move(stage: Stage) -> None:
    stage.missing, stage.first_open = range(99), {2: 40}
    assert stage.run() == ["offsets 1", "save"]


def test_it_waits_for_records_that_are_in_no_queue_yet(stage: Stage) -> None:
    """One may have left the timer: it counts as handled with the revive queue."""
    stage.marks.dispatched_offset = 999
    with pytest.raises(HandOverError, match=r"time of the stop is over: records .* no queue yet: 1 bytes are left"):
        stage.run(within_ms=1000)
    assert stage.steps == []


def test_offsets_that_cannot_be_saved_end_no_check_point(stage: Stage) -> None:
    stage.first_open, stage.refusal = {2: 40}, RequestError("the disk is full", field="", code=1)
    with pytest.raises(HandOverError, match="the consumer offsets cannot be saved: the disk is full"):
        stage.run()
    assert stage.steps == ["offsets 1", "save"] and read_notice(stage.root).until_ms == DUE_MS


def test_a_failed_sync_keeps_the_notice(stage: Stage) -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    stage.sync = fail
    with pytest.raises(OSError, match="gone"):
        stage.run()
    assert read_notice(stage.root).until_ms == DUE_MS and stage.steps[-1] == "sync"


def test_offsets_stay_until_their_reports_have_room(stage: Stage) -> None:
    """Else a pass would take the offset in the table for a client's."""
    stage.first_open, stage.is_full = {2: 40}, True
    with pytest.raises(HandOverError, match="control has not stored the consumer offsets"):
        stage.run(within_ms=1000)
    assert not stage.steps and not stage.committed


def test_many_windows_are_committed_in_parts(stage: Stage) -> None:
    stage.first_open = dict.fromkeys(range(1, record_log.COMMITS + 7), 40)
    assert stage.run()[:3] == [f"offsets {record_log.COMMITS}", "offsets 4", "save"]
