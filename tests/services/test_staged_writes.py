"""Staged writes at a running broker: invisible until committed, once per micro-batch, refused when they are wrong."""

import dataclasses
import shutil
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.client.errors import BrokerError
from ringmq.client.producing.staged_writes import CommitRequest, StagedChunk
from ringmq.client.topics import is_user_topic
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting import staged_writes
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.message_id import encode_offset_id
from ringmq.remoting.staged_writes import COMMITS_TOPIC, STAGED_TOPIC
from ringmq.services.staged import staged_table
from ringmq.services.staged.bodies import StagedBodies
from ringmq.services.staged.events import Unsound
from ringmq.store import markers
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import load_config, persist_config
from ringmq.store.recovery import recover
from ringmq.store.salvage import truncate
from tests.broker.test_processes import SMALL
from tests.raw_client import RawClient, pull_fields
from tests.spark_bridge.made_store import Fields, record_bytes
from tests.staging import Stager, batch_body, bodies_of, make_topic, messages_of
from tests.waiting import wait_dispatched, wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("staged") / "store", {**SMALL, "maxMessageSize": 65_536}) as running:
        yield running


@pytest.fixture
def stager(broker: RunningBroker) -> Iterator[Stager]:
    with Stager(broker) as made:
        yield made


def rows(name: str, count: int = 5) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(count)]


def test_rows_are_invisible_until_the_commit_and_whole_after_it(broker: RunningBroker, stager: Stager) -> None:
    make_topic(broker.address, "Whole")
    staged = stager.stage("whole", 0, [("Whole", 0, rows("a")), ("Whole", 1, rows("b")), ("Whole", 0, rows("c"))])
    wait_dispatched(broker.store)
    assert bodies_of(broker.address, "Whole") == []
    stager.commit("whole", 0, staged)
    wait_until(lambda: len(bodies_of(broker.address, "Whole")) == 15, "all rows are readable")
    assert bodies_of(broker.address, "Whole") == rows("a") + rows("c") + rows("b")


def test_messages_look_like_any_others(broker: RunningBroker, stager: Stager) -> None:
    make_topic(broker.address, "Look", 1)
    stager.commit("look", 0, stager.stage("look", 0, [("Look", 0, [b"one", b"two"])]))
    wait_until(lambda: len(messages_of(broker.address, "Look", 1)) == 2, "both are readable")
    first, second = messages_of(broker.address, "Look", 1)
    assert (first.topic, first.queue_id, first.queue_offset, second.queue_offset) == ("Look", 0, 0, 1)
    assert first.properties["KEYS"] == "k" and first.properties["UNIQ_KEY"] == "0" * 32
    assert not [name for name in first.properties if name.startswith("RINGMQ")]
    assert first.prepared_transaction_offset and first.sys_flag == 0


def test_a_second_commit_adds_nothing_whatever_it_holds(broker: RunningBroker, stager: Stager) -> None:
    make_topic(broker.address, "Once", 1)
    stager.commit("once", 4, stager.stage("once", 4, [("Once", 0, rows("first"))]))
    other_order = stager.stage("once", 4, [("Once", 0, rows("first")[::-1])], attempt=1)
    stager.commit("once", 4, other_order)
    stager.commit("once", 3, stager.stage("once", 3, [("Once", 0, rows("zombie"))]))
    stager.commit("once", 5, stager.stage("once", 5, [("Once", 0, rows("next"))]))
    wait_until(lambda: len(bodies_of(broker.address, "Once", 1)) == 10, "two batches are readable")
    assert bodies_of(broker.address, "Once", 1) == rows("first") + rows("next")


