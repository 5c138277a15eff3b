"""Reading slices from a broker that does what the test says: sizes, order, losses, restarts, refusals."""

import logging
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from ringmq.remoting.batch import encode_batch
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import Message, encode_message
from ringmq.spark_bridge import tcp_reader
from ringmq.spark_bridge.errors import DataLossError, ReadError
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from ringmq.spark_bridge.slices import BrokerLocation, Slice, TimeRange
from tests.client.scripted_broker import ScriptedBroker, pull_answer
from tests.spark_bridge.scripted_log import TOPIC, ScriptedLog

COLUMNS = ("partition", "offset", "value")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_reader, "PAUSE_FIRST_MS", 1)
    monkeypatch.setattr(tcp_reader, "PAUSE_MAX_MS", 4)


def rows_of(part: Slice, **settings: Any) -> dict[int, list[tuple[int, bytes]]]:
    """Offset and value of each row by queue, in the order in which they came."""
    rows = defaultdict(list)
    for batch in read_slice(part, COLUMNS, ReadSettings(**settings)):
        assert batch.num_rows
        for row in batch.to_pylist():
            rows[row["partition"]].append((row["offset"], row["value"]))
    return dict(rows)


def expected(log: ScriptedLog, begin: int = 0, end: int | None = None) -> dict[int, list[tuple[int, bytes]]]:
    return {
        queue: [(at, f"{queue}/{at}".encode() + b"." * (at % 50)) for at in range(begin, end or log.count)]
        for queue in range(log.queues)
    }


@pytest.mark.parametrize("cap", [1, 7, 32, 500])
@pytest.mark.parametrize("batch_bytes", [1, 4096, 1 << 20])
def test_rows_are_the_slices_whatever_the_sizes(cap: int, batch_bytes: int) -> None:
    log = ScriptedLog(400, queues=3, cap=cap)
    with ScriptedBroker(log.pull) as broker:
        assert rows_of(log.slice(broker.address), batch_bytes=batch_bytes) == expected(log)
        assert rows_of(log.slice(broker.address, 33, 35), batch_rows=1) == expected(log, 33, 35)
        asked = len(broker.requests)
        assert rows_of(log.slice(broker.address, 5, 5)) == {}
        assert len(broker.requests) == asked, "nothing to ask for"


def test_a_time_range_cuts_rows() -> None:
    log = ScriptedLog(100)
    with ScriptedBroker(log.pull) as broker:
        part = replace(log.slice(broker.address), times=TimeRange(2_010, 2_020))
        assert rows_of(part) == expected(log, 10, 20)


def test_inner_batches_are_cut_at_the_spans_ends() -> None:
    """Records that hold five messages each; a pull from the middle of one brings all of it."""
    log = ScriptedLog(100)

    def pull(request: RemotingCommand) -> bytes:
        offset = int(request.ext_fields["queueOffset"]) // 5 * 5
        end = min(offset + 10, 100)
        body = b""
        for base in range(offset, end, 5):
            inner = encode_batch([Message(TOPIC, b"%d" % at) for at in range(base, base + 5)])
            properties = {"INNER_NUM": "5", "INNER_BASE": str(base)}
            body += encode_message(
                replace(log.message, body=inner, properties=properties, sys_flag=0x180, queue_offset=base)
            )
        return pull_answer(request, 0, end, body=body)

    with ScriptedBroker(pull) as broker:
        rows = rows_of(log.slice(broker.address, 7, 93))
    assert rows == {0: [(at, b"%d" % at) for at in range(7, 93)]}


@pytest.mark.parametrize("every", [3, 10])
def test_a_connection_that_breaks_costs_no_row(every: int) -> None:
    log = ScriptedLog(2000, queues=2)

    def pull(request: RemotingCommand) -> bytes | None:
        return None if len(broker.requests) % every == 0 else log.pull(request)

    with ScriptedBroker(pull) as broker:
        assert rows_of(log.slice(broker.address)) == expected(log)
        assert broker.connections > 2


@pytest.mark.parametrize("code", [2, 215, 1, 1500])
def test_a_busy_or_leaving_broker_is_asked_again(code: int) -> None:
    """No offset is refused twice. If it could be, a broker that meets many pulls at once might refuse the first one of
    each connection, and the reader would rightly give up."""
    log, refused = ScriptedLog(1000), set[str]()

    def pull(request: RemotingCommand) -> bytes:
        offset = request.ext_fields["queueOffset"]
        if len(broker.requests) % 5 or offset in refused:
            return log.pull(request)
        refused.add(offset)
        return pull_answer(request, code, 0)

    with ScriptedBroker(pull) as broker:
        assert rows_of(log.slice(broker.address)) == expected(log)
    assert len(refused) > 1


def test_a_broker_that_is_never_there_is_given_up() -> None:
    log = ScriptedLog(10)
    with ScriptedBroker(lambda request: None) as broker, pytest.raises(ReadError, match="given up after 16 tries"):
        rows_of(log.slice(broker.address))
    with (
        ScriptedBroker(lambda request: pull_answer(request, 2, 0, remark="too busy")) as broker,
        pytest.raises(ReadError, match=r"broker-a at 127.*given up after 16 tries.*answered 2 'too busy'"),
    ):
        rows_of(log.slice(broker.address))


