"""Rounds of questions (270010) to brokers of the group, for the core of the role. A new round ends the one before.

Only peers that haAllowedNetworks names are asked and heard, because a peer can end a mastership. Name servers may add
brokers to those of the round (901). Others than the named ones are advice, and count in no group: who may register may
invent them. One that does not know the question counts as a broker of stock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.outbound_calls import OutboundCalls, Outcome
from ringmq.broker.replication.group_members import members_of, members_request
from ringmq.ha.control_messages import MessageError
from ringmq.ha.epochs import Position
from ringmq.ha.tenure_events import Ask, Event, Peer, PeerSeen, Release, RoundEnded
from ringmq.ha.tenure_messages import PROMISE, RELEASE, SHOW, Group, Question, answer_of, question_body
from ringmq.ipc.tenure import AS_MASTER, Tenure, TenureState
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.networks import networks
from ringmq.remoting.route import MASTER_ID
from ringmq.store.tenure_file import Addresses

ROUND_MS = 1000
"""Time of a round. Peers that have not answered count as silent."""
ADVICE_STOCK = "broker {} is RocketMQ or an older version: start it with brokerRole=SLAVE and a brokerId above 0"
ADVICE_UNNAMED = "haAllowedNetworks does not name broker {}, which has not been asked: make sure that it is no master"
UNKNOWN_ID = -1
"""brokerId of an older peer that no name server names. No broker has it."""
CALLS_MAX = 2
"""Calls to one address at a time. One that hangs takes no more."""


class PeerRounds(Struct):
    """The round under way."""

    group: Group
    live: LiveConfig
    calls: OutboundCalls
    number: int = 0
    own: str = ""
    """The broker port of this broker."""
    master: str = ""
    """That of the last master."""
    question: bytes = b""
    asked: set[str] = field(default_factory=set)
    """Peers and name servers, host:port each."""
    waiting: set[str] = field(default_factory=set)
    """Those that have not answered."""
    members: dict[str, int] = field(default_factory=dict)
    """Broker port -> brokerId of the brokers that name servers have named."""
    older: set[str] = field(default_factory=set)
    """Peers that do not know the question."""
    stock: set[str] = field(default_factory=set)
    """Masters that do not know the question, in the last round with members."""
    unnamed: set[str] = field(default_factory=set)
    """Members of that round that haAllowedNetworks does not name."""
    due_ms: int | None = None
    """End of the round. None: no round is under way."""
    _open: Counter[str] = field(default_factory=Counter)
    """Address -> calls without an outcome, those of earlier rounds included."""

    def begin(self, ask: Ask, own: Peer, master: str, now_ms: int) -> None:
        """Ask the named peers. `own`: this broker as it shows itself. `master`: the broker port of the last master that
        it knows, "" if it is unknown or this one."""
        operation = PROMISE if ask.epoch else SHOW
        self.question = question_body(Question(operation, ask.epoch, self.group, own))
        self.number, self.due_ms, self.own, self.master = ask.round, now_ms + ROUND_MS, own.addresses.broker, master
        self.asked, self.waiting, self.members, self.older = set(), set(), {}, set()
        for address in ask.peers:
            self._ask_peer(address)
        if ask.uses_name_servers:
            for address in filter(None, self.live.config.namesrv_addr.split(";")):
                self._ask(address, members_request(self.group))

    def release(self, release: Release, own: Peer) -> None:
        """Give promises back. A peer that does not hear it asks each second whether its promise is needed."""
        body = question_body(Question(RELEASE, release.epoch, self.group, own))
        for address in release.peers:
            self._call(address, RemotingCommand.request(RequestCode.HA_TENURE, {}, body))

    def advice(self) -> tuple[str, ...]:
        """Actions that are left to an operator of a promotion, by the last round that has asked name servers."""
        return (
            *(ADVICE_STOCK.format(address) for address in sorted(self.stock)),
            *(ADVICE_UNNAMED.format(address) for address in sorted(self.unnamed)),
        )

    def is_named(self, host: str) -> bool:
        """True if haAllowedNetworks names this host."""
        return networks(self.live.config.ha_allowed_networks).names(host.strip("[]"))

    def events(self, now_ms: int, end: int) -> Iterator[Event]:
        """Yield the answers since the last call, and the end of the round. `end`: of the own log."""
        for outcome in self.calls.outcomes():
            peer = self._peer_of(outcome) if self._is_of_round(outcome.address) else None
            if peer is not None:
                yield PeerSeen(peer, self.number)
        if self.due_ms is not None and (not self.waiting or now_ms >= self.due_ms):
            self.due_ms = None
            self.calls.keep(self.asked | self._open.keys())
            if self.members:
                self.stock = {address for address in self.older if self.members.get(address) == MASTER_ID}
                self.unnamed = {address for address in self.members if not self._is_named_peer(address)}
            for address in sorted(self.older):
                yield PeerSeen(self._older_peer(address), self.number)
            yield RoundEnded(self.number, end, tuple(filter(self._is_named_peer, self.members)))

    def _is_named_peer(self, address: str) -> bool:
        return self.is_named(address.rpartition(":")[0])

    def _ask_peer(self, address: str) -> None:
        if address not in self.asked and address != self.own and self._is_named_peer(address):
            self._ask(address, RemotingCommand.request(RequestCode.HA_TENURE, {}, self.question))

    def _ask(self, address: str, command: RemotingCommand) -> None:
        self.asked.add(address)
        if self._call(address, command):
            self.waiting.add(address)

    def _call(self, address: str, command: RemotingCommand) -> bool:
        if self._open[address] >= CALLS_MAX:
            return False
        self._open[address] += 1
        self.calls.call(address, command, ROUND_MS)
        return True

    def _is_of_round(self, address: str) -> bool:
        """Count an outcome. The calls to one address end in their order, so the last one is that of this round."""
        self._open[address] -= 1
        if self._open[address]:
            return False
        del self._open[address]
        if address not in self.waiting:
            return False
        self.waiting.discard(address)
        return True

    def _peer_of(self, outcome: Outcome) -> Peer | None:
        """The peer of an answer that shows one."""
        answer = outcome.answer
        if answer is not None and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self.older.add(outcome.address)
        if answer is None or outcome.error is not None:
            return None
        if outcome.request_code == RequestCode.GET_BROKER_MEMBER_GROUP:
            self._take_members(bytes(answer.body))
            return None
        try:
            showing = answer_of(bytes(answer.body))
        except MessageError:
            return None
        if showing.group != self.group:
            return None
        peer = showing.peer  # under the address at which it has answered
        return replace(peer, addresses=Addresses(outcome.address, peer.addresses.ha))

    def _take_members(self, body: bytes) -> None:
        """Ask the brokers that a name server adds to those of the round."""
        try:
            found = members_of(body)
        except RemotingError:
            return
        for broker_id, address in found.items():
            if address != self.own:
                self.members[address] = min(broker_id, self.members.get(address, broker_id))
                self._ask_peer(address)

    def _older_peer(self, address: str) -> Peer:
        """A broker that does not know the question. It has no epoch, and its log is not known.

        Without a name server that names it, it has the role in which this broker has known it.
        """
        broker_id = self.members.get(address, UNKNOWN_ID)
        is_master = broker_id == MASTER_ID or (broker_id == UNKNOWN_ID and address == self.master)
        tenure = AS_MASTER if is_master else Tenure(TenureState.SLAVE)
        return Peer(Addresses(address), broker_id, tenure, Position(0, 0), is_stock=True)
