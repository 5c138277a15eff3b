"""Slaves that control has refused: log lines, and counts for the metric `ringmq_ha_refused_total`.

The HA worker counts the connections that it refuses in the counters of its own role (native/src/ha/ha_sender.h).
"""

from __future__ import annotations

from msgspec import Struct, field

LINES_MAX = 16
"""Causes with a line between two turns of control. `counts` covers every refusal."""
ADDRESS = "address"
"""The slave sends an address that is not its connection's and that haAllowedNetworks does not allow."""
UNNAMED = "unnamed"
"""The slave's log would hold writes, and haAllowedNetworks does not name its host."""
PROOF = "proof"
"""The slave's log would hold writes, and the slave does not send the records behind the common offset."""
COUNTERS = {ADDRESS: 12, UNNAMED: 13, PROOF: 14}
"""Reason -> its counter in control's role."""


class Refusals(Struct):
    """Counts of refusals, and their log lines since the last `take_lines`."""

    counts: dict[str, int] = field(default_factory=dict)
    lines: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Cause -> the text of its first event since the last `take_lines`, and their number."""

    def add(self, reason: str, slave: str, text: str) -> None:
        """Count a refusal by its reason (ADDRESS, UNNAMED, PROOF) and keep a line."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.say(f"{reason} {slave}", text)

    def say(self, cause: str, text: str) -> None:
        """Keep a line about an action of a peer, one for each cause."""
        if cause in self.lines or len(self.lines) < LINES_MAX:
            first, count = self.lines.get(cause, (text, 0))
            self.lines[cause] = first, count + 1

    def take_lines(self) -> dict[str, tuple[str, int]]:
        """The lines so far. They are removed."""
        taken, self.lines = self.lines, {}
        return taken

    def take_counts(self) -> dict[str, int]:
        """Reason -> refusals since the last call."""
        taken, self.counts = self.counts, {}
        return taken
