"""Samples of long sweeps (`samples.py`)."""

import random

import pytest

from tests.suite.samples import Sampled, sample_of


@pytest.mark.parametrize("count", [2, 3, 9, 10])
def test_a_sample_has_both_ends_and_keeps_the_order(count: int) -> None:
    drawn = sample_of("abcdefghij", count)
    assert (len(drawn), drawn[0], drawn[-1]) == (count, "a", "j")
    assert drawn == sorted(set(drawn))


def test_a_seed_draws_the_same_and_another_one_differs() -> None:
    def with_seed(seed: int) -> list[int]:
        random.seed(seed)
        return sample_of(range(1000), 20)

    assert with_seed(7) == with_seed(7) != with_seed(8)


def test_a_thorough_run_takes_all(sampled: Sampled, is_thorough: bool) -> None:
    assert len(sampled(range(100), 5)) == (100 if is_thorough else 5)
