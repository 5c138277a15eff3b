"""Both brokers get the same requests, byte by byte; what they store must be the same but for what cannot be."""

import itertools
import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.records import Record, index_entries, log_bytes, queue_units, records
from tests.conformance.servers import SMALL_FILES, Server
from tests.conformance.stock_client import StockClient
from tests.conformance.wire import (
    SEND_BATCH_MESSAGE,
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    Wire,
    batch_body,
    send_fields,
    shortened,
)
from tests.waiting import wait_until

SETTINGS = {**SMALL_FILES, "mappedFileSizeCommitLog": 1 << 18}
LONG_TOPIC = "BytesLong_" + "x" * 117
TOPICS = {"BytesA": 4, "BytesB": 1, LONG_TOPIC: 1}
PROPERTIES_OF_A_BATCH = 4


def unique_key(number: int) -> str:
    return f"7F0000010000{number:020X}"


def single(number: int) -> tuple[int, dict[str, Any], bytes]:
    """One of many plain sends: sizes, tags, keys, flags and topics go round."""
    topic = (LONG_TOPIC, "BytesB", "BytesA", "BytesA", "BytesA")[number % 5]
    pairs = {"UNIQ_KEY": unique_key(number), "WAIT": "true"}
    if number % 2:
        pairs["KEYS"] = f"key-{number} shared-{number % 7} schlüssel-键"
    if number % 3:
        pairs["TAGS"] = ("TagA", "Aa", "BB", "中文", "TAG_ORDER_CREATED_EVENT")[number % 5 - 1]
    if number % 11 == 0:
        pairs["own"] = "p" * 900
    body = bytes((number + i) & 0xFF for i in range(1 + number * 37 % 2500))
    compressed = number % 13 == 0
    fields = send_fields(
        topic,
        number % TOPICS[topic],
        pairs,
        flag=number % 4,
        sysFlag=0x301 if compressed else 0,
        bornTimestamp=1_700_000_000_000 + number,
    )
    return SEND_MESSAGE_V2, shortened(fields), zlib.compress(body) if compressed else body


def requests() -> Iterator[tuple[int, dict[str, Any], bytes]]:
    """All requests whose records must agree in every place."""
    for number in range(400):
        yield single(number)
        if number % 40 == 5:
            elements = [
                (b"element %d" % i, {"UNIQ_KEY": unique_key(10_000 + number * 10 + i), "TAGS": "TagA", "KEYS": f"e{i}"})
                for i in range(PROPERTIES_OF_A_BATCH)
            ]
            pairs = {"WAIT": "true", "seller": f"s{number}"}  # stock would index a UNIQ_KEY of the batch
            fields = send_fields("BytesA", 1, pairs, batch="true")
            yield SEND_BATCH_MESSAGE, shortened(fields), batch_body(elements)
    # the long names of code 10; and without any property but the key
    yield SEND_MESSAGE, send_fields("BytesA", 0, {"UNIQ_KEY": unique_key(30_000), "TAGS": "TagA"}), b"code 10"
    yield SEND_MESSAGE_V2, shortened(send_fields("BytesB", 0, {"UNIQ_KEY": unique_key(30_001)})), b"x" * 5000


def requests_without_key() -> Iterator[tuple[int, dict[str, Any], bytes]]:
    """Last, as the broker makes the unique key, which shifts all that follows."""
    for number in range(5):
        yield SEND_MESSAGE_V2, shortened(send_fields("BytesA", 2, {"KEYS": f"late-{number}"})), b"late %d" % number


@pytest.fixture(scope="module")
def written(
    kind: str, stock_client: StockClient, started: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, list[dict[str, Any]]]]:
    """For "stock" and "judged" (a broker of the kind): a copy of the store at the end, and the answers."""
    found = {}
    for name, its_kind in (("stock", "stock-broker"), ("judged", kind)):
        server = started(its_kind, "bytes", settings=SETTINGS)
        for topic, queues in TOPICS.items():
            stock_client.call("createTopic", server.namesrv, topic=topic, queues=queues)
        answers = []
        with Wire(server.broker) as wire:
            for code, ext, body in itertools.chain(requests(), requests_without_key()):
                answers.append(wire.request(code, ext, body))
        wait_until_indexed(stock_client, server)
        if name == "stock":
            server.kill()  # saves 10 s; all that is compared is mapped and so is in its files
        else:
            server.stop()
        copy = tmp_path_factory.mktemp(f"bytes-{name}") / "store"
        shutil.copytree(server.store, copy)
        found[name] = (copy, answers)
    return found


