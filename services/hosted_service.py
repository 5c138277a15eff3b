"""The interface of a service of the worker `services`. The constructor of a service gets the objects that it needs by
name.
"""

from __future__ import annotations

from typing import Protocol

from ringmq.broker.requests.request import Answer, Request, Slices


class HostedService(Protocol):
    """One service. No call waits; each takes a few milliseconds at most."""

    name: str
    """The name in log lines."""
    codes: frozenset[int]
    """Request codes that the service answers. The row of `services` in the worker table names them all."""

    def on_request(self, request: Request) -> Answer | Slices:
        """Answer a request, or return `Wait` and answer it later through the outbox. A RequestError becomes an answer.

        The service limits the requests that wait, and drops their bodies. The worker does not count them.
        """

    def turn(self, now_ms: int) -> bool:
        """Do the work that is due. True if more may follow at once."""

    @property
    def has_news(self) -> bool:
        """True if there is work now, so the worker must not sleep."""

    @property
    def is_polling(self) -> bool:
        """True if the service waits for words of the plane that ring no bell. Its next turn is due within
        milliseconds."""

    @property
    def is_idle(self) -> bool:
        """True if nothing is in flight and everything is saved, so the worker may end."""

    def save_if_due(self, now_ms: int) -> None:
        """Write changes to disk if it is time. Raises OSError."""

    def close(self) -> None:
        """Answer the requests that still wait, because the worker stops."""
