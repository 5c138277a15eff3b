"""Reading routes, the turn of the queues, and the retry rule."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from ringmq.client.connections.name_servers import parse_name_servers
from ringmq.client.connections.routes import QueueChooser, TopicRoute, parse_route, route_from_template
from ringmq.client.errors import BrokerError, ConnectError, RequestTimeoutError, RingmqError, RouteError
from ringmq.client.retry import RetryPolicy, backoff_ms
from ringmq.remoting.errors import BadBody
from ringmq.remoting.message_queue import MessageQueue

ROUTE = b"""{"brokerDatas":[{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"b","cluster":"c"},
{"brokerAddrs":{"1":"h:3"},"brokerName":"a","cluster":"c"}],"filterServerTable":{},
"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":1},
{"brokerName":"a","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1},
{"brokerName":"gone","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}]}"""

BY_DEFAULT = RetryPolicy()
"""With the three seconds of an application, made before the tests' clients get a minute."""


def two_brokers() -> TopicRoute:
    queues = tuple(MessageQueue("T", name, i) for name in "ab" for i in range(2))
    return TopicRoute("T", queues, queues, {"a": {0: "h:1"}, "b": {0: "h:2"}})


def test_write_needs_a_master_and_read_any_member() -> None:
    route = parse_route("T", ROUTE)
    assert route.write_queues == (MessageQueue("T", "b", 0),)
    assert route.read_queues == (
        MessageQueue("T", "a", 0),
        MessageQueue("T", "b", 0),
        MessageQueue("T", "b", 1),
    )
    assert route.master_address("a") is None
    assert route.read_address("a") == "h:3"
    assert route.read_address("b", suggested_id=1) == "h:2"
    assert route.read_address("b", suggested_id=7) == "h:1"
    slaves = TopicRoute("T", (), (), {"b": {3: "h:3", 2: "h:2"}})
    assert slaves.read_address("b") == "h:2", "the first slave where there is no master"
    assert slaves.read_address("b", suggested_id=3) == "h:3"
    assert slaves.read_address("b", suggested_id=1) == "h:2", "the next slave, as RocketMQ's clients"
    assert route.all_addresses() == {"h:1", "h:2", "h:3"}


def test_permissions_count() -> None:
    route = parse_route("T", ROUTE.replace(b'"perm":6', b'"perm":4'))
    assert route.write_queues == ()
    assert len(route.read_queues) == 3


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"queueDatas":[{"perm":[]}]}', b'{"brokerDatas":3}'])
def test_garbled_routes_are_refused(body: bytes) -> None:
    with pytest.raises(BadBody):
        parse_route("T", body)


def test_a_lying_queue_count_is_refused() -> None:
    with pytest.raises(BadBody, match="65536"):
        parse_route("T", ROUTE.replace(b'"writeQueueNums":1', b'"writeQueueNums":2000000000'))


def test_a_new_topic_borrows_the_template_s_first_queues() -> None:
    route = route_from_template("New", two_brokers(), 1)
    assert route.write_queues == (MessageQueue("New", "a", 0), MessageQueue("New", "b", 0))
    assert route.read_queues == ()


def test_queues_take_turns() -> None:
    chooser, route = QueueChooser(5), two_brokers()
    assert set(Counter(chooser.choose(route) for _ in range(40)).values()) == {10}


def test_the_broker_that_failed_is_avoided_unless_it_is_the_only_one() -> None:
    chooser, route = QueueChooser(0), two_brokers()
    assert {chooser.choose(route, "a").broker_name for _ in range(10)} == {"b"}  # type: ignore[union-attr]
    only = TopicRoute("T", (MessageQueue("T", "a", 0),), ())
    assert chooser.choose(only, "a") == MessageQueue("T", "a", 0)
    assert chooser.choose(TopicRoute("T", (), ())) is None


def test_a_lost_broker_is_left_out_as_long_as_another_is_left() -> None:
    chooser, route = QueueChooser(0), two_brokers()
    for avoid, slow in ((None, set()), ("b", set()), (None, {"b"})):
        assert {chooser.choose(route, avoid, slow, {"h:1"}).broker_name for _ in range(10)} == {"b"}  # type: ignore[union-attr]
    assert {chooser.choose(route, "b", lost={"h:1", "h:2"}).broker_name for _ in range(10)} == {"a"}  # type: ignore[union-attr]


def test_lost_addresses_cost_a_send_nothing() -> None:
    """A route is looked through once per change; addresses that are not of it are never missing."""

    class Counted(dict[str, dict[int, str]]):
        looks = 0

        def get(self, *found: Any) -> Any:
            self.looks += 1
            return super().get(*found)

    addresses = Counted({"a": {0: "h:1"}, "b": {0: "h:2"}})
    chooser, route = QueueChooser(0), replace(two_brokers(), addresses=addresses)
    for lost, missing in ((frozenset({"gone:1"}), set()), (frozenset({"gone:1", "h:1"}), {"h:1"})):
        addresses.looks = 0
        for _ in range(100):
            chooser.choose(route, lost=lost)
        assert addresses.looks <= len(route.write_queues)
        assert chooser.missing == missing
    chooser.choose(route)
    assert not chooser.missing


@pytest.mark.parametrize(
    ("error", "attempts", "elapsed_ms", "again"),
    [
        (BrokerError("h:1", 2, None), 1, 10, True),
        (BrokerError("h:1", 2, None), 3, 10, False),
        (BrokerError("h:1", 13, None), 1, 10, False),
        (BrokerError("h:1", 1500, None), 1, 10, True),
        (RequestTimeoutError("h:1", 100), 1, 10, True),
        (RequestTimeoutError("h:1", 100), 1, 3000, False),
        (ConnectError("h:1", "reset", sent=True), 3, 10, False),
        (ConnectError("h:1", "refused"), 3, 2999, True),
        (ConnectError("h:1", "refused"), 0, 3000, False),
        (RouteError("none"), 0, 0, False),
        (RouteError("none now", may_pass=True), 3, 2999, True),
        (RouteError("none now", may_pass=True), 0, 3000, False),
    ],
)
def test_retry_rule(error: RingmqError, attempts: int, elapsed_ms: float, again: bool) -> None:
    assert BY_DEFAULT.may_retry(error, attempts, elapsed_ms) is again


def test_backoff_doubles_up_to_its_bound() -> None:
    assert [backoff_ms(n, 0.0) for n in (0, 1, 2, 3, 50)] == [0.0, 20.0, 40.0, 80.0, 3000.0]
    assert backoff_ms(2, 0.999) > 20.0


def test_policy_bounds_are_named() -> None:
    with pytest.raises(ValueError, match="attempts"):
        RetryPolicy(attempts=0)


def test_name_server_addresses() -> None:
    assert parse_name_servers("h:1; [::1]:2 ;") == ("h:1", "[::1]:2")
    for bad in ("", "host", "host:", "host:0", ":9876", "host:99999"):
        with pytest.raises(ValueError, match=r"name server|host:port"):
            parse_name_servers(bad)
