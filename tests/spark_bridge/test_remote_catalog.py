"""The catalog of brokers over a fake cluster: brokers that come and go, and their own topics."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from ringmq.client import ConnectError, MessageQueue
from ringmq.client.cluster import StoreFolder
from ringmq.spark_bridge import persistent_cluster
from ringmq.spark_bridge.bootstrap_catalog import REGISTERED_EVERY_S, BootstrapCatalog
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_spans
from ringmq.spark_bridge.remote_catalog import RemoteCatalog
from ringmq.spark_bridge.slices import QueueKey, QueueSpan
from ringmq.spark_bridge.stream_core import Limits, StreamOffset
from ringmq.spark_bridge.stream_query import StreamQuery
from tests.spark_bridge.fake_catalog import FakeCatalog

A, B = QueueKey("T", "a", 0), QueueKey("T", "b", 0)
OWN_TOPICS = ("TBW102", "SCHEDULE_TOPIC_XXXX", "the-cluster")


@dataclass
class ClusterState:
    """State of name server and brokers: `registered` brokers, and `routes` of those whose queues are found."""

    ends: dict[QueueKey, int]
    registered: dict[str, str] = field(default_factory=dict)
    routes: set[str] = field(default_factory=set)
    joins_in_between: str = ""
    is_broken: bool = False
    opened: int = 0

    def set_brokers(self, *names: str) -> None:
        self.routes = set(names)
        self.registered = {name: f"{name}:10911" for name in names}


class FakeCluster:
    """Stands for `ringmq.client.blocking.Cluster`."""

    state: ClassVar[ClusterState]

    def __init__(self, bootstrap: str) -> None:
        self._is_open = False

    def start(self) -> None:
        self._is_open = True
        self.state.opened += 1

    def close(self) -> None:
        self._is_open = False

    def brokers(self) -> dict[str, str]:
        assert self._is_open
        if self.state.is_broken:
            self.state.is_broken = False
            raise ConnectError("n:9876", "closed")
        return dict(self.state.registered)

    def topics(self) -> list[str]:
        return sorted({key.topic for key in self.state.ends})

    def system_topics(self, address: str) -> set[str]:
        return set(OWN_TOPICS)

    def bounds(self, topics: Iterable[str]) -> dict[MessageQueue, tuple[int, int]]:
        chosen = set(topics)
        found = {
            MessageQueue(*key): (0, end)
            for key, end in self.state.ends.items()
            if key.topic in chosen and key.broker in self.state.routes
        }
        if back := self.state.joins_in_between:
            self.state.registered[back] = f"{back}:10911"
        return found

    def store_folder(self, address: str) -> StoreFolder | None:
        return None


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> ClusterState:
    FakeCluster.state = ClusterState({A: 10, B: 20})
    FakeCluster.state.set_brokers("a")
    monkeypatch.setattr(persistent_cluster, "Cluster", FakeCluster)
    return FakeCluster.state


def catalog(**options: str) -> RemoteCatalog:
    return RemoteCatalog(parse_options({"bootstrap": "n:9876", "transport": "tcp", **options}))


def stream(catalog: RemoteCatalog) -> StreamQuery:
    return StreamQuery(parse_options({"bootstrap": "n:9876", "transport": "tcp"}, streaming=True), catalog)


def test_a_broker_that_joins_is_read(state: ClusterState) -> None:
    query = stream(catalog())
    place = query.next_end(StreamOffset({A: 0}), Limits())
    assert place.offsets == {A: 10}
    state.set_brokers("a", "b")
    end = query.next_end(place, Limits())
    assert end.offsets == {A: 10, B: 20}
    (part,) = query.slices(place, end)
    assert part.broker.address == "b:10911"
    assert part.spans == (QueueSpan(B, 0, 20),)


def test_a_broker_back_under_another_address_is_asked_there(state: ClusterState) -> None:
    looking = catalog()
    looking.queues()
    state.registered["a"] = "elsewhere:10911"
    looking.ends()
    assert [place.address for place in looking.brokers()] == ["elsewhere:10911"]


def test_rows_of_a_broker_that_nobody_knows_are_not_passed_over(state: ClusterState) -> None:
    looking = catalog()
    looking.queues()
    with pytest.raises(ReadError, match="brokers b are no longer registered"):
        plan_spans(looking, [QueueSpan(A, 0, 5), QueueSpan(B, 0, 5)], parse_options({"bootstrap": "n:9876"}))


@pytest.mark.parametrize("moment", ["gone", "back in mid-look"])
def test_queues_of_a_broker_that_is_away_keep_their_place(state: ClusterState, moment: str) -> None:
    query = stream(catalog())
    place = query.next_end(StreamOffset({A: 0}), Limits())
    state.set_brokers()
    if moment == "back in mid-look":
        state.joins_in_between = "a"
    assert query.next_end(place, Limits()) is place
    state.joins_in_between = ""
    state.set_brokers("a")
    state.ends[A] = 15
    assert query.next_end(place, Limits()).offsets == {A: 15}


def test_system_topics_are_left_out_however_topics_are_chosen(state: ClusterState) -> None:
    topics = ("T", "%RETRY%g", *OWN_TOPICS)
    state.ends = {QueueKey(topic, "a", 0): 5 for topic in topics}
    subscribed, assigned = ",".join(topics), str({topic: ["a:0"] for topic in topics}).replace("'", '"')
    for choice in ({}, {"subscribe": subscribed}, {"subscribePattern": ".*"}, {"assign": assigned}):
        assert {key.topic for key in catalog(**choice).queues()} == {"T"}, choice
        everything = catalog(includeSystemTopics="true", **choice)
        assert {key.topic for key in everything.queues()} == set(topics), choice


def test_looks_share_their_connections(state: ClusterState) -> None:
    looking = catalog()
    for _ in range(5):
        looking.ends()
    assert state.opened == 1
    state.is_broken = True
    assert looking.ends() == {A: 10}, "asked again over new ones"
    assert state.opened == 2


def test_the_files_of_the_only_broker_are_read_as_long_as_it_is_the_only_one(state: ClusterState) -> None:
    files = FakeCatalog({A: (0, 99)})
    now = [0.0]
    chosen = BootstrapCatalog(files, "a", catalog(), lambda: now[0])
    now[0] += REGISTERED_EVERY_S
    assert chosen.queues() == [A]
    assert chosen.bounds(A) == (0, 99), "of the files"
    state.set_brokers("a", "b")
    assert chosen.queues() == [A], "not asked at each look"
    now[0] += REGISTERED_EVERY_S
    assert chosen.queues() == [A, B]
    assert [place.name for place in chosen.brokers()] == ["a", "b"]
    assert chosen.bounds(A) == (0, 10)


def test_the_files_are_read_on_when_no_name_server_answers(
    state: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(cluster: FakeCluster) -> dict[str, str]:
        raise ConnectError("n:9876", "closed")

    now = [0.0]
    chosen = BootstrapCatalog(FakeCatalog({A: (0, 99)}), "a", catalog(), lambda: now[0])
    monkeypatch.setattr(FakeCluster, "brokers", refuse)
    now[0] += REGISTERED_EVERY_S
    assert chosen.queues() == [A]
    assert chosen.bounds(A) == (0, 99)
