"""The pairs of the messages of a batch (320): those of the header, of the message itself, and of the broker."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest
from plane_kit import Kit, element
from reader_kit import ReaderKit, connected, send_frame

from ringmq.ipc.admission_twin import is_reserved
from ringmq.native import ffi, lib
from ringmq.store.record import parse_properties

ADDITIONS = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
RULE = b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02TIMER_OUT_MS\x0177\x02"
NAMES = (b"UNIQ_KEY", b"WAIT", b"KEYS", b"TAGS", b"TIMER_DELAY_MS", b"TIMER_OUT_MS", b"REAL_TOPIC", b"MSG_REGION", b"a")


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path / "store")


def pairs_of_message(header: bytes, own: bytes, rule: bytes) -> bytes:
    """Twin of fill_batch in native/src/write/write_request.h: the pairs of a message's record."""
    head, tail = [], []
    for pair in header.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name and value:
            (tail if is_reserved(name) else head).append(pair + b"\x02")
    own += b"\x02" if own and not own.endswith(b"\x02") else b""
    return b"".join((*head, own, *tail, rule, ADDITIONS))


def some_pairs(dice: random.Random, count: int) -> bytes:
    """Pairs with names of NAMES, the last one sometimes without its end."""
    chosen = (dice.choice(NAMES) for _ in range(dice.randrange(count)))
    text = b"".join(b"%b\x01%d%b\x02" % (name, dice.randrange(99), dice.choice((b"", b"\x01x"))) for name in chosen)
    return text[:-1] if dice.random() < 0.3 else text


def stored(kit: Kit) -> list[bytes]:
    return [data[view.properties_at :][: view.properties_length] for _, data, view in kit.records()]


def unique_key(pairs: bytes) -> bytes:
    """The key that dispatch puts into the index."""
    keys = ffi.new("struct rmq_dispatch_keys *")
    raw = ffi.from_buffer("uint8_t[]", pairs)
    lib.rmq_dispatch_keys_find(raw, len(pairs), keys)
    return bytes(ffi.buffer(keys.uniq_key, keys.uniq_key_length)) if keys.uniq_key else b""


@pytest.mark.parametrize("seed", range(4))
def test_pairs_are_those_of_the_twin_and_a_message_s_own_count(kit: Kit, seed: int) -> None:
    dice = random.Random(seed)
    kit.set_additions(ADDITIONS)
    topic = kit.topic(b"T")
    expected: list[tuple[bytes, bytes, bytes]] = []
    with kit.writer() as run:
        for _ in range(60):
            header, rule = some_pairs(dice, 5), dice.choice((b"", RULE))
            parts = [some_pairs(dice, 6) for _ in range(1 + dice.randrange(4))]
            body = b"".join(element(b"x", own) for own in parts)
            kit.request(topic, 0, body, kind=lib.RMQ_APPEND_BATCH, properties=header, extra=rule)
            expected += ((header, own, rule) for own in parts)
            run()
            assert [completion.code for completion in kit.completions()] == [0]
    found = stored(kit)
    assert found == [pairs_of_message(*one) for one in expected]
    for pairs, (header, own, rule) in zip(found, expected, strict=True):
        of_header = parse_properties(header)
        asked = {name: value for name, value in of_header.items() if is_reserved(name.encode())}
        of_broker = parse_properties(rule + ADDITIONS)
        assert parse_properties(pairs) == of_header | parse_properties(own) | asked | of_broker
        key = parse_properties(own).get("UNIQ_KEY", of_header.get("UNIQ_KEY", ""))
        assert unique_key(pairs) == key.encode()


def java_batch() -> bytes:
    """Messages of a batch with the keys that MessageClientIDSetter.setUniqID gives to each."""
    return b"".join(element(b"m%d" % at, b"UNIQ_KEY\x01OWN%d\x02WAIT\x01true\x02" % at) for at in range(3))


def test_messages_of_a_java_batch_keep_their_unique_keys(reader: ReaderKit) -> None:
    with connected(reader) as client:
        answer = client.ask(send_frame("TopicA", java_batch(), "UNIQ_KEY\x01BATCH\x02WAIT\x01true\x02", batch=True))
    assert [parse_properties(pairs)["UNIQ_KEY"] for pairs in stored(reader)] == ["OWN0", "OWN1", "OWN2"]
    assert answer.ext_fields["transactionId"] == "BATCH", "as stock"


@pytest.mark.parametrize("size", [0, 22, 25, 1 << 20, -1])
def test_ids_of_a_batch_do_not_depend_on_sizes_that_stock_ignores(reader: ReaderKit, size: int) -> None:
    body = bytearray(java_batch())
    length = len(body) // 3
    for at in range(0, len(body), length):
        struct.pack_into(">i", body, at, size)
    with connected(reader) as client:
        answer = client.ask(send_frame("TopicA", bytes(body), batch=True))
    places = [offset for offset, *_ in reader.records()]
    assert answer.ext_fields["msgId"].split(",") == [f"7F00000100002A9F{place:016X}" for place in places]
    assert len(places) == 3


@pytest.fixture
def reader(make_kit: Any) -> ReaderKit:
    kit: ReaderKit = make_kit("write", "read")
    return kit
