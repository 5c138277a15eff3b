"""Times that a client may name with a poll: none overflows, none holds a poll beyond its bound."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_stage import Stage
from test_desk_polls import answered, ask, offsets

from ringmq.native import lib

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
HOUR_MS, YEAR_MS = 3_600_000, 365 * 24 * 3_600_000
NOTHING, TOO_LATE = "NO_MESSAGE_IN_QUEUE", "pop message is timeout too much"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic, and a group whose window is there."""
    made = Stage(tmp_path / "store")
    made.topic("T")
    made.group("G")
    assert made.pop().code == 210
    yield made


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize(
    ("age_ms", "poll_ms", "wanted_ms"),
    [
        (590_000, 600_000, 10_000),
        (-YEAR_MS, 15_000, HOUR_MS),
        (-YEAR_MS, -YEAR_MS + 10_000, None),
        (0, INT64_MAX, HOUR_MS),
    ],
)
def test_a_poll_waits_from_its_birth_on(
    stage: Stage, age_ms: int, poll_ms: int, wanted_ms: int | None, odd: bool
) -> None:
    ask(stage, bornTime=now_ms() - age_ms, pollTime=poll_ms, odd=odd)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None
    if wanted_ms is None:
        assert (answer.verdict.type, answer.code, answer.command.remark) == (lib.RMQ_VERDICT_SEND, 210, NOTHING)
        return
    assert answer.hold is not None
    left_ms = (answer.hold.until_ns - time.monotonic_ns()) // 1_000_000
    assert wanted_ms - 5000 <= left_ms <= wanted_ms
    stage.send("T", 1)
    stage.turn()
    assert offsets(answered(stage, answer)) == "0 0 0"


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("poll_ms", [15_000, INT64_MAX])
def test_a_birth_at_the_end_of_time_is_bounded(stage: Stage, poll_ms: int, odd: bool) -> None:
    ask(stage, bornTime=INT64_MAX, pollTime=poll_ms, odd=odd)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and answer.hold is not None
    left_ms = (answer.hold.until_ns - time.monotonic_ns()) // 1_000_000
    assert HOUR_MS - 5000 <= left_ms <= HOUR_MS


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize(
    ("born_ms", "poll_ms", "remark"),
    [
        (1, 15_000, TOO_LATE),
        (-1, 15_000, TOO_LATE),
        (INT64_MIN, 15_000, TOO_LATE),
        (INT64_MIN, INT64_MAX, TOO_LATE),
        (INT64_MIN, -1, NOTHING),
        (INT64_MIN, INT64_MIN, NOTHING),
        (INT64_MAX, INT64_MIN, TOO_LATE),
        (0, INT64_MIN, NOTHING),
    ],
)
def test_a_time_that_is_over_is_answered_at_once(
    stage: Stage, born_ms: int, poll_ms: int, remark: str, odd: bool
) -> None:
    ask(stage, bornTime=born_ms, pollTime=poll_ms, odd=odd)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and (answer.verdict.type, answer.code) == (lib.RMQ_VERDICT_SEND, 210)
    assert remark in (answer.command.remark or "")
    assert not len(stage.desk.native.polls)


@pytest.mark.parametrize("field", ["bornTime", "pollTime"])
@pytest.mark.parametrize("value", [2**63, INT64_MIN - 1, "soon", "1e9"])
def test_a_time_that_is_no_number_is_refused(stage: Stage, field: str, value: object) -> None:
    ask(stage, **{field: value})
    stage.turn()
    answer = stage.verdict()
    assert answer is not None and answer.code == 1 and field in (answer.command.remark or "")
    assert not len(stage.desk.native.polls)
