"""Topics that services need and control makes: a question to control, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError

Then = Callable[[RequestError | None], None]
"""Called once: with None when the topics are there, else with the refusal."""


class TopicMaker(Protocol):
    """Has control make topics."""

    def make(self, topics: Sequence[TopicConfig], now_ms: int, then: Then) -> None:
        """Ask control for topics that are not there. Topics that are there stay as they are."""
