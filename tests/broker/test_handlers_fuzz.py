"""Any header, any body: every handler gives exactly one verdict and never an exception."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.broker.requests.request import Hangup, Push, Release, Reply, Run
from ringmq.remoting.access import BROKER
from ringmq.remoting.command import FLAG_ONEWAY, RemotingCommand, encode_frame
from ringmq.remoting.headers import wire_names
from ringmq.remoting.json_text import dump_json
from ringmq.remoting.request_headers import REQUEST_HEADERS
from tests.broker.fakes import Harness, make_harness, peer

NAMES = sorted({name for cls in REQUEST_HEADERS.values() for name in wire_names(cls)} | set("abcdefghijklmn"))
NUMBERS = st.sampled_from(["-1", "0", "1", "3", "65536", "2147483647", "-2147483648", "9223372036854775807", "1e3", ""])
WORDS = st.sampled_from(
    ["T", "G", "%RETRY%G", "TBW102", "*", "a || b", "||", "SQL92", "true", "false", "SINGLE_TAG", "+message.type=FIFO"]
)
VALUES = NUMBERS | WORDS | st.text(max_size=12)
PROPERTIES = st.sampled_from(["DELAY\x010\x02", "TRAN_MSG\x01true\x02", "\x01\x02", "KEYS\x01a", "x\x01\x00\x02"])
KEY_NAMES = """clientID producerDataSet consumerDataSet groupName subscriptionDataSet topic tagsSet mqSet codeSet
    subVersion topicConfigList groupConfigList topicName retryQueueNums attributes heartbeatFingerprint withoutSub
    consumerGroup clientId queueId subscriptionData $ref"""
KEYS = st.sampled_from(KEY_NAMES.split())
SCALARS = st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.text(max_size=6)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), 1 << 63)
    | st.text(max_size=6)
    | st.sampled_from(["G", "T", "$"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
BODIES = (
    JSON.map(dump_json) | st.binary(max_size=30) | st.sampled_from([b"brokerPermission=6", b"listenPort=1\n", b"{"])
)


def harness_in_use() -> Harness:
    harness = make_harness()
    harness.make_topic("T")
    harness.join("G", {"T": "a"}, peer(1), "c1", producer_groups=["P"])
    harness.broker.outbox.take()
    return harness


HARNESS = harness_in_use()


@settings(max_examples=250)
@given(
    code=st.sampled_from(sorted(BROKER)) | st.integers(-5, 2000),
    ext=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=14),
    properties=PROPERTIES,
    body=BODIES,
    flag=st.sampled_from([0, 0, 0, FLAG_ONEWAY]),
    body_length=st.none() | st.integers(0, 1 << 24),
    vip=st.booleans(),
)
def test_any_request_has_one_verdict(
    code: int, ext: dict[str, str], properties: str, body: bytes, flag: int, body_length: int | None, vip: bool
) -> None:
    if "i" in ext:
        ext["i"] = properties
    effects: list[Any] = HARNESS.effects(
        RemotingCommand(code, 1, flag, ext_fields=ext, body=body), peer(2, vip=vip), body_length
    )
    verdicts = [effect for effect in effects if not isinstance(effect, Push)]
    waits = len(HARNESS.broker.forwards) > 0 and not verdicts
    assert waits or [type(verdict) for verdict in verdicts] in ([Reply], [Run], [Release], [Hangup])
    for verdict in verdicts:
        if isinstance(verdict, Reply):
            assert not flag
            assert encode_frame(verdict.command)
            assert verdict.command.code == 0 or verdict.command.remark, verdict.command
