"""Tokens of requests in flight, and completions that no request has."""

from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.ipc.invariant import InvariantError
from ringmq.native import lib
from ringmq.services.kit.arena import ArenaSlots
from ringmq.services.kit.flight import AGAIN, IN_THE_LOG, RIDER, Flight, Result
from ringmq.services.kit.shared_port import TOKENS_MAX


def completion(token: int, code: int = 0, cause: int = 0, *, size: int = 10) -> Any:
    """Of a record at offset 100 of the log."""
    return SimpleNamespace(token=token, code=code, cause=cause, queue_offset=5, commit_log_offset=100, bytes=size)


def test_tokens_begin_again_and_a_batch_has_them_in_one_row() -> None:
    flight = Flight[str](ArenaSlots(10, 3))
    flight.first_token, flight._following = TOKENS_MAX, TOKENS_MAX - 3
    assert flight.submitted(["a", "b"], 10) == 2 * TOKENS_MAX - 3
    assert flight.submitted(["c", "d"], 20) == TOKENS_MAX
    flight.completed(completion(TOKENS_MAX + 1))
    assert list(flight.results) == [Result("d", 0, 0, 5, 100, 110)]
    assert flight.items == 4, "its owner has not taken the result"
    flight.results.clear()
    assert flight.items == 3


def test_a_completion_without_a_request_is_a_broken_invariant() -> None:
    flight = Flight[str](ArenaSlots(10, 1))
    flight.submitted(["a"], 10)
    flight.completed(completion(0))
    with pytest.raises(InvariantError, match="a completion has the token of a request in flight"):
        flight.completed(completion(0))


def test_a_record_whose_fsync_has_failed_is_not_acknowledged() -> None:
    flight = Flight[str](ArenaSlots(10, 2))
    flight.submitted(["late"], 10)
    flight.submitted(["lost"], 10)
    flight.completed(completion(0, 10, lib.RMQ_CAUSE_FLUSH_TIMEOUT))
    flight.completed(completion(1, 14, lib.RMQ_FAULT_FSYNC))
    assert [(result.is_stored, result.code in IN_THE_LOG) for result in flight.results] == [(True, True), (True, False)]


def test_a_chain_of_which_one_fsync_has_failed_is_not_stored() -> None:
    flight = Flight[str](ArenaSlots(10, 1))
    flight.submitted_tied([("a", 0), ("b", RIDER)], 2, 10)
    flight.completed(completion(0))
    flight.completed(completion(1, 14, lib.RMQ_FAULT_FSYNC))
    assert [(result.what, result.is_stored, result.code) for result in flight.results] == [
        ("a", False, 14),
        ("b", False, 14),
    ]


@pytest.mark.parametrize(
    ("cause", "at_fault", "codes"),
    [
        (lib.RMQ_CAUSE_QUEUE_SLOT, 0, [1, AGAIN, AGAIN]),
        (lib.RMQ_CAUSE_QUEUE_SLOT, 2, [1, 1, 1]),
        (lib.RMQ_CAUSE_HELD, 0, [1, 1, 1]),
    ],
)
def test_of_a_refused_chain_the_others_go_again_if_an_item_is_at_fault(
    cause: int, at_fault: int, codes: list[int]
) -> None:
    """The third request is no item's, the third item has no request."""
    flight = Flight[str](ArenaSlots(10, 1))
    flight.submitted_tied([("a", 0), ("b", 1), ("c", RIDER)], 3, 10)
    for number in range(3):
        of = cause if number == at_fault else lib.RMQ_CAUSE_CHAIN_REFUSED
        flight.completed(completion(number, 1, of, size=0))
    results = list(flight.results)
    flight.results.clear()
    assert [(result.what, result.code) for result in results] == list(zip("abc", codes, strict=True))
    assert {result.cause for result in results} == {cause} and not flight.items
