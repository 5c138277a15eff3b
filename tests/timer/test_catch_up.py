"""Log lines of a delivery that is behind."""

from ringmq.timer.catch_up import BEHIND_MS, LINE_MS, CatchUp


def test_a_long_catch_up_is_logged_with_its_end() -> None:
    lines: list[str] = []
    catch_up = CatchUp(lines.append)
    now_ms = 1_800_000_000_000
    catch_up.note(now_ms - 3_600_000, now_ms, 0, 5)
    catch_up.note(now_ms - 3_500_000, now_ms, LINE_MS - 1, 6)
    assert lines == []
    catch_up.note(now_ms - 3_400_000, now_ms, LINE_MS, 7)
    catch_up.note(now_ms - 3_300_000, now_ms, LINE_MS + 1, 8)
    catch_up.note(now_ms - 3_200_000, now_ms, 2 * LINE_MS, 9)
    assert [line.split("; ")[0] for line in lines] == [
        "catches up: messages of 2027-01-15 07:03:20+00:00 go out, 3400 s late",
        "catches up: messages of 2027-01-15 07:06:40+00:00 go out, 3200 s late",
    ]
    catch_up.note(now_ms, now_ms, 3 * LINE_MS, 107)
    catch_up.note(now_ms, now_ms, 4 * LINE_MS, 207)
    assert lines[2:] == ["has caught up: 100 messages in 20.0 s"]


def test_a_short_one_is_not() -> None:
    lines: list[str] = []
    catch_up = CatchUp(lines.append)
    for mono_ms in range(0, 10 * LINE_MS, LINE_MS // 2):
        catch_up.note(BEHIND_MS * (mono_ms % LINE_MS == 0), 2 * BEHIND_MS, mono_ms, 0)
        catch_up.note(2 * BEHIND_MS, 2 * BEHIND_MS, mono_ms, 0)
    assert lines == []
