"""Options of the boot tests."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long-log-gb", default=0.2, type=float, help="of the restart with a long log (%(default)s)")
