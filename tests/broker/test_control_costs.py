"""Control's cost of a request grows with the entries that it names, never with their square nor with the tables."""

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.identity import Identity
from ringmq.broker.config.relations import changed
from ringmq.broker.core import Broker
from ringmq.broker.requests.request import Request, Slices
from ringmq.broker.tables.loading import load_into, load_state
from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.plane_counts import PlaneCounts
from ringmq.ipc.segment import remove_segments
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import ConsumerData, HeartbeatData
from ringmq.remoting.subscription import build_subscription
from tests.broker.fakes import START_MS, FakeStore, Harness, peer
from tests.operations import operations

LINEAR = 2.3
"""The most that twice as much may cost."""


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """A broker over a real plane: the fake one searches its tables from end to end."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    plane = Plane.create(name, Capacity(), tmp_path.stat(), 1)
    config = changed(BrokerConfig(), {"storePathRootDir": str(tmp_path), "brokerName": "wire-a"})
    recovered: Any = SimpleNamespace(queues={}, append_offset=0)
    load_into(plane, config, recovered)
    store = FakeStore()
    broker = Broker(config, Identity("127.0.0.1", 1, "127.0.0.1", START_MS), plane, store, PlaneCounts(plane))
    broker.prepare(START_MS)
    load_state(tmp_path, config, broker.topics, broker.groups, broker.offsets, START_MS, fresh=False)
    yield Harness(broker, plane, store)  # type: ignore[arg-type]
    remove_segments(name)


def heartbeat(client: str, groups: int, topics: int = 0, producers: int = 0) -> bytes:
    wanted = [build_subscription(f"T{number}", "*") for number in range(topics)]
    consumers = [ConsumerData(f"{client}-G{number}", subscriptions=wanted) for number in range(groups)]
    return HeartbeatData(client, [f"{client}-P{number}" for number in range(producers)], consumers).encode()


def cost_of_heartbeat(harness: Harness, client: int, **sizes: int) -> int:
    body = heartbeat(f"c{client}", **sizes)

    def beat() -> None:
        assert harness.ask(RequestCode.HEART_BEAT, body=body, connection=peer(client)).code == 0

    return operations(beat)


@pytest.mark.parametrize("what", ["groups", "producers"])
def test_a_heartbeat_costs_what_it_names(harness: Harness, what: str) -> None:
    sizes = {"groups": 0, "producers": 0}
    cost_of_heartbeat(harness, 1, **(sizes | {what: 3}))
    once = cost_of_heartbeat(harness, 2, **(sizes | {what: 200}))
    twice = cost_of_heartbeat(harness, 3, **(sizes | {what: 400}))
    again = cost_of_heartbeat(harness, 4, **(sizes | {what: 200}))
    assert twice < LINEAR * once
    assert again < 1.1 * once, "clients that are there already cost nothing"


def test_a_connection_that_ends_costs_what_it_named(harness: Harness) -> None:
    costs = []
    for client, size in enumerate([200, 400, 200]):
        cost_of_heartbeat(harness, client, groups=size, producers=size)
        cost_of_heartbeat(harness, 10 + client, groups=size, producers=size)
        costs.append(operations(partial(harness.broker.on_close, peer(client))))
    assert costs[1] < LINEAR * costs[0]
    assert costs[2] < 1.1 * costs[0]


def test_a_new_topic_costs_what_subscribes_to_it(harness: Harness) -> None:
    def make(name: str) -> int:
        return operations(lambda: harness.make_topic(name, queues=1))

    alone = make("Alone")
    cost_of_heartbeat(harness, 1, groups=20, topics=200)
    for number in range(50):
        harness.broker.offsets.put(f"c1-G{number % 20}", f"Stray{number}", 0, 7, START_MS)
        harness.broker.offsets.set_reset(f"c1-G{number % 20}", "TBW102", number % 8, 7, START_MS, popped=0)
    assert make("Other") < 1.1 * alone, "none of the groups wants it"
    assert make("T7") < alone + 20 * 1000, "each of the 20 groups has one subscription published, not all 200"


def test_questions_about_one_group_or_topic_look_at_no_other_offsets(harness: Harness) -> None:
    harness.make_topic("Asked", queues=1)

    def ask() -> int:
        def both() -> None:
            harness.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "Asked"})
            harness.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "G"})

        return operations(both)

    harness.broker.offsets.put("G", "Asked", 0, 7, START_MS)
    first = ask()
    for number in range(300):
        harness.make_topic(f"Other{number}", queues=1)
        harness.broker.offsets.put(f"Other{number}", f"Other{number}", 0, 7, START_MS)
        harness.broker.offsets.put("Other", f"Stray{number}", 0, 7, START_MS)
    ask()
    assert ask() < 1.1 * first
    assert harness.broker.offsets.topics_of("G") == ["Asked"]
    assert harness.broker.offsets.groups_on("Asked") == ["G"]


@pytest.mark.parametrize("what", ["groups", "topics", "producers"])
def test_no_step_of_a_large_heartbeat_is_long(harness: Harness, what: str) -> None:
    """A turn looks at the clock between steps, so the cost of the largest step bounds the time of a turn."""
    for number in range(0 if what != "topics" else 900):
        harness.make_topic(f"T{number}", queues=1)
    body = heartbeat("c", **{"groups": 1, "topics": 0} | {what: 900})
    begun = harness.handlers.begin(
        Request(RemotingCommand.request(RequestCode.HEART_BEAT, body=body), peer(1), START_MS)
    )
    assert isinstance(begun, Slices)
    steps: list[int] = []
    answers: list[Any] = []

    def one() -> None:
        try:
            next(begun.steps)
        except StopIteration as end:
            answers.append(end.value)

    while not answers:
        steps.append(operations(one))
    assert answers[0].code == 0
    assert len(steps) > 10
    assert max(steps[1:]) < 40_000, "some 1 ms; the first one reads the body"
