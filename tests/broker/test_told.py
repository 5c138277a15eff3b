"""Which lines about trouble control writes."""

from ringmq.broker import told
from ringmq.broker.told import AGAIN_MS, Told

MINUTE_MS = 60_000


def test_a_trouble_that_lasts_is_told_once() -> None:
    lines = Told(10)
    came = [lines.line("full", now_ms) for now_ms in range(0, 10 * AGAIN_MS, AGAIN_MS // 2)]
    assert came == ["full"] + [None] * 19
    assert lines.line("full", 11 * AGAIN_MS) == "full", "it was over"


def test_what_was_over_is_told_again_at_once() -> None:
    lines = Told(10)
    for text in ("files: full", "files: broken", "offsets: full"):
        lines.line(text, 0)
    lines.forget("files: ")
    assert lines.line("files: full", 1) == "files: full"
    assert lines.line("offsets: full", 1) is None


def test_many_troubles_are_counted() -> None:
    lines = Told(3)
    assert [lines.line(f"t{number}", 0) for number in range(5)] == ["t0", "t1", "t2", None, None]
    assert lines.line("t0", MINUTE_MS - 1) is None, "known, and not one more"
    assert lines.line("t3", MINUTE_MS) == "t3; 2 more were not told"
    assert lines.line("t4", MINUTE_MS) == "t4"


def test_what_is_known_is_bounded() -> None:
    lines = Told(told.KNOWN_MAX + 1)
    for number in range(told.KNOWN_MAX + 1):
        lines.line(f"t{number}", 0)
    assert lines.line(f"t{number}", MINUTE_MS - 1) is None
    assert lines.line("t0", MINUTE_MS - 1) is None, "forgotten, and the minute's lines are used up"
    assert lines.line("t1", MINUTE_MS - 1) is None
    assert lines.line("t0", MINUTE_MS) == "t0; 1 more were not told"
