"""fastjson's dialect, read and written; readers that stay bounded."""

import contextlib
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.broker.handlers.config_pages import page_of
from ringmq.fastjson.reader import read_json
from ringmq.remoting import json_body, json_text
from ringmq.remoting.config_beans import DataVersion
from ringmq.remoting.errors import BadBody
from ringmq.remoting.heartbeat import HeartbeatData
from ringmq.remoting.json_body import read_object, read_request, write_body, write_browser_body
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.register_body import MAX_INFLATED_BYTES, decode_register_body
from ringmq.remoting.route import TopicRouteData
from tests.operations import operations

QUEUE = MessageQueue("T", "b", 3)


@pytest.fixture(params=["orjson", "stdlib"])
def _engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "stdlib":
        monkeypatch.setattr(json_text, "orjson", None)


@pytest.mark.usefixtures("_engine")
def test_unquoted_and_object_keys() -> None:
    assert read_object(b'{0:"a",1:"b","c":-1}', "x") == {"0": "a", "1": "b", "c": -1}
    table = read_object(b'{"t":{{"brokerName":"b","queueId":3,"topic":"T"}:12}}', "x")
    assert json_body.queue_mapping(table, "t") == {QUEUE: 12}
    quoted = read_object(b'{"t":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":3,\\"topic\\":\\"T\\"}":12}}', "x")
    assert json_body.queue_mapping(quoted, "t") == {QUEUE: 12}
    pairs = read_object(b'{"t":[[{"brokerName":"b","queueId":3,"topic":"T"},12]]}', "x")
    assert json_body.queue_mapping(pairs, "t") == {QUEUE: 12}


def test_writing_stock_forms() -> None:
    value = {"t": {QUEUE: {0: 'q"\n'}}, "n": None, "b": [True, False], "f": 0.0, "q": [QUEUE]}
    queue = '{"brokerName":"b","queueId":3,"topic":"T"}'
    text = '{"t":{Q:{0:"q\\"\\n"}},"n":null,"b":[true,false],"f":0.0,"q":[Q]}'.replace("Q", queue)
    assert write_body(value).decode() == text


def test_route_for_browsers_is_sorted_quoted_and_escaped() -> None:
    body = write_browser_body({"b": {1: "x/y", 0: "中😀"}, "a": "\x7f"})
    assert body == b'{"a":"\\u007F","b":{"0":"\\u4E2D\\uD83D\\uDE00","1":"x\\/y"}}'
    assert json.loads(body) == {"a": "\x7f", "b": {"0": "中😀", "1": "x/y"}}


def test_route_in_both_forms_reads_the_same() -> None:
    old = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":'
        b'[{"brokerName":"b-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    route = TopicRouteData.decode(old)
    assert route.encode(standard_json=False) == old
    assert TopicRouteData.decode(route.encode(standard_json=True)) == route
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


@pytest.mark.usefixtures("_engine")
@pytest.mark.parametrize(
    ("text", "read"), [("\\ud800", "?"), ("x\\uDFFFy", "x?y"), ("\\ude00\\ud83d", "??"), ("\\\\ud800", "\\ud800")]
)
def test_half_a_character_becomes_a_question_mark(text: str, read: str) -> None:
    """As in the bytes of a Java string. UTF-8 cannot hold it."""
    assert read_object(f'{{"policy":{{"type":"{text}"}}}}'.encode(), "G") == {"policy": {"type": read}}
    assert read_object(f'{{0:"a","{text}":1}}'.encode(), "G") == {"0": "a", read: 1}
    long = "x" * 20_000
    assert read_object(f'{{"policy":"{text}{long}"}}'.encode(), "G") == {"policy": read + long}


@pytest.mark.usefixtures("_engine")
def test_surrogates_in_pairs_are_text() -> None:
    assert read_object(b'{0:"\\ud83d\\ude00"}', "x") == {"0": "\U0001f600"}


@pytest.mark.usefixtures("_engine")
@pytest.mark.parametrize("seed", range(4))
def test_surrogates_among_other_escapes_are_told_apart(seed: int) -> None:
    dice = random.Random(seed)
    pieces = ("\\\\", "\\ud800", "\\udc00", "\\uDBFF", "\\n", "a", "\\uD83D\\uDE00", '\\"', "ud800")
    for _ in range(300):
        text = "".join(dice.choice(pieces) for _ in range(dice.randrange(1, 9)))
        read = json.loads(f'"{text}"').encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        assert read_object(f'{{0:"{text}"}}'.encode(), "G") == {"0": read.encode("utf-8", "replace").decode()}


