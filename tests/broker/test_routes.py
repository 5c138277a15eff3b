"""Routes of topics for assignments: the schedule of requests to name servers, waiting requests, and their limits."""

import random
from typing import Any

import pytest

from ringmq.broker.assignment import routes as module
from ringmq.broker.assignment.routes import (
    ABSENT_MS,
    HOST_WAITING_MAX,
    IDLE_MS,
    SERVERS_PAUSE_MS,
    WAIT_MAX_MS,
    WAITING_MAX,
    RouteAsk,
    TopicRoutes,
)
from ringmq.broker.assignment.topic_queues import TopicQueues
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.requests.request import Connection, Request
from ringmq.remoting.command import RemotingCommand
from tests.broker.fakes import FakePlane

INTERVAL = 30_000


def routes_of(servers: str = "a:1;b:2", **properties: Any) -> TopicRoutes:
    config = changed(BrokerConfig(), {"namesrvAddr": servers, **properties})
    return TopicRoutes(LiveConfig(config, FakePlane().watermarks))


def request(now_ms: int = 0, host: str = "10.0.0.1", number: int = 1) -> Request:
    return Request(RemotingCommand.request(400), Connection(0, 1, number, 1, host, 4000 + number), now_ms)


def queues(topic: str, count: int = 4, brokers: int = 1) -> TopicQueues:
    return TopicQueues(topic, [(f"b{number}", count) for number in range(brokers)])


def learn(routes: TopicRoutes, topic: str, now_ms: int = 0, found: TopicQueues | None = None) -> None:
    """A first request for the topic, and a name server's answer."""
    one = request(now_ms)
    assert routes.wait(one, topic)
    ask = routes.due(now_ms)
    assert ask is not None and ask.topic == topic
    routes.found(queues(topic) if found is None else found, now_ms)
    assert routes.take_settled(now_ms) == [one]


def test_the_first_request_waits_for_the_answer_of_a_name_server() -> None:
    routes = routes_of()
    assert routes.get("T", 0) is None and routes.due(0) is None
    first, second = request(), request(number=2)
    assert routes.wait(first, "T") and routes.wait(second, "T")
    ask = routes.due(0)
    assert ask == RouteAsk("a:1", "T")
    command = ask.command()
    assert (command.code, command.ext_fields) == (105, {"topic": "T", "acceptStandardJsonOnly": "true"})
    assert routes.due(0) is None, "one request at a time, and one for both"
    assert routes.take_settled(5) == []
    routes.found(queues("T"), 6)
    assert routes.take_settled(7) == [first, second]
    assert (first.is_again, first.now_ms, routes.waiting) == (True, 7, 0)
    assert routes.get("T", 8) == queues("T")


def test_known_routes_are_asked_for_again_at_every_interval() -> None:
    routes = routes_of()
    learn(routes, "T")
    learn(routes, "U")
    asked: list[tuple[int, str]] = []
    for now_ms in range(0, 3 * INTERVAL, 500):
        for topic in ("T", "U"):
            routes.get(topic, now_ms)
        while (ask := routes.due(now_ms)) is not None:
            asked.append((now_ms, ask.topic))
            routes.found(queues(ask.topic, 4 + len(asked)), now_ms)
    assert [topic for _, topic in asked] == ["T", "U"] * 2
    times = [now_ms for now_ms, _ in asked]
    assert times == [INTERVAL, INTERVAL, 2 * INTERVAL, 2 * INTERVAL]
    assert routes.get("U", now_ms) == queues("U", 8)


def test_the_interval_is_live() -> None:
    config = changed(BrokerConfig(), {"namesrvAddr": "a:1", "loadBalancePollNameServerInterval": "5000"})
    live = LiveConfig(config, FakePlane().watermarks)
    routes = TopicRoutes(live)
    learn(routes, "T")
    live.config = changed(live.config, {"loadBalancePollNameServerInterval": "1000"})
    assert routes.due(4999) is None
    assert routes.due(5000) is not None, "the round that was planned"
    routes.found(queues("T"), 5000)
    assert routes.due(6000) is not None


def test_a_topic_without_a_route_is_answered_and_not_asked_for_again_for_a_second() -> None:
    routes = routes_of()
    one = request()
    assert routes.wait(one, "T") and routes.due(0)
    routes.absent(10)
    assert routes.take_settled(10) == [one]
    assert not routes.wait(request(10 + ABSENT_MS - 1), "T")
    assert routes.wait(request(10 + ABSENT_MS), "T")
    assert len(routes) == 0


