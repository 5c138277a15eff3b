"""consumerOrderInfo.json: read as RocketMQ has written it, and written as RocketMQ writes it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk_stage import Stage, receipts
from msgspec import structs
from test_desk_orders import NOTHING, committed, pop, told

from ringmq.fastjson.reader import read_config
from ringmq.native import lib
from ringmq.pop.order_file import FILE, SAVE_MS, OrderFile
from ringmq.pop.order_records import BatchRecord, read_batches, write_batches
from ringmq.store.config_files import encode_config, load_config, persist_config
from tests.waiting import wait_until

GOLDEN = Path(__file__).parent.parent / "golden" / "pop" / FILE
MONO_MS = 5000


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic of one queue with six messages."""
    made = Stage(tmp_path / "store")
    made.topic("T", 1)
    made.group("G")
    made.send("T", 6)
    yield made


def file_of(stage: Stage) -> OrderFile:
    plane: Any = stage.plane
    return OrderFile(stage.memory.root, plane, stage.windows, stage.desk.windows, stage.lines.append)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def record(**more: Any) -> BatchRecord:
    one = BatchRecord("T", "G", 0, now_ms() - 100, 60_000, (0, 1, 2), (60_000,) * 3, (2, 0, 0), 0b010, "a1")
    return structs.replace(one, **more)


