"""The committed offset is the highest one below which everything is acknowledged: checked against a plain model."""

import random

import pytest

from ringmq.client.consuming.ack_window import AckWindow


def test_nothing_delivered_commits_nothing() -> None:
    assert AckWindow(7, 7).take_commit() is None


def test_a_computed_start_is_committed_so_that_a_restart_finds_it() -> None:
    assert AckWindow(7).take_commit() == 7


def test_a_failed_commit_is_given_out_again() -> None:
    window = AckWindow(7)
    assert window.take_commit() == 7
    window.commit_failed()
    assert window.take_commit() == 7


def test_an_open_message_holds_the_commit_back() -> None:
    window = AckWindow(0, 0)
    window.deliver(range(5), 5)
    for offset in (1, 2, 4):
        assert window.ack(offset)
    assert window.take_commit() is None
    assert window.ack(0)
    assert window.take_commit() == 3
    assert window.ack(3)
    assert window.take_commit() == 5
    assert window.take_commit() is None


def test_a_message_that_stays_open_keeps_few_of_those_behind_it_in_memory() -> None:
    window = AckWindow(0)
    window.deliver([0, 1], 2)
    for offset in range(2, 20_000):
        window.deliver([offset], offset + 1)
        assert window.ack(offset)
        assert len(window._delivered) < 2000
    assert window.committable_offset == 0
    assert window.ack(0)
    assert window.committable_offset == 1
    assert window.ack(1)
    assert window.committable_offset == 20_000


def test_filtered_offsets_need_no_acknowledgement() -> None:
    window = AckWindow(0)
    window.deliver([2, 9], 12)
    window.ack(2)
    assert window.take_commit() == 9
    window.ack(9)
    assert window.take_commit() == 12


def test_twice_acknowledged_or_unknown_is_reported() -> None:
    window = AckWindow(0)
    window.deliver([0], 1)
    assert window.ack(0)
    assert not window.ack(0)
    assert not window.ack(5)


def test_seek_forgets_what_was_open_and_may_go_back() -> None:
    window = AckWindow(10)
    window.deliver(range(10, 20), 20)
    window.seek(3)
    assert window.open_count == 0
    assert not window.ack(10)
    assert window.take_commit() == 3


def test_delivery_must_not_go_back() -> None:
    window = AckWindow(10)
    with pytest.raises(AssertionError):
        window.deliver([], 9)


def test_against_a_plain_model() -> None:
    for seed in range(200):
        dice = random.Random(seed)
        window, open_offsets, read_offset = AckWindow(0), set[int](), 0
        for _ in range(60):
            action = dice.random()
            if action < 0.4:
                count = dice.randrange(6)
                offsets = [o for o in range(read_offset, read_offset + count) if dice.random() < 0.7]
                read_offset += count
                window.deliver(offsets, read_offset)
                open_offsets.update(offsets)
            else:
                offset = dice.randrange(read_offset + 2)
                assert window.ack(offset) == (offset in open_offsets), seed
                open_offsets.discard(offset)
            assert window.open_count == len(open_offsets), seed
            assert window.committable_offset == min(open_offsets, default=read_offset), seed
