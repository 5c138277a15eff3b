"""Control's state of replication beside ha's words in the plane: slaves whose log differs, decisions about them, a
slave's master and its link.

A master with an undecided divergence holds its writes, over its own restarts, too (store/write_hold.py). A decision for
the slave's tail (adopt) leaves an order for the store and ends the run. A decision against it (salvage) lets writes go
on, and the slave gets it at its next handshake. Writes also go on if the same slave comes back with a log that fits. No
other peer under the slave's id can end the hold.

Only a slave that haAllowedNetworks names can cause a hold or end one.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from ringmq.broker.replication import refusals
from ringmq.broker.replication.proofs import Proofs
from ringmq.broker.replication.refusals import Refusals
from ringmq.broker.replication.view import HOLD_LONGER_SLAVE, HOLD_NONE, ReplicationView
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.ha.control_messages import STOCK_BROKER_ID, LinkNews, LongerSlave, Master, News, PeerNews
from ringmq.ha.handshake import ACCEPT, ADOPT, CUT, HOLD, REFUSE, SALVAGE, START_AT, PeerClaim, Verdict
from ringmq.ipc.audit import AuditTrail, Kind
from ringmq.remoting.codes import RequestCode, code_name
from ringmq.remoting.ha_bodies import Divergence
from ringmq.store import store_task
from ringmq.store.store_task import StoreTask
from ringmq.store.write_hold import is_same_slave

SlaveKey = tuple[int, str]
"""(broker id, address). Two slaves may have one id by mistake, stock slaves have none (STOCK_BROKER_ID, host)."""
NOBODY = 0
"""Broker id of a divergence with an unknown slave; no slave has this id. The divergence ends when a slave connects."""
NOBODY_KEY: SlaveKey = (NOBODY, "")
DIVERGENCES_MAX = 64
"""Divergences that are listed. Claims come from outside; slaves beyond the limit are held off without an entry."""


class UndecidedError(LookupError):
    """There is nothing to decide for this slave. The message lists the slaves that wait for a decision."""


class Decision(Struct, frozen=True):
    """The decision about a slave whose log ended at `slave_offset`."""

    choice: str
    slave_offset: int


class Replication(Struct):
    """The state of one run. `restart` is the order for the store before the next run."""

    view: ReplicationView
    audit: AuditTrail = field(default_factory=AuditTrail)
    divergences: dict[SlaveKey, Divergence] = field(default_factory=dict)
    decided: dict[SlaveKey, Decision] = field(default_factory=dict)
    master: Master = field(default_factory=lambda: Master(""))
    is_master_registered: bool = False
    link_news: LinkNews | None = None
    restart: StoreTask | None = None
    said: list[str] = field(default_factory=list)
    """Log lines. The code that writes them removes them."""
    refusals: Refusals = field(default_factory=Refusals)
    proofs: Proofs = field(default_factory=Proofs)
    dirty: bool = False
    """True if `divergences` differ from the file."""

    @classmethod
    def over(cls, plane: PlaneProtocol, audit: AuditTrail) -> Replication:
        """The state of the broker with this plane. `audit` gets holds and decisions."""
        return cls(ReplicationView(plane), audit)

    # ---- a master ----

    def yield_(self) -> None:
        """This broker is no master any more. The file keeps the slaves for which writes are held, until a master's log
        streams in."""
        self.divergences, self.decided = {}, {}
        self.dirty = False
        self.view.hold(HOLD_NONE)

    def resume(self, held: Iterable[Divergence] = ()) -> None:
        """Control begins: continue a hold of the previous run or of a dead process."""
        for divergence in held:
            self._differs(divergence)
        self.dirty = False
        marks = self.view.marks()
        if marks.write_hold and not self.divergences:
            end = marks.append_offset
            self._differs(Divergence(*NOBODY_KEY, end, end, end))

    def on_handshake(self, claim: PeerClaim, verdict: Verdict, *, is_named: bool) -> None:
        """Apply the verdict on a slave's log.

        COMPARE asks for more windows, and REFUSE is for foreign slaves and slaves that may not count. Neither changes a
        hold. is_named: haAllowedNetworks names the slave's host. HOLD is for such slaves alone.
        """
        slave = claim.broker_id, claim.broker_addr
        if verdict.kind == HOLD:
            divergence = Divergence(*slave, verdict.offset, self.view.marks().append_offset, claim.max_offset)
            self._differs(divergence)
            if verdict.adopt and claim.broker_addr:
                self._adopt(divergence)
        elif verdict.kind in (ACCEPT, START_AT, CUT):
            self.proofs.forget(claim.broker_addr)
            decision = self._decision(claim)
            if decision is not None and (is_named or decision == slave):
                self.decided[slave] = self.decided.pop(decision)  # it comes back under this address, with another end
            self._fits(slave, has_followed=verdict.kind == ACCEPT, is_named=is_named)

    def prove(self, claim: PeerClaim, verdict: Verdict, now_ms: int) -> Verdict:
        """HOLD for a slave for which writes are held already. Any other slave is refused until it has proved its claim
        (`proofs`). A successful proof holds writes at once."""
        if (claim.broker_id, claim.broker_addr) in self.divergences:
            return verdict
        return Verdict(REFUSE, reason=self.proofs.begin(claim, verdict, self.view.marks().append_offset, now_ms))

    def proof_ended(self, why_not: str, now_ms: int) -> None:
        """Apply the result of a proof. `why_not`: the defect of the records behind the common offset, "" if they are
        valid."""
        claim, verdict = self.proofs.ended(now_ms)
        if why_not:
            text = f"slave {claim.broker_id} ({claim.broker_addr}) is refused, sends go on: it claims a log up to "
            text += f"{claim.max_offset}, which cannot be verified: {why_not}"
            self.refusals.add(refusals.PROOF, claim.broker_addr, text)
            return
        has_gone_on = self.view.marks().append_offset > verdict.offset
        by_operator = self.choices_for(claim).get(claim.broker_id) == ADOPT
        adopts = verdict.adopt and (by_operator or not has_gone_on)  # both have written meanwhile: a person decides
        with self.audit.caused_by(claim.broker_addr, code_name(RequestCode.HA_HANDSHAKE)):
            self.on_handshake(claim, replace(verdict, adopt=adopts), is_named=True)

    def choices_for(self, claim: PeerClaim) -> dict[int, str]:
        """An operator's decision about this slave, by its broker id."""
        found = self._decision(claim)
        return {} if found is None else {claim.broker_id: self.decided[found].choice}

    def _decision(self, claim: PeerClaim) -> SlaveKey | None:
        """The key of the decision in `decided`. It may have another address, if that slave's tail was given up and this
        slave does not wait itself."""
        slave = claim.broker_id, claim.broker_addr
        if slave in self.decided or slave in self.divergences:
            return slave if slave in self.decided else None
        for key, decision in self.decided.items():
            was_it = is_same_slave(*key, *slave) and decision.slave_offset == claim.max_offset
            if was_it and decision.choice == SALVAGE:
                return key
        return None

    def decide(self, broker_id: int, choice: str, address: str = "") -> Divergence:
        """Apply an operator's decision. `address`: the slave's, if several slaves have one id.

        Raises UndecidedError if there is nothing to decide, ValueError for a decision that cannot be applied.
        """
        there = [entry for entry in self.divergences.values() if entry.broker_id == broker_id]
        chosen = [entry for entry in there if address in ("", entry.address)]
        if not chosen:
            waiting = ", ".join(f"{entry.broker_id} ({entry.address})" for entry in self.divergences.values()) or "none"
            asked = f"{broker_id} ({address})" if address else str(broker_id)
            raise UndecidedError(f"slave {asked} waits for no decision; waiting slaves: {waiting}")
        if choice == ADOPT:
            if broker_id == STOCK_BROKER_ID:
                raise ValueError("a stock slave's log cannot be fetched: salvage, or make that broker the master")
            if len(chosen) > 1:
                addresses = ", ".join(entry.address for entry in chosen)
                raise ValueError(f"several slaves have brokerId {broker_id}: name the address of one ({addresses})")
            if not chosen[0].address:
                raise ValueError(f"the address of slave {broker_id} is unknown: wait until it connects, or salvage")
            self._adopt(chosen[0])
        for entry in chosen:
            slave = entry.broker_id, entry.address
            self.decided[slave] = Decision(choice, entry.slave_offset)
            self.audit.add(Kind.HOLD, f"slave {entry.broker_id} ({entry.address})", entry.to_json(), {"choice": choice})
            if choice == SALVAGE:
                del self.divergences[slave]
                self.dirty = True
        self._hold()
        return chosen[0]

    def take_news(self, news: News) -> None:
        """Apply an event of ha."""
        match news:
            case LongerSlave(host=host, offset=offset, append_offset=end):
                decision = self.decided.get((STOCK_BROKER_ID, host))
                if decision is None or decision.choice != SALVAGE:
                    self._differs(Divergence(STOCK_BROKER_ID, host, end, end, offset))
            case PeerNews(host=host, broker_id=broker_id, event="transfer") if broker_id == STOCK_BROKER_ID:
                self._fits((STOCK_BROKER_ID, host), has_followed=True, is_named=news.is_named)
            case LinkNews(event=event):
                self.link_news = news
                self.dirty |= event == "transfer"  # a slave now: its own slaves count no longer

    def _differs(self, divergence: Divergence) -> None:
        slave = divergence.broker_id, divergence.address
        if slave not in self.divergences:
            if len(self.divergences) >= DIVERGENCES_MAX:
                return
            self.said.append(
                f"SENDS ARE REFUSED: slave {divergence.broker_id} ({divergence.address or 'unknown'}) has log up to "
                f"{divergence.slave_offset}, this master up to {divergence.master_offset}, both are equal below "
                f"{divergence.common_offset}; choose with ringmq ha adopt or ringmq ha salvage"
            )
        if divergence.broker_id != NOBODY and self.divergences.pop(NOBODY_KEY, None) is not None:
            self.dirty = True
        self.dirty |= self.divergences.get(slave) != divergence
        self.divergences[slave] = divergence
        self._hold()

    def _fits(self, slave: SlaveKey, *, has_followed: bool, is_named: bool) -> None:
        """The slave's log is a prefix of ours, or will be. The decision ends once it is."""
        if has_followed:
            self.decided.pop(slave, None)
        if not is_named and slave in self.divergences:
            self.refusals.say(
                f"returned {slave[1]}",
                f"slave {slave[0]} ({slave[1]}) has come back with a log that fits, but haAllowedNetworks does not "
                "name it: sends stay refused until ringmq ha salvage",
            )
            return
        if self.divergences.pop(slave, None) is not None:
            self.dirty = True
            self._hold()

    def _adopt(self, divergence: Divergence) -> None:
        self.restart = StoreTask(
            store_task.ADOPT, divergence.common_offset, divergence.slave_offset, divergence.address
        )

    def _hold(self) -> None:
        reason = HOLD_LONGER_SLAVE if self.divergences else HOLD_NONE
        if reason == self.view.marks().write_hold:
            return
        words = {HOLD_NONE: "accepted", HOLD_LONGER_SLAVE: "refused"}
        self.audit.add(Kind.HOLD, "sends", words.get(self.view.marks().write_hold), words[reason])
        self.view.hold(reason)
        if not self.divergences:
            self.said.append("sends are accepted again: no slave's log waits for a decision")
