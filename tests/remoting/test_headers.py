"""Typed headers: what is missing or wrongly typed is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.remoting.client_headers import PullMessageRequestHeader, SendMessageRequestHeader
from ringmq.remoting.codes import LanguageCode, RequestCode, ResponseCode, version_name
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import BadField, MissingField, RequestError
from ringmq.remoting.headers import wire_names
from ringmq.remoting.request_headers import (
    REQUEST_HEADERS,
    decode_request_header,
    decode_send_header,
    encode_short_send_header,
)
from ringmq.remoting.response_headers import RESPONSE_HEADERS, HeartbeatResponseHeader

PULL = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "9223372036854775807",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
}


def test_a_complete_header_reads() -> None:
    header = PullMessageRequestHeader.decode(PULL | {"unknown": "x", "subVersion": "-1"})
    assert header.queue_offset == 9223372036854775807
    assert header.sub_version == -1
    assert header.subscription is None
    assert header.encode() == PULL | {"subVersion": "-1"}


@pytest.mark.parametrize("name", sorted(PULL))
def test_each_required_field_is_missed(name: str) -> None:
    fields = {key: value for key, value in PULL.items() if key != name}
    with pytest.raises(MissingField) as caught:
        PullMessageRequestHeader.decode(fields)
    assert caught.value.field == name
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "value", ["", "x", "1.0", " 1", "1 ", "1_0", "0x1", "٣", "2147483648", "-2147483649", "9" * 5000]
)
def test_numbers_that_java_would_not_read(value: str) -> None:
    with pytest.raises(BadField) as caught:
        PullMessageRequestHeader.decode(PULL | {"queueId": value})
    assert caught.value.field == "queueId"
    assert "2147483647" in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("yes", False), ("", False), ("1", False)])
def test_booleans_are_never_an_error(text: str, value: bool) -> None:
    assert HeartbeatResponseHeader.decode({"IS_SUB_CHANGE": text}).is_sub_change is value


def test_sends_read_long_names_and_letters_alike() -> None:
    send = SendMessageRequestHeader(
        producer_group="p",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=-1,
        sys_flag=0,
        born_timestamp=1700000000000,
        flag=7,
        properties="a\x01b\x02",
        batch=True,
    )
    short = RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, ext_fields=encode_short_send_header(send))
    long = RemotingCommand(RequestCode.SEND_MESSAGE, ext_fields=send.encode())
    assert set(short.ext_fields) == set("abcdefghim")
    assert decode_send_header(short) == send
    assert decode_send_header(long) == send
    del short.ext_fields["b"]
    with pytest.raises(MissingField) as caught:
        decode_request_header(short)
    assert caught.value.field == "b"


def test_tables_name_known_codes_and_unique_wire_names() -> None:
    codes = set(RequestCode)
    for table in (REQUEST_HEADERS, RESPONSE_HEADERS):
        assert set(table) <= codes
        for header in table.values():
            assert wire_names(header)
    assert decode_request_header(RemotingCommand(RequestCode.HEART_BEAT)) is None
    assert decode_request_header(RemotingCommand(9999)) is None


def test_numbers_of_the_protocol() -> None:
    assert len(LanguageCode) == 14
    assert RequestCode(310).name == "SEND_MESSAGE_V2"
    assert ResponseCode(604).name == "ILLEGAL_OPERATION"
    assert version_name(479) == "V5_3_3"
    assert version_name(5000) == "HIGHER_VERSION"
    assert version_name(478) == "478"


@given(
    st.sampled_from(sorted(REQUEST_HEADERS)),
    st.dictionaries(st.sampled_from([*sorted(PULL), "group", "key", "offset"]), st.text(max_size=8)),
)
def test_any_fields_read_or_raise_a_request_error(code: int, fields: dict[str, str]) -> None:
    try:
        decode_request_header(RemotingCommand(code, ext_fields=fields))
    except RequestError as error:
        assert error.code == 1
        assert error.field