SHARED = (
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","subString":"*"}]},'
    b'{"groupName":"h","subscriptionDataSet":[{"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}]}]}'
)


@pytest.mark.usefixtures("_engine")
def test_shared_objects_are_resolved() -> None:
    heartbeat = HeartbeatData.decode(SHARED)
    assert [s.topic for consumer in heartbeat.consumers for s in consumer.subscriptions] == ["T", "T"]


def flood(shared: str, references: int) -> bytes:
    return ('{"x":' + shared + ',"a":[' + ",".join(['{"$ref":"$.x"}'] * references) + "]}").encode()


MANY = "[" + ",".join(["0"] * 99) + "]"
"""100 values, as is a text of 6,336 characters in a list."""


@pytest.mark.usefixtures("_engine")
@pytest.mark.parametrize("shared", [MANY, '["' + "x" * (98 * json_body.TEXT_PIECE_CHARS) + '"]'])
def test_what_references_stand_for_is_bounded(shared: str) -> None:
    most = json_body.MAX_REF_VALUES // 100
    assert len(read_object(flood(shared, most), "x")["a"]) == most
    with pytest.raises(BadBody, match=rf"\$ref stand for more than {json_body.MAX_REF_VALUES} values"):
        read_object(flood(shared, most + 1), "x")


def test_references_to_references_count_for_all_that_they_stand_for() -> None:
    """Ten of ten of ten: a body of a kilobyte."""
    tens = [json.dumps([{"$ref": f"$.{name}"}] * 10) for name in "abcde"]
    body = f'{{"a":{MANY},"b":{tens[0]},"c":{tens[1]},"d":{tens[2]},"e":{tens[3]}}}'
    assert len(body) < 2000
    with pytest.raises(BadBody, match="stand for more than"):
        read_object(body.encode(), "x")


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":{"$ref":"$"}}',
        b'{"a":{"b":{"$ref":"$.a"}}}',
        b'{"a":{"$ref":"$.b"},"b":{"c":1}}',
        b'{"a":{"$ref":"$.nowhere[7]"}}',
        b'{"a":{"$ref":""}}',
        b'{"x":{},"a":[' + b",".join([b'{"$ref":"$.x"}'] * (json_body.MAX_REFS + 1)) + b"]}",
    ],
)
def test_references_that_cycle_or_flood_are_refused(body: bytes) -> None:
    with pytest.raises(BadBody):
        read_object(body, "x")


@pytest.mark.usefixtures("_engine")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1',
        b'{"a":tru}',
        b'{"a":"\\x"}',
        b'{"a":1}}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"{" * 100_000,
    ],
)
def test_bodies_that_do_not_parse(body: bytes) -> None:
    with pytest.raises(BadBody) as caught:
        read_object(body, "HeartbeatData")
    assert "HeartbeatData" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"consumerDataSet":{}}', "consumerDataSet"),
        (b'{"consumerDataSet":[1]}', "consumerDataSet"),
        (b'{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":["x"]}]}]}', "subscriptionDataSet"),
        (b'{"heartbeatFingerprint":"x"}', "heartbeatFingerprint"),
        (b'{"withoutSub":"maybe"}', "withoutSub"),
        (b'{"clientID":{}}', "clientID"),
    ],
)
def test_wrongly_typed_fields_are_named(body: bytes, field: str) -> None:
    with pytest.raises(BadBody) as caught:
        HeartbeatData.decode(body)
    assert caught.value.field == field
    assert caught.value.code == 1


def test_go_hashes_its_tags_over_other_bytes() -> None:
    body = (
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        '[{"topic":"T","subString":"中文","codeSet":["-1"],"tagsSet":["中文"]}]}]}'
    )
    subscription = HeartbeatData.decode(body.encode()).consumers[0].subscriptions[0]
    assert subscription.code_set == {646394}