def test_attempts_that_are_not_named_are_never_seen(broker: RunningBroker, stager: Stager) -> None:
    make_topic(broker.address, "Attempts", 1)
    stager.stage("attempts", 0, [("Attempts", 0, rows("lost"))], attempt=0)
    won = stager.stage("attempts", 0, [("Attempts", 0, rows("won"))], attempt=1)
    stager.stage("attempts", 0, [("Attempts", 0, rows("late"))], attempt=2)
    stager.commit("attempts", 0, won)
    wait_until(lambda: bodies_of(broker.address, "Attempts", 1) == rows("won"), "the winner's rows are readable")
    stager.commit("attempts", 1, stager.stage("attempts", 1, [("Attempts", 0, rows("next"))]))
    wait_until(lambda: rows("next")[-1] in bodies_of(broker.address, "Attempts", 1), "a later commit is readable")
    assert bodies_of(broker.address, "Attempts", 1) == rows("won") + rows("next")


def test_an_empty_micro_batch_is_a_decision_too(broker: RunningBroker, stager: Stager) -> None:
    make_topic(broker.address, "Empty", 1)
    stager.commit("empty", 0, stager.stage("empty", 0, [("Empty", 0, rows("first"))]))
    stager.commit("empty", 1, ())
    stager.commit("empty", 1, stager.stage("empty", 1, [("Empty", 0, rows("late"))]))
    wait_dispatched(broker.store)
    assert bodies_of(broker.address, "Empty", 1) == rows("first")


def test_the_topics_are_the_systems_own(broker: RunningBroker, stager: Stager) -> None:
    assert not is_user_topic(STAGED_TOPIC) and not is_user_topic(COMMITS_TOPIC)
    with RawClient(broker.address) as client:
        assert client.send(COMMITS_TOPIC, b"forged").code == ResponseCode.NO_PERMISSION
        answer = client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": COMMITS_TOPIC})
        assert answer.code == ResponseCode.INVALID_PARAMETER


def test_no_request_shows_a_record_of_the_topics(broker: RunningBroker, stager: Stager) -> None:
    """A query id is all that a commit needs, so nobody else may read it."""
    make_topic(broker.address, "Secret", 1)
    with RawClient(broker.address) as client:
        pairs = {"KEYS": "a-key", **StagedChunk(0, 0, 0, 0, 1, 0).properties("secret", 0, "Secret", 0)}
        chunk = int(client.send(STAGED_TOPIC, b"x", pairs=pairs).ext_fields["msgId"][16:], 16)
    stager.commit("secret", 0, stager.stage("secret", 0, [("Secret", 0, rows("x"))]))
    wait_dispatched(broker.store)
    units = broker.store / "consumequeue" / COMMITS_TOPIC / "0" / f"{0:020d}"
    decision = int.from_bytes(units.read_bytes()[:8], "big")
    with RawClient(broker.address) as client:
        for topic in (STAGED_TOPIC, COMMITS_TOPIC):
            for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
                answer = client.ask(code, pull_fields(topic))
                assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b""), (topic, code)
        for offset in (chunk, decision):
            answer = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
            assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")
            fields = {"consumerGroup": "g", "clientId": "c", "msgId": encode_offset_id("127.0.0.1", 1, offset)}
            answer = client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
            assert "can not find message" in (answer.remark or "")
        fields = {
            "topic": STAGED_TOPIC, "key": "a-key", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 1 << 62,
        }  # fmt: skip
        answer = client.ask(RequestCode.QUERY_MESSAGE, fields)
        assert (answer.code, answer.body) == (ResponseCode.QUERY_NOT_FOUND, b"")


def test_a_refusal_shows_nothing_of_another_writers_chunk(broker: RunningBroker, stager: Stager) -> None:
    make_topic(broker.address, "Others", 1)
    (chunk,) = stager.stage("a-secret-id", 0, [("Others", 0, rows("x"))])
    _, told = refusal(stager, 0, chunk, query="stranger")
    assert "RINGMQ_QUERY" in told and "a-secret-id" not in told
    _, told = refusal(stager, 0, dataclasses.replace(chunk, body_bytes=1, body_crc=2), query="stranger")
    assert "bodyBytes = 1, bodyCrc = 2" in told
    assert str(chunk.body_bytes) + " " not in told and str(chunk.body_crc) not in told


