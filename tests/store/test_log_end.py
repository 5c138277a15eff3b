"""Readers of a store without an owner read its log to the end of the log, whatever is left of the queues."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.cli.main import main
from ringmq.doctor.collect import collect
from ringmq.doctor.gather_store import gather_store
from ringmq.store.checkpoint import Checkpoint, write_checkpoint
from ringmq.store.config import StoreConfig
from ringmq.store.inferred_config import config_for_folder
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_ends import write_rebuild
from tests.spark_bridge.made_store import MadeStore, held_by_stock
from tests.store.damage_kit import leave_bounds

MESSAGES = 300
FILE_BYTES = 1 << 13
KEPT = 35
"""Units in the first 700 bytes of a queue file."""


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """A store of one queue with one file, and a log of several files, after a clean stop of a stock broker."""
    store = MadeStore(tmp_path / "store", FILE_BYTES)
    for number in range(MESSAGES):
        store.append(body=b"message %d" % number)
    return store


def config_of(made: MadeStore) -> StoreConfig:
    return StoreConfig(made.root, commit_log_file_bytes=FILE_BYTES, consume_queue_file_bytes=20_000)


def queue_file(made: MadeStore) -> Path:
    return made.root / "consumequeue" / "T" / "0" / ("0" * 20)


def place(made: MadeStore, number: int) -> int:
    return made.places[number][0]


def verified(made: MadeStore, *options: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(main, ["store", "verify", str(made.root), "-o", "json", "-q", "--no-index", *options])
    facts: dict[str, Any] = json.loads(done.stdout)
    return done.exit_code, facts


@pytest.mark.parametrize("length", [0, 700, 701])
def test_verify_reads_all_records_of_a_log_whose_queue_is_cut(made: MadeStore, length: int) -> None:
    os.truncate(queue_file(made), length)
    status, facts = verified(made)
    assert (status, facts["records"], facts["readable_offset"]) == (1, MESSAGES, made.end)
    assert facts["errors"] == MESSAGES - length // 20
    assert facts["findings"][0]["text"] == f"queue offset {length // 20} of T/0 has no unit for it"


def test_entries_that_the_start_after_a_kill_makes_are_no_damage(made: MadeStore) -> None:
    os.truncate(queue_file(made), 700)
    (made.root / "abort").touch()
    status, facts = verified(made)
    assert (status, facts["records"], facts["errors"]) == (0, MESSAGES, 0)
    assert facts["undispatched"] == MESSAGES - KEPT
    text = CliRunner().invoke(main, ["store", "verify", str(made.root), "--no-index"]).output
    assert f"{MESSAGES - KEPT} records are in the log alone: a start makes their entries" in text


def test_a_torn_record_of_a_kill_is_no_part_of_the_log(made: MadeStore) -> None:
    made.damage(place(made, MESSAGES - 1) + 88, bytes(4))
    os.truncate(queue_file(made), 700)
    (made.root / "abort").touch()
    status, facts = verified(made)
    assert (status, facts["records"], facts["readable_offset"]) == (0, MESSAGES - 1, place(made, MESSAGES - 1))


def test_records_that_replicas_have_not_confirmed_are_in_no_queue_after_a_clean_stop(made: MadeStore) -> None:
    for _ in range(5):
        made.append(is_dispatched=False)
    write_checkpoint(made.root, Checkpoint(confirm_offset=place(made, MESSAGES)))
    status, facts = verified(made)
    assert (status, facts["records"], facts["errors"], facts["undispatched"]) == (0, MESSAGES + 5, 0, 5)
    os.truncate(queue_file(made), 700)
    status, facts = verified(made)
    assert (status, facts["errors"], facts["undispatched"]) == (1, MESSAGES - KEPT, 5)


def test_entries_that_a_repair_has_left_to_the_start_are_no_damage(made: MadeStore) -> None:
    write_rebuild(made.root, place(made, 100))
    status, facts = verified(made)
    assert (status, facts["records"], facts["undispatched"]) == (0, MESSAGES, MESSAGES - 100)
    queue_file(made).unlink()
    status, facts = verified(made)
    assert (status, facts["undispatched"]) == (1, MESSAGES - 100)


@pytest.mark.parametrize("number", [KEPT - 1, 100, MESSAGES - 1])
def test_damage_behind_a_cut_queue_is_named_and_passed(made: MadeStore, number: int) -> None:
    leave_bounds(config_of(made))
    os.truncate(queue_file(made), 700)
    made.damage(place(made, number), b"\xff" * 90)
    status, facts = verified(made)
    assert (status, facts["records"], facts["readable_offset"]) == (1, MESSAGES - 1, made.end)
    assert f"commit log {place(made, number)}" in {finding["place"] for finding in facts["findings"]}


def test_zeros_at_the_end_of_the_log_are_named(made: MadeStore) -> None:
    leave_bounds(config_of(made))
    made.damage(place(made, MESSAGES - 3), bytes(made.end - place(made, MESSAGES - 3)))
    queue_file(made).write_bytes(queue_file(made).read_bytes()[:700])
    status, facts = verified(made)
    assert (status, facts["records"]) == (1, MESSAGES - 3)
    assert f"commit log {place(made, MESSAGES - 3)}" in {finding["place"] for finding in facts["findings"]}


@pytest.mark.parametrize("lost", [[0], [1], [-1], [-2, -1]], ids=str)
def test_missing_files_of_the_log_are_named(made: MadeStore, lost: list[int]) -> None:
    paths = sorted((made.root / "commitlog").iterdir())
    assert len(paths) >= 3
    leave_bounds(config_of(made))
    queue_file(made).write_bytes(bytes(20_000))
    names = [paths[number].name for number in lost]
    text = f"file {names[0]} is missing" if len(lost) == 1 else f"files {names[0]} to {names[1]} are missing"
    for number in lost:
        paths[number].unlink()
    status, facts = verified(made)
    found = {finding["place"]: finding["text"] for finding in facts["findings"]}
    assert status == 1
    assert found[f"commit log {int(names[0])}"] == text


@pytest.mark.parametrize("kept", [0, 1])
def test_units_without_their_log_file_are_errors_in_a_store_without_bounds_too(made: MadeStore, kept: int) -> None:
    for path in sorted((made.root / "commitlog").iterdir())[kept:]:
        path.unlink()
    status, facts = verified(made)
    assert (status, facts["readable_offset"]) == (1, made.end)
    assert "name no record of the log" in facts["findings"][-1]["text"]


def test_all_readers_of_a_store_without_an_owner_know_the_end_of_its_log(made: MadeStore) -> None:
    os.truncate(queue_file(made), 700)
    shown = CliRunner().invoke(main, ["store", "inspect", str(made.root), "-o", "json"])
    assert json.loads(shown.stdout)["readable_offset"] == made.end
    start = str(place(made, MESSAGES - 1))
    last = (
        CliRunner()
        .invoke(main, ["store", "inspect", str(made.root), "--records", "--from", start, "-o", "json"])
        .stdout
    )
    assert json.loads(last)["body"] == f"message {MESSAGES - 1}"
    tail = gather_store(config_of(made)).tail
    assert tail is not None and (tail.records, tail.end_offset, tail.damage) == (MESSAGES, made.end, "")
    settings = BrokerConfig(
        store_path_root_dir=str(made.root),
        mapped_file_size_commit_log=FILE_BYTES,
        mapped_file_size_consume_queue=20_000,
    )
    (survey,) = [entry.data for entry in collect(settings, [], []) if entry.name == "store/survey.json"]
    assert json.loads(survey)["readable_offset"] == made.end


def test_a_tail_without_units_begins_at_a_record(made: MadeStore) -> None:
    os.truncate(queue_file(made), 700)
    store = MessageStore(config_of(made))
    borders = {place(made, number) for number in range(MESSAGES)}
    for length in (1, 500, FILE_BYTES, 2 * FILE_BYTES + 100):
        border = store.tail_border(made.end, length)
        assert border is None or (border in borders and border >= made.end - length)
    assert store.tail_border(made.end, 500) is not None


def test_a_stock_broker_that_runs_is_not_read_beyond_its_queues(made: MadeStore) -> None:
    made.append(is_dispatched=False, body=b"its queue gets this one in a moment")
    with held_by_stock(made.root):
        status, facts = verified(made)
    assert (status, facts["records"], facts["live_owner"]) == (0, MESSAGES, False)


@pytest.mark.parametrize("length", [700, 701])
def test_a_truncated_file_does_not_decide_what_size_the_others_have(made: MadeStore, length: int) -> None:
    for queue_id in range(1, 4):
        made.append(queue_id=queue_id)
    for cut in range(4):
        path = made.root / "consumequeue" / "T" / str(cut) / ("0" * 20)
        whole = path.read_bytes()
        os.truncate(path, length)
        assert config_for_folder(made.root).consume_queue_file_bytes == 20_000
        path.write_bytes(whole)
