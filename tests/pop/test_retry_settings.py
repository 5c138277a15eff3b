"""Settings of retries at a whole broker: the grace of a late acknowledgement, both forms of topics, dead letters."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.bench.stored import change_settings
from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.revival_words import Gauge, RevivalWord
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient
from tests.pop.pop_words import word
from tests.pop.test_pop_broker import committed, found, send
from tests.raw_client import RawClient
from tests.services.test_send_back_processes import make_group
from tests.staging import bodies_of, make_topic, messages_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
GRACE_MS, HOUR_MS = 1500, 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("settings") / "store", SMALL) as broker:
        yield broker
        assert broker.stop() == 0


def test_a_copy_waits_for_the_grace(broker: RunningBroker) -> None:
    """Nothing is written for what is acknowledged meanwhile."""
    make_topic(broker.address, "T_grace", 1)
    send(broker.address, "T_grace", [b"late", b"never"], 1)
    change_settings(broker.port, {"ringmqPopReviveGraceMs": str(GRACE_MS)})
    client = PopClient(broker.address, "G_grace", "T_grace")
    late = found(client, invisible_ms=1)
    began = time.monotonic()
    never = found(client, invisible_ms=1)
    assert client.ack(late).code == 0
    again = found(client)
    assert time.monotonic() - began >= GRACE_MS / 1000
    assert (again.body, again.message.reconsume_times) == (b"never", 1)
    assert bodies_of(broker.address, client.real_topic(again), 1) == [b"never"]
    change_settings(broker.port, {"ringmqPopReviveGraceMs": "0"})
    assert client.ack(never).code == client.ack(again).code == 0


def test_topics_of_the_second_form(tmp_path: Path) -> None:
    """A message stays in the form in which it came again first. Both survive a death of all."""
    store = tmp_path / "store"
    with RunningBroker(store, SMALL) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", [b"first"], 1)
        client = PopClient(broker.address, "G", "T")
        found(client, invisible_ms=1)
        first = found(client, invisible_ms=HOUR_MS)
        assert (first.body, first.flag) == (b"first", 1)
        change_settings(broker.port, {"enableRetryTopicV2": "true"})
        send(broker.address, "T", [b"second"], 1)
        found(client, invisible_ms=1)
        second = found(client, invisible_ms=HOUR_MS)
        assert (second.body, second.flag) == (b"second", 2)
        broker.kill_all()
    with RunningBroker(store, {**SMALL, "enableRetryTopicV2": True}) as broker:
        client = PopClient(broker.address, "G", "T")
        assert client.change(first, 1).code == client.change(second, 1).code == 0
        came = sorted((one.body, one.flag, one.message.reconsume_times) for one in (found(client), found(client)))
        assert came == [(b"first", 1, 2), (b"second", 2, 2)]
        for topic in ("%RETRY%G_T", "%RETRY%G+T"):
            assert len(messages_of(broker.address, topic, 1)) == 2, "it stays in the topic"
        assert broker.stop() == 0


def test_dead_letters_of_the_second_form(broker: RunningBroker) -> None:
    """A message that is acknowledged in time is none. A late word for a dead letter changes nothing."""
    change_settings(broker.port, {"enableRetryTopicV2": "true", "ringmqPopDeadLetter": "true"})
    make_topic(broker.address, "T_dead", 1)
    send(broker.address, "T_dead", [b"dead"], 1)
    with RawClient(broker.address) as raw:
        make_group(raw, "G_dead", times=2)
    client = PopClient(broker.address, "G_dead", "T_dead")
    dead = word(broker, RevivalWord.DEAD)
    came = [found(client, invisible_ms=1) for _ in range(3)]
    assert [(one.message.reconsume_times, one.flag) for one in came] == [(0, 0), (1, 2), (2, 2)]
    wait_until(lambda: word(broker, RevivalWord.DEAD) == dead + 1, "it is a dead letter")
    assert all(client.ack(one).code == 0 for one in came)
    wait_until(lambda: word(broker, Gauge.REVIVING) == 0, "its copy is on disk")
    (letter,) = messages_of(broker.address, "%DLQ%G_dead", 1)
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"dead", "T_dead")
    assert letter.properties["1ST_POP_TIME"] == came[0].receipt.split()[1]
    send(broker.address, "T_dead", [b"fine"], 1)
    found(client, invisible_ms=1)
    assert client.ack(found(client)).code == 0
    wait_until(lambda: committed(broker.address, "G_dead", "T_dead", 0) == 2, "both are done")
    assert bodies_of(broker.address, "%DLQ%G_dead", 1) == [b"dead"]
    change_settings(broker.port, {"enableRetryTopicV2": "false", "ringmqPopDeadLetter": "false"})
