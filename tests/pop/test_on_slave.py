"""A slave refuses the requests of consumers that take single messages: its master has the open messages."""

import pytest

from ringmq.ipc.workers import WORKERS
from ringmq.pop.on_slave import CODES
from ringmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.fakes import make_harness

(ROW,) = [row for row in WORKERS.rows(1) if row.name == "pop"]


@pytest.mark.parametrize("code", CODES)
def test_a_slave_names_its_master(code: RequestCode) -> None:
    answer = make_harness({"brokerRole": "SLAVE", "brokerId": "1"}).ask(code)
    assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE == 11
    assert answer.remark == "service not available now: this broker is a slave, send to its master"


def test_each_request_of_the_worker_is_refused_there() -> None:
    assert ROW.answers is not None
    assert {200052, 200055} < set(ROW.answers.codes)
    assert set(ROW.answers.codes) == {int(code) for code in CODES}