def given(stage: Stage, *records: BatchRecord) -> int:
    """The number of batches that are taken over from a file with these."""
    persist_config(stage.memory.root, FILE, write_batches(iter(records)))
    return file_of(stage).take_over(now_ms(), time.monotonic_ns() // 1_000_000)


def test_the_file_of_a_stock_broker_is_read_and_written() -> None:
    text = GOLDEN.read_text()
    (found,) = read_batches(read_config(text))
    assert found == BatchRecord("GPO", "CGO", 0, 1795209130264, 30_000, (10, 11), (30_000,) * 2, (0, 0), 0, "a6")
    assert encode_config(FILE, write_batches(iter([found]))) == text.replace('"l":1795209130265', '"l":1795209130264')


def test_times_and_counts_have_the_keys_of_their_messages() -> None:
    one = record(visible_ms=(60_000, 5, 60_000), pop_time_ms=1000)
    content = write_batches(iter([one]))
    assert content["table"]["T@G"][0] == {
        "a": "a1", "cm": 2, "i": 60_000, "l": 1000, "o": [0, 1, 2], "oc": {0: 2}, "ot": {1: 1005}, "popTime": 1000,
    }  # fmt: skip
    assert list(read_batches(read_config(encode_config(FILE, content)))) == [one]


@pytest.mark.parametrize(
    "bean",
    [
        {}, {"o": [], "popTime": 1}, {"o": [1, 1, 1], "popTime": 1}, {"o": list(range(33)), "popTime": 1},
        {"o": [-1], "popTime": 1}, {"o": [2**63], "popTime": 1}, {"o": ["1"], "popTime": 1}, {"o": [1]},
        {"o": [1], "popTime": 1, "ot": 5}, {"o": [1], "popTime": 2**63}, {"o": [0, 2**33], "popTime": 1}, None, 7,
    ],
)  # fmt: skip
def test_a_batch_that_cannot_be_read_is_left_out(bean: Any) -> None:
    sound = write_batches(iter([record()]))["table"]["T@G"][0]
    found = list(read_batches({"table": {"T@G": {0: sound, 1: bean}}}))
    assert found == [record(pop_time_ms=sound["popTime"]), "T@G, queue 1"]


def test_a_batch_blocks_as_it_did_at_the_other_broker(stage: Stage) -> None:
    assert given(stage, record()) == 1
    assert told(pop(stage, attempt="a2")) == NOTHING
    again = pop(stage, 2, attempt="a1")
    assert told(again)[:2] == ("0 0 0,1", "0 qo0%0 2;0 0 0"), "its attempt, and its counts"


def test_receipts_of_the_other_broker_are_good(stage: Stage) -> None:
    one = record()
    assert given(stage, one) == 1
    receipt = f"0 {one.pop_time_ms} 60000 999 0 broker-a 0 "
    assert stage.ack(receipt + "0").code == 0 and committed(stage) == 2
    assert stage.ack(receipt + "2").code == 0 and committed(stage) == 3
    assert told(pop(stage))[0] == "0 0 3,4,5"


@pytest.mark.parametrize(
    "more",
    [
        {"pop_time_ms": 1}, {"group": "NO"}, {"topic": "NO"}, {"queue_id": 1}, {"acked": 0b111},
        {"offsets": (4, 5, 6)},
    ],
)  # fmt: skip
def test_batches_of_which_nothing_is_open_are_left_out(stage: Stage, more: dict[str, Any]) -> None:
    assert given(stage, record(**more)) == 0
    assert told(pop(stage))[:2] == ("0 0 0,1,2", "0 0 0")


def test_an_old_batch_passes_over_no_message(stage: Stage) -> None:
    """Its acknowledgements would move the group behind messages that it has not had."""
    assert given(stage, record(offsets=(1, 2, 3))) == 0
    assert told(pop(stage))[0] == "0 0 0,1,2"


def test_an_attempt_may_be_no_unicode(stage: Stage) -> None:
    persist_config(stage.memory.root, FILE, write_batches(iter([record()])))
    path = stage.memory.root / "config" / FILE
    path.write_text(path.read_text().replace('"a1"', '"\\ud800"'))
    assert file_of(stage).take_over(now_ms(), time.monotonic_ns() // 1_000_000) == 1


def test_the_newest_batch_counts(stage: Stage) -> None:
    """The file is older than the memory after a death of the worker."""
    older = record()
    stage.ack(receipts(pop(stage))[0])
    assert given(stage, older) == 0
    assert given(stage, record(pop_time_ms=now_ms() + 50, offsets=(1, 2, 3), attempt="a9")) == 1
    assert told(pop(stage, attempt="a9"))[0] == "0 0 1,2,3"


def test_changes_are_written_in_turns_and_at_the_end(stage: Stage) -> None:
    file = file_of(stage)
    root = stage.memory.root
    assert not file.turn(MONO_MS) and load_config(root, FILE) == {}
    second = receipts(pop(stage, attempt="a1"))[1]

    def written() -> Any:
        file.turn(MONO_MS)
        return load_config(root, FILE)

    wait_until(lambda: bool(written()), "the file is written")
    assert load_config(root, FILE)["table"]["T@G"][0]["cm"] == 0
    stage.ack(second)
    file.turn(MONO_MS + SAVE_MS - 1)
    assert load_config(root, FILE)["table"]["T@G"][0]["cm"] == 0, "not yet"
    file.finish(MONO_MS + SAVE_MS - 1)
    bean = load_config(root, FILE)["table"]["T@G"][0]
    assert (bean["cm"], bean["o"], bean["a"]) == (2, [0, 1, 2], "a1")
    assert file_of(stage).take_over(now_ms(), MONO_MS) == 0, "it is that of the memory"


def test_a_file_that_cannot_be_written_is_written_later(stage: Stage) -> None:
    file, config = file_of(stage), stage.memory.root / "config"
    pop(stage)
    if config.is_dir():
        config.rmdir()
    config.write_text("in the way")

    def is_told() -> bool:
        file.turn(MONO_MS)
        return bool(stage.lines)

    wait_until(is_told, "the failure is told")
    assert "consumerOrderInfo.json cannot be written" in stage.lines[0]
    config.unlink()
    file.finish(MONO_MS)
    assert load_config(stage.memory.root, FILE)["table"]["T@G"][0]["o"] == [0, 1, 2]


def test_a_damaged_file_is_kept_and_passed_over(stage: Stage) -> None:
    root = stage.memory.root
    persist_config(root, FILE, {})
    (root / "config" / FILE).write_text("{broken")
    assert file_of(stage).take_over(now_ms(), MONO_MS) == 0
    assert (root / "config" / f"{FILE}.damaged").read_text() == "{broken"
    assert "orderly groups go on without it" in stage.lines[0]
    assert lib.rmq_pop_counts_of(stage.windows).orders == 0
