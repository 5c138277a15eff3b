"""The offset from which a start reads marks of copies."""

from ringmq.pop.copies_known import CopiesKnown


def test_the_place_is_the_flushed_offset_or_a_copy_under_way() -> None:
    known = CopiesKnown([].append)
    assert known.place(None) == 0
    known.flushed(100, has_new=False)
    assert (known.place(None), known.place(70), known.place(130)) == (100, 70, 100)


def test_copies_that_a_start_has_found_keep_the_place_until_all_are_flushed() -> None:
    known = CopiesKnown([].append)
    known.found(300)
    known.flushed(299, has_new=False)
    assert known.place(None) == 0
    known.flushed(300, has_new=False)
    assert known.place(None) == 300


def test_windows_hear_of_an_offset_again_if_they_have_new_copies() -> None:
    told: list[int] = []
    known = CopiesKnown(told.append)
    for has_new in (False, False, True, False):
        known.flushed(100, has_new=has_new)
    assert told == [100, 100]
