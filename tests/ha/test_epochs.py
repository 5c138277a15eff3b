"""Epochs and the history of a log."""

import itertools

import pytest

from ringmq.ha.epochs import (
    BROKER_ID_MAX,
    TERM_MAX,
    History,
    Position,
    begun,
    broker_of,
    new_epoch,
    position,
)
from ringmq.ipc.tenure import EPOCH_MAX
from ringmq.store.tenure_file import HISTORY_MAX, EpochStart

HISTORY = (EpochStart(65537, 100), EpochStart(131074, 300))


@pytest.mark.parametrize(
    ("seen", "broker_id", "epoch"),
    [
        ((), 0, 65536),
        ((0,), 1, 65537),
        ((65536 + 7, 2 * 65536 + 1, 65536), 3, 3 * 65536 + 3),
        ((), BROKER_ID_MAX, 65536 + BROKER_ID_MAX),
    ],
)
def test_a_new_epoch_is_above_all_that_were_seen(seen: tuple[int, ...], broker_id: int, epoch: int) -> None:
    assert new_epoch(seen, broker_id) == epoch
    assert epoch > max(seen, default=0)
    assert broker_of(epoch) == broker_id


def test_two_brokers_never_make_one_epoch() -> None:
    """Whatever each of them has seen."""
    made = [{new_epoch((seen,), broker) for seen in range(0, 5 * 65536, 4097)} for broker in range(3)]
    for one, other in itertools.combinations(made, 2):
        assert not one & other


def test_a_brokerid_beyond_the_bits_of_an_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match=f"brokerId = 65536 cannot be part of an epoch, at most {BROKER_ID_MAX} can"):
        new_epoch((), BROKER_ID_MAX + 1)


def test_the_last_term_is_the_last_one() -> None:
    last = new_epoch(((TERM_MAX - 1) << 16,), BROKER_ID_MAX)
    assert last == EPOCH_MAX
    with pytest.raises(ValueError, match=f"no promotion can follow term {TERM_MAX}"):
        new_epoch((last,), 1)


@pytest.mark.parametrize(
    ("end", "epoch"), [(0, 0), (100, 0), (101, 65537), (300, 65537), (301, 131074), (1 << 40, 131074)]
)
def test_the_last_byte_says_the_epoch_of_a_position(end: int, epoch: int) -> None:
    assert position(HISTORY, end) == Position(epoch, end)
    assert position((), end) == Position(0, end)


def test_a_newer_epoch_beats_a_longer_log() -> None:
    assert Position(65537, 101) > Position(0, 5000)
    assert Position(65537, 102) > Position(65537, 101)


@pytest.mark.parametrize(
    ("offset", "kept"),
    [(400, HISTORY), (300, HISTORY[:1]), (200, HISTORY[:1]), (100, ()), (0, ())],
)
def test_epochs_that_have_written_nothing_leave_the_history(offset: int, kept: History) -> None:
    assert begun(HISTORY, 196609, offset) == (*kept, EpochStart(196609, offset))


def test_a_history_keeps_its_newest_epochs() -> None:
    history: History = ()
    for term in range(1, HISTORY_MAX + 11):
        history = begun(history, term << 16, term * 10)
    assert len(history) == HISTORY_MAX
    assert history[0] == EpochStart(11 << 16, 110)
    assert position(history, 110) == Position(0, 110)