def wait_until_indexed(stock_client: StockClient, server: Server) -> None:
    def is_indexed() -> bool:
        found: object = stock_client.call("queryKeys", server.namesrv, topic="BytesA", keys=["late-4"])
        return found == {"late-4": ["late 4"]}

    wait_until(is_indexed, "the last message is in the index")


def stored(written: dict[str, Any], kind: str) -> list[Record | tuple[int, int]]:
    return list(records(log_bytes(written[kind][0])))


def test_answers_agree(written: dict[str, Any]) -> None:
    late = len(list(requests_without_key()))
    for number, (mine, other) in enumerate(zip(written["judged"][1], written["stock"][1], strict=True)):
        has_place = number < len(written["stock"][1]) - late
        assert answer_of(mine, has_place) == answer_of(other, has_place)


def answer_of(answer: dict[str, Any], has_place: bool) -> tuple[Any, ...]:
    """An answer to a send; of the offset ids only the place in the log, and that where it must agree."""
    ext = dict(answer["extFields"])
    places = [identity[16:] for identity in ext.pop("msgId").split(",")]
    ext.pop("transactionId", None)  # the unique key
    return answer["code"], ext, places if has_place else len(places)


def test_records_agree(written: dict[str, Any]) -> None:
    ours, theirs = stored(written, "judged"), stored(written, "stock")
    assert len(ours) == len(theirs)
    assert sum(isinstance(record, tuple) for record in ours) >= 2, "the input must cross segments"
    late = len(ours) - len(list(requests_without_key()))
    for mine, other in zip(ours[:late], theirs[:late], strict=True):
        assert mine == other
    for mine, other in zip(ours[late:], theirs[late:], strict=True):
        assert isinstance(mine, Record) and isinstance(other, Record)
        assert mine.without_unique_key() == other.without_unique_key()
        assert [sum(p.startswith(b"UNIQ_KEY") for p in record.properties) for record in (mine, other)] == [1, 1]


def test_blanks_agree_byte_for_byte(written: dict[str, Any]) -> None:
    logs = {kind: log_bytes(written[kind][0]) for kind in written}
    for blank in (record for record in stored(written, "stock") if isinstance(record, tuple)):
        place, _size = blank
        assert logs["judged"][place : place + 8] == logs["stock"][place : place + 8]


@pytest.mark.parametrize(("topic", "queues"), TOPICS.items(), ids=["BytesA", "BytesB", "long name"])
def test_consume_queues_agree(topic: str, queues: int, written: dict[str, Any]) -> None:
    for queue_id in range(queues):
        ours, theirs = (queue_units(written[kind][0], topic, queue_id) for kind in ("judged", "stock"))
        late = 5 if (topic, queue_id) == ("BytesA", 2) else 0
        assert len(ours) == len(theirs)
        assert ours[: len(ours) - late] == theirs[: len(theirs) - late]
        assert [unit[2] for unit in ours] == [unit[2] for unit in theirs]


def test_index_files_agree(written: dict[str, Any]) -> None:
    ours, theirs = (sorted((written[kind][0] / "index").iterdir()) for kind in ("judged", "stock"))
    assert len(ours) == len(theirs) >= 2
    for mine, other in zip(ours[:-1], theirs[:-1], strict=True):
        assert index_entries(mine, 100) == index_entries(other, 100)
    # the last file also holds the keys that the brokers made
    last, other_last = (index_entries(files[-1], 100)[2] for files in (ours, theirs))
    late = 2 * len(list(requests_without_key()))
    assert last[:-late] == other_last[:-late]


def test_topic_tables_agree(written: dict[str, Any]) -> None:
    tables = {}
    for kind in written:
        table = json.loads((written[kind][0] / "config" / "topics.json").read_text())["topicConfigTable"]
        tables[kind] = {name: entry for name, entry in table.items() if not name.startswith("%RETRY%")}
    assert tables["judged"] == tables["stock"]
