"""The published 5.x clients through RocketMQ's proxy: counts with RingMQ's broker are those with RocketMQ's."""

from pathlib import Path

import pytest

from tests.proxy.stand import CLIENTS, Counts, counts_of

pytestmark = [pytest.mark.proxy, pytest.mark.timeout(2400)]
TABLES = Path(__file__).parents[2] / "build" / "proxy"
ZERO = frozenset(
    [
        *(("simple consumer", "again"), ("topic without a type", "again"), ("orderly push consumer", "out of order")),
        *(("orderly simple consumer", "beside an open one"), ("delay", "early"), ("long polls", "without a message")),
    ]
)
"""Counts of what must not happen. All others count what must happen."""


def named(counts: Counts) -> dict[tuple[str, str], int]:
    """The counts by case and name."""
    return {(case, name): count for case, of in counts.items() for name, count in of.items()}


def write_table(client: str, stock: dict[tuple[str, str], int], ours: dict[tuple[str, str], int]) -> None:
    """Write the counts side by side into build/proxy."""
    lines = [f"| {client} | Count | RocketMQ | RingMQ |", "|---|---|---|---|"]
    for case, name in {**stock, **ours}:
        lines.append(f"| {case} | {name} | {stock.get((case, name), '-')} | {ours.get((case, name), '-')} |")
    TABLES.mkdir(parents=True, exist_ok=True)
    (TABLES / f"{client.replace(' ', '-')}.md").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("client", CLIENTS)
def test_counts_are_those_with_stock_brokers(client: str, tmp_path: Path) -> None:
    stock, ours = (named(counts_of(kind, client, tmp_path / kind)) for kind in ("stock", "ringmq"))
    write_table(client, stock, ours)
    assert ours == stock
    assert {key for key, count in ours.items() if count == 0} == ZERO
