"""A send that a read worker leaves to control, as guests check it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ringmq.ipc.admission import Rule


class ColdSend(Struct, frozen=True):
    """The parts of a send that say what its message is."""

    pairs: Mapping[str, str]
    properties: bytes
    """The pairs as they were sent."""
    is_batch: bool
    rules: Callable[[], Sequence[Rule]]
    """Gives the published rules of admission."""


SendCheck = Callable[[ColdSend], str | None]
"""The check of a guest. None: the message is none of its. Text: the reason why no rule covers the message, empty if one
may."""
