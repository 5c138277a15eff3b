"""Cases for operations of the stock client. The cases of all files run side by side: most of their time is waiting."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conformance.stock_client import StockClient

AT_ONCE = 12
"""Operations that run at a time. More of them would starve each other on a slow machine."""
CASE_TIMEOUT_S = 240.0
DEFAULT, ONE_SECOND_LEVELS = "default", "one-second-levels"
"""Servers by name: the shared one, and that of the fixture `one_second_levels`."""


@dataclass(frozen=True, eq=False)
class Case:
    """An operation of the stock client. Its topic and its group have a name of their own.

    `seconds`: it takes so long at least, if that is much.
    """

    operation: str
    name: str
    server: str = DEFAULT
    seconds: float = 0
    args: dict[str, Any] = field(default_factory=dict)


def case(operation: str, name: str, *, server: str = DEFAULT, seconds: float = 0, **args: Any) -> Case:
    """A case with `args` for its operation."""
    return Case(operation, name, server, seconds, args)


def judged(*cases: Case) -> pytest.MarkDecorator:
    """Run a test for each of `cases`; its fixture `seen` has what the stock client saw."""
    return pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in cases])


def selected(items: Iterable[pytest.Item], *, is_pop_served: bool) -> list[Case]:
    """The cases of the tests that this run has selected. Tests with the fixture `pops` need a broker with POP."""
    found: dict[Case, None] = {}
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if is_pop_served or "pops" not in getattr(item, "fixturenames", ()):
            found.update({value: None for value in params.values() if isinstance(value, Case)})
    return list(found)


class RunningCases:
    """Runs cases, those that take longest first. `result` waits for one of them."""

    def __init__(self, cases: Iterable[Case], client: StockClient, namesrvs: Mapping[str, str]) -> None:
        """`namesrvs`: the address of the name server of each server."""
        self._client, self._namesrvs = client, namesrvs
        self._pool = ThreadPoolExecutor(AT_ONCE, "case")
        ordered = sorted(cases, key=lambda each: -each.seconds)
        self._running: dict[Case, Future[Any]] = {each: self._pool.submit(self._run, each) for each in ordered}

    def _run(self, each: Case) -> Any:
        names = {"topic": each.name, "group": f"group_{each.name}"}
        return self._client.call(each.operation, self._namesrvs[each.server], CASE_TIMEOUT_S, **names, **each.args)

    def result(self, each: Case) -> Any:
        """What the stock client saw in a case. Raises what its operation raised."""
        return self._running[each].result()

    def close(self) -> None:
        """Start no further case."""
        self._pool.shutdown(wait=False, cancel_futures=True)
