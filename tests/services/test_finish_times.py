"""Ages of half messages at their commits: C and Python count them alike, in stock's buckets."""

import random

from ringmq.native import lib
from ringmq.services.transactions.finish_times import BOUNDS_S, add_counts, count_commit


def test_c_and_python_choose_the_same_bucket() -> None:
    dice = random.Random(1)
    ages = [bound + more for bound in BOUNDS_S for more in (-1, 0, 1)] + [dice.randrange(10**6) for _ in range(200)]
    for seconds in [0, *ages]:
        words = [0] * 54
        count_commit(words, seconds * 1000 + dice.randrange(1000))
        of_c = [0] * 54
        counts = [0] * lib.RMQ_FINISH_BUCKETS
        counts[lib.rmq_finish_bucket(seconds)] += 1
        add_counts(of_c, counts, seconds)
        assert words == of_c, seconds


def test_a_clock_that_was_set_back_counts_as_no_age() -> None:
    words = [0] * 54
    count_commit(words, -5000)
    assert words[lib.RMQ_TRANSACTIONS_FINISH] == 1 and words[lib.RMQ_TRANSACTIONS_FINISH_SECONDS] == 0


def test_the_words_have_room_for_the_bounds() -> None:
    assert len(BOUNDS_S) + 1 == lib.RMQ_FINISH_BUCKETS
    assert lib.RMQ_TRANSACTIONS_FINISH_SECONDS == lib.RMQ_TRANSACTIONS_FINISH + lib.RMQ_FINISH_BUCKETS
