"""A progress beyond the end of its queue is named, and skips no work."""

import json
from pathlib import Path
from typing import Any

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from ringmq.store.config_files import load_config
from tests.broker.delay_kit import SETTINGS
from tests.broker.transaction_kit import COMMIT, HALF, Transaction
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

GROUP = "CID_RMQ_SYS_TRANS"


def change(store: Path, file: str, name: str, value: Any) -> None:
    """Set an entry of an offset table, also in the copy that replaces a damaged file."""
    table = dict(load_config(store, file).get("offsetTable", {}))
    for path in (store / "config" / file, store / "config" / f"{file}.bak"):
        path.write_text(json.dumps({"offsetTable": {**table, name: value}}))


def test_delayed_messages_and_open_halves_are_not_skipped(tmp_path: Path) -> None:
    settings = {**SETTINGS, "messageDelayLevel": "1s 1h"}
    store = tmp_path / "store"
    with RunningBroker(store, settings) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        half = Transaction(client, b"half")
        for number in range(3):
            assert client.send("T", b"%d" % number, pairs={"DELAY": "2"}).code == ResponseCode.SUCCESS
        assert broker.stop() == 0
    change(store, "delayOffset.json", "2", 77)
    (store / "config" / "ringmqDelayOffset.json").unlink(missing_ok=True)
    change(store, "consumerOffset.json", f"{HALF}@{GROUP}", {"0": 99})
    with (
        RunningBroker(store, {**settings, "messageDelayLevel": "1s 1s"}) as broker,
        RawClient(broker.address) as client,
    ):
        assert half.end(client, COMMIT).code == ResponseCode.SUCCESS
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) >= 4, "all are published")
        assert sorted(message.body for message in messages_of(broker.address, "T", 1)) == [b"0", b"1", b"2", b"half"]
        lines = broker.log_path.read_text().splitlines()
        (line,) = [line for line in lines if "config/delayOffset.json: " in line]
        assert "level '2' is left out: offset 77 is beyond the end of its queue, 3" in line
        (line,) = [line for line in lines if "config/consumerOffset.json: " in line]
        assert f"{HALF}@{GROUP} is left out: offset 99 is beyond the end of its queue, 1" in line
        assert broker.stop() == 0