def test_a_route_without_readable_queues_is_known_and_looked_at_again() -> None:
    routes = routes_of()
    learn(routes, "T", 0, TopicQueues("T", []))
    found = routes.get("T", 1)
    assert found is not None and not len(found)
    assert not routes.wait(request(1), "T")
    assert routes.wait(request(ABSENT_MS), "T")


@pytest.mark.parametrize(("topic", "stays"), [("T", False), ("%RETRY%G", True)])
def test_a_deleted_topic_loses_its_route(topic: str, stays: bool) -> None:
    routes = routes_of()
    learn(routes, topic)
    assert routes.due(INTERVAL) == RouteAsk("a:1", topic)
    routes.absent(INTERVAL)
    assert (routes.get(topic, INTERVAL) is not None) == stays


def test_an_unusable_answer_leaves_the_known_route() -> None:
    routes = routes_of()
    learn(routes, "T")
    assert routes.due(INTERVAL)
    routes.unusable(INTERVAL)
    assert routes.get("T", INTERVAL) == queues("T")
    one = request(INTERVAL)
    assert routes.wait(one, "Odd") and routes.due(INTERVAL)
    routes.unusable(INTERVAL)
    assert routes.take_settled(INTERVAL) == [one]


# ---- name servers that do not answer ----


def test_the_next_name_server_is_asked_when_one_does_not_answer() -> None:
    routes = routes_of()
    one = request()
    assert routes.wait(one, "T")
    assert routes.due(0) == RouteAsk("a:1", "T")
    routes.failed(1000)
    assert routes.take_settled(1000) == []
    assert routes.due(1000) == RouteAsk("b:2", "T")
    routes.found(queues("T"), 1001)
    assert routes.take_settled(1001) == [one]
    assert routes.due(INTERVAL) == RouteAsk("b:2", "T"), "the one that answers stays"


def test_nothing_is_asked_for_a_while_once_all_have_failed() -> None:
    routes = routes_of()
    learn(routes, "T")
    one = request(INTERVAL)
    assert routes.wait(one, "U")
    for server in ("a:1", "b:2"):
        ask = routes.due(INTERVAL)
        assert ask is not None and ask.address == server
        routes.failed(INTERVAL)
    assert routes.take_settled(INTERVAL) == [one]
    assert routes.due(INTERVAL) is None and not routes.wait(request(INTERVAL), "U")
    assert routes.get("T", INTERVAL) == queues("T"), "known routes stay"
    after = INTERVAL + SERVERS_PAUSE_MS
    assert routes.wait(request(after), "U") and routes.due(after) is not None


def test_a_request_waits_no_longer_than_its_client() -> None:
    routes = routes_of()
    early, late = request(0), request(WAIT_MAX_MS - 1, number=2)
    assert routes.wait(early, "T") and routes.wait(late, "T") and routes.due(0)
    assert routes.take_settled(WAIT_MAX_MS - 1) == []
    assert routes.take_settled(WAIT_MAX_MS) == [early]
    routes.found(queues("T"), WAIT_MAX_MS)
    assert routes.take_settled(WAIT_MAX_MS) == [late]


def test_a_broker_without_name_servers_never_waits() -> None:
    routes = routes_of("")
    assert not routes.wait(request(), "T")
    assert routes.due(0) is None and routes.get("T", 0) is None


# ---- limits ----


def test_the_topic_that_was_not_asked_for_longest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUTES_MAX", 3)
    routes = routes_of()
    for topic in "abc":
        learn(routes, topic)
    routes.get("a", 1)
    learn(routes, "d", 2)
    assert [topic for topic in "abcd" if routes.get(topic, 3)] == ["a", "c", "d"]


def test_brokers_of_all_routes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUTE_BROKERS_MAX", 10)
    routes = routes_of()
    learn(routes, "a", 0, queues("a", 1, 4))
    learn(routes, "b", 0, queues("b", 1, 4))
    learn(routes, "c", 0, queues("c", 1, 4))
    assert [topic for topic in "abc" if routes.get(topic, 1)] == ["b", "c"]
    learn(routes, "huge", 2, queues("huge", 1, 50))
    assert [topic for topic in ("b", "c", "huge") if routes.get(topic, 3)] == ["huge"], "one route always has room"
    learn(routes, "d", 4, queues("d", 1, 10))
    assert [topic for topic in ("huge", "d") if routes.get(topic, 5)] == ["d"]