@pytest.mark.parametrize(
    "body",
    [b"junk", b"\x78\x9c", b"", b'{"topicConfigSerializeWrapper":[]}', b'{"topicConfigSerializeWrapper":7}'],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_registrations_that_do_not_read(body: bytes, compressed: bool) -> None:
    try:
        table = decode_register_body(body, compressed=compressed)
    except BadBody:
        return
    assert table.topics == {}


def test_a_registration_that_inflates_without_end_is_cut() -> None:
    import zlib

    with pytest.raises(BadBody) as caught:
        decode_register_body(zlib.compress(b"\0" * (MAX_INFLATED_BYTES + 1), 1), compressed=True)
    assert str(MAX_INFLATED_BYTES) in str(caught.value)


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.text(st.characters(codec="utf-8"), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_both_writers_write_json(value: Any) -> None:
    assert json.loads(write_body(value)) == value
    assert json.loads(write_browser_body(value)) == value
    assert read_json(write_body(value).decode()) == value
    assert read_json(json.dumps(value, indent=1)) == value


def test_what_any_peer_may_send_is_bounded() -> None:
    def refused(body: bytes, limit: int) -> bool:
        with pytest.raises(BadBody, match=f"heartbeat: .* at most {limit} are read") as caught:
            read_request(body, "heartbeat")
        return caught.value.field == "heartbeat"

    plain = b'{"a":[%s0]}'
    assert refused(plain % (b"0," * (json_body.REQUEST_BYTES_MAX // 2)), json_body.REQUEST_BYTES_MAX)
    assert refused(b"{a:[%s0]}" % (b"0," * (json_body.DIALECT_BYTES_MAX // 2)), json_body.DIALECT_BYTES_MAX)
    dense = BadBody, "more than 32768 objects and lists and 131072 values"
    for piece in (b"[],", b"{},", b"0,"):
        with pytest.raises(dense[0], match=dense[1]):
            read_request(plain % (piece * 140_000), "heartbeat")
    referring = b'{"b":{},"a":[%s{"$ref":"$.b"}]}' % (b"0," * (json_body.REFERRING_BYTES_MAX // 2))
    assert refused(referring, json_body.REFERRING_BYTES_MAX)
    assert len(read_request(plain % (b"0," * 100_000), "heartbeat")["a"]) == 100_001
    assert read_object(referring, "a master's table")["a"][-1] == {}


@pytest.mark.usefixtures("_engine")
def test_large_standard_text_needs_no_reader_in_python() -> None:
    text = b'{"a":[%s0]}' % (b"0," * json_body.DIALECT_BYTES_MAX)
    assert len(read_request(text, "x")["a"]) == json_body.DIALECT_BYTES_MAX + 1
    with pytest.raises(BadBody, match="in fastjson's dialect at most 16384"):
        read_request(text[:-1], "x")


def test_keys_that_are_objects_do_not_nest() -> None:
    """Each level would double the escapes of the text that the key becomes."""
    text = '{"a":1}'
    for _ in range(30):
        text = "{" + text + ":1}"
    with pytest.raises(ValueError, match="wanted a key at character 2"):
        read_json(text)
    assert read_json('{{"a":{"b":1}}:{{"c":2}:3},{"d":4}:5}') == {'{"a":{"b":1}}': {'{"c":2}': 3}, '{"d":4}': 5}


def test_the_readers_are_linear() -> None:
    for piece in ("0,", "{},", '{{"q":0}:1},', '"\\u0041",', '"\\v",', "tr", "9"):
        costs = [operations(lambda: fails_or_reads("[" + piece * many)) for many in (500, 1000)]  # noqa: B023
        assert costs[1] < 2.1 * costs[0], piece


def fails_or_reads(text: str) -> None:
    with contextlib.suppress(ValueError):
        read_json(text)


@given(st.text(max_size=60))
def test_any_text_reads_or_raises(text: str) -> None:
    value = None
    with contextlib.suppress(ValueError):
        value = read_json(text)
    assert value is None or type(value) in (bool, int, float, str, list, dict)


@given(st.text(alphabet='{}[]":,0123456789.-eEtrufalsn\\u$ref ', max_size=60))
def test_any_json_like_text_reads_or_raises(text: str) -> None:
    value = {}
    with contextlib.suppress(BadBody):
        value = read_object(text.encode(), "x")
    assert all(type(name) is str for name in value)


@pytest.mark.usefixtures("_engine")
@pytest.mark.parametrize("depth", [66, 900, 1015, 30_000])
def test_no_body_is_deeper_than_code_goes_down(depth: int) -> None:
    """orjson reads 1024 levels. A message about such a value, or a `$ref` beside it, went down into it by calls."""
    deep = b"[" * depth + b"]" * depth
    for body in (b'{"queueId":%b}' % deep, b'{"a":%b,"b":{"$ref":"$.a"}}' % deep):
        with pytest.raises(BadBody, match=r"nested deeper than 64 levels|no standard JSON of at most 64 levels"):
            read_request(body, "x")
    assert read_request(b'{"a":%b}' % (b"[" * 64 + b"]" * 64), "x")
    wide = b"[" + b",".join([b"[[]]"] * 1000) + b"]"
    assert len(read_request(b'{"a":%b}' % wide, "x")["a"]) == 1000


@pytest.mark.usefixtures("_engine")
def test_no_version_of_a_page_is_deeper_either() -> None:
    names = ["a", "b"]
    assert page_of(names, DataVersion(), 1, None, "[" * 60_000) == names
