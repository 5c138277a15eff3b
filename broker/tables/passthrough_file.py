"""Files of the store that this broker does not read. It passes them on to slaves unchanged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PassthroughFile:
    """The text of delayOffset.json. None without the file."""

    text: str | None = None
