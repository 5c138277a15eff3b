"""Requests that control answers for guests."""

import pytest

from ringmq.broker import control_wiring
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests.guest_answers import ControlParts
from ringmq.ipc.guests import guests
from ringmq.ipc.named_functions import function_of
from ringmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.fakes import START_MS, FakePlane, make_harness


def test_no_two_guests_answer_one_request() -> None:
    parts = ControlParts(LiveConfig(BrokerConfig(), FakePlane().watermarks), START_MS, lambda: 0, lambda host: None)
    codes = [code for guest in guests() if guest.control_answers for code in function_of(guest.control_answers)(parts)]
    codes += [file.code for guest in guests() for file in guest.copied_files]
    assert len(codes) == len(set(codes))
    assert {36, 37, 45, 324, 325, 270001} <= set(codes)


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_a_slave_sends_a_reply_to_another_broker(code: RequestCode) -> None:
    answer = make_harness({"brokerRole": "SLAVE", "brokerId": "1"}).ask(code)
    assert answer.code == ResponseCode.SYSTEM_BUSY and (answer.remark or "").endswith("send to its master")


def test_without_a_guest_its_requests_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    slave = {"brokerRole": "SLAVE", "brokerId": "1"}
    assert make_harness(slave).ask(RequestCode.END_TRANSACTION).code == ResponseCode.SLAVE_NOT_AVAILABLE
    monkeypatch.setattr(control_wiring, "parts", lambda column: iter(()))
    assert make_harness(slave).ask(RequestCode.END_TRANSACTION).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
