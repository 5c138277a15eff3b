"""SQL92 filters of a running broker: switched by request 25, and after a death of control."""

import os
import signal
from pathlib import Path

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from tests.broker.test_processes import SMALL
from tests.raw_client import RawClient
from tests.waiting import wait_dispatched, wait_until

SQL = {"sysFlag": 4, "expressionType": "SQL92", "subscription": "amount >= 3 AND amount < 5"}


def test_filters_are_switched_live_and_survive_control(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SMALL) as broker:
        client = RawClient(broker.address)
        for number in range(10):
            assert client.send("Sql", b"%d" % number, pairs={"amount": str(number)}).code == 0
        wait_dispatched(broker.store)

        def pull() -> tuple[int, bytes]:
            answer = client.pull("Sql", **SQL)
            return answer.code, answer.body

        assert pull()[0] == 1
        for switch, code in (("true", 0), ("false", 1), ("true", 0)):
            changed = client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, f"enablePropertyFilter={switch}".encode())
            assert changed.code == 0, changed.remark
            assert pull()[0] == code
        found = pull()[1]
        assert found.count(b"amount\x01") == 2 and b"amount\x013\x02" in found and b"amount\x014\x02" in found
        control = broker.worker_pids()["control"]
        os.kill(control, signal.SIGKILL)
        wait_until(lambda: broker.worker_pids().get("control", control) != control, "control is started again")
        wait_until(lambda: pull() == (0, found), "the expression is compiled again")
        assert broker.stop() == 0
