"""Topics that services need and control makes: an ask to control, and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError

Then = Callable[[RequestError | None], None]
"""Callback, called once: with None if the topics exist, else with the refusal."""


class TopicCreator(Protocol):
    """Has control make topics."""

    def create(self, topics: Sequence[TopicConfig], now_ms: int, then: Then) -> None:
        """Ask control for topics that do not exist. Existing topics stay as they are."""
