"""A stream over tcp whose broker restarts, moves and gets company under a name server that runs on. Without Spark."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.cli.admin import open_admin
from ringmq.client import Message, Producer
from ringmq.loadtest.stock import free_broker_port, free_port
from ringmq.remoting.config_beans import TopicConfig
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from ringmq.spark_bridge.stream_core import Limits, StreamOffset
from ringmq.spark_bridge.stream_query import StreamQuery
from tests.conformance.servers import RingmqProcess, settings_args
from tests.waiting import until, wait_until

pytestmark = pytest.mark.timeout(400)


class Brokers:
    """A name server, and the brokers under it that run."""

    def __init__(self, home: Path) -> None:
        self._home = home
        port = free_port()
        self.namesrv = f"127.0.0.1:{port}"
        self.running: dict[str, RingmqProcess] = {}
        self._name_server = RingmqProcess(home / "namesrv", "namesrv", "--port", str(port))

    def start(self, name: str) -> None:
        """At a port of its own each time."""
        places = ["--store", str(self._home / name / "store"), "--port", str(free_broker_port())]
        settings = settings_args({"brokerName": name, "brokerIP1": "127.0.0.1", "mappedFileSizeCommitLog": 1 << 20})
        self.running[name] = RingmqProcess(self._home / name, "broker", *places, "--namesrv", self.namesrv, *settings)

    def close(self) -> None:
        for process in (*self.running.values(), self._name_server):
            process.kill()


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    under_one = Brokers(tmp_path)
    yield under_one
    under_one.close()


async def send(namesrv: str, bodies: set[bytes]) -> None:
    async with Producer(namesrv) as producer:
        for body in sorted(bodies):
            await producer.send(Message("Moving", body))


async def create_everywhere(namesrv: str) -> None:
    async with open_admin(namesrv) as admin:
        await admin.create_topic(TopicConfig("Moving", 4, 4), await admin.masters())

        async def is_on_both() -> bool:
            route = await admin.route("Moving")
            return route is not None and len(route.broker_datas) == 2

        await until(is_on_both, "both brokers have the topic")


class TcpStream:
    """What a query reads, batch after batch."""

    def __init__(self, namesrv: str) -> None:
        options = {"bootstrap": namesrv, "transport": "tcp", "subscribe": "Moving", "startingOffsets": "earliest"}
        self._query = StreamQuery(parse_options(options, streaming=True))
        self.place = StreamOffset(self._query.initial_offsets())

    def read(self) -> list[bytes]:
        """The rows of the next batch."""
        end = self._query.next_end(self.place, Limits())
        parts = [] if end is self.place else self._query.slices(self.place, end)
        self.place = end
        batches = (batch for part in parts for batch in read_slice(part, ("value",), ReadSettings(transport="tcp")))
        return [row["value"] for batch in batches for row in batch.to_pylist()]

    def read_all(self, expected: set[bytes]) -> None:
        """Read until all of these rows have come, and no others."""
        rows: list[bytes] = []

        def are_there() -> bool:
            rows.extend(self.read())
            return len(rows) >= len(expected)

        wait_until(are_there, f"{len(expected)} rows come")
        assert sorted(rows) == sorted(expected)


def bodies(name: str) -> set[bytes]:
    return {f"{name} {number}".encode() for number in range(40)}


def test_a_name_server_outlives_the_broker(brokers: Brokers) -> None:
    brokers.start("first")
    asyncio.run(send(brokers.namesrv, bodies("before")))
    stream = TcpStream(brokers.namesrv)
    stream.read_all(bodies("before"))
    place = stream.place
    brokers.running.pop("first").stop()
    assert stream.read() == []
    assert stream.place is place, "its queues keep their offsets"

    brokers.start("first")
    asyncio.run(send(brokers.namesrv, bodies("after")))
    stream.read_all(bodies("after"))

    brokers.start("second")
    asyncio.run(create_everywhere(brokers.namesrv))
    asyncio.run(send(brokers.namesrv, bodies("of both")))
    stream.read_all(bodies("of both"))
    assert {key.broker for key in stream.place.offsets} == {"first", "second"}
