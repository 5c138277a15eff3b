"""The checker of a drill's resets catches each kind of planted violation, and accepts what is allowed."""

from ringmq.loadtest.drills.reset_pops import Place, ResetChecker

T0, QUEUE, INVISIBLE_MS = 1_700_000_000_000, 1, 2000


class Group:
    """A group of one queue, with the messages "0" to "3" at their offsets."""

    def __init__(self, count: int = 4) -> None:
        self.checker = ResetChecker()
        for offset in range(count):
            self.checker.sent(self.checker.begins(), f"{offset}", Place(QUEUE, offset))

    def pop(self, offset: int, at_ms: int = T0, *, began: int | None = None, is_copy: bool = False) -> int:
        began = self.checker.begins() if began is None else began
        return self.checker.popped(began, f"{offset}", at_ms, at_ms + INVISIBLE_MS, is_copy=is_copy)

    def take(self, *offsets: int, at_ms: int = T0) -> None:
        """Pop and acknowledge."""
        for offset in offsets:
            number = self.pop(offset, at_ms)
            self.checker.asks_ack(f"{offset}", number)
            self.checker.acknowledged(f"{offset}", number, at_ms)

    def reset(self, offset: int) -> None:
        self.checker.was_reset(self.checker.asks_reset(QUEUE, offset))

    def kinds(self) -> list[str]:
        return [violation.kind for violation in self.checker.verdict()]


def test_a_clean_run_has_no_violation() -> None:
    group = Group(6)
    group.take(0, 1, 2)
    group.reset(1)
    group.take(1, 2, 3, at_ms=T0 + 1)
    group.reset(5)
    group.take(5, at_ms=T0 + 2)
    assert group.kinds() == [] and group.checker.has_all
    assert (group.checker.reset_count, group.checker.again_count, group.checker.settled_count) == (2, 2, 6)


def test_messages_that_never_come() -> None:
    group = Group()
    group.take(0, 1)
    group.pop(2)
    assert group.kinds() == ["lost retry", "lost message"]
    group.reset(3)
    assert group.kinds() == ["not begun anew"], "the reset has passed the open message"


def test_a_reset_that_was_not_answered_may_have_happened() -> None:
    group = Group()
    group.take(0, 1)
    group.pop(2)
    number = group.checker.asks_reset(QUEUE, 4)
    assert group.kinds() == [] and not group.checker.has_all, "it may come yet"
    group.checker.gives_up_reset(number)
    assert group.kinds() == [] and group.checker.has_all


def test_a_reset_begins_anew() -> None:
    group = Group()
    group.take(0, 1, 2, 3)
    group.reset(2)
    assert group.kinds() == ["not begun anew"] * 2 and not group.checker.has_all
    group.take(2, at_ms=T0 + 1)
    assert group.kinds() == ["not begun anew"]
    group.checker.asks_reset(QUEUE, 4)
    assert group.kinds() == []


def test_a_pop_during_the_reset_counts() -> None:
    group = Group(1)
    group.take(0)
    began = group.checker.begins()
    group.reset(0)
    group.pop(0, began=began)
    assert group.kinds() == []


def test_no_message_below_the_offset_comes() -> None:
    for is_copy, again, found in ((False, False, ["given below"]), (True, False, []), (False, True, [])):
        group = Group(2)
        group.pop(0)
        group.reset(1)
        group.take(1)
        if again:
            group.checker.asks_reset(QUEUE, 0)
        group.checker.asks_ack("0", group.pop(0, T0 + INVISIBLE_MS, is_copy=is_copy))
        assert group.kinds() == found


def test_a_message_has_one_consumer() -> None:
    for later_ms, found in ((INVISIBLE_MS - 1, ["given twice"]), (INVISIBLE_MS, [])):
        group = Group(1)
        group.pop(0)
        group.take(0, at_ms=T0 + later_ms)
        assert group.kinds() == found


def test_an_acknowledged_message_comes_by_a_reset_alone() -> None:
    group = Group(1)
    group.take(0)
    group.take(0, at_ms=T0 + INVISIBLE_MS)
    assert group.kinds() == ["seen after ack"]
    other = Group(1)
    other.take(0)
    other.checker.asks_reset(QUEUE, 0)
    other.take(0, at_ms=T0 + INVISIBLE_MS)
    assert other.kinds() == []


def test_a_copy_of_before_the_reset_comes_behind_the_message() -> None:
    group = Group(1)
    group.pop(0)
    group.reset(0)
    group.take(0, at_ms=T0 + INVISIBLE_MS)
    group.pop(0, T0 + INVISIBLE_MS + 1, is_copy=True)
    assert group.kinds() == []
    group.take(0, at_ms=T0 + INVISIBLE_MS + 2)
    assert set(group.kinds()) == {"seen after ack", "given twice"}


def test_a_copy_of_before_the_reset_comes_before_the_message() -> None:
    for is_first_known, is_reset, found in ((True, True, []), (False, True, []), (True, False, ["given twice"])):
        group = Group(1)
        if is_first_known:
            group.pop(0)
        if is_reset:
            group.reset(0)
        group.pop(0, T0 + INVISIBLE_MS, is_copy=True)
        group.take(0, at_ms=T0 + INVISIBLE_MS + 24)
        assert group.kinds() == found
        group.take(0, at_ms=T0 + INVISIBLE_MS + 25)
        assert "seen after ack" in group.kinds()


def test_a_reset_of_before_the_send_sets_back_to_no_message() -> None:
    group = Group(0)
    group.reset(0)
    group.checker.sent(group.checker.begins(), "0", Place(QUEUE, 0))
    group.pop(0, is_copy=True)
    group.take(0, at_ms=T0 + 24)
    assert group.kinds() == ["given twice"]


def test_a_reset_without_an_answer_counts_until_it_is_given_up() -> None:
    for is_given_up, found in ((False, []), (True, ["given twice"])):
        group = Group(1)
        number = group.checker.asks_reset(QUEUE, 0)
        if is_given_up:
            group.checker.gives_up_reset(number)
        group.pop(0)
        group.take(0, at_ms=T0 + 24)
        assert group.kinds() == found
        assert group.checker.reset_count == 0
