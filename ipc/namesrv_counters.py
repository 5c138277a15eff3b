"""The name server's counters in shared memory. The name server of `ringmq serve` writes them, the exporter reads
them.
"""

from __future__ import annotations

REFUSED = 0
"""Requests that the name server has refused because of their sender."""
DISPUTES = 1
"""Registrations of a name and id that a live broker of another host holds."""
LEFT_OUT = 2
"""Registrations, topics and KV entries that exceed a limit."""
