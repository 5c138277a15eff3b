"""A plugin of pytest: long sweeps take a sample of their cases, and all of them with `--thorough`."""

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

import pytest

T = TypeVar("T")


class Sampled(Protocol):
    """`sampled(cases, count)`: so many of the cases in their order, drawn by the run's seed."""

    def __call__(self, cases: Sequence[T], count: int, /) -> list[T]: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("suite").addoption(
        "--thorough", action="store_true", help="all cases of long sweeps, of which a run takes a sample"
    )


@pytest.fixture
def is_thorough(pytestconfig: pytest.Config) -> bool:
    """True if long sweeps take all their cases."""
    return bool(pytestconfig.getoption("--thorough"))


@pytest.fixture
def sampled(is_thorough: bool) -> Sampled:
    """Draws a sample, all cases with `--thorough`."""

    def draw(cases: Sequence[T], count: int, /) -> list[T]:
        return sample_of(cases, len(cases) if is_thorough else count)

    return draw


def sample_of(cases: Sequence[T], count: int) -> list[T]:
    """The first case, the last one and others between them, in their order. `random` is seeded for each test."""
    if count >= len(cases):
        return list(cases)
    between = random.sample(range(1, len(cases) - 1), count - 2)
    return [cases[place] for place in (0, *sorted(between), len(cases) - 1)]
