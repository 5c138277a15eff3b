"""A full disk while messages are sent back: each is refused with the cause, later ones are stored, nothing is lost."""

from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.names import dlq_topic
from tests.drill.settings import SMALL_STORE
from tests.drill.small_disk import fill, missing_for_small_disk, small_disk
from tests.raw_client import RawClient
from tests.staging import bodies_of, make_topic
from tests.waiting import wait_dispatched, wait_until

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(missing_for_small_disk()), reason=missing_for_small_disk() or "can be made"),
]
SETTINGS = {**SMALL_STORE, "messageIndexEnable": False, "cleanResourceInterval": 86_400_000}
LARGE, LIMIT = 60_000, 200
GROUP = "G"
STATUSES = ("SERVICE_NOT_AVAILABLE", "CREATE_MAPPED_FILE_FAILED")
"""Stock's names (`PutMessageStatus`). The first file that cannot be made decides which one comes."""


def back(client: RawClient, offset: int) -> RemotingCommand:
    fields = {"offset": offset, "group": GROUP, "delayLevel": -1, "originTopic": "T"}
    return client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)


def test_send_backs_on_a_full_disk(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path, 48) as disk,
        RunningBroker(disk / "store", SETTINGS, log_path=tmp_path / "log") as broker,
        RawClient(broker.address) as client,
    ):
        make_topic(broker.address, "T", 1)
        sent = client.send("T", b"failed".ljust(LARGE, b"."))
        assert sent.code == ResponseCode.SUCCESS
        offset, stored = int(sent.ext_fields["msgId"][-16:], 16), 1
        assert back(client, offset).code == ResponseCode.SUCCESS, "the first one makes the topics and the queue's file"
        wait_dispatched(broker.store)
        ballast = fill(disk)
        for _ in range(LIMIT):
            answer = back(client, offset)
            if answer.code != ResponseCode.SUCCESS:
                break
            stored += 1
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark in STATUSES
        assert stored < LIMIT
        pid = broker.worker_pids()["services"]
        ballast.unlink()
        wait_until(lambda: back(client, offset).code == ResponseCode.SUCCESS, "there is room")
        stored += 1
        wait_until(lambda: len(bodies_of(broker.address, dlq_topic(GROUP), 1)) >= stored, "answered ones are stored")
        assert len(bodies_of(broker.address, dlq_topic(GROUP), 1)) == stored, "refused ones are not"
        assert broker.worker_pids()["services"] == pid, "it did not die of it"
        assert broker.stop() == 0
