"""The boards of RocketMQ beside a stock broker: the same load, then the requests of each board to both brokers.

The lists of requests are those that rocketmq-exporter (MetricsCollectTask) and rocketmq-dashboard (its services) send
through MQAdminExt, access rules aside.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from ringmq.remoting.admin_bodies import decode_kv_table
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.json_body import queue_objects, read_object
from tests.conformance import servers
from tests.conformance.servers import Server
from tests.conformance.stock_client import StockClient
from tests.raw_client import RawClient
from tests.staging import TOPIC_FIELDS, make_topic
from tests.waiting import wait_until

KINDS = {"ringmq": "ringmq", "stock": "stock-broker"}
CLUSTER = "DefaultCluster"
TOPIC, GROUP = "Boards", "raw_group"
MESSAGES, SENT_BACK, COMMITTED = 60, 2, 40
BODY = b"x" * 200
BOTH = f"{TOPIC}@{GROUP}"
NUMBERS = {
    ("TOPIC_PUT_NUMS", TOPIC): MESSAGES, ("GROUP_GET_NUMS", BOTH): MESSAGES, ("SNDBCK_PUT_NUMS", BOTH): SENT_BACK,
}  # fmt: skip
SIZES = (("TOPIC_PUT_SIZE", TOPIC), ("GROUP_GET_SIZE", BOTH))
OF_BROKER = (("BROKER_PUT_NUMS", CLUSTER), ("BROKER_GET_NUMS", CLUSTER))
UNKNOWN = (("TOPIC_PUT_NUMS", "Nowhere"), ("GROUP_GET_NUMS", f"{TOPIC}@nobody"), ("NO_SUCH_NAME", TOPIC))


class Board:
    """A server, and the positions and sizes of its messages."""

    def __init__(self, server: Server, client: RawClient) -> None:
        self.server, self._client = server, client
        self.positions: list[int] = []
        self.stored_bytes = 0

    def load(self) -> None:
        """Send, pull, commit and send back, once."""
        if self.positions:
            return
        client = self._client
        make_topic(self.server.broker, TOPIC, 1)
        for number in range(MESSAGES):
            assert client.send(TOPIC, BODY, pairs={"KEYS": f"key{number}"}).code == ResponseCode.SUCCESS
        wait_until(self._has_pulled, "all are pulled")
        commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": COMMITTED}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUCCESS
        for position in self.positions[:SENT_BACK]:
            back = {"offset": position, "group": GROUP, "delayLevel": 1, "originTopic": TOPIC, "unitMode": "false"}
            answer = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {**back, "maxReconsumeTimes": 16})
            assert answer.code == ResponseCode.SUCCESS, answer

    def _has_pulled(self) -> bool:
        answer = self._client.pull(TOPIC, offset=len(self.positions))
        at = 0
        while at < len(answer.body):
            size, position = struct.unpack_from(">i24xq", answer.body, at)
            self.positions.append(position)
            self.stored_bytes += size
            at += size
        return len(self.positions) == MESSAGES

    def ask(self, code: int, **fields: object) -> Any:
        """The answer of the broker."""
        return self._client.ask(code, fields)

    def minute(self, name: str, key: str) -> Mapping[str, float]:
        """The window of a minute. Empty if there is none."""
        answer = self.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        found: Mapping[str, float] = read_object(answer.body, "stats")["statsMinute"] if answer.body else {}
        return found

    def reached(self, name: str, key: str, number: int) -> Mapping[str, float]:
        """The window of a minute, once its sum has reached a number."""
        shown: Mapping[str, float] = {}

        def has_reached() -> bool:
            nonlocal shown
            shown = self.minute(name, key)
            return shown.get("sum", -1) >= number

        wait_until(has_reached, f"{self.server.kind}: {name} {key} reaches {number}", state=lambda: shown)
        return shown

    def send_more(self) -> None:
        """Add a message that is pulled, so that a minute is never empty however long the test takes."""
        assert self._client.send(TOPIC, BODY).code == ResponseCode.SUCCESS
        last = int(self.ask(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0).ext_fields["offset"]) - 1
        wait_until(lambda: self._client.pull(TOPIC, offset=last).code == ResponseCode.SUCCESS, "it is pulled")

    def mqadmin(self, stock_client: StockClient, *command: str) -> list[str]:
        """The lines that a command prints of the group's progress on the topic."""
        printed: str = stock_client.call("mqadmin", self.server.namesrv, command=[*command, "-n", self.server.namesrv])
        return [line for line in printed.splitlines() if TOPIC in line and GROUP in line and "%RETRY%" not in line]

    def stats_all(self, stock_client: StockClient) -> list[str]:
        """The lines of `statsAll` with messages in and out."""
        self.send_more()
        lines = self.mqadmin(stock_client, "statsAll", "-t", TOPIC)
        return [line for line in lines if re.search(r" [1-9]\d* +[1-9]\d* *$", line)]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """A server of each kind."""
    with ExitStack() as stack:
        found = {}
        for name, kind in KINDS.items():
            found[name] = servers.start(kind, tmp_path_factory.mktemp(name))
            stack.callback(found[name].close)
        yield found