def refusal(stager: Stager, batch: int, *chunks: StagedChunk, query: str = "bad") -> tuple[int, str]:
    with pytest.raises(BrokerError) as caught:
        stager.commit(query, batch, chunks)
    return caught.value.code, str(caught.value)


def test_chunks_that_are_not_what_the_commit_says_are_refused(broker: RunningBroker, stager: Stager) -> None:
    make_topic(broker.address, "Bad", 1)
    (good,) = stager.stage("bad", 0, [("Bad", 0, rows("x"))])
    with RawClient(broker.address) as client:
        ordinary = int(client.send("Bad", b"ordinary").ext_fields["msgId"][16:], 16)
    change = dataclasses.replace
    for chunk, word in (
        (change(good, body_crc=good.body_crc ^ 1), "bodyCrc"),
        (change(good, body_bytes=good.body_bytes + 1), "bodyBytes"),
        (change(good, attempt=9), "RINGMQ_ATTEMPT"),
        (change(good, partition=9), "RINGMQ_PARTITION"),
        (change(good, commit_log_offset=good.commit_log_offset + 1), "no readable message"),
        (change(good, commit_log_offset=1 << 40), "no readable message"),
        (change(good, commit_log_offset=ordinary), "not a staged one"),
    ):
        code, text = refusal(stager, 0, chunk)
        assert code == ResponseCode.INVALID_PARAMETER and word in text, (chunk, text)
    assert refusal(stager, 1, good)[0] == ResponseCode.INVALID_PARAMETER, "of another micro-batch"
    assert "RINGMQ_QUERY" in refusal(stager, 0, good, query="another")[1]
    wait_dispatched(broker.store)
    assert bodies_of(broker.address, "Bad", 1) == [b"ordinary"]


@pytest.mark.parametrize("queue", ["\u00b2", "\u0663", "", "-1", "7" * 5000])
def test_a_queue_id_that_is_no_number_costs_a_refusal_only(broker: RunningBroker, stager: Stager, queue: str) -> None:
    control, body = broker.worker_pids()["control"], batch_body([b"x"])
    with RawClient(broker.address) as client:
        said = {**StagedChunk(0, 0, 0, 0, 1, 0).properties("forged", 0, "Any", 0), staged_writes.TARGET_QUEUE: queue}
        at = int(client.send(stager.area.topic, body, pairs=said).ext_fields["msgId"][16:], 16)
    chunk = StagedChunk(0, 0, 0, at, len(body), zlib.crc32(body) & 0x7FFFFFFF)
    code, text = refusal(stager, 0, chunk, query="forged")
    assert code == ResponseCode.INVALID_PARAMETER and "RINGMQ_QUEUE" in text
    assert broker.worker_pids()["control"] == control


def test_targets_that_may_not_be_written_are_refused(broker: RunningBroker, stager: Stager) -> None:
    make_topic(broker.address, "Target", 1)
    for topic, queue, code in (
        ("NoSuchTopic", 0, ResponseCode.TOPIC_NOT_EXIST),
        ("Target", 1, ResponseCode.INVALID_PARAMETER),
        (COMMITS_TOPIC, 0, ResponseCode.NO_PERMISSION),
        ("SCHEDULE_TOPIC_XXXX", 0, ResponseCode.NO_PERMISSION),
        ("%RETRY%g", 0, ResponseCode.TOPIC_NOT_EXIST),
    ):
        staged = stager.stage("targets", 0, [(topic, queue, rows("x"))])
        assert refusal(stager, 0, *staged, query="targets")[0] == code, topic


