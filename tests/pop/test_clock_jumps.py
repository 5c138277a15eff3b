"""Open messages over jumps of the broker's wall clock, while the worker runs and over a death of all."""

import os
import signal
import time
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from tests.broker.test_delay_faults import Clock
from tests.broker.test_processes import SMALL
from tests.pop.poll_crowd import waiting
from tests.pop.pop_client import NOTHING, PopClient, Taken
from tests.pop.test_polls_broker import answer, begin, messages, started
from tests.pop.test_pop_broker import found, send
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
HOUR_S = 3600
HOUR_MS, SOON_MS = HOUR_S * 1000, 1500
BODIES = [b"long", b"short", b"acked"]


def pop(client: PopClient, invisible_ms: int) -> Taken:
    """The next message. The client's clock does not count."""
    return wait_until(lambda: client.pop(1, invisible_ms, bornTime=0), "a pop finds a message")[0]


@pytest.mark.parametrize("jump_s", [-2 * HOUR_S, 2 * HOUR_S])
def test_no_jump_makes_a_message_late_or_lost(tmp_path: Path, jump_s: int) -> None:
    """A running worker counts by the monotonic clock. A start knows the wall clock alone: time that has passed by it
    counts, and no message waits longer than its invisible time."""
    clock, store = Clock(tmp_path), tmp_path / "store"
    with RunningBroker(store, SMALL, environment=clock.environment) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", BODIES, 1)
        client = PopClient(broker.address, "G", "T")
        kept = pop(client, HOUR_MS)
        short = pop(client, SOON_MS)
        clock.set(jump_s)
        acked = pop(client, HOUR_MS)
        assert [one.body for one in (kept, short, acked)] == BODIES
        again = pop(client, SOON_MS)
        assert (again.body, again.message.reconsume_times) == (b"short", 1), "in its time"
        assert client.pop(bornTime=0) == [], "an hour has not passed"
        assert client.ack(acked).code == 0
        broker.kill_all()
    clock.set(0 if jump_s > 0 else 2 * HOUR_S)
    with RunningBroker(store, SMALL, environment=clock.environment) as broker:
        client = PopClient(broker.address, "G", "T")
        third = pop(client, HOUR_MS)
        if jump_s > 0:
            assert (third.body, third.message.reconsume_times) == (b"short", 2), "it waits no longer than its time"
            assert client.ack(kept).code == 0, "the receipt is good, and its time is not over"
            assert client.pop(bornTime=0) == []
        else:
            fourth = pop(client, HOUR_MS)
            assert sorted((one.body, one.message.reconsume_times) for one in (third, fourth)) == [
                (b"long", 1), (b"short", 2),
            ]  # fmt: skip
        assert broker.stop() == 0


@pytest.mark.parametrize("jump_s", [-2 * HOUR_S, 2 * HOUR_S])
def test_no_jump_ends_a_poll_or_holds_it_longer(tmp_path: Path, jump_s: int) -> None:
    """Not where another process goes on with it, either."""
    clock = Clock(tmp_path)
    with RunningBroker(tmp_path / "store", SMALL, environment=clock.environment) as broker:
        make_topic(broker.address, "T", 1)
        clients = {group: started(broker.address, group, "T") for group in "GHI"}
        opaques = {group: begin(clients[group], HOUR_MS) for group in "HI"}
        wait_until(lambda: all(waiting(broker.address, group, "T") for group in "HI"), "the polls wait")
        began, time_s = time.monotonic(), 3
        opaques["G"] = begin(clients["G"], time_s * 1000)
        wait_until(lambda: waiting(broker.address, "G", "T") or time.monotonic() > began + time_s, "its poll has begun")
        clock.set(jump_s)
        assert answer(clients["G"], opaques["G"]).code == NOTHING
        assert time.monotonic() - began > time_s - 0.1, "at most 50 ms early"
        send(broker.address, "T", [b"a"], 1)
        for group in "HI":
            (taken,) = messages(clients[group], opaques[group])
            assert taken.body == b"a" and clients[group].ack(taken).code == 0
            opaques[group] = begin(clients[group], HOUR_MS, bornTime=0)
        wait_until(lambda: all(waiting(broker.address, group, "T") for group in "HI"), "the polls wait")
        clock.set(0)
        os.kill(broker.worker_pids()["pop"], signal.SIGKILL)
        send(broker.address, "T", [b"b"], 1)
        for group in "HI":
            assert [one.body for one in messages(clients[group], opaques[group])] == [b"b"]
        assert broker.stop() == 0


def test_two_pops_at_one_time_of_the_clock_have_receipts_of_their_own(tmp_path: Path) -> None:
    """The clock goes back, and the same message is given again at the same time of the clock."""
    clock = Clock(tmp_path)
    with RunningBroker(tmp_path / "store", SMALL, environment=clock.environment) as broker:
        make_topic(broker.address, "T", 1)
        send(broker.address, "T", [b"a"], 1)
        client = PopClient(broker.address, "G", "T")
        taken = [found(client, invisible_ms=1)]
        for shift in (-1, 0, -1, 0):
            clock.set(shift)
            taken.append(pop(client, 1))
        last = pop(client, HOUR_MS)
        assert all(client.ack(one).code == 0 for one in taken), "they are late"
        assert client.pop(bornTime=0) == []
        assert client.change(last, 1).code == 0
        assert pop(client, HOUR_MS).body == b"a", "the last receipt was good until then"
        assert broker.stop() == 0
