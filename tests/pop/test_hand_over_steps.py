"""The order of a hand-over: records, their sync, consumer offsets, the offset of the revive group."""

import json
import os
import time
from pathlib import Path

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.native import lib
from ringmq.pop import hand_over, record_log
from ringmq.pop.check_points import HandOverError
from ringmq.pop.record_notice import RecordNotice, read_notice, write_notice
from ringmq.pop.record_targets import targets_of
from ringmq.remoting.errors import RequestError
from ringmq.services.kit.clocks import wall_ms
from ringmq.store.record_numbers import LONG_MAX
from tests.pop.hand_over_stage import DUE_MS, Stage

DAY_MS = 86_400_000


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_offsets_follow_records_that_are_on_disk(stage: Stage) -> None:
    assert stage.run() == ["append", "append", "sync", f"offsets {record_log.COMMITS}", "offsets 4", "handled {6}"]
    assert read_notice(stage.root) == RecordNotice(1000, DUE_MS)
    assert stage.notice.waits
    assert 2 not in stage.committed, "the table has this offset"


def test_acknowledgements_follow_check_points_that_are_stored(stage: Stage) -> None:
    """A message that is done in a check point of before may be open in a new one: it is never in none."""
    stage.of_before("acknowledge 5", "acknowledge 6")
    stage.batches = 1
    assert stage.run()[:5] == ["compare", "append", "acknowledge 5", "acknowledge 6", "sync"]


def test_a_failed_sync_moves_no_offset(stage: Stage) -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    stage.sync = fail
    with pytest.raises(OSError, match="gone"):
        stage.run()
    assert stage.steps == ["append", "append", "sync"] and not stage.committed


def test_a_refused_record_moves_no_offset(stage: Stage) -> None:
    stage.refused = lib.RMQ_FAULT_DISK_FULL
    with pytest.raises(HandOverError, match=f"cause {lib.RMQ_FAULT_DISK_FULL}"):
        stage.run()
    assert stage.steps == ["append"] and read_notice(stage.root).until_ms == DUE_MS


