"""A throttle for log lines."""

from ringmq.remoting import log_throttle
from ringmq.remoting.log_throttle import REPEAT_AFTER_MS, LogThrottle

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
