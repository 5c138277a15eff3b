"""The counters of the name server's role in shared memory: the name server of `ringmq serve` writes, metrics read."""

from __future__ import annotations

REFUSED = 0
"""Requests refused for their sender."""
DISPUTES = 1
"""Registrations of a name and id that a live broker of another host has."""
LEFT_OUT = 2
"""Registrations, topics and KV entries beyond a bound."""