def test_offsets_that_come_late_are_waited_for() -> None:
    """A broker that has just started may have built its queues up to an earlier offset."""
    log = ScriptedLog(100)

    def pull(request: RemotingCommand) -> bytes:
        log.count = min(500, log.count + 10)
        return log.pull(request)

    with ScriptedBroker(pull) as broker:
        rows = rows_of(log.slice(broker.address, 0, 500))
    assert [offset for offset, _ in rows[0]] == list(range(500))


def test_offsets_that_retention_has_taken() -> None:
    log = ScriptedLog(900, queues=2, first=310)
    with ScriptedBroker(log.pull) as broker:
        with pytest.raises(DataLossError, match=r"broker-a:\d of topic Scripted: offsets 0 to 309 .* 310 to 899"):
            rows_of(log.slice(broker.address))
        assert rows_of(log.slice(broker.address), fail_on_data_loss=False) == expected(log, 310)


def test_lost_offsets_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    log = ScriptedLog(900, first=310)
    with ScriptedBroker(log.pull) as broker, caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        rows_of(log.slice(broker.address), fail_on_data_loss=False)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("queue broker-a:0 of topic Scripted: offsets 0 to 309 were deleted since the plan")


def test_retention_in_the_middle_of_a_read() -> None:
    log = ScriptedLog(3000)

    def pull(request: RemotingCommand) -> bytes:
        if len(broker.requests) == 20:
            log.first = 2500
        return log.pull(request)

    with ScriptedBroker(pull) as broker:
        rows = rows_of(log.slice(broker.address), fail_on_data_loss=False)[0]
    offsets = [offset for offset, _ in rows]
    assert offsets == sorted(set(offsets))
    assert offsets[-500:] == list(range(2500, 3000))
    assert len(offsets) < 3000


def test_records_that_are_passed_over_are_lost_too() -> None:
    """Units whose file is removed already are passed over by a broker whose minimum is not yet set."""
    log = ScriptedLog(300)

    def pull(request: RemotingCommand) -> bytes:
        offset = int(request.ext_fields["queueOffset"])
        if offset >= 100:
            return log.pull(request)
        if offset < 64:
            return pull_answer(request, 20, min(64, offset + 32), remark="MESSAGE_WAS_REMOVING")
        return pull_answer(request, 0, 132, body=b"".join(log.record(0, at) for at in range(100, 132)))

    with ScriptedBroker(pull) as broker:
        with pytest.raises(DataLossError, match="MESSAGE_WAS_REMOVING"):
            rows_of(log.slice(broker.address))
        with pytest.raises(DataLossError, match="offsets 70 to 99"):
            rows_of(log.slice(broker.address, 70, 300))
        assert rows_of(log.slice(broker.address, 70, 132), fail_on_data_loss=False)[0][0][0] == 100


def test_planned_offsets_that_never_come() -> None:
    log = ScriptedLog(50)
    with ScriptedBroker(log.pull) as broker:
        with pytest.raises(DataLossError, match=r"offsets (50|64) to 69 .* 0 to 49"):
            rows_of(log.slice(broker.address, 0, 70))
        assert rows_of(log.slice(broker.address, 0, 70), fail_on_data_loss=False) == expected(log)


def test_a_topic_that_is_gone_and_a_refusal() -> None:
    log = ScriptedLog(50)
    with ScriptedBroker(lambda request: pull_answer(request, 17, 0, remark="topic not exist")) as broker:
        with pytest.raises(DataLossError, match="'topic not exist'"):
            rows_of(log.slice(broker.address))
        assert rows_of(log.slice(broker.address), fail_on_data_loss=False) == {}
    with (
        ScriptedBroker(lambda request: pull_answer(request, 26, 0, remark="no such group")) as broker,
        pytest.raises(ReadError, match=r"broker-a at 127.*answered 26 'no such group'.*group spark-x .option"),
    ):
        rows_of(log.slice(broker.address), pull_group="spark-x")


def test_a_broken_record_is_named_or_left_out() -> None:
    log = ScriptedLog(50)

    def pull(request: RemotingCommand) -> bytes:
        if request.ext_fields["queueOffset"] != "0":
            return log.pull(request)
        records = [bytearray(log.record(0, at)) for at in range(32)]
        records[20][4:8] = b"\0\0\0\0"
        return pull_answer(request, 0, 32, body=b"".join(records))

    with ScriptedBroker(pull) as broker:
        with pytest.raises(
            ReadError, match=f"broker-a:0 of topic {TOPIC}, pull from offset 0 on, byte [0-9]+: neither"
        ):
            rows_of(log.slice(broker.address))
        rows = rows_of(log.slice(broker.address), fail_on_data_loss=False)[0]
    assert rows == [row for row in expected(log)[0] if row[0] != 20]


def test_a_wrong_crc_is_found_when_asked_for() -> None:
    log = ScriptedLog(5)

    def pull(request: RemotingCommand) -> bytes:
        return log.pull(request).replace(b"0/3...", b"0/4...")

    with ScriptedBroker(pull) as broker:
        assert len(rows_of(log.slice(broker.address))[0]) == 5
        with pytest.raises(ReadError, match="CRC"):
            rows_of(log.slice(broker.address), verify_crc=True)


def test_without_an_address_nothing_can_be_pulled() -> None:
    part = replace(ScriptedLog(5).slice("127.0.0.1:1"), broker=BrokerLocation("broker-a"))
    with pytest.raises(ReadError, match="bootstrap"):
        rows_of(part)
