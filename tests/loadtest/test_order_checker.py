"""The checker of a drill's orderly pops catches each kind of planted violation, and accepts what is allowed."""

from collections.abc import Sequence

from ringmq.loadtest.drills.order_pops import OrderChecker

T0, QUEUE, INVISIBLE_MS = 1_700_000_000_000, 3, 2000


class Group:
    """Consumers of one queue, with the messages 0 to 3."""

    def __init__(self) -> None:
        self.checker = OrderChecker()
        for offset in range(4):
            self.checker.sent(QUEUE, offset)

    def pop(
        self, offsets: Sequence[int], at_ms: int = T0, attempt: str = "", *, began: int | None = None, sure: bool = True
    ) -> int:
        """Returns the number of the batch."""
        began = self.checker.begins() if began is None else began
        due_ms = dict.fromkeys(offsets, at_ms + INVISIBLE_MS)
        return self.checker.popped(began, QUEUE, due_ms, at_ms, attempt, is_sure=sure)

    def ack(self, number: int, *offsets: int, at_ms: int = T0) -> None:
        self.checker.asks_acks(QUEUE, number, offsets)
        self.checker.acknowledged(QUEUE, number, offsets, at_ms)

    def kinds(self) -> list[str]:
        return [violation.kind for violation in self.checker.verdict()]


def test_a_clean_run_has_no_violation() -> None:
    group = Group()
    group.ack(group.pop([0, 1]), 1, 0)
    group.ack(group.pop([2], T0 + 1, "a"), 2)
    group.pop([3], T0 + 2, "b")
    assert not group.checker.has_all
    group.ack(group.pop([3], T0 + 2 + INVISIBLE_MS), 3)
    assert group.kinds() == [] and group.checker.has_all
    assert (group.checker.batch_count, group.checker.settled_count) == (4, 4)


def test_messages_that_never_come() -> None:
    group = Group()
    group.ack(group.pop([0, 1, 2]), 0, 1)
    assert group.kinds() == ["lost message", "lost retry"]


def test_a_batch_follows_its_queue() -> None:
    group = Group()
    group.ack(group.pop([0, 2]), 0, 2)
    group.ack(group.pop([1, 3], T0 + 1), 1, 3)
    assert group.kinds() == ["unordered batch"] * 2


def test_a_batch_begins_at_the_first_message_that_is_not_done() -> None:
    group = Group()
    group.ack(group.pop([0, 1]), 1)
    group.ack(group.pop([2, 3], T0 + INVISIBLE_MS), 2, 3)
    assert group.kinds() == ["lost retry", "passed over"]


def test_a_batch_blocks_its_queue() -> None:
    held = ["given while held"]
    for later_ms, attempts, sure, found in (
        (INVISIBLE_MS - 3, ("", ""), True, held), (INVISIBLE_MS - 3, ("a", "b"), True, held),
        (INVISIBLE_MS - 2, ("a", "b"), True, []), (5, ("a", "a"), True, []), (5, ("a", "b"), False, []),
    ):  # fmt: skip
        group = Group()
        group.pop([0, 1], T0, attempts[0], sure=sure)
        group.ack(group.pop([0, 1, 2, 3], T0 + later_ms, attempts[1]), 0, 1, 2, 3)
        assert group.kinds() == found, (later_ms, attempts)


def test_a_change_moves_the_end_of_the_block() -> None:
    for answered, later_ms, found in ((True, 3997, ["given while held"]), (True, 3998, []), (False, 1000, [])):
        group = Group()
        number = group.pop([0])
        group.checker.asks_change(QUEUE, number, 0, T0, 4000 if answered else 1000)
        if answered:
            group.checker.changed(QUEUE, number, 0, T0, T0 + 4000)
        group.ack(group.pop([0, 1, 2, 3], T0 + later_ms), 0, 1, 2, 3)
        assert group.kinds() == found


def test_what_is_done_with_all_before_it_does_not_come_again() -> None:
    for acked, at_ms, sure, found in (
        ((0, 1), T0, True, ["seen after ack"]), ((1,), T0, True, []), ((0, 1), T0 + INVISIBLE_MS, True, []),
        ((0, 1), T0, False, []),
    ):  # fmt: skip
        group = Group()
        group.ack(group.pop([0, 1, 2], sure=sure), *acked, at_ms=at_ms)
        again = group.pop([0, 1, 2, 3], T0 + INVISIBLE_MS)
        group.ack(again, 0, 1, 2, 3)
        assert group.kinds() == found


def test_a_pop_that_began_before_the_acknowledgement_may_see_the_message() -> None:
    group = Group()
    number, began = group.pop([0, 1, 2, 3]), group.checker.begins()
    group.ack(number, 0, 1, 2, 3)
    group.pop([0, 1, 2, 3], T0 + INVISIBLE_MS, began=began)
    assert group.kinds() == []
