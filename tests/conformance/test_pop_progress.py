"""The progress and the mode of a group that pops, as mqadmin and `ringmq` show them, of both servers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.commands import run_ringmq
from tests.conformance.servers import BROKER_NAME, Server
from tests.conformance.stock_client import StockClient
from tests.pop.pop_client import PopClient, Taken
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("pops")
TOPIC, GROUP, COUNT, HOLD_MS = "PopProgress", "group_PopProgress", 10, 60_000


@pytest.fixture
def client(server: Server) -> Iterator[PopClient]:
    """A member of the group, and a topic of one queue with messages."""
    make_topic(server.broker, TOPIC, 1)
    made = PopClient(server.broker, GROUP, TOPIC, BROKER_NAME)
    for number in range(COUNT):
        assert made.raw.send(TOPIC, b"m%d" % number, 0).code == 0
    made.join("worker-1")
    yield made
    made.close()


def rows(server: Server, *words: str) -> list[dict[str, Any]]:
    """The rows of a command of ours."""
    done = run_ringmq(*words, "--namesrv", server.namesrv, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_tools_of_both_read_the_progress_of_both(
    kind: str, server: Server, stock_client: StockClient, client: PopClient
) -> None:
    taken: list[Taken] = []

    def has_eight() -> bool:
        taken.extend(client.pop(8 - len(taken), HOLD_MS))
        return len(taken) == 8

    wait_until(has_eight, "eight messages are popped")
    for one in taken[1:]:
        assert client.ack(one).code == 0
    wanted = (3, 1) if kind == "ringmq" else (2, 0)  # stock's offset is behind all messages that were given

    def lag() -> tuple[int, int]:
        (row,) = rows(server, "group", "progress", GROUP, "--topic", TOPIC)
        return row["lag"], row["inFlight"]

    wait_until(lambda: lag() == wanted, "the progress is told", state=lag)
    (listed,) = [row for row in rows(server, "group", "list", "--lag") if row["group"] == GROUP]
    (of_topic,) = [row for row in rows(server, "topic", "groups", TOPIC) if row["group"] == GROUP]
    for row in (listed, of_topic):
        assert (row["members"], row["consumeType"], row["lag"], row["inFlight"]) == (1, "CONSUME_POP", *wanted)
        assert row["lagMs"] > 0
    printed: list[str] = []

    def shown() -> list[list[str]]:
        command = f"consumerProgress -g {GROUP} -n {server.namesrv}".split()
        printed[:] = str(stock_client.call("mqadmin", server.namesrv, command=command)).splitlines()
        return [line.split()[:5] for line in printed if line.startswith(f"{TOPIC} ")]

    place = [TOPIC, BROKER_NAME, "0", "10", "0" if kind == "ringmq" else "8"]
    wait_until(lambda: shown() == [place], "mqadmin, which waits 3 s for an answer, shows it", state=lambda: printed)


def test_a_mode_is_set_and_shown_at_both(server: Server, client: PopClient) -> None:
    wait_until(lambda: GROUP in {row["group"] for row in rows(server, "group", "list")}, "the group is there")
    words = ("group", "mode", GROUP, TOPIC)
    (before,) = rows(server, *words)
    assert (before["mode"], before["source"]) == ("PULL", "defaultMessageRequestMode")
    (popping,) = rows(server, *words, "pop", "--share-queues", "3")
    assert (popping["mode"], popping["shareQueues"], popping["source"]) == ("POP", 3, "set")
    assert rows(server, *words) == [popping]
    (pulling,) = rows(server, *words, "pull")
    assert (pulling["mode"], rows(server, *words)) == ("PULL", [pulling])
