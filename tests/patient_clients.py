"""Clients of the SDK whose default times are a minute instead of some seconds.

A process that gets no CPU for some seconds is no silent server. A test whose subject is a time-out sets its own.
"""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from ringmq.client.connections import heartbeat
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming import send_backs
from ringmq.client.errors import RingmqError
from ringmq.client.producing import transactions
from ringmq.client.retry import RetryPolicy
from ringmq.client.settings import ConnectionSettings

PATIENT_MS = 60_000


class OneTry(RetryPolicy):
    """A send ends with its first failure, however long that takes."""

    def may_retry(self, error: RingmqError, attempts_done: int, elapsed_ms: float) -> bool:
        """Never."""
        return False


FUNCTIONS: tuple[tuple[Callable[..., Any], tuple[str, ...]], ...] = (
    (RetryPolicy.__init__, ("budget_ms",)),
    (ConnectionSettings.__init__, ("connect_timeout_ms", "request_timeout_ms")),
    (RemotingClient.invoke, ("timeout_ms",)),
    (RemotingClient.call, ("timeout_ms",)),
)
CONSTANTS = (
    (heartbeat, "HEARTBEAT_TIMEOUT_MS"),
    (send_backs, "SEND_BACK_TIMEOUT_MS"),
    (transactions, "END_TIMEOUT_MS"),
)


@pytest.fixture(autouse=True)
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client of a test has the long defaults."""
    for function, names in FUNCTIONS:
        parameters = inspect.signature(function).parameters.values()
        defaults = {one.name: one.default for one in parameters if one.default is not one.empty}
        assert defaults.keys() >= set(names)
        patient = tuple((defaults | dict.fromkeys(names, PATIENT_MS)).values())
        monkeypatch.setattr(function, "__defaults__", patient)
    for module, name in CONSTANTS:
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, PATIENT_MS)
