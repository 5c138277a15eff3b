"""Recalls of timer messages: the cases, the recorded frames, and the whole way at a broker."""

import gzip
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.remoting.client_headers import RecallMessageRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, decode_frame
from ringmq.remoting.recall_handle import RecallHandle, RecallHandleError, decode_handle
from ringmq.services.recall_cases import Delete, Refuse, decide
from ringmq.store.config import StoreConfig
from ringmq.store.message_store import MessageStore
from ringmq.timer.admission import timer_rules
from tests.broker.test_processes import SMALL
from tests.raw_client import RawClient
from tests.services.late_start import ask_started
from tests.staging import make_topic
from tests.waiting import wait_until

GOLDEN = Path(__file__).parents[1] / "golden" / "timer"
WHEEL = "rmq_sys_wheel_timer"
NOW = 1_795_208_563_866
CONFIG = BrokerConfig(recall_message_enable=True, broker_name="broker-t")
[RULE] = timer_rules(CONFIG, {WHEEL: 1}.get)
HANDLE = RecallHandle("GT", "broker-t", str(NOW // 1000 * 1000 + 14_001), "KEY")


def asked(
    handle: RecallHandle | str = HANDLE, topic: str = "GT", group: str | None = "PG"
) -> RecallMessageRequestHeader:
    text = handle if isinstance(handle, str) else handle.encode()
    return RecallMessageRequestHeader(producer_group=group, topic=topic, recall_handle=text)


def frames() -> list[tuple[str, int, RemotingCommand, RemotingCommand]]:
    """(scenario, time, request, stock's answer) of the recorded recalls."""
    rows = [json.loads(line) for line in gzip.decompress((GOLDEN / "frames.jsonl.gz").read_bytes()).splitlines()]
    return [
        (row["scenario"], row["t"], decode_frame(bytes.fromhex(row["hex"])), decode_frame(bytes.fromhex(answer["hex"])))
        for row, answer in zip(rows[::2], rows[1::2], strict=True)
        if row["code"] == RequestCode.RECALL_MESSAGE
    ]


@pytest.mark.parametrize(("scenario", "at_ms", "request_", "stock"), frames(), ids=lambda value: str(value)[:20])
def test_recorded_recalls(scenario: str, at_ms: int, request_: RemotingCommand, stock: RemotingCommand) -> None:
    header = RecallMessageRequestHeader.decode(request_.ext_fields)
    found = decide(header, CONFIG, RULE, True, at_ms)
    if stock.code:
        assert isinstance(found, Refuse)
        assert (found.code, found.remark.startswith(stock.remark or "-")) == (stock.code, True), found.remark
        return
    assert isinstance(found, Delete)
    assert found.uniq_key == stock.ext_fields["msgId"]
    handle = decode_handle(header.recall_handle)
    out_ms = int(handle.time_text) // 1000 * 1000  # the handle's time lies 1 ms behind the slot of its target
    assert found.properties.decode() == "".join(f"{name}\x01{value}\x02" for name, value in (
        ("TIMER_DEL_UNIQKEY", f"GT+{handle.uniq_key}"), ("REAL_TOPIC", "GT"), ("BORN_TIMESTAMP", at_ms),
        ("TRACE_CONTEXT", ""), ("TIMER_DELIVER_MS", handle.time_text), ("UNIQ_KEY", handle.uniq_key), ("PGROUP", "PG"),
        ("TAGS", "_RECALL_TAG_"), ("TIMER_OUT_MS", out_ms), ("REAL_QID", 0)))  # fmt: skip


LATE = BrokerConfig(recall_message_enable=True, start_accept_send_request_time_stamp=NOW + 1)
READ_ONLY = replace(CONFIG, broker_permission=4)


@pytest.mark.parametrize(
    ("config", "header", "has_topic", "code", "words"),
    [
        (BrokerConfig(), asked("x", "no"), False, ResponseCode.NO_PERMISSION, "recallMessageEnable is false"),
        (LATE, asked("x", "no"), False, ResponseCode.SERVICE_NOT_AVAILABLE, "startAcceptSendRequestTimeStamp"),
        (replace(READ_ONLY, allow_recall_when_broker_not_writeable=False), asked("x"), False,
         ResponseCode.SERVICE_NOT_AVAILABLE, "brokerPermission is 4"),
        (READ_ONLY, asked(), True, 0, ""),
        (CONFIG, asked("x"), False, ResponseCode.TOPIC_NOT_EXIST, "the topic[GT] not exist"),
        (CONFIG, asked(""), True, ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        (CONFIG, asked("A" * 4097), True, ResponseCode.ILLEGAL_OPERATION, "4097 characters, the limit is 4096"),
        (CONFIG, asked(replace(HANDLE, broker_name="other")), True, ResponseCode.ILLEGAL_OPERATION, "of broker other"),
        (CONFIG, asked(replace(HANDLE, time_text="x")), True, ResponseCode.ILLEGAL_OPERATION, "timestamp invalid: x"),
        (CONFIG, asked(replace(HANDLE, time_text=str(NOW))), True, ResponseCode.ILLEGAL_OPERATION, "timestamp invalid"),
        (CONFIG, asked(replace(HANDLE, time_text=str(NOW + 259_200_000))), True, ResponseCode.ILLEGAL_OPERATION,
         "is not within 259200000 ms from now"),
        (CONFIG, asked(replace(HANDLE, time_text=str(NOW + 259_199_999))), True, 0, ""),
        (CONFIG, asked(replace(HANDLE, uniq_key="a\x02b")), True, ResponseCode.ILLEGAL_OPERATION, "control characters"),
        (CONFIG, asked(group="\x01"), True, ResponseCode.ILLEGAL_OPERATION, "control characters"),
        (CONFIG, asked(replace(HANDLE, uniq_key="k" * 2500)), True, ResponseCode.ILLEGAL_OPERATION,
         "the limit is 4096"),
        (CONFIG, asked(group=None), True, 0, ""),
    ],
)  # fmt: skip
def test_cases_in_their_order(
    config: BrokerConfig, header: RecallMessageRequestHeader, has_topic: bool, code: int, words: str
) -> None:
    found = decide(header, config, RULE, has_topic, NOW)
    if code:
        assert isinstance(found, Refuse) and found.code == code and words in found.remark, found
    else:
        assert isinstance(found, Delete)


def test_without_a_wheel_nothing_is_recalled() -> None:
    found = decide(asked(), CONFIG, structs.replace(RULE, precision_ms=0), True, NOW)
    assert isinstance(found, Refuse) and found.code == 1 and found.remark.startswith("recall failed, execute error")


def test_a_rule_that_is_not_there_yet_is_no_final_answer() -> None:
    found = decide(asked(), CONFIG, None, True, NOW)
    assert isinstance(found, Refuse) and (found.code, found.remark[-9:]) == (ResponseCode.SYSTEM_BUSY, "try again")


@pytest.mark.parametrize("text", ["A", "abc=d", "djEg\n", "!!!!", "djEgYSBiIDEg", "djIgR1QgYiAxIGs="])
def test_malformed_handles(text: str) -> None:
    with pytest.raises(RecallHandleError):
        decode_handle(text)


@pytest.mark.parametrize("key", ["K", "KE", "KEY", "ключ"])
def test_handles_with_and_without_padding(key: str) -> None:
    handle = replace(HANDLE, uniq_key=key)
    assert decode_handle(handle.encode()) == decode_handle(handle.encode().rstrip("=")) == handle


def recall(client: RawClient, handle: str, topic: str = "GT") -> RemotingCommand:
    return ask_started(
        client, RequestCode.RECALL_MESSAGE, {"producerGroup": "PG", "topic": topic, "recallHandle": handle}
    )


def switch(client: RawClient, text: bytes) -> None:
    assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, text).code == 0


@pytest.mark.timeout(180)
def test_a_recall_at_a_whole_broker(tmp_path: Path) -> None:
    """Off by default, switched on live, stored once per answer, also after kills of the worker."""
    store = tmp_path / "store"
    with RunningBroker(store, SMALL) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "GT", 1)
        assert recall(client, "abc").code == ResponseCode.NO_PERMISSION
        switch(client, b"recallMessageEnable=true")
        assert recall(client, "abc").code == ResponseCode.ILLEGAL_OPERATION
        sent = client.send("GT", b"later", pairs={"TIMER_DELAY_SEC": "3600", "UNIQ_KEY": "K0"})
        assert sent.code == 0
        handle = sent.ext_fields["recallHandle"]
        for number in range(3):
            answer = recall(client, handle)
            assert (answer.code, answer.remark) == (0, "not set any response code")
            assert answer.ext_fields == {"msgId": "K0", "MSG_REGION": "DefaultRegion"}
            if number < 2:
                kill_services(broker)
        parts = decode_handle(handle)
        assert recall(client, replace(parts, uniq_key="unknown").encode()).code == 0, "as stock"
        assert recall(client, handle, "None").code == ResponseCode.TOPIC_NOT_EXIST
        switch(client, b"recallMessageEnable=false")
        assert recall(client, handle).code == ResponseCode.NO_PERMISSION
        assert broker.stop() == 0
    found = records_of_timers(store)
    out_ms = int(parts.time_text) - 1
    assert [body for body, _ in found] == [b"later", b"0", b"0", b"0", b"0"]
    assert {int(pairs["TIMER_OUT_MS"]) for _, pairs in found} == {out_ms}
    for _, pairs in found[1:4]:
        assert pairs.pop("BORN_TIMESTAMP").isdigit()
        assert pairs == {
            "TIMER_DEL_UNIQKEY": "GT+K0", "REAL_TOPIC": "GT", "TIMER_DELIVER_MS": str(out_ms + 1), "UNIQ_KEY": "K0",
            "PGROUP": "PG", "TAGS": "_RECALL_TAG_", "TIMER_OUT_MS": str(out_ms), "REAL_QID": "0",
        }  # fmt: skip


def kill_services(broker: RunningBroker) -> None:
    plane = Plane.open(plane_name(broker.store))
    role = plane.role(lib.RMQ_ROLE_SERVICES)
    before = role.generation
    os.kill(role.pid, signal.SIGKILL)
    wait_until(lambda: role.generation != before and role.state == 2, "services runs again")


def records_of_timers(root: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """(body, pairs) of the records of the timer topic, in the order of the log."""
    store = MessageStore(StoreConfig(root))
    queue, end = store.queue(WHEEL, 0), store.commit_log.files.end_offset
    assert queue is not None
    found = []
    for offset in range(queue.max_offset(end)):
        unit = queue.unit(offset)
        record = store.commit_log.record_at(unit.commit_log_offset, end, unit.size)
        assert record is not None
        found.append((bytes(record.body), dict(record.properties)))
    return found
