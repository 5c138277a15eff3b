"""The example service: its core, and its drill in a short form (`make echo-drill` is the long one)."""

from dataclasses import replace
from pathlib import Path

import pytest

from ringmq.remoting.message import MessageExt
from tests.services.echo_drill import POLICIES, Figures, compare, run_drill
from tests.services.echo_service import DELAY_MS, IDLE_MS, Looked, Publish, Sleep, step

SHORT_KILLS = 25


@pytest.mark.parametrize(
    ("stored_ms", "effect"),
    [
        ([], Sleep(IDLE_MS)),
        ([1000], Publish(1)),
        ([1001], Sleep(1)),
        ([999, 1000, 1001], Publish(2)),
        ([1001, 900], Sleep(1)),
        ([900, 1001, 900], Publish(1)),
        ([1900], Sleep(IDLE_MS)),
        ([1_000_000], Sleep(IDLE_MS)),
    ],
)
def test_what_was_stored_a_second_ago_is_due(stored_ms: list[int], effect: Publish | Sleep) -> None:
    assert step(Looked(stored_ms), 1000 + DELAY_MS) == effect


def messages(*numbers: int, later_ms: int = 0, prepared_transaction_offset: int | None = None) -> list[MessageExt]:
    """Records as they are read back; an echo's mark is its number unless it is given."""
    return [
        MessageExt(
            topic="any", body=b"%d" % number, store_timestamp_ms=5000 + number + later_ms,
            prepared_transaction_offset=number if prepared_transaction_offset is None else prepared_transaction_offset,
        )
        for number in numbers
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("echoes", "wrong"),
    [
        (messages(0, 1, 2, 3, later_ms=DELAY_MS), {}),
        (messages(0, 1, 1, 2, 3, later_ms=DELAY_MS), {"duplicates": 1}),
        (messages(0, 1, 3, later_ms=DELAY_MS), {"losses": 1}),
        (messages(0, 2, 1, 3, later_ms=DELAY_MS), {"order_violations": 1}),
        (messages(0, 1, 2, 3, later_ms=DELAY_MS - 1), {"early": 4}),
        (messages(0, 1, 2, 3, 4, later_ms=DELAY_MS), {"wrong_bodies": 1}),
        ([*messages(0, 1, 2, later_ms=DELAY_MS), *messages(7, later_ms=9000, prepared_transaction_offset=3)],
         {"wrong_bodies": 1}),
    ],
)  # fmt: skip
def test_the_drill_counts_what_is_wrong(echoes: list[MessageExt], wrong: dict[str, int]) -> None:
    figures = Figures("any")
    compare(figures, messages(0, 1, 2, 3), echoes)
    assert figures == Figures("any", messages=len(echoes), **wrong)
    assert figures.is_good == (not wrong)


def test_a_drill_without_messages_or_with_lost_sends_fails() -> None:
    good = Figures("any", messages=1)
    assert good.is_good
    assert not Figures("any").is_good
    assert not replace(good, lost_sends=1).is_good
    assert not replace(good, faults=["a stop ended with status 1"]).is_good


@pytest.mark.drill
@pytest.mark.timeout(300)
@pytest.mark.parametrize("policy", POLICIES)
def test_each_record_is_echoed_once_and_in_order_over_kills(tmp_path: Path, policy: str) -> None:
    figures = run_drill(tmp_path, policy, seed=27, kills=SHORT_KILLS)
    assert figures.kills >= SHORT_KILLS and figures.is_good, figures