def test_bodies_that_write_would_refuse_are_refused_before_the_decision(broker: RunningBroker, stager: Stager) -> None:
    make_topic(broker.address, "Body", 1)
    body = batch_body([b"fine", b"cut off"])[:-1]
    with RawClient(broker.address) as client:
        said = StagedChunk(0, 0, 0, 0, 1, 0).properties("body", 0, "Body", 0)
        at = int(client.send(stager.area.topic, body, pairs=said).ext_fields["msgId"][16:], 16)
    chunk = StagedChunk(0, 0, 0, at, len(body), zlib.crc32(body) & 0x7FFFFFFF)
    code, text = refusal(stager, 0, chunk, query="body")
    assert code == ResponseCode.MESSAGE_ILLEGAL and "element 1" in text


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "parse"),
        (b"[]", "object"),
        (b'{"batchId":0}', "queryId"),
        (b'{"queryId":"q"}', "batchId"),
        (b'{"queryId":"q","batchId":-1}', "negative"),
        (b'{"queryId":"' + b"q" * 129 + b'","batchId":0}', "128"),
        (b'{"queryId":"q","batchId":0,"partitions":[{"partition":0,"attempt":0,"chunks":[[1,2]]}]}', "chunk 0"),
        (b'{"queryId":"q","batchId":0,"partitions":[{"partition":0,"attempt":0,"chunks":[[-1,2,3]]}]}', "negative"),
        (b'{"queryId":"q","batchId":0,"partitions":[{"partition":0,"attempt":0}]}', "no list"),
        (b'{"queryId":"q","batchId":0,"partitions":[7]}', "partitions"),
        (
            b'{"queryId":"q","batchId":0,"partitions":['
            b'{"partition":0,"attempt":0,"chunks":[]},{"partition":0,"attempt":1,"chunks":[]}]}',
            "twice",
        ),
        (b" " * (staged_writes.COMMIT_BODY_BYTES_MAX + 1), str(staged_writes.COMMIT_BODY_BYTES_MAX)),
    ],
)
def test_malformed_commits_are_refused_by_field(broker: RunningBroker, body: bytes, word: str) -> None:
    with RawClient(broker.address) as client:
        answer = client.ask(RequestCode.STAGED_WRITES, {"operation": "commit"}, body)
    assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
    assert word in (answer.remark or "")


def test_a_commit_has_as_many_chunks_as_its_decision_has_room_for(broker: RunningBroker, stager: Stager) -> None:
    make_topic(broker.address, "Many", 1)
    most = stager.area.chunks_max
    assert most < staged_writes.CHUNKS_MAX, "maxMessageSize bounds it here"
    staged = stager.stage("many", 0, [("Many", 0, [b"%d" % number]) for number in range(most + 1)])
    code, text = refusal(stager, 0, *staged, query="many")
    assert code == ResponseCode.INVALID_PARAMETER and str(most) in text
    stager.commit("many", 0, staged[:most])
    wait_until(lambda: len(bodies_of(broker.address, "Many", 1)) == most, "all chunks are readable")


def test_an_unknown_operation_is_refused(broker: RunningBroker) -> None:
    with RawClient(broker.address) as client:
        answer = client.ask(RequestCode.STAGED_WRITES, {"operation": "rollback"})
    assert answer.code == ResponseCode.INVALID_PARAMETER and "describe, commit" in (answer.remark or "")


