"""Looks of guests at a store: a guest's row names a `Look`, which gathers facts and checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.doctor.facts import DiskFacts, Facts
from ringmq.doctor.finding import Finding
from ringmq.ipc.guests import guests
from ringmq.ipc.named_functions import function_of


class Look(NamedTuple):
    """Two functions. What `gather` may not read is unknown, and not checked."""

    gather: Callable[[Path], Any]
    """Facts of the store with this root, while its broker runs or not. Raises OSError and ConfigFileError."""
    check: Callable[[Any, DiskFacts, BrokerConfig], Iterable[Finding]]
    """The findings for these facts."""


def looks() -> Iterator[tuple[str, Look]]:
    """Name of each guest that looks at a store -> its look."""
    for guest in guests():
        if guest.doctor:
            yield guest.name, function_of(guest.doctor)


def check_guests(facts: Facts, config: BrokerConfig) -> Iterator[Finding]:
    """The findings of all guests."""
    for name, look in looks():
        if (gathered := facts.store.of_guests.get(name)) is not None:
            yield from look.check(gathered, facts.disk, config)
