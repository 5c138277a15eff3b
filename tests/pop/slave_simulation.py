"""The simulation of POP with a slave that is made master at any moment, by its copy of the memory and its own log.

The copy is a snapshot that the master had on disk. The slave's log has at least what the master's had when the copy was
taken, and may lack the rest. A message may come again if it was popped or acknowledged since the moment of the copy.
"""

from __future__ import annotations

from tests.pop.order_simulation import OrderWorld
from tests.pop.simulation import Image

COPY_SHARE, PROMOTION_SHARE = 0.25, 0.05
"""Of the events that no client has asked for."""


class SlaveWorld(OrderWorld):
    """A master with a slave. The promoted slave gets a slave of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.counts |= dict.fromkeys(("copies of the memory", "promotions", "lost records"), 0)
        self.take_copy()

    def act_beside(self, choice: float) -> None:
        """The slave asks, or the master is gone for good."""
        share = self.random.random()
        if share < COPY_SHARE:
            self.take_copy()
        elif share < COPY_SHARE + PROMOTION_SHARE:
            self.promote()
        else:
            super().act_beside(choice)

    def take_copy(self) -> None:
        """The slave gets the snapshot that the master has on disk, and its log reaches to the end of the master's."""
        self.counts["copies of the memory"] += 1
        self.copy: Image = self.disk
        self.copied_end = self.end_of_copy()
        self.copied_table = dict(self.table)

    def end_of_copy(self) -> int:
        """The end up to which the slave's log has to reach before the copy counts."""
        return len(self.log.records)

    def power_cut(self) -> None:
        """The slave follows the log of the master that is back, and gets another copy."""
        super().power_cut()
        self.take_copy()

    def promote(self) -> None:
        """Everything of the master is gone: it is as a power cut to the slave's copy, with the slave's log."""
        self.counts["promotions"] += 1
        before = len(self.log.records)
        self.disk, self.table = self.copy, dict(self.copied_table)
        self.log.flushed = min(self.log.flushed, self.copied_end)
        self.power_cut()
        self.counts["lost records"] += before - len(self.log.records)
