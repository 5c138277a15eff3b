"""A throttle for log lines."""

from ringmq.remoting import log_throttle
from ringmq.remoting.log_throttle import CAUSES_MAX, REPEAT_AFTER_MS, CauseThrottle, LogThrottle

MINUTE_MS = 60_000


def test_a_trouble_that_lasts_is_told_once() -> None:
    lines = LogThrottle(10)
    came = [lines.line("full", now_ms) for now_ms in range(0, 10 * REPEAT_AFTER_MS, REPEAT_AFTER_MS // 2)]
    assert came == ["full"] + [None] * 19
    assert lines.line("full", 11 * REPEAT_AFTER_MS) == "full", "it was over"


def test_what_was_over_is_told_again_at_once() -> None:
    lines = LogThrottle(10)
    for text in ("files: full", "files: broken", "offsets: full"):
        lines.line(text, 0)
    lines.forget("files: ")
    assert lines.line("files: full", 1) == "files: full"
    assert lines.line("offsets: full", 1) is None


def test_many_troubles_are_counted() -> None:
    lines = LogThrottle(3)
    assert [lines.line(f"t{number}", 0) for number in range(5)] == ["t0", "t1", "t2", None, None]
    assert lines.line("t0", MINUTE_MS - 1) is None, "known, and not one more"
    assert lines.line("t3", MINUTE_MS) == "t3; 2 more lines were dropped"
    assert lines.line("t4", MINUTE_MS) == "t4"


def test_what_is_known_is_bounded() -> None:
    lines = LogThrottle(log_throttle.TEXTS_MAX + 1)
    for number in range(log_throttle.TEXTS_MAX + 1):
        lines.line(f"t{number}", 0)
    assert lines.line(f"t{number}", MINUTE_MS - 1) is None
    assert lines.line("t0", MINUTE_MS - 1) is None, "forgotten, and the minute's lines are used up"
    assert lines.line("t1", MINUTE_MS - 1) is None
    assert lines.line("t0", MINUTE_MS) == "t0; 1 more lines were dropped"


def test_a_cause_is_told_at_once_and_then_counted_each_minute() -> None:
    causes = CauseThrottle()
    assert causes.line(17, "host a is refused", 0) == "host a is refused"
    assert [causes.line(17, f"host {host} is refused", 1000) for host in "bcd"] == [None] * 3
    assert causes.line(25, "a setting is refused", 2000, count=5) == "a setting is refused; 4 more of this cause"
    assert list(causes.due_lines(MINUTE_MS - 1)) == []
    assert list(causes.due_lines(MINUTE_MS)) == ["host d is refused; 3 more of this cause"]
    assert causes.line(17, "host e is refused", MINUTE_MS + 1, count=7) is None, "the trouble goes on"
    assert list(causes.due_lines(2 * MINUTE_MS)) == ["host e is refused; 7 more of this cause"]
    assert list(causes.due_lines(3 * MINUTE_MS)) == []
    assert causes.line(17, "host a is refused", 3 * MINUTE_MS) == "host a is refused", "it was over"


def test_causes_beyond_the_limit_share_a_count() -> None:
    causes = CauseThrottle()
    told = [causes.line(number, f"cause {number}", 0) for number in range(CAUSES_MAX + 10)]
    assert sum(line is not None for line in told) == CAUSES_MAX + 1
    assert list(causes.due_lines(MINUTE_MS)) == [f"cause {CAUSES_MAX + 9}; 9 more of this cause"]
    assert causes.line(CAUSES_MAX + 5, "later", MINUTE_MS) == "later", "quiet causes have made room"
