"""Slaves that control has refused: log lines, and counts for the metric `ringmq_ha_refused_total`.

The HA worker counts the connections that it refuses in the counters of its own role (native/src/ha_sender.h).
"""

from __future__ import annotations

from dataclasses import dataclass, field

LINES_MAX = 16
"""Lines between two turns of control. The counts cover every refusal."""
ADDRESS = "address"
"""The slave sends an address that is not its connection's and that haAllowedNetworks does not allow."""
UNNAMED = "unnamed"
"""The slave's log would hold writes, and haAllowedNetworks does not name its host."""
PROOF = "proof"
"""The slave's log would hold writes, and the slave does not send the records behind the common offset."""
COUNTERS = {ADDRESS: 12, UNNAMED: 13, PROOF: 14}
"""Reason -> its counter in control's role."""


@dataclass(slots=True)
class Refusals:
    """Counts of refusals, and their log lines since the last `take_lines`."""

    counts: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def add(self, reason: str, text: str) -> None:
        """Count a refusal by its reason (ADDRESS, UNNAMED, PROOF) and keep a line."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.say(text)

    def say(self, text: str) -> None:
        """Keep a line about an action of a peer."""
        if len(self.lines) < LINES_MAX:
            self.lines.append(text)

    def take_lines(self) -> list[str]:
        """The lines so far. They are removed."""
        taken, self.lines = self.lines, []
        return taken

    def take_counts(self) -> dict[str, int]:
        """Reason -> refusals since the last call."""
        taken, self.counts = self.counts, {}
        return taken
