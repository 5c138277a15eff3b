"""Cases of POP for operations of the stock client. Cases of a file run side by side: most of their time is waiting."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conformance.stock_client import StockClient

Pop = dict[str, Any]
LOOK_S = 12
"""Beyond the invisible time and stock's rests: a message that would come back has come."""

LONG = "Z" * 60
"""In the names of a topic and its group: together they are longer than 127 bytes."""


@dataclass(frozen=True, eq=False)
class Case:
    """An operation of the stock client. Its topic and its group have a name of their own."""

    operation: str
    name: str
    args: dict[str, Any] = field(default_factory=dict)


def case(operation: str, name: str, **args: Any) -> Case:
    """A case with `args` for its operation."""
    return Case(operation, name, args)


def judged(*cases: Case) -> pytest.MarkDecorator:
    """Run a test for each of `cases`; its fixture `seen` has what the stock client saw."""
    return pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in cases])


def selected(items: Iterable[pytest.Item], path: Any) -> list[Case]:
    """The cases of the tests of a file that this run has selected."""
    found: dict[Case, None] = {}
    for item in items:
        if item.path == path and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            found.update({value: None for value in item.callspec.params.values() if isinstance(value, Case)})
    return list(found)


def start(cases: Sequence[Case], client: StockClient, namesrv: Callable[[Case], str]) -> dict[Case, "Future[Any]"]:
    """Start the operations of all cases, each against the brokers of its name server."""
    return {
        each: client.submit(each.operation, namesrv(each), topic=each.name, group=f"group_{each.name}", **each.args)
        for each in cases
    }


def of_body(pops: Sequence[Pop]) -> dict[str, list[Pop]]:
    """The pops of each message, in order."""
    found: dict[str, list[Pop]] = {}
    for pop in pops:
        found.setdefault(pop["body"], []).append(pop)
    return found


def due(pop: Pop) -> int:
    """The time at which a popped message may be seen again, in ms."""
    return int(pop["receipt"]["popTime"] + pop["receipt"]["invisibleTime"])
