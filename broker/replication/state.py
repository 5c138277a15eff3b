"""What control knows of replication beside what ha shows in the plane: slaves whose log differs, what was decided about
them, a slave's master and its link.

A master with an undecided divergence holds its writes. A decision for the slave's tail (adopt) leaves an order for the
store and ends the run; one against it (salvage) is told to the slave at its next handshake, and lets writes go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringmq.broker.replication.view import HOLD_LONGER_SLAVE, HOLD_NONE, ReplicationView
from ringmq.broker.tables.ports import PlanePort
from ringmq.ha.handshake import ACCEPT, ADOPT, COMPARE, HOLD, SALVAGE, PeerClaim, Verdict
from ringmq.ha.orders import STOCK_BROKER_ID, LinkNews, LongerSlave, Master, News, PeerNews
from ringmq.remoting.ha_bodies import Divergence
from ringmq.store import store_order
from ringmq.store.store_order import StoreOrder


class UndecidedError(LookupError):
    """There is nothing to decide for this slave; the message says what there is."""


@dataclass(slots=True)
class Replication:
    """State of a run. `restart` is what is to be done to the store before the next one."""

    view: ReplicationView
    divergences: dict[int, Divergence] = field(default_factory=dict)
    decided: dict[int, str] = field(default_factory=dict)
    master: Master = field(default_factory=lambda: Master(""))
    is_master_registered: bool = False
    link_news: LinkNews | None = None
    restart: StoreOrder | None = None
    said: list[str] = field(default_factory=list)
    """Lines for the operator; who writes them takes them out."""

    @classmethod
    def over(cls, plane: PlanePort) -> Replication:
        """Of the broker whose plane this is."""
        return cls(ReplicationView(plane))

    # ---- a master ----

    def judged(self, claim: PeerClaim, verdict: Verdict) -> None:
        """A slave was compared with our log."""
        broker_id = claim.broker_id
        if verdict.kind == HOLD:
            self.divergences[broker_id] = Divergence(
                broker_id, claim.broker_addr, verdict.offset, self.view.marks().append_offset, claim.max_offset
            )
            if verdict.adopt:
                self._adopt(self.divergences[broker_id])
        elif verdict.kind != COMPARE:  # that one asks for more windows, and says nothing yet
            self.divergences.pop(broker_id, None)
            if verdict.kind == ACCEPT:
                self.decided.pop(broker_id, None)
        self._hold()

    def decide(self, broker_id: int, choice: str) -> Divergence:
        """An operator has chosen. Raises UndecidedError when there is nothing to choose, ValueError for a choice that
        cannot be carried out."""
        divergence = self.divergences.get(broker_id)
        if divergence is None and choice == SALVAGE and not self.divergences and self.view.marks().write_hold:
            # held by a control process that died since: the slave has not come back to be judged anew
            end = self.view.marks().append_offset
            divergence = self.divergences[broker_id] = Divergence(broker_id, "", end, end, end)
        if divergence is None:
            there = ", ".join(map(str, sorted(self.divergences))) or "none"
            raise UndecidedError(f"the log of slave {broker_id} waits for no decision (those that do: {there})")
        if choice == ADOPT:
            if broker_id == STOCK_BROKER_ID:
                raise ValueError("a stock slave's log cannot be fetched: salvage, or make that broker the master")
            self._adopt(divergence)
        else:
            del self.divergences[broker_id]
        self.decided[broker_id] = choice
        self._hold()
        return divergence

    def take_news(self, news: News) -> None:
        """Something that ha says."""
        match news:
            case LongerSlave():
                if self.decided.get(STOCK_BROKER_ID) != SALVAGE:
                    self.divergences[STOCK_BROKER_ID] = Divergence(
                        STOCK_BROKER_ID, news.host, news.append_offset, news.append_offset, news.offset
                    )
                    self._hold()
            case PeerNews(broker_id=broker_id, event="transfer") if broker_id == STOCK_BROKER_ID:
                waiting = self.divergences.get(STOCK_BROKER_ID)
                if waiting is None or waiting.address == news.host:  # it has come back with a log that fits
                    self.divergences.pop(STOCK_BROKER_ID, None)
                    self.decided.pop(STOCK_BROKER_ID, None)
                    self._hold()
            case LinkNews():
                self.link_news = news

    def _adopt(self, divergence: Divergence) -> None:
        self.restart = StoreOrder(
            store_order.ADOPT, divergence.common_offset, divergence.slave_offset, divergence.address
        )

    def _hold(self) -> None:
        reason = HOLD_LONGER_SLAVE if self.divergences else HOLD_NONE
        if reason == self.view.marks().write_hold:
            return
        self.view.hold(reason)
        if not self.divergences:
            self.said.append("sends are taken again: no slave's log waits for a decision")
        for entry in self.divergences.values():
            self.said.append(
                f"SENDS ARE REFUSED: slave {entry.broker_id} ({entry.address}) has log up to {entry.slave_offset}, "
                f"this master up to {entry.master_offset}, both the same below {entry.common_offset}; choose with "
                "ringmq ha adopt or ringmq ha salvage"
            )
