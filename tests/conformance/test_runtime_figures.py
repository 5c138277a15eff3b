"""The figures of request 28 beside those of a stock broker: both get the same load, and the exporter's parser runs."""

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ringmq.remoting.admin_bodies import decode_kv_table
from ringmq.remoting.codes import RequestCode, ResponseCode
from tests.conformance import servers
from tests.conformance.servers import Server
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

KINDS = {"ringmq": "ringmq", "stock": "stock-broker"}
TOPIC, LEVEL = "Figures", 18
MINUTE_S = 180.0
"""Stock shows the times of sends of its last full minute."""
INTEGERS = (
    "msgPutTotalTodayNow", "msgGetTotalTodayNow", "msgPutTotalTodayMorning", "msgGetTotalTodayMorning",
    "msgPutTotalYesterdayMorning", "msgGetTotalYesterdayMorning", "sendThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueSize",
    "pullThreadPoolQueueSize", "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity",
    "queryThreadPoolQueueCapacity", "commitLogMinOffset", "commitLogMaxOffset", "bootTimestamp", "brokerVersion",
    "dispatchMaxBuffer", "pageCacheLockTimeMills", "getMessageEntireTimeMax", "putMessageEntireTimeMax",
    "putMessageTimesTotal", "startAcceptSendRequestTimeStamp", "earliestMessageTimeStamp",
    "remainTransientStoreBufferNumbs", "dispatchBehindBytes", "putMessageSizeTotal",
)  # fmt: skip
"""What rocketmq-exporter reads as whole numbers. It shows none of a broker's figures if one cannot be read."""
NUMBERS = ("consumeQueueDiskRatio", "commitLogDiskRatio", "putMessageAverageSize", "putLatency99", "putLatency999")
RATES = ("putTps", "getMissTps", "getTransferredTps", "getTotalTps", "getFoundTps")


class Loaded:
    """A server with a client. Each look adds to the load, so that the windows of the figures are never empty."""

    def __init__(self, server: Server, client: RawClient) -> None:
        self._server, self._client = server, client
        self.sent = 0

    def look(self) -> dict[str, str]:
        """A send, a pull that finds it, and one that finds nothing; then the figures."""
        assert self._client.send(TOPIC, b"x" * 100).code == ResponseCode.SUCCESS
        self.sent += 1
        wait_until(lambda: self._client.pull(TOPIC, offset=self.sent - 1).code == ResponseCode.SUCCESS, "it is found")
        assert self._client.pull(TOPIC, offset=self.sent).code == ResponseCode.PULL_NOT_FOUND
        return decode_kv_table(self._client.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {}).body)

    def wait(self, name: str, timeout_s: float = 60.0) -> None:
        """Until the first number of a figure is above 0."""
        shown: dict[str, str] = {}

        def is_there() -> bool:
            shown.update(self.look())
            return first_number(shown.get(name, "")) > 0

        wait_until(is_there, f"{name} is measured", timeout_s, state=lambda: shown.get(name, "it is missing"))

    def delay(self) -> None:
        """A message of the highest level, and its row."""
        assert self._client.send(TOPIC, b"later", 1, {"DELAY": str(LEVEL)}).code == ResponseCode.SUCCESS
        row = f"scheduleMessageOffset_{LEVEL}"
        wait_until(lambda: self.look().get(row) == "0,1", "the level has a row", state=self.look)

    def settle(self) -> None:
        """Until all sends so far count, and the figures agree with each other."""
        sent = self.sent
        wait_until(lambda: int(self.look()["putMessageTimesTotal"]) >= sent, "all sends count", state=self.look)
        wait_until(lambda: is_sound(self.look()), "the figures agree with each other", state=self.look)


def is_sound(table: dict[str, str]) -> bool:
    """True if one second's figures are shown: all looks are those that found and those that missed."""
    found, missed, both = (float(table[name].split()[0]) for name in ("getFoundTps", "getMissTps", "getTotalTps"))
    return abs(both - found - missed) < 0.01 and float(table["putLatency99"]) <= float(table["putLatency999"])


def first_number(text: str) -> float:
    """Of rates the first; of the classes of times their sum."""
    classes = re.findall(r"\]:(\d+)", text)
    if classes:
        return sum(map(int, classes))
    return float(text.split()[0]) if text.strip() and text != "null" else 0.0


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Loaded]]:
    """A server of each kind."""
    with ExitStack() as stack:
        found = {}
        for name, kind in KINDS.items():
            server = servers.start(kind, tmp_path_factory.mktemp(name))
            stack.callback(server.close)
            make_topic(server.broker, TOPIC, 2)
            found[name] = Loaded(server, stack.enter_context(RawClient(server.broker)))
        yield found


def test_the_exporter_can_read_all_figures(loaded: dict[str, Loaded]) -> None:
    read = dict.fromkeys(loaded, 0)
    for kind, server in loaded.items():
        for name in RATES:
            server.wait(name)
        table = server.look()
        for name in INTEGERS:
            assert int(table[name]) is not None, name
        for name in NUMBERS:
            assert float(table[name]) >= 0, name
        for name in RATES:
            assert len([float(part) for part in table[name].split()]) in (1, 2, 3), name
        assert re.fullmatch(r"Total : \S+ \S+, Free : \S+ \S+\.", table["commitLogDirCapacity"])
        float(table["remainHowManyDataToFlush"].split(" ")[0])
        read[kind] = len(INTEGERS) + len(NUMBERS) + len(RATES)
    print(f"figures read: {read}")
    assert min(read.values()) > 0


def test_rates_times_and_levels_are_measured_where_stock_measures_them(loaded: dict[str, Loaded]) -> None:
    measured = dict.fromkeys(loaded, 0)
    names: dict[str, list[str]] = {}
    for kind, server in loaded.items():
        server.delay()
        for name in ("getMissTps", "getFoundTps", "getTotalTps"):
            server.wait(name)
            measured[kind] += 1
        server.wait("putMessageDistributeTime", MINUTE_S)
        names[kind] = re.findall(r"\[[^\]]*\]", server.look()["putMessageDistributeTime"])
        measured[kind] += len(names[kind])
        server.settle()
    print(f"figures measured: {measured}")
    assert names["ringmq"] == names["stock"]
    assert measured["ringmq"] == measured["stock"] > 0
