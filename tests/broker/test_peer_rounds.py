"""Rounds of questions to the brokers of a group, some of which name servers add."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.outbound_calls import Outcome
from ringmq.broker.replication.group_members import members_of
from ringmq.broker.replication.peer_rounds import ADVICE_STOCK, CALLS_MAX, ROUND_MS, UNKNOWN_ID, PeerRounds
from ringmq.ha.epochs import Position
from ringmq.ha.tenure_events import Ask, Event, Peer, PeerSeen, RoundEnded
from ringmq.ha.tenure_messages import Group, Showing, answer_body
from ringmq.ipc.tenure import AS_MASTER, Tenure, TenureState
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import BadBody
from ringmq.store.tenure_file import PEERS_MAX, Addresses
from tests.broker.fakes import make_harness

GROUP = Group("GoldCluster", "wire-a")
OWN, A, B, STRANGER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911", "10.9.9.9:10911"
NS, NS2 = "10.0.0.8:9876", "10.0.0.9:9876"
SELF = Peer(Addresses(OWN), 1, Tenure(TenureState.SLAVE), Position(0, 4096))
SHOWN = Peer(Addresses("b:1", "10.0.0.2:10912"), 2, Tenure(TenureState.MASTER, 7), Position(7, 8192))
BODY = answer_body(Showing(GROUP, SHOWN))


class Round:
    """The rounds of a broker at 10.0.0.1, whose calls the test ends."""

    def __init__(self, networks: str = "10.0.0.0/24", name_servers: str = "") -> None:
        self.asked: list[str] = []
        self.ended: list[Outcome] = []
        self.kept: set[str] = set()
        calls: Any = self
        settings = {"haAllowedNetworks": networks, "namesrvAddr": name_servers}
        self.rounds = PeerRounds(GROUP, make_harness(settings).broker.live, calls)

    def begin(self, *peers: str, number: int = 1, uses_name_servers: bool = False, master: str = "") -> None:
        self.rounds.begin(Ask(number, peers, uses_name_servers=uses_name_servers), SELF, master, 0)

    def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        assert timeout_ms == ROUND_MS
        self.asked.append(address)

    def keep(self, addresses: Collection[str]) -> None:
        self.kept = set(addresses)

    def outcomes(self) -> list[Outcome]:
        ended, self.ended = self.ended, []
        return ended

    def answered(self, address: str, body: bytes = BODY, code: int = 0, request: int = RequestCode.HA_TENURE) -> None:
        answer: Any = SimpleNamespace(code=code, body=body)
        self.ended.append(Outcome(address, f"answered {code}" if code else None, answer, request))

    def members(self, name_server: str, group: bytes) -> None:
        body = b'{"brokerMemberGroup":{"brokerAddrs":{%b},"brokerName":"wire-a","cluster":"GoldCluster"}}' % group
        self.answered(name_server, body, request=RequestCode.GET_BROKER_MEMBER_GROUP)

    def silent(self, address: str) -> None:
        self.ended.append(Outcome(address, "timed out"))

    def events(self, now_ms: int = 1) -> list[Event]:
        return list(self.rounds.events(now_ms, 100))


def test_a_round_ends_with_the_last_answer_or_with_its_time() -> None:
    found = Round()
    found.begin(A, B, STRANGER, OWN)
    assert found.asked == [A, B], "named ones, without this broker"
    found.answered(B)
    [seen] = found.events()
    assert isinstance(seen, PeerSeen) and seen.round == 1
    assert seen.peer.addresses == Addresses(B, SHOWN.addresses.ha), "as it was asked"
    assert found.events(999) == []
    assert found.events(1000) == [RoundEnded(1, 100)]
    found.silent(A)
    assert found.events(1001) == []


def test_a_round_without_peers_ends_at_once() -> None:
    found = Round(networks="")
    found.begin(A)
    assert found.events(0) == [RoundEnded(1, 100)]


@pytest.mark.parametrize("body", [b"", answer_body(Showing(Group("GoldCluster", "wire-b"), SHOWN))])
def test_other_answers_are_no_peers(body: bytes) -> None:
    found = Round()
    found.begin(A)
    found.answered(A, body)
    assert found.events() == [RoundEnded(1, 100)]


def test_an_answer_of_an_earlier_round_does_not_count() -> None:
    found = Round()
    found.begin(A)
    found.begin(A, number=2)
    found.answered(A)
    assert found.events() == [], "that of the first question"
    found.answered(A)
    [seen, ended] = found.events()
    assert isinstance(seen, PeerSeen) and (seen.round, ended) == (2, RoundEnded(2, 100))


def test_a_peer_that_hangs_is_not_asked_more_and_more() -> None:
    found = Round()
    for number in range(5):
        found.begin(A, number=number)
    assert found.asked == [A] * CALLS_MAX
    assert found.events() == [RoundEnded(4, 100)], "nothing to wait for"
    found.silent(A)
    assert found.events() == []
    found.begin(A, number=5)
    assert found.asked == [A] * (CALLS_MAX + 1)


def test_a_round_keeps_its_connections_and_those_with_open_calls() -> None:
    found = Round(name_servers=NS)
    found.begin(A)
    found.begin(B, number=2, uses_name_servers=True)
    found.silent(B)
    found.silent(NS)
    assert found.events() == [RoundEnded(2, 100)] and found.kept == {A, B, NS}
    found.silent(A)
    found.begin(B, number=3)
    found.silent(B)
    assert found.events() == [RoundEnded(3, 100)] and found.kept == {B}


def test_name_servers_add_brokers_of_the_group() -> None:
    found = Round(name_servers=f"{NS};{NS2}")
    found.begin(A, uses_name_servers=True)
    assert found.asked == [A, NS, NS2]
    found.answered(A)
    found.members(NS, b'0:"%b",1:"%b",2:"%b"' % (A.encode(), OWN.encode(), B.encode()))
    [_] = found.events()
    assert found.asked == [A, NS, NS2, B], "each broker once, and not this one"
    found.members(NS2, b'"2":"%b","3":"%b"' % (B.encode(), STRANGER.encode()))
    assert found.events() == [] and found.asked[4:] == [], "the stranger is not named"
    found.answered(B)
    [seen, ended] = found.events()
    assert isinstance(seen, PeerSeen) and seen.peer.addresses.broker == B
    assert ended == RoundEnded(1, 100, (A, B)), "who may register may invent strangers"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"brokerMemberGroup":{"brokerAddrs":{"x":"y"}}}'])
def test_a_name_server_that_answers_junk_adds_nobody(body: bytes) -> None:
    found = Round(name_servers=f"{NS};{NS2}")
    found.begin(uses_name_servers=True)
    found.answered(NS, body, request=RequestCode.GET_BROKER_MEMBER_GROUP)
    found.silent(NS2)
    assert found.events() == [RoundEnded(1, 100)]


def test_name_servers_are_asked_only_on_demand() -> None:
    found = Round(name_servers=NS)
    found.begin(A)
    assert found.asked == [A]


@pytest.mark.parametrize("is_before", [False, True])
@pytest.mark.parametrize("broker_id", [0, 1])
def test_a_broker_that_does_not_know_the_question_counts_as_stock(broker_id: int, is_before: bool) -> None:
    found = Round(name_servers=NS)
    found.begin(A, uses_name_servers=True)
    if is_before:
        found.answered(A, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        assert found.events() == []
    found.members(NS, b'%d:"%b"' % (broker_id, A.encode()))
    if not is_before:
        assert found.events() == []
        found.answered(A, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    events = found.events()
    assert events.pop() == RoundEnded(1, 100, (A,))
    tenure = Tenure(TenureState.SLAVE) if broker_id else AS_MASTER
    assert events == [PeerSeen(Peer(Addresses(A), broker_id, tenure, Position(0, 0), is_stock=True), 1)]
    advice = ADVICE_STOCK.format(A)
    assert found.rounds.advice() == (() if broker_id else (advice,))


def test_an_older_broker_that_no_name_server_names_has_the_role_that_is_known() -> None:
    """A name server that has just started knows nobody."""
    found = Round(name_servers=NS)
    found.begin(A, B, uses_name_servers=True, master=A)
    for address in (A, B):
        found.answered(address, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    found.silent(NS)
    older = [
        Peer(Addresses(address), UNKNOWN_ID, tenure, Position(0, 0), is_stock=True)
        for address, tenure in ((A, AS_MASTER), (B, Tenure(TenureState.SLAVE)))
    ]
    assert found.events() == [*(PeerSeen(peer, 1) for peer in older), RoundEnded(1, 100)]


def test_the_role_at_a_name_server_is_newer_than_the_known_one() -> None:
    found = Round(name_servers=NS)
    found.begin(A, uses_name_servers=True, master=A)
    found.answered(A, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    found.members(NS, b'1:"%b"' % A.encode())
    seen, _ = found.events()
    assert isinstance(seen, PeerSeen) and seen.peer.tenure == Tenure(TenureState.SLAVE)


def test_a_member_that_no_list_names_is_left_to_the_operator() -> None:
    found = Round(name_servers=NS)
    found.begin(uses_name_servers=True)
    found.members(NS, b'0:"%b"' % STRANGER.encode())
    assert found.events() == [RoundEnded(1, 100)]
    [line] = found.rounds.advice()
    assert line.startswith("haAllowedNetworks does not name broker 10.9.9.9:10911, which has not been asked")


def test_members_are_bounded() -> None:
    many = ",".join(f'{number}:"10.0.0.4:{10911 + number}"' for number in range(100))
    found = members_of(b'{"brokerMemberGroup":{"brokerAddrs":{%b}}}' % many.encode())
    assert list(found) == list(range(PEERS_MAX))
    with pytest.raises(BadBody):
        members_of(b'{"brokerMemberGroup":7}')


@pytest.mark.parametrize(
    "address", ["", "host", ":10911", "10.0.0.4:", "10.0.0.4:0", "10.0.0.4:65536", "10.0.0.4:x", "h" * 295 + ":10911"]
)
def test_members_that_are_no_address_are_left_out(address: str) -> None:
    """The tenure file keeps the others for longer than the name server."""
    group = b'{"brokerMemberGroup":{"brokerAddrs":{0:"%b",1:"%b"}}}' % (address.encode(), A.encode())
    assert members_of(group) == {1: A}