@pytest.mark.parametrize("policy", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_decisions_outlive_control_and_broker(tmp_path: Path, policy: str) -> None:
    store, settings = tmp_path / "store", {**SMALL, "flushDiskType": policy, "flushConsumerOffsetInterval": 20}
    with RunningBroker(store, settings) as broker:
        make_topic(broker.address, "Kept")
        with Stager(broker) as stager:
            stager.commit("kept", 0, stager.stage("kept", 0, [("Kept", 0, rows("zero"))]))
            old = broker.signal_worker("control", signal.SIGKILL)
            wait_until(lambda: broker.worker_pids().get("control", old) != old, "control is started again")
            stager.commit("kept", 0, stager.stage("kept", 0, [("Kept", 1, rows("again"))]))
            stager.commit("kept", 1, stager.stage("kept", 1, [("Kept", 1, rows("one"))]))
            wait_until(lambda: load_config(store, staged_table.FILE).get("queries"), "the table is saved")
        assert broker.stop() == 0
    with RunningBroker(store, settings) as broker:
        with Stager(broker) as stager:
            for batch in (0, 1):
                stager.commit("kept", batch, stager.stage("kept", batch, [("Kept", 0, rows("restarted"))]))
        wait_dispatched(store)
        assert bodies_of(broker.address, "Kept") == rows("zero") + rows("one")


def test_a_chunk_that_is_in_the_log_in_part_becomes_whole(tmp_path: Path) -> None:
    """What kill -9 of everybody within an append leaves, or a power cut: the log ends between two of its records."""
    store = tmp_path / "store"
    with RunningBroker(store, SMALL) as broker:
        make_topic(broker.address, "Half", 1)
        with Stager(broker) as stager:
            stager.commit("half", 0, stager.stage("half", 0, [("Half", 0, rows("a")), ("Half", 0, rows("b"))]))
        wait_until(lambda: len(messages_of(broker.address, "Half", 1)) == 10, "both chunks are readable")
        cut = messages_of(broker.address, "Half", 1)[7].commit_log_offset
        broker.kill_all()
    log = store / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[:cut].ljust(SMALL["mappedFileSizeCommitLog"], b"\0"))
    with RunningBroker(store, SMALL) as broker:
        wait_until(lambda: len(bodies_of(broker.address, "Half", 1)) >= 10, "the rest is published")
        with Stager(broker) as stager:
            stager.commit("half", 0, stager.stage("half", 0, [("Half", 0, rows("again"))]))
        wait_dispatched(store)
        assert bodies_of(broker.address, "Half", 1) == rows("a") + rows("b")


@pytest.mark.parametrize("has_come", ["broken", "nothing"])
def test_a_table_that_is_not_there_is_built_again_from_the_log(tmp_path: Path, has_come: str) -> None:
    """Nothing: as on a slave that is made master before its first look at the master's topics; it has the log alone."""
    store, settings = tmp_path / "store", {**SMALL, "flushConsumerOffsetInterval": 20}
    with RunningBroker(store, settings) as broker:
        make_topic(broker.address, "Table")
        with Stager(broker) as stager:
            stager.commit("table", 0, stager.stage("table", 0, [("Table", 0, rows("zero"))]))
        wait_until(lambda: (store / "config" / staged_table.FILE).exists(), "the table is saved")
        assert broker.stop() == 0
    for name in (staged_table.FILE, staged_table.FILE + ".bak"):
        (store / "config" / name).unlink(missing_ok=True)
        if has_come == "broken":
            (store / "config" / name).write_text("{broken")
    if has_come == "nothing":
        topics = load_config(store, "topics.json")
        for topic in (COMMITS_TOPIC, STAGED_TOPIC):
            del topics["topicConfigTable"][topic]
        persist_config(store, "topics.json", topics)
    with RunningBroker(store, settings) as broker:
        with Stager(broker) as stager:
            stager.commit("table", 0, stager.stage("table", 0, [("Table", 0, rows("again"))]))
        wait_dispatched(store)
        assert bodies_of(broker.address, "Table") == rows("zero")
        assert ("built again" in broker.log_tail()) == (has_come == "broken")


def by_hand(store: Path, border: int) -> None:
    """As whoever brings another log into the store does it: all that is made from the log is made again."""
    log = store / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[:border].ljust(SMALL["mappedFileSizeCommitLog"], b"\0"))
    shutil.rmtree(store / "consumequeue")
    (store / "checkpoint").unlink()
    markers.write_abort(store, 1)


def by_order(store: Path, border: int) -> None:
    """As replication does it."""
    files = SMALL["mappedFileSizeCommitLog"], SMALL["mappedFileSizeConsumeQueue"]
    config = StoreConfig(
        root=store, commit_log_file_bytes=files[0], consume_queue_file_bytes=files[1],
        index_slots=SMALL["maxHashSlotNum"], index_entries=SMALL["maxIndexNum"],
    )  # fmt: skip
    assert truncate(config, border, staged_table.forget_behind).end_offset == border
    assert recover(config).append_offset == border