@pytest.fixture(scope="module")
def boards(started: dict[str, Server]) -> Iterator[dict[str, Board]]:
    """The servers, both up before the first message."""
    with ExitStack() as stack:
        yield {name: Board(server, stack.enter_context(RawClient(server.broker))) for name, server in started.items()}


@pytest.fixture
def loaded(boards: dict[str, Board]) -> dict[str, Board]:
    """The servers with the load."""
    for board in boards.values():
        board.load()
    return boards


def test_statistics_count_what_was_sent_got_and_sent_back(boards: dict[str, Board]) -> None:
    """The load is short and is looked at at once, so a minute holds all of it. Its rate is its sum over the window."""
    compared = dict.fromkeys(boards, 0)
    for kind, board in boards.items():
        board.load()
        for (name, key), number in [*NUMBERS.items(), *((pair, board.stored_bytes) for pair in SIZES)]:
            shown = board.reached(name, key, number)
            assert shown["sum"] == number, (kind, name)
            assert 9 < shown["sum"] / shown["tps"] < 100, (kind, shown, "a window has 10 s to a minute")
            compared[kind] += 1
        for name, key in OF_BROKER:
            assert board.reached(name, key, MESSAGES)["tps"] > 0
            compared[kind] += 1
        for name, key in UNKNOWN:
            answer = board.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
            assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist"), kind
            compared[kind] += 1
    print(f"statistics compared: {compared}")
    assert compared["ringmq"] == compared["stock"] > 0


def test_the_progress_of_all_groups_is_that_of_stock(loaded: dict[str, Board]) -> None:
    seen: dict[str, Any] = {}
    for kind, board in loaded.items():
        answer = board.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
        body = read_object(answer.body, "ConsumeStatsList")
        groups = {group: found for entry in body["consumeStatsList"] for group, found in entry.items()}
        queues = [
            (entry["brokerOffset"], entry["consumerOffset"])
            for topic in groups[GROUP]
            for queue, entry in queue_objects(topic, "offsetTable").items()
            if queue.topic == TOPIC
        ]
        seen[kind] = queues, sorted(body), body["totalDiff"]
    print(f"queues compared: { {kind: len(found[0]) for kind, found in seen.items()} }")
    assert seen["ringmq"] == seen["stock"]
    assert seen["ringmq"][0] == [(MESSAGES, COMMITTED)]


