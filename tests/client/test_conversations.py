"""The SDK's conversations are told answers by hand: no sockets, no threads, no event loop."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import pytest

from ringmq.client.connections.name_servers import NameServers, RouteTable
from ringmq.client.connections.routes import TopicRoute, parse_route
from ringmq.client.consuming.offsets import ConsumeFrom, QueueOffsets, StartRule
from ringmq.client.errors import BrokerError, ConnectError, RingmqError, RouteError
from ringmq.client.runtimes.runtime import Event, Lock
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.route import BrokerData, QueueData, TopicRouteData

T = TypeVar("T")
Answer = dict[str, str] | bytes | RingmqError


def carry(conversation: Coroutine[Any, Any, T]) -> T:
    """The result of a conversation that never has to wait."""
    try:
        conversation.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    conversation.close()
    raise AssertionError("it waits for something that no script answers")


class Script:
    """Answers in the place of a `RemotingClient`, and keeps what was asked."""

    def __init__(self, answer: Callable[[str, int, Mapping[str, str]], Answer]) -> None:
        self._answer = answer
        self.asked: list[tuple[str, str]] = []

    async def call(
        self, address: str, code: RequestCode, ext_fields: Mapping[str, str], timeout_ms: int = 0
    ) -> RemotingCommand:
        """As `RemotingClient.call`."""
        self.asked.append((address, code.name))
        answer = self._answer(address, code, ext_fields)
        if isinstance(answer, RingmqError):
            raise answer
        command = RemotingCommand.request(0)
        command.body, command.ext_fields = (answer, {}) if isinstance(answer, bytes) else (b"", answer)
        return command


ROUTE = TopicRouteData([QueueData("a", 2, 2, 6)], [BrokerData("c", "a", {0: "m:1", 1: "s:1"})]).encode(
    standard_json=True
)


def name_servers(script: Script) -> NameServers:
    return NameServers(script, ["one:1", "two:1"])  # type: ignore[arg-type]


def test_the_next_name_server_is_asked_and_kept() -> None:
    script = Script(lambda address, *_: ConnectError(address, "down") if address == "one:1" else ROUTE)
    servers = name_servers(script)
    for _ in range(2):
        route = carry(servers.fetch_route("T"))
        assert route is not None
        assert len(route.write_queues) == 2
    assert [address for address, _ in script.asked] == ["one:1", "two:1", "two:1"]


def test_that_nobody_knows_a_topic_is_an_answer() -> None:
    script = Script(lambda address, *_: BrokerError(address, 17, "no topic route info"))
    assert carry(name_servers(script).fetch_route("T")) is None
    assert len(script.asked) == 1


@pytest.mark.parametrize(
    ("rule", "committed", "start", "questions"),
    [
        (ConsumeFrom.LAST, None, 50, ["GET_MAX_OFFSET", "QUERY_CONSUMER_OFFSET"]),
        (ConsumeFrom.LAST, 7, 7, ["GET_MAX_OFFSET", "QUERY_CONSUMER_OFFSET"]),
        (ConsumeFrom.FIRST, None, 3, ["GET_MAX_OFFSET", "QUERY_CONSUMER_OFFSET", "GET_MIN_OFFSET"]),
        (ConsumeFrom.TIMESTAMP, None, 9, ["GET_MAX_OFFSET", "QUERY_CONSUMER_OFFSET", "SEARCH_OFFSET_BY_TIMESTAMP"]),
    ],
)
def test_the_start_of_a_queue_is_asked_for_in_order(
    rule: ConsumeFrom, committed: int | None, start: int, questions: list[str]
) -> None:
    offsets = {"GET_MAX_OFFSET": 50, "GET_MIN_OFFSET": 3, "SEARCH_OFFSET_BY_TIMESTAMP": 9}

    def answer(address: str, code: int, fields: Mapping[str, str]) -> Answer:
        name = RequestCode(code).name
        if name == "QUERY_CONSUMER_OFFSET":
            return BrokerError(address, 22, "none") if committed is None else {"offset": str(committed)}
        return {"offset": str(offsets[name])}

    script = Script(answer)
    routes = RouteTable(name_servers(script))
    routes._routes["T"] = _route()
    asking = QueueOffsets(script, routes)  # type: ignore[arg-type]
    found = carry(asking.start("g", MessageQueue("T", "a", 0), StartRule(rule, 1, 2), appeared_late=False))
    assert found == (start, committed)
    assert script.asked == [("m:1", question) for question in questions]


def test_a_topic_without_a_master_may_come_back() -> None:
    routes = RouteTable(name_servers(Script(lambda *_: ROUTE)))
    routes._routes["T"] = _route(masters=False)
    with pytest.raises(RouteError) as caught:
        carry(routes.for_sending("T"))
    assert caught.value.may_pass


def test_what_is_free_is_not_waited_for() -> None:
    async def body() -> list[int]:
        event, lock = Event(), Lock()
        event.set()
        await event.wait()
        async with lock:
            pass
        return [1]

    assert carry(body()) == [1]


def _route(*, masters: bool = True) -> TopicRoute:
    members = {0: "m:1", 1: "s:1"} if masters else {1: "s:1"}
    return parse_route(
        "T", TopicRouteData([QueueData("a", 2, 2, 6)], [BrokerData("c", "a", members)]).encode(standard_json=True)
    )
