"""A reader knows up to which time it has met what was answered, though dispatch may be behind."""

from ringmq.timer.read_time import ReadTime


def test_the_time_follows_dispatch() -> None:
    of = ReadTime()
    assert of.complete_ms(1000, 900, 1) == -1, "records before 1000 may have been answered before"
    assert of.complete_ms(1000, 1000, 2) == 2
    assert of.complete_ms(2000, 1000, 3) == 2
    assert of.complete_ms(3000, 1999, 4) == 2, "dispatch is not at the end of 3"
    assert of.complete_ms(4000, 2000, 5) == 3
    assert of.complete_ms(5000, 4000, 6) == 5
    assert of.complete_ms(5000, 5000, 7) == 7


def test_a_clock_that_is_set_back_takes_the_time_back() -> None:
    of = ReadTime()
    assert of.complete_ms(1000, 1000, 50) == 50
    assert of.complete_ms(1000, 1000, 10) == 10


def test_under_load_the_time_is_at_most_one_read_behind() -> None:
    """Dispatch is always a little behind, and comes to each end before the next read."""
    of = ReadTime()
    found = [of.complete_ms(1000 * now, 1000 * now - 10, now) for now in range(1, 20)]
    assert found == [-1, *range(1, 19)]