def requests_of_boards(board: Board) -> Iterator[tuple[str, int, dict[str, object]]]:
    """(board, code, fields) of each request to a broker."""
    group, topic = {"consumerGroup": GROUP}, {"topic": TOPIC}
    statistics = [*NUMBERS, *SIZES, *OF_BROKER, *UNKNOWN]
    both: list[tuple[int, dict[str, object]]] = [
        (RequestCode.GET_TOPIC_STATS_INFO, {**topic}),
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Nowhere"}),
        (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {**topic}),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, {**group}),
        (RequestCode.GET_CONSUME_STATS, {**group, **topic}),
        (RequestCode.GET_CONSUME_STATS, {**group}),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, {**group, "clientId": "nobody", "jstackEnable": "false"}),
        (RequestCode.GET_BROKER_RUNTIME_INFO, {}),
        *((RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key}) for name, key in statistics),
    ]
    yield from (("exporter", code, fields) for code, fields in both)
    yield "exporter", RequestCode.GET_ALL_PRODUCER_INFO, {}
    for number in (0, MESSAGES - 1, MESSAGES, MESSAGES + 9):
        pull = {**group, **topic, "queueId": 0, "queueOffset": number, "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0}
        more = {"suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG"}
        yield "exporter", RequestCode.PULL_MESSAGE, pull | more
    yield from (("dashboard", code, fields) for code, fields in both)
    one_queue = {"readQueueNums": 1, "writeQueueNums": 1}
    found: list[tuple[int, dict[str, object]]] = [
        (RequestCode.GET_BROKER_CONFIG, {}),
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
        (RequestCode.GET_TOPIC_CONFIG, {**topic}),
        (RequestCode.GET_TOPIC_CONFIG, {"topic": "Nowhere"}),
        (RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": GROUP}),
        (RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "nobody"}),
        (RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": GROUP}),
        (RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": GROUP, **topic}),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {"group": GROUP, **topic}),
        (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, {}),
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
        (RequestCode.GET_MAX_OFFSET, {**topic, "queueId": 0}),
        (RequestCode.GET_MIN_OFFSET, {**topic, "queueId": 0}),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, {**topic, "queueId": 0}),
        (RequestCode.QUERY_CONSUMER_OFFSET, {**group, **topic, "queueId": 0}),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**topic, "queueId": 0, "timestamp": 1 << 42}),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": board.positions[0]}),
        (RequestCode.QUERY_MESSAGE, key_query("key1")),
        (RequestCode.QUERY_MESSAGE, key_query("no such key")),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, {**group, "clientId": "nobody", "msgId": "0" * 32, "brokerName": "b"}),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC_FIELDS, **topic, **one_queue}),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {**TOPIC_FIELDS, "topic": "a b", **one_queue},
        ),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Nowhere"}),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "nobody", "cleanOffset": "true"}),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**topic, "group": "nobody", "timestamp": 0, "isForce": "true"}),
    ]
    yield from (("dashboard", code, fields) for code, fields in found)


def key_query(key: str) -> dict[str, object]:
    return {"topic": TOPIC, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 42}


def test_no_board_gets_a_refusal_that_stock_does_not_give(loaded: dict[str, Board]) -> None:
    """An answer of other code is shown with its remark."""
    for board in loaded.values():
        for name, key in [*NUMBERS, *SIZES, *OF_BROKER]:
            board.reached(name, key, 0)
    codes = {
        kind: [(name, int(code), fields, int(board.ask(code, **fields).code)) for name, code, fields in requests]
        for kind, board in loaded.items()
        if (requests := list(requests_of_boards(board)))
    }
    differing = [
        (ours, theirs[3]) for ours, theirs in zip(codes["ringmq"], codes["stock"], strict=True) if ours[3] != theirs[3]
    ]
    counted = {name: sum(row[0] == name for row in codes["ringmq"]) for name in ("exporter", "dashboard")}
    print(f"requests replayed: {counted}")
    assert not differing
    assert min(counted.values()) > 0
    assert ResponseCode.REQUEST_CODE_NOT_SUPPORTED not in {row[3] for row in codes["ringmq"]}


def test_mqadmin_shows_rates_of_topics_and_groups(loaded: dict[str, Board], stock_client: StockClient) -> None:
    """A line of `statsAll` has the lag, two rates, and messages in and out. `brokerConsumeStats` shows the lag, too."""
    rows: dict[str, int] = {}
    for kind, board in loaded.items():
        lines = wait_until(partial(board.stats_all, stock_client), f"{kind}: statsAll shows messages")
        _, group, _, in_rate, out_rate, came_in, went_out = lines[0].split()
        assert group == GROUP and float(in_rate) > 0 and float(out_rate) > 0
        assert int(came_in) > 0 and int(went_out) > 0
        lags = board.mqadmin(stock_client, "brokerConsumeStats", "-b", board.server.broker)
        assert len(lags) == 1, lags
        rows[kind] = len(lines) + len(lags)
    print(f"lines of mqadmin: {rows}")
    assert rows["ringmq"] == rows["stock"] > 0


def test_the_names_of_figures_are_those_of_stock(loaded: dict[str, Board]) -> None:
    names = {
        kind: {
            re.sub("/.*", "", name)
            for name in decode_kv_table(board.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)
            if not re.match(r"ha[A-Z]", name)
        }
        for kind, board in loaded.items()
    }
    print(f"figures of request 28: { {kind: len(found) for kind, found in names.items()} }")
    assert names["stock"] - names["ringmq"] == set()
    assert names["ringmq"]