@pytest.mark.parametrize("cut_log", [by_hand, by_order])
def test_a_decision_that_was_cut_out_of_the_log_is_none(tmp_path: Path, cut_log: Callable[[Path, int], None]) -> None:
    """What has grown over the place where it was is another history."""
    store, settings = tmp_path / "store", {**SMALL, "flushConsumerOffsetInterval": 20}
    with RunningBroker(store, settings) as broker:
        make_topic(broker.address, "Branch", 1)
        with Stager(broker) as stager:
            zero, one = (stager.stage("q", batch, [("Branch", 0, rows(str(batch)))]) for batch in (0, 1))
            stager.commit("q", 0, zero)
            with RawClient(broker.address) as client:
                border = int(client.send("Branch", b"border").ext_fields["msgId"][16:], 16)
            stager.commit("q", 1, one)
        wait_until(
            lambda: any(query[1] == 1 for query in load_config(store, staged_table.FILE).get("queries", [])),
            "the table is saved",
        )
        assert broker.stop() == 0
    log = store / "commitlog" / f"{0:020d}"
    end = len(log.read_bytes().rstrip(b"\0"))
    cut_log(store, border)
    with log.open("r+b") as file:
        at, number = file.seek(border), 0
        while at < end + 4096:
            at += file.write(record_bytes(Fields(topic="Filler"), number, at))
            number += 1
    with RunningBroker(store, settings) as broker:
        wait_dispatched(store)
        assert bodies_of(broker.address, "Branch", 1) == rows("0")
        with Stager(broker) as stager:
            stager.commit("q", 0, zero)
            stager.commit("q", 1, one)
        wait_until(lambda: len(bodies_of(broker.address, "Branch", 1)) >= 10, "the batch is decided again")
        assert bodies_of(broker.address, "Branch", 1) == rows("0") + rows("1")


@pytest.mark.parametrize(
    ("confirmed", "appended", "code"),
    [
        (1000, 2000, ResponseCode.SYSTEM_BUSY),
        (1050, 2000, ResponseCode.SYSTEM_BUSY),  # its first bytes are
        (1000, 1000, ResponseCode.INVALID_PARAMETER),  # not in the log at all
        (2000, 2000, ResponseCode.INVALID_PARAMETER),
        (900_000, 900_001, ResponseCode.INVALID_PARAMETER),  # long confirmed, whatever else waits
    ],
)
def test_a_chunk_that_replicas_do_not_have_yet_is_waited_for(confirmed: int, appended: int, code: int) -> None:
    """Where a send is answered when fewer have it than must have what is readable."""
    log = SimpleNamespace(min_offset=0, confirm_offset=confirmed, append_offset=appended)
    view = SimpleNamespace(bounds=lambda: log, record=lambda _: None)
    bodies = StagedBodies(cast(Any, view), cast(Any, None), BrokerConfig, None)
    request = CommitRequest("q", 0, (StagedChunk(3, 0, 0, 1000, 100, 1),))
    found = bodies.inspect(request, request.chunks[0])
    assert isinstance(found, Unsound) and found.code == code


def test_a_chunk_that_retention_has_taken_is_named() -> None:
    """The state of a log whose first files are gone, without the hours that it takes."""
    log = SimpleNamespace(min_offset=1 << 20, append_offset=1 << 21)
    view = SimpleNamespace(bounds=lambda: log, record=lambda _: None)
    bodies = StagedBodies(cast(Any, view), cast(Any, None), BrokerConfig, None)
    request = CommitRequest("q", 0, (StagedChunk(3, 0, 0, 4096, 10, 1),))
    found = bodies.inspect(request, request.chunks[0])
    assert isinstance(found, Unsound) and found.code == ResponseCode.INVALID_PARAMETER
    assert "partition 3, chunk 0" in found.remark and "retention has taken" in found.remark
    assert bodies.body(4096) is None
