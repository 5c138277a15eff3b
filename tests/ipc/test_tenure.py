"""The word that says which side of its group a broker is on."""

from types import SimpleNamespace

import pytest

from ringmq.ipc.tenure import EPOCH_MAX, STATE_BITS, Tenure, TenureState, follows_master, is_master
from ringmq.native import ffi, lib

STATES = {
    TenureState.SLAVE: lib.RMQ_TENURE_SLAVE,
    TenureState.TAKING: lib.RMQ_TENURE_TAKING,
    TenureState.MASTER: lib.RMQ_TENURE_MASTER,
    TenureState.YIELDING: lib.RMQ_TENURE_YIELDING,
}
UNKNOWN_STATES = [0, 5, 255]
"""None, the number behind the last one, all bits."""


def test_both_languages_number_the_states_alike() -> None:
    assert {int(state): number for state, number in STATES.items()} == {number: number for number in (1, 2, 3, 4)}
    assert set(STATES) == set(TenureState)
    assert STATE_BITS == lib.RMQ_TENURE_STATE_BITS


@pytest.mark.parametrize("epoch", [0, 1, 255, 256, EPOCH_MAX])
@pytest.mark.parametrize("state", TenureState)
def test_a_word_is_its_epoch_and_its_state(state: TenureState, epoch: int) -> None:
    word = Tenure(state, epoch).word
    assert word == epoch * 256 + state
    assert Tenure.of(word) == Tenure(state, epoch)


@pytest.mark.parametrize("epoch", [-1, EPOCH_MAX + 1])
def test_an_epoch_that_the_word_cannot_hold_is_refused(epoch: int) -> None:
    with pytest.raises(ValueError, match=rf"epoch {epoch} is outside 0\.\.{EPOCH_MAX}"):
        _ = Tenure(TenureState.MASTER, epoch).word


@pytest.mark.parametrize("state", UNKNOWN_STATES)
def test_a_word_without_a_known_state_is_no_tenure(state: int) -> None:
    with pytest.raises(ValueError, match="not a valid TenureState"):
        Tenure.of(7 << STATE_BITS | state)


@pytest.mark.parametrize("epoch", [0, EPOCH_MAX])
@pytest.mark.parametrize("state", [*TenureState, *UNKNOWN_STATES])
def test_both_languages_name_the_same_side(state: int, epoch: int) -> None:
    """Also of words that no broker publishes: such a broker is on neither side."""
    page = ffi.new("struct rmq_watermarks *")
    page.tenure = epoch << STATE_BITS | state
    marks = SimpleNamespace(tenure=int(page.tenure))
    assert is_master(marks) == bool(lib.rmq_is_master(page)) == (state == TenureState.MASTER)
    followed = state in (TenureState.SLAVE, TenureState.TAKING)
    assert follows_master(marks) == bool(lib.rmq_follows_master(page)) == followed
    if state not in UNKNOWN_STATES:
        assert Tenure.of(marks.tenure).follows_master == followed


def test_the_word_has_a_line_of_the_page_for_itself() -> None:
    """Readers outside of the broker know its place."""
    assert ffi.offsetof("struct rmq_watermarks", "tenure") == 768
    assert ffi.offsetof("struct rmq_watermarks", "rest") == 768 + 64
    assert ffi.sizeof("struct rmq_watermarks") == 4096
