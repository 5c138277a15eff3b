"""A slave's copy of its master's progress with timer messages, without a network."""

from dataclasses import astuple

import pytest

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.ha_bodies import HaRuntimeInfo
from ringmq.timer.master_timers import MasterTimers
from ringmq.timer.timer_checkpoint import Filing, ForSlaves, TimerCheckpoint
from ringmq.timer.timer_sync import (
    AHEAD_MS_MAX,
    OFFSET_MAX,
    RINGMQ_MS,
    STOCK_MS,
    WAITING_MAX,
    TimerSync,
    decode_timers,
    encode_fields,
)

MASTER = "10.0.0.1:10911"
NOW_MS = 1_800_000_000_000
CHECKPOINT, END = RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_BROKER_HA_STATUS


def answer(body: bytes, ext: dict[str, str] | None = None) -> RemotingCommand:
    return RemotingCommand.response_to(RemotingCommand.request(1), 0, None, ext, body)


def checkpoint(read_ms: int = NOW_MS, offset: int = 5, marks_from: object = None, **more: str) -> RemotingCommand:
    body = TimerCheckpoint(read_ms, 7, offset, offset, 1, 2, 3).encode()
    return answer(body, None if marks_from is None else {"marksFrom": str(marks_from)} | more)


def asked(sync: TimerSync, now_ms: int, code: int, said: RemotingCommand) -> None:
    ask = sync.due(now_ms)
    assert ask is not None and ask.code == code
    assert sync.due(now_ms) is None, "one request at a time"
    sync.answered(ask, said, now_ms)


def following(master: str = MASTER) -> TimerSync:
    sync = TimerSync()
    assert sync.due(NOW_MS) is None
    sync.master_is(master, NOW_MS)
    return sync


def test_a_stock_master_is_asked_for_its_logs_end_too_and_again_after_3_s() -> None:
    sync = following()
    asked(sync, NOW_MS, CHECKPOINT, checkpoint())
    assert sync.settled(OFFSET_MAX) is None
    asked(sync, NOW_MS, END, answer(HaRuntimeInfo(True, 5000).encode()))
    assert sync.settled(4999) is None, "what the master has delivered is on its way"
    assert sync.settled(5000) == MasterTimers(NOW_MS, 5, 5000, None, (1, 2, 3))
    assert sync.settled(5000) is None
    assert sync.due(NOW_MS + STOCK_MS - 1) is None
    asked(sync, NOW_MS + STOCK_MS, CHECKPOINT, checkpoint())


def test_a_ringmq_master_is_asked_each_second() -> None:
    sync = following()
    asked(sync, NOW_MS, CHECKPOINT, checkpoint(marks_from=900))
    assert sync.settled(899) is None
    assert sync.settled(900) == MasterTimers(NOW_MS, 5, 900, 900, (1, 2, 3))
    assert sync.due(NOW_MS + RINGMQ_MS - 1) is None
    asked(sync, NOW_MS + RINGMQ_MS, CHECKPOINT, checkpoint(marks_from=901))


@pytest.mark.parametrize("text", ["20,1000,1000", "20,1000,1000,1000,7", ""])
def test_a_filing_of_another_version_is_none(text: str) -> None:
    """The slave follows. It rebuilds when it is made master."""
    assert decode_timers(checkpoint(marks_from=900, filing=text), NOW_MS).filing is None


@pytest.mark.parametrize("filing", [None, Filing(172_800, 100, 1000, 100)])
def test_a_ringmq_master_says_how_it_files_messages(filing: Filing | None) -> None:
    """Those of older versions do not."""
    fields = encode_fields(ForSlaves(TimerCheckpoint(), 900, filing))
    timers = decode_timers(answer(checkpoint().body, fields), NOW_MS)  # type: ignore[arg-type]
    assert (timers.marks_from, timers.filing) == (900, filing)
    assert timers.filing is None or astuple(timers.filing) == (172_800, 100, 1000, 100)
    assert encode_fields(ForSlaves(TimerCheckpoint())) == {}