def test_topics_without_a_route_replace_no_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUTES_MAX", 2)
    monkeypatch.setattr(module, "ABSENT_MAX", 2)
    routes = routes_of()
    learn(routes, "known")
    for number in range(20):
        assert routes.wait(request(), f"none{number}") and routes.due(0)
        routes.absent(0)
    assert routes.get("known", 1) == queues("known")
    assert len(routes._absent) == 2


def test_a_topic_that_nobody_asks_for_is_forgotten() -> None:
    routes = routes_of()
    learn(routes, "T")
    learn(routes, "Used")
    now_ms = 0
    while now_ms < IDLE_MS + INTERVAL:
        now_ms += INTERVAL
        routes.get("Used", now_ms)
        while (ask := routes.due(now_ms)) is not None:
            routes.found(queues(ask.topic), now_ms)
    assert routes.get("T", now_ms) is None and routes.get("Used", now_ms) is not None


def test_waiting_requests_are_bounded_and_leave_room_for_other_hosts() -> None:
    routes = routes_of()
    accepted = [routes.wait(request(number=number), f"t{number}") for number in range(WAITING_MAX)]
    assert sum(accepted) == HOST_WAITING_MAX == routes.waiting
    assert routes.wait(request(host="10.0.0.2"), "T")
    others = [routes.wait(request(host=f"10.0.1.{number % 200}", number=number), "T") for number in range(WAITING_MAX)]
    assert sum(others) == WAITING_MAX - HOST_WAITING_MAX - 1
    routes.release_all()
    assert len(routes.take_settled(0)) == WAITING_MAX
    assert routes.waiting == 0 and routes.wait(request(), "T")


def test_requests_of_a_closed_connection_are_dropped() -> None:
    routes = routes_of()
    gone, stays = request(), request(number=2)
    assert routes.wait(gone, "T") and routes.wait(stays, "T") and routes.wait(gone, "U")
    routes.drop(gone.connection)
    assert routes.waiting == 1 and routes.due(0) == RouteAsk("a:1", "T")
    routes.found(queues("T"), 0)
    assert routes.take_settled(0) == [stays]
    assert routes.due(0) is None, "nobody waits for the other topic"


def test_first_requests_do_not_hold_up_the_round() -> None:
    routes = routes_of()
    learn(routes, "T")
    for number in range(10):
        assert routes.wait(request(INTERVAL), f"new{number}")
    seen = []
    while (ask := routes.due(INTERVAL)) is not None:
        seen.append(ask.topic)
        routes.absent(INTERVAL) if ask.topic != "T" else routes.found(queues("T"), INTERVAL)
    assert "T" in seen[:2] and len(seen) == 11


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_events_keeps_the_counts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUTES_MAX", 5)
    monkeypatch.setattr(module, "ROUTE_BROKERS_MAX", 12)
    dice, routes, now_ms = random.Random(seed), routes_of(), 0
    ask: RouteAsk | None = None
    waiting: list[Request] = []
    for _ in range(3000):
        now_ms += dice.randrange(0, 400)
        match dice.randrange(6):
            case 0 | 1:
                topic = f"t{dice.randrange(12)}"
                one = request(now_ms, f"10.0.0.{dice.randrange(3)}", dice.randrange(5))
                if routes.get(topic, now_ms) is None and routes.wait(one, topic):
                    waiting.append(one)
            case 2 if ask is None:
                ask = routes.due(now_ms)
            case 3 if waiting:
                gone = dice.choice(waiting).connection
                routes.drop(gone)
                waiting = [each for each in waiting if each.connection != gone]
            case _ if ask is not None:
                end = dice.choice(("found", "found", "absent", "unusable", "failed"))
                if end == "found":
                    routes.found(queues(ask.topic, 2, dice.randrange(5)), now_ms)
                else:
                    getattr(routes, end)(now_ms)
                ask = None
        settled = {id(each) for each in routes.take_settled(now_ms)}
        waiting = [each for each in waiting if id(each) not in settled]
        assert all(now_ms - each.now_ms < WAIT_MAX_MS for each in waiting)
        assert routes.waiting == len(waiting)
        assert len(routes) <= 5
        assert routes._brokers == sum(len(known.queues.broker_names) for known in routes._known.values())
        assert routes._brokers <= 12
    routes.release_all()
    assert len(routes.take_settled(now_ms)) == len(waiting)
    assert not routes._first and not routes._shares._of_host
