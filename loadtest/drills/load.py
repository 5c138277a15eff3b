"""The loads of a drill: what each of them sends and reads beside the faults, and its verdict at the end.

A load is one file with a class like `Load`, and one line in `loads.py`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from ringmq.client import Producer
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Checker, Violation
from ringmq.remoting.message import MessageExt

BROKER = "broker-a"
Tasks = list[Coroutine[Any, Any, None]]


@dataclass
class Course:
    """One run of a drill, as its loads see it. The address is that of the present broker."""

    namesrv: str
    address: Callable[[], str]
    is_running: Callable[[], bool]
    timeout_s: float
    """The time after which a message that has not come is lost."""
    checker: Checker = field(default_factory=Checker)
    """The record of the drill's own topic."""
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each acknowledged send to that topic."""
    ends: Counter[int] = field(default_factory=Counter)
    """By queue of that topic: behind the last acknowledged message."""
    faults: int = 0
    """The number of faults so far."""
    final_reads: list[Callable[[int, MessageExt], None]] = field(default_factory=list)
    """Called with the queue and each message that the topic holds at the end."""
    reads: list[Callable[[MessageExt], None]] = field(default_factory=list)
    """Called with each message of that topic that a reader gets while the drill runs."""


class Load(Protocol):
    """One kind of load. Verdicts are asked for in the order of the loads."""

    settings: ClassVar[Mapping[str, object]]
    """Of the broker."""

    def __init__(self, course: Course) -> None: ...

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """Return coroutines that end when the drill's load ends."""

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Read what has to be there at the end, and judge. A message that never comes is a violation."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers for the report, by their words in it."""