def test_a_log_that_stays_behind_gets_to_an_older_progress_first() -> None:
    sync = following()
    for number in range(3 * WAITING_MAX):
        now_ms = NOW_MS + number * RINGMQ_MS
        asked(sync, now_ms, CHECKPOINT, checkpoint(now_ms, marks_from=1000 + number))
    newest = 1000 + 3 * WAITING_MAX - 1
    found = [sync.settled(end) for end in (999, 1000, 1003, newest)]
    assert [timers and timers.marks_from for timers in found] == [None, 1000, 1003, newest]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (answer(b""), "0 bytes"),
        (answer(b"{}" * 20), "40 bytes"),
        (checkpoint(-1), "lastReadTimeMs"),
        (checkpoint(NOW_MS + AHEAD_MS_MAX + 1), "lastReadTimeMs"),
        (checkpoint(1 << 62), "lastReadTimeMs"),
        (checkpoint(offset=-1), "masterTimerQueueOffset"),
        (checkpoint(offset=OFFSET_MAX + 1), "masterTimerQueueOffset"),
        (checkpoint(offset=100, marks_from=9000), "cannot lie before"),
        (checkpoint(marks_from=-1), "marksFrom"),
        (checkpoint(marks_from="soon"), "marksFrom"),
        (checkpoint(marks_from=900, filing="-1,1000,1000,1000"), "filing -1,1000,1000,1000 is not a roll window"),
        (checkpoint(marks_from=900, filing="20,1000,1000,0"), "filing"),
        (checkpoint(marks_from=900, filing="20,1000,1001,1000"), "up to 1000 ms"),
        (checkpoint(marks_from=900, filing="1209601,1000,1000,1000"), "up to 1209600"),
        (checkpoint(marks_from=900, filing="20,x,1000,1000"), "filing"),
    ],
)
def test_impossible_values_change_nothing(said: RemotingCommand, why: str) -> None:
    sync = following()
    with pytest.raises(RemotingError, match=why):
        asked(sync, NOW_MS, CHECKPOINT, said)
    assert sync.settled(OFFSET_MAX) is None
    asked(sync, NOW_MS + STOCK_MS, CHECKPOINT, checkpoint(marks_from=900))
    assert sync.settled(900) is not None


def test_an_impossible_end_and_no_answer_are_asked_again() -> None:
    sync = following()
    asked(sync, NOW_MS, CHECKPOINT, checkpoint())
    with pytest.raises(RemotingError):
        asked(sync, NOW_MS, END, answer(b"<html>"))
    asked(sync, NOW_MS + STOCK_MS, CHECKPOINT, checkpoint())
    ask = sync.due(NOW_MS + STOCK_MS, own_end=5001)
    assert ask is not None
    with pytest.raises(RemotingError, match="ends at 5000, this slave's at 5001"):
        sync.answered(ask, answer(HaRuntimeInfo(True, 5000).encode()), NOW_MS + STOCK_MS)
    ask = sync.due(NOW_MS + 2 * STOCK_MS)
    assert ask is not None and ask.code == CHECKPOINT
    sync.failed(ask, NOW_MS + 2 * STOCK_MS)
    assert sync.due(NOW_MS + 3 * STOCK_MS - 1) is None
    asked(sync, NOW_MS + 3 * STOCK_MS, CHECKPOINT, checkpoint())


def test_another_masters_answers_count_no_longer() -> None:
    sync = following()
    late = sync.due(NOW_MS)
    assert late is not None
    sync.master_is("10.0.0.2:10911", NOW_MS)
    fresh = sync.due(NOW_MS)
    assert fresh is not None and fresh.address == "10.0.0.2:10911"
    sync.answered(late, checkpoint(marks_from=1000), NOW_MS)
    sync.failed(late, NOW_MS)
    assert sync.settled(OFFSET_MAX) is None and sync.due(NOW_MS) is None
