"""Property strings of sends at their limits: full, empty, unfinished, escaped; and headers that are small."""

import pytest
from plane_kit import element
from reader_kit import BOTH, MakeKit, ReaderKit, connected, request, send_frame

from ringmq.native import lib
from ringmq.remoting.codes import SerializeType

ADDITIONS = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01c\x02"
PROPERTIES_MAX = 32767
LAST_02 = 1
MADE = len("UNIQ_KEY\x01\x02") + 32
"""A UNIQ_KEY pair of the broker's own, with an IPv4 address in it."""
UNIQ = "UNIQ_KEY\x01AB\x02"


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    kit = make_kit()
    kit.set_additions(ADDITIONS)
    kit.start("write")
    kit.start("read")
    return kit


def stored(kit: ReaderKit) -> list[str]:
    """The properties of every record, without the broker's additions."""
    rows = []
    for _, data, view in kit.records():
        properties = data[view.properties_at : view.properties_at + view.properties_length]
        assert properties.endswith(ADDITIONS)
        rows.append(properties.removesuffix(ADDITIONS).decode())
    return rows


def of_length(length: int, start: str) -> str:
    """`start` and one long pair."""
    return f"{start}k\x01{'v' * (length - len(start) - 3)}\x02"


@pytest.mark.parametrize("serialise", BOTH)
@pytest.mark.parametrize(("start", "made"), [(UNIQ, 0), ("", MADE)])
def test_properties_that_are_full(kit: ReaderKit, serialise: SerializeType, start: str, made: int) -> None:
    room = PROPERTIES_MAX - len(ADDITIONS) - LAST_02 - made
    fits, too_long = of_length(room, start), of_length(room + 1, start)
    with connected(kit) as client:
        answer = client.ask(send_frame("TopicA", b"x", fits, serialise=serialise))
        assert answer.code == 0
        frame = send_frame("TopicA", b"body", too_long, serialise=serialise)
        client.send(frame)
        record, payload = kit.take()
        assert payload == frame[:-4]
        kit.verdict(record, lib.RMQ_VERDICT_DROP)
    key = answer.ext_fields["transactionId"]
    assert stored(kit) == [fits + (f"UNIQ_KEY\x01{key}\x02" if made else "")]


@pytest.mark.parametrize("serialise", BOTH)
def test_a_batch_gets_no_uniq_key(kit: ReaderKit, serialise: SerializeType) -> None:
    with connected(kit) as client:
        answer = client.ask(send_frame("TopicA", element(b"one"), "k\x01v", batch=True, serialise=serialise))
    assert answer.code == 0 and stored(kit) == ["k\x01v\x02"]


@pytest.mark.parametrize("serialise", BOTH)
@pytest.mark.parametrize("sent", ["", "k\x01v", "k\x01v\x02", "\x02", "\x01", 'k\x01"\\/\n\u00e9\U0001f600', "k"])
def test_odd_properties(kit: ReaderKit, serialise: SerializeType, sent: str) -> None:
    with connected(kit) as client:
        answers = [client.ask(send_frame("TopicA", b"x", start + sent, serialise=serialise)) for start in ("", UNIQ)]
    own = sent.removesuffix("\x02") + "\x02" if "\x01" in sent[1:] else ""
    made = f"UNIQ_KEY\x01{answers[0].ext_fields['transactionId']}\x02"
    assert stored(kit) == [own + made, UNIQ + own]
    assert answers[1].ext_fields["transactionId"] == "AB"


@pytest.mark.parametrize("serialise", BOTH)
@pytest.mark.parametrize("host_bytes", [4, 16])
def test_a_header_of_nothing_but_what_must_be_there(
    make_kit: MakeKit, serialise: SerializeType, host_bytes: int
) -> None:
    """The pair that the broker adds does not depend on room among the header's bytes."""
    kit = make_kit(store_host_bytes=host_bytes)
    kit.set_additions(ADDITIONS)
    kit.start("write")
    kit.start("read")
    fields = {"a": "P", "b": "TopicA", "e": "0", "f": "0", "g": "0", "h": "0"}
    with connected(kit) as client:
        answer = client.ask(request(310, fields, b"x", serialise=serialise))
    key = answer.ext_fields["transactionId"]
    assert answer.code == 0 and len(key) == 2 * host_bytes + 24
    assert stored(kit) == [f"UNIQ_KEY\x01{key}\x02"]


def test_pairs_of_requests_under_way_do_not_meet(make_kit: MakeKit) -> None:
    """Without a write role every request stays under way; then all are stored, each with its own key."""
    kit = make_kit("read")
    kit.set_additions(ADDITIONS)
    count = 200
    with connected(kit) as client:
        client.send(*(send_frame("TopicA", b"x", None, opaque=n) for n in range(count)))
        kit.start("write")
        keys = [client.answer().ext_fields["transactionId"] for _ in range(count)]
    assert len(set(keys)) == count
    assert sorted(stored(kit)) == sorted(f"UNIQ_KEY\x01{key}\x02" for key in keys)
