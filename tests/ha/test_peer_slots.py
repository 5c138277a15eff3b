"""The 16 places of the replication port: no peer keeps slaves out."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringmq.ha import master_events as events
from ringmq.ha.control_messages import Identity
from ringmq.ha.master_core import IDENTITIES_PER_HOST, MasterCore
from ringmq.ha.peer_slots import FIRST_REPORT_MS, KNOWN_AFTER_MS
from ringmq.ha.replica_watermark import PEERS_MAX
from ringmq.ha.settings import HaSettings
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from tests.ha.raw_slave import RawSlave, ha_port
from tests.ha.test_master import SYNC
from tests.raw_client import RawClient
from tests.waiting import wait_until

LOG = events.LogRange(0, 1000)


class Port:
    """The core with the C loop's table of places around it."""

    def __init__(self, **properties: str) -> None:
        self.core = MasterCore(HaSettings.from_properties(properties))
        self.taken: dict[int, str] = {}
        self.now_ms = 0
        self.lines: list[str] = []
        self.step(events.Tick())

    def step(self, event: events.Event) -> None:
        ended = []
        for effect in self.core.step(event, self.now_ms):
            if isinstance(effect, events.Close):
                del self.taken[effect.peer]
                ended.append(effect.peer)
            elif isinstance(effect, events.Log):
                self.lines.append(effect.text)
        for slot in ended:
            self.step(events.Closed(slot, "closed"))

    def connect(self, host: str, port: int = 4000) -> int | None:
        """The place; None when every place is taken."""
        slot = next((slot for slot in range(PEERS_MAX) if slot not in self.taken), None)
        if slot is None:
            self.step(events.TurnedAway(host))
            return None
        self.taken[slot] = host
        self.step(events.Connected(slot, host, port))
        return slot if slot in self.taken else None

    def follow(self, host: str) -> int | None:
        slot = self.connect(host)
        if slot is not None:
            self.step(events.FirstReport(slot, 1000, LOG))
        return slot if slot in self.taken else None


def test_idle_connections_give_their_places_up_to_newcomers() -> None:
    port = Port()
    for _ in range(40):
        port.connect("10.6.6.6")
    for number in range(10):
        assert port.follow(f"10.0.0.{number}") is not None
    assert list(port.taken.values()).count("10.6.6.6") == PEERS_MAX - 1 - 10


def test_a_connection_without_a_report_is_closed_in_time() -> None:
    port = Port()
    assert port.connect("10.6.6.6") == 0
    follows = port.follow("10.0.0.2")
    port.now_ms = FIRST_REPORT_MS - 1
    assert port.core.due_ms() == FIRST_REPORT_MS
    port.step(events.Tick())
    assert len(port.taken) == 2
    port.now_ms += 1
    port.step(events.Tick())
    assert list(port.taken) == [follows]
    assert "no report in 10000 ms" in port.lines[-1]


def test_sixteen_slaves_fit_in() -> None:
    port = Port()
    assert None not in [port.follow(f"10.0.0.{number}") for number in range(PEERS_MAX)]
    assert port.follow("10.0.0.99") is None
    assert len(port.taken) == PEERS_MAX


@pytest.mark.parametrize("properties", [{"haAllowedReplicas": "10.0.0.2"}, {}], ids=["named", "followed before"])
def test_a_known_slave_gets_the_place_of_an_unknown_one(properties: dict[str, str]) -> None:
    port = Port(**properties)
    slot = port.follow("10.0.0.2")
    assert slot is not None
    port.now_ms = KNOWN_AFTER_MS
    port.step(events.Tick())
    del port.taken[slot]
    port.step(events.Closed(slot, "its process ended"))
    for number in range(20):
        port.follow(f"10.6.6.{number}")
    assert len(port.taken) >= PEERS_MAX - 1
    port.connect("10.0.0.2")
    for number in range(50):
        port.connect(f"10.6.7.{number}")
    assert port.follow("10.0.0.2") is not None


@pytest.mark.parametrize("seed", range(200))
def test_a_slave_gets_in_whatever_others_do(seed: int) -> None:
    """Strangers of a few hosts connect, stay silent, or follow; a slave of a host of its own tries every 250 ms."""
    dice = random.Random(seed)
    port = Port()
    hosts = [f"10.6.6.{number}" for number in range(dice.randint(1, 4))]
    tried = 0
    while True:
        for _ in range(dice.randint(5, 60)):
            (port.connect if dice.random() < 0.8 else port.follow)(dice.choice(hosts))
        slot = port.connect("10.0.0.2")
        tried += 1
        for _ in range(dice.randint(0, 10)):  # while the slave shakes hands
            (port.connect if dice.random() < 0.8 else port.follow)(dice.choice(hosts))
        if slot is not None and port.taken.get(slot) == "10.0.0.2":
            port.step(events.FirstReport(slot, 1000, LOG))
            break
        port.now_ms += 250
        port.step(events.Tick())
        assert tried < 4
    for _ in range(100):
        (port.connect if dice.random() < 0.8 else port.follow)(dice.choice(hosts))
    assert "10.0.0.2" in port.taken.values(), "it stays"


def test_one_host_has_a_bounded_number_of_identities() -> None:
    """A handshake without a connection leaves one: others' must not be lost for it."""
    core = MasterCore(HaSettings())
    core.step(events.Identified(Identity("10.0.0.2", 5000, 1)), 0)
    for number in range(100):
        core.step(events.Identified(Identity("10.6.6.6", number, 7)), 1)
    core.step(events.Connected(0, "10.0.0.2", 5000), 2)
    (mark,) = [effect for effect in core.step(events.FirstReport(0, 1000, LOG), 3) if isinstance(effect, events.Mark)]
    assert mark.broker_id == 1
    assert IDENTITIES_PER_HOST < 64


def test_idle_connections_keep_no_slave_out(tmp_path: Path) -> None:
    settings = {**SYNC, "haSendHeartbeatInterval": 60_000}  # a connection may be silent for twice as long at first
    with (
        RunningBroker(tmp_path / "store", settings) as broker,
        ExitStack() as stack,
        RawClient(broker.address) as client,
    ):
        port, stranger = ha_port(broker), ("127.0.0.6", 0)
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), source_address=stranger))
            for _ in range(40)
        ]
        slave = stack.enter_context(RawSlave(port, comes_back=True))
        wait_until(lambda: client.send("TopicA", b"x").code == ResponseCode.SUCCESS, "the slave follows")
        assert slave.reported > 0 and len(idle) == 40
        text = "sends are answered by reports of 127.0.0.1, which any host may send: haAllowedNetworks is empty"
        wait_until(lambda: text in broker.log_tail(), "it is said who counts")
        assert broker.stop() == 0
