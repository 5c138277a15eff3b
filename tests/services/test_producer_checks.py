"""Checks of halves whose pairs no broker has written: a damaged record, or a client's bytes that are no UTF-8."""

from collections.abc import Callable

import pytest

from ringmq.broker.requests.client_request import ClientRequest
from ringmq.native import lib
from ringmq.remoting.client_headers import CheckTransactionStateRequestHeader
from ringmq.remoting.frame import FrameDecoder
from ringmq.remoting.message import MessageExt, decode_message, encode_message
from ringmq.services.transactions.check_request import check_frame
from ringmq.services.transactions.half_table import NO_IMMUNITY, Half
from ringmq.services.transactions.producer_checks import ProducerChecks
from ringmq.store.record import Record, parse_record
from tests.store.test_torn_tail import encode

HALF = Half(0, 0, 1000, NO_IMMUNITY, 1)


class Halves:
    """One half in its queue."""

    end = 1

    def __init__(self, properties: bytes) -> None:
        self._data = encode(0, 0, b"body", properties, b"RMQ_SYS_TRANS_HALF_TOPIC")

    def position(self, queue_offset: int) -> int:
        return 0

    def at(self, position: int) -> tuple[memoryview, Record]:
        record = parse_record(self._data)[1]
        assert record is not None
        return memoryview(self._data), record


class Asks:
    """Control, as far as it gets an ask."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def check(self, group: str, frame: bytes, now_ms: int, then: Callable[[object], None]) -> None:
        self.payloads.append(ClientRequest(group, frame).encode())
        then(None)


@pytest.mark.parametrize(
    ("pairs", "is_asked"),
    [
        (b"PGROUP\x01P\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02", True),
        (b"PGROUP\x01P\x02", True),
        (b"\xff\x01\xfe\x02PGROUP\x01\xffP\x02", True),
        (b"PGROUP\x01P\x02REAL_QID\x01x\x02", False),
        (b"PGROUP\x01P\x02REAL_QID\x01-1\x02", False),
        (b"PGROUP\x01P\x02REAL_QID\x0199999999999\x02", False),
        (b"PGROUP\x01P\x02REAL_TOPIC\x01" + b"\xff" * 30_000 + b"\x02", False),
        (b"PGROUP\x01" + b"\xff" * 30_000 + b"\x02", False),
    ],
)
def test_no_half_ends_the_worker(pairs: bytes, is_asked: bool) -> None:
    asks, words, lines = Asks(), [0] * 64, list[str]()
    checks = ProducerChecks(Halves(pairs), asks, words, lambda: "broker-a", lines.append)  # type: ignore[arg-type]
    checks.add(HALF)
    assert checks.turn()
    assert (len(asks.payloads), len(lines)) == ((1, 0) if is_asked else (0, 1))
    assert words[lib.RMQ_TRANSACTIONS_CHECKED] + words[lib.RMQ_TRANSACTIONS_UNCHECKED] == 1
    assert not checks.in_flight and not checks.is_waiting


@pytest.mark.parametrize("store_host", [("127.0.0.1", 10911), ("fe80::1", 10911)])
def test_the_offset_id_names_the_half_in_the_log(store_host: tuple[str, int]) -> None:
    pairs, place = {"PGROUP": "P", "REAL_TOPIC": "T", "REAL_QID": "3"}, 0x123456789A
    topic = "RMQ_SYS_TRANS_HALF_TOPIC"
    half = MessageExt(topic, b"body", pairs, queue_offset=7, commit_log_offset=place, store_host=store_host)
    data = encode_message(half)
    record = parse_record(data)[1]
    assert record is not None
    (request,) = FrameDecoder().feed(check_frame(data, record, "broker-a")[1])
    header = CheckTransactionStateRequestHeader.decode(request.ext_fields)
    assert header.offset_msg_id == half.offset_msg_id == decode_message(request.body)[0].offset_msg_id
    assert (header.commit_log_offset, header.tran_state_table_offset) == (place, 7)
