"""The listed mqadmin commands print, line by line and column by column, what they print against stock."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.admin_script import STEPS, render, run, sections
from tests.conformance.conftest import stage
from tests.conformance.servers import Server
from tests.conformance.stock_client import StockClient

RECORDED = Path(__file__).with_name("recorded") / "mqadmin-stock-5.3.3.txt"
WRITTEN = Path(__file__).parents[2] / "build" / "conformance"
KEYS = [f"{number} {step.command}" for number, step in enumerate(STEPS, 1)]
ORIGIN = """\
# What mqadmin 5.3.3 prints against a stock 5.3.3 name server and broker (Java 17, Linux), masked, blanks squeezed.
# Made by tests/conformance/admin_script.py: pytest tests/conformance --judge-stock-only --record-stock
"""


@pytest.fixture(scope="module")
def printed(
    kind: str, stock_client: StockClient, started: Callable[..., Server], request: pytest.FixtureRequest
) -> dict[str, list[str]]:
    """All steps on a fresh server of the kind; kept under build/, or as the recording."""
    server = started(kind, "mqadmin")
    with stage(f"all mqadmin commands ({kind})"):
        text = render(run(stock_client, server))
    WRITTEN.mkdir(parents=True, exist_ok=True)
    (WRITTEN / f"mqadmin-{kind}.txt").write_text(text)
    if kind == "stock" and request.config.getoption("--record-stock", default=False):
        RECORDED.write_text(ORIGIN + text)
    return sections(text)


@pytest.mark.parametrize("key", KEYS)
def test_command_prints_what_it_prints_against_stock(key: str, printed: dict[str, list[str]]) -> None:
    assert printed[key] == sections(RECORDED.read_text())[key]