def test_a_refusal_is_told_once_no_other_record_is_with_write(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next user of the port would take its answer."""
    left = [1, 2, 1, 1, 0]

    def take_answers() -> int:
        stage.refused = 5 if len(left) < 4 else 0
        return left.pop(0)

    monkeypatch.setattr(stage, "take_answers", take_answers)
    with pytest.raises(HandOverError, match="cause 5"):
        stage.run()
    assert stage.steps == ["append", "append"] and not left


def test_an_acknowledgement_without_room_is_told_once_no_other_record_is_with_write(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledge = stage.acknowledge

    def no_room(endings: list[str]) -> tuple[str, int]:
        if len(endings) == 1:
            raise HandOverError("an acknowledgement of 9 messages has no room")
        return acknowledge(endings)

    stage.of_before("acknowledge 5", "acknowledge 6")
    stage.batches = 0
    monkeypatch.setattr(stage, "acknowledge", no_room)
    with pytest.raises(HandOverError, match="has no room"):
        stage.run()
    assert stage.steps == ["compare", "acknowledge 5"] and not stage.waiting


def test_the_time_of_the_stop_ends_it(stage: Stage) -> None:
    stage.answers = False
    with pytest.raises(HandOverError, match="time of the stop is over: 10 of 10 open messages"):
        stage.run(within_ms=1000)
    assert stage.steps == ["append", "append"], "the first one had to wait for none"


def test_the_time_of_the_stop_ends_a_scan_of_the_timer(stage: Stage) -> None:
    stage.of_before("acknowledge 5")
    stage.is_slow = True
    with pytest.raises(HandOverError, match="time of the stop is over: the records that wait in the timer"):
        stage.run(within_ms=1000)
    assert stage.steps == ["compare"]


def test_no_sync_begins_behind_the_time_of_the_stop(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be ended, and the snapshot comes behind it."""
    stage.batches, answers, clock = 1, stage.take_answers, [0]

    def late() -> int:
        clock[0] = 5000
        return answers()

    monkeypatch.setattr(stage, "take_answers", late)
    monkeypatch.setattr(hand_over, "monotonic_ms", lambda: clock[0])
    with pytest.raises(HandOverError, match="the records are not on the disk"):
        stage.hand_over.run(5000, is_ready=True)
    assert stage.steps == ["append"] and not stage.committed


def test_nothing_is_written_while_copies_are_under_way(stage: Stage) -> None:
    with pytest.raises(HandOverError, match="copies of messages are under way"):
        stage.run(is_ready=False)
    assert stage.steps == []


def test_without_the_setting_open_messages_stay_where_they_are(stage: Stage) -> None:
    stage.exports = False
    assert stage.run() == ["handled {6}"] and not stage.committed


def test_a_drained_broker_exports_nothing(stage: Stage) -> None:
    """Its consumers may still have messages: `ringmq pop drain --now`."""
    stage.is_drained = True
    assert stage.run() == ["handled {6}"] and not stage.committed and not stage.hand_over.exports


def test_without_open_messages_only_the_revive_group_moves(stage: Stage) -> None:
    stage.messages_open, stage.exports = 0, False
    assert stage.run() == ["handled {6}"]
    assert not stage.notice.waits and not (stage.root / "pop" / "records").exists()


def test_a_queue_that_is_missing_has_no_offset(stage: Stage) -> None:
    """Places and queue ids are the same for the others."""
    stage.missing = (2,)
    stage.run()
    assert stage.offsets == (6, 6, -1, 6, 6, 6, 6, 6)
    targets = targets_of(stage.plane, BrokerConfig())
    assert targets is not None and [queue_id for _, _, queue_id in targets.revive] == [0, 1, 3, 3, 4, 5, 6, 7]


def test_a_missing_topic_is_told_if_something_is_open(stage: Stage) -> None:
    stage.missing = range(99)
    with pytest.raises(HandOverError, match="the topic rmq_sys_REVIVE_LOG_DefaultCluster has no queues"):
        stage.run()
    stage.exports = False
    assert stage.run() == []
    stage.messages_open, stage.exports = 0, True
    assert stage.run() == []


def test_a_refusal_of_control_is_told(stage: Stage) -> None:
    stage.refusal = RequestError("the table is full", field="", code=1)
    with pytest.raises(HandOverError, match="table is full"):
        stage.run()


def test_a_damaged_notice_is_read_as_the_whole_log(tmp_path: Path) -> None:
    (tmp_path / "pop").mkdir()
    write_notice(tmp_path, RecordNotice(5, 9))
    assert read_notice(tmp_path) == RecordNotice(5, 9)
    (tmp_path / "pop" / "records").write_text("{")
    assert read_notice(tmp_path).until_ms > DUE_MS and not read_notice(tmp_path).since
    assert read_notice(tmp_path).until_ms < wall_ms() + 31 * DAY_MS, "the worker rests again"
    write_notice(tmp_path, RecordNotice())
    assert read_notice(tmp_path) == RecordNotice()


@pytest.mark.parametrize("until_ms", [LONG_MAX, 1 << 64, -1])
def test_no_record_waits_longer_than_messages_are_invisible(tmp_path: Path, until_ms: int) -> None:
    """A check point of another broker may have any time, and so may the file."""
    write_notice(tmp_path, RecordNotice(5, abs(until_ms)))
    path = tmp_path / "pop" / "records"
    assert json.loads(path.read_text())["until_ms"] < wall_ms() + 31 * DAY_MS
    path.write_text(f'{{"from":5,"until_ms":{until_ms}}}')
    assert wall_ms() < read_notice(tmp_path).until_ms < wall_ms() + 31 * DAY_MS
    long_ago_s = time.time() - 40 * 86_400
    os.utime(path, (long_ago_s, long_ago_s))
    assert read_notice(tmp_path).until_ms < wall_ms(), "another start does not wait as long again"
