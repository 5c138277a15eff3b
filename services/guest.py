"""What the worker `services` asks of a guest. A guest takes what it needs by name when it is made."""

from __future__ import annotations

from typing import Protocol

from ringmq.broker.requests.request import Answer, Request, Slices


class Guest(Protocol):
    """One service. Nothing in here waits; each call takes a few milliseconds at most."""

    name: str
    """For log lines."""
    codes: frozenset[int]
    """Request codes that the guest answers; the row of `services` in the worker table names them all."""

    def on_request(self, request: Request) -> Answer | Slices:
        """Answer a request, or `Wait` and answer it later through the outbox. RequestError becomes an answer.

        The guest bounds the requests that wait, and drops their bodies: the worker does not count them.
        """

    def turn(self, now_ms: int) -> bool:
        """Do what there is. True if more may follow at once."""

    @property
    def has_news(self) -> bool:
        """There is something to do now: the worker must not sleep."""

    @property
    def is_polling(self) -> bool:
        """It waits for words of the plane that ring no bell: its next turn is due within milliseconds."""

    @property
    def is_idle(self) -> bool:
        """Nothing is under way and everything is saved: the worker may rest."""

    def save_if_due(self, now_ms: int) -> None:
        """Write what has changed to disk, when its time has come. Raises OSError."""

    def close(self) -> None:
        """The worker stops: answer the requests that still wait."""
