"""Rounds of questions (270010) to brokers of the group, for the core of the role. A new round ends the one before.

Only peers that haAllowedNetworks names are asked and heard, because a peer can end a mastership.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.outbound_calls import OutboundCalls, Outcome
from ringmq.ha.control_messages import MessageError
from ringmq.ha.tenure_events import Ask, Event, Peer, PeerSeen, RoundEnded
from ringmq.ha.tenure_messages import PROMISE, SHOW, Group, Question, answer_of, question_body
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.networks import networks
from ringmq.store.tenure_file import Addresses

ROUND_MS = 1000
"""Time of a round. Peers that have not answered count as silent."""


class PeerRounds(Struct):
    """The round under way."""

    group: Group
    live: LiveConfig
    calls: OutboundCalls
    number: int = 0
    waiting: set[str] = field(default_factory=set)
    """Broker ports of peers that have not answered."""
    due_ms: int | None = None
    """End of the round. None: no round is under way."""

    def begin(self, ask: Ask, own: Peer, now_ms: int) -> None:
        """Ask the named peers. `own`: this broker as it shows itself."""
        operation = PROMISE if ask.epoch else SHOW
        body = question_body(Question(operation, ask.epoch, self.group, own))
        self.number, self.due_ms = ask.round, now_ms + ROUND_MS
        self.waiting = {peer for peer in ask.peers if self.is_named(peer.rpartition(":")[0])}
        for address in sorted(self.waiting):
            self.calls.call(address, RemotingCommand.request(RequestCode.HA_TENURE, {}, body), ROUND_MS)

    def is_named(self, host: str) -> bool:
        """True if haAllowedNetworks names this host."""
        return networks(self.live.config.ha_allowed_networks).names(host.strip("[]"))

    def events(self, now_ms: int, end: int) -> Iterator[Event]:
        """Yield the answers since the last call, and the end of the round. `end`: of the own log."""
        for outcome in self.calls.outcomes():
            peer = self._peer_of(outcome)
            if peer is not None:
                yield PeerSeen(peer, self.number)
        if self.due_ms is not None and (not self.waiting or now_ms >= self.due_ms):
            self.due_ms = None
            yield RoundEnded(self.number, end)

    def _peer_of(self, outcome: Outcome) -> Peer | None:
        if outcome.address not in self.waiting:
            return None
        self.waiting.discard(outcome.address)
        if outcome.error is not None or outcome.answer is None:
            return None
        try:
            showing = answer_of(bytes(outcome.answer.body))
        except MessageError:
            return None
        if showing.group != self.group:
            return None
        peer = showing.peer  # under the address at which it has answered
        return replace(peer, addresses=Addresses(outcome.address, peer.addresses.ha))
