"""The worker `services` dies at each crash point of its port: answered send-backs are stored, none of them twice."""

import signal
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.names import dlq_topic
from tests.drill.settings import SMALL_STORE
from tests.drill.test_crash_points import NAME_BYTES, request_points
from tests.native.test_crash_points import crash_build
from tests.raw_client import RawClient
from tests.staging import bodies_of, make_topic
from tests.waiting import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
POINTS = [name for name in request_points() if name != "port-acknowledged"]
"""Only ordered ports, those of republishers, are acknowledged."""
AT_START = "port-claimed"
GROUP = "G"
ROUNDS, ROUNDS_OF_A_SAMPLE = 3, 1


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_send_backs_survive_their_worker(tmp_path: Path, flush: str, is_thorough: bool) -> None:
    """No other worker with a port runs: nothing is delayed and nothing is committed."""
    file = tmp_path / "crash-point"
    file.write_bytes(bytes(NAME_BYTES))
    environment = {"RINGMQ_NATIVE": str(crash_build()), "RINGMQ_CRASH_FILE": str(file)}
    settings = {**SMALL_STORE, "flushDiskType": flush}
    with (
        RunningBroker(tmp_path / "store", settings, environment=environment) as broker,
        RawClient(broker.address) as client,
    ):
        make_topic(broker.address, "T", 1)
        asked = dict[bytes, int]()

        def store_one() -> None:
            """Send a message, and send it back until it is answered 0."""
            body = b"%d" % len(asked)
            offset = int(client.send("T", body).ext_fields["msgId"][-16:], 16)
            fields = {"offset": offset, "group": GROUP, "delayLevel": -1}
            asked[body] = 0

            def is_stored() -> bool:
                asked[body] += 1
                return client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0

            wait_until(is_stored, "the message is sent back")

        store_one()
        for point in POINTS * (ROUNDS if is_thorough else ROUNDS_OF_A_SAMPLE):
            with file.open("r+b", buffering=0) as armed:
                armed.seek(1)
                armed.write(point[1:].encode().ljust(NAME_BYTES - 1, b"\0"))
                armed.seek(0)
                armed.write(point[:1].encode())
            if point == AT_START:
                broker.signal_worker("services", signal.SIGKILL)

            def was_hit() -> bool:
                store_one()
                return file.read_bytes()[:1] == b"\0"

            wait_until(was_hit, f"{point} is passed")
        store_one()
        wait_until(lambda: set(bodies_of(broker.address, dlq_topic(GROUP), 1)) == set(asked), "all are stored")
        stored = bodies_of(broker.address, dlq_topic(GROUP), 1)
        assert all(stored.count(body) <= times for body, times in asked.items()), "at most one for each request"
        assert sum(asked.values()) > len(asked), "some were sent back again"
