"""Impossible values: the rule in C and in Python gives the same for any record; recovery and verify leave such out."""

import json
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.cli.main import main
from ringmq.doctor.check_environment import check_store
from ringmq.doctor.finding import WARN
from ringmq.doctor.gather_store import gather_store
from ringmq.native import ffi, lib
from ringmq.store import record as records
from ringmq.store import record_values
from ringmq.store.consume_queue import Unit
from ringmq.store.inspect import overview
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import recover
from ringmq.store.salvage import truncate
from ringmq.store.verify import verify
from tests.store.golden_stores import basic_config
from tests.store.test_torn_tail import FILE_BYTES, encode, small_config

FIELD_AT = {"queue id": (12, 4), "queue offset": (20, 8), "physical offset": (28, 8)}
numbers = st.one_of(st.sampled_from([0, -1, 65534, 65535, 1 << 31, 1 << 56, (1 << 56) - 1, 1 << 63]), st.integers())


def both(raw: bytes, position: int) -> tuple[int, int]:
    view = ffi.new("struct rmq_record_view *")
    assert lib.rmq_record_parse(raw, len(raw), 1, view) == lib.RMQ_RECORD_OK
    _, record = records.parse_record(raw, position)
    assert record is not None
    return lib.rmq_record_value(raw, view, position), record_values.impossible_value(record, position)


def test_the_numbers_are_those_of_the_c_core() -> None:
    assert record_values.QUEUE_ID_MAX == lib.RMQ_QUEUE_ID_MAX
    assert record_values.QUEUE_OFFSET_MAX == lib.RMQ_QUEUE_OFFSET_MAX
    assert record_values.TOPIC_BYTES_MAX == lib.RMQ_NAME_MAX
    for name in ("PHYSICAL_OFFSET", "QUEUE_ID", "QUEUE_OFFSET", "TOPIC", "QUEUE_PLACE"):
        assert getattr(record_values, name) == getattr(lib, f"RMQ_VALUE_{name}")


@settings(max_examples=200)
@given(st.sampled_from([0, 4, 8, 12, 0x10, 0x34]), numbers, numbers, numbers, st.binary(max_size=260))
def test_c_and_python_agree(sys_flag: int, queue_id: int, queue_offset: int, place: int, topic: bytes) -> None:
    raw = bytearray(encode(3, 77, b"body", b"TAGS\x01A\x02", topic))
    struct.pack_into(">I", raw, 12, queue_id & 0xFFFFFFFF)
    struct.pack_into(">QQ", raw, 20, queue_offset & ((1 << 64) - 1), place & ((1 << 64) - 1))
    if not sys_flag & 0x30:  # other hosts have other lengths
        struct.pack_into(">I", raw, 36, sys_flag)
    for position in (77, struct.unpack_from(">q", raw, 28)[0]):
        ours, twin = both(bytes(raw), position)
        assert ours == twin


@pytest.mark.parametrize(
    ("topic", "is_name"),
    [(b"T", True), (b"%RETRY%g", True), ("Gruß".encode(), True), (b"x" * 255, True), (b"x" * 256, False), (b"", False),
     (b".", False), (b"..", False), (b".hidden", False), (b"a/b", False), (b"a\0b", False), (b"\xff", False),
     (b"\xed\xa0\x80", False)],
)  # fmt: skip
def test_a_topic_names_a_folder(topic: bytes, is_name: bool) -> None:
    assert record_values.is_topic_name(topic) is is_name
    assert bool(lib.rmq_is_topic_name(topic, len(topic))) is is_name


def test_no_record_of_stock_is_impossible(golden_basic: Path) -> None:
    log = MessageStore(basic_config(golden_basic)).commit_log
    found = [both(bytes(raw), record.commit_log_offset) for raw, record in log.scan(0, log.files.end_offset)]
    assert len(found) > 3000 and set(found) == {(0, 0)}


@pytest.mark.parametrize(
    ("folder", "queue_id"),
    [
        ("0", 0),
        ("65534", 65534),
        ("65535", None),
        ("007", None),
        ("-1", None),
        ("²", None),
        ("9" * 30, None),
        ("", None),
    ],
)
def test_folders_of_queues(folder: str, queue_id: int | None) -> None:
    assert record_values.queue_id_of(folder) == queue_id


# ---- recovery and verify ----


def damaged_store(root: Path, number: int, field: str, value: int) -> list[int]:
    """Six records of one queue, the field of one of them changed, after a kill and a reboot; their places."""
    log, places = b"", []
    for queue_offset in range(6):
        places.append(len(log))
        log += encode(queue_offset, len(log), b"body", b"KEYS\x01k\x02")
    at, size = FIELD_AT[field]
    at += places[number]
    log = log[:at] + value.to_bytes(size, "big", signed=True) + log[at + size :]
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / ("0" * 20)).write_bytes(log.ljust(FILE_BYTES, b"\0"))
    (root / "abort").touch()
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"Torn": {"topicName": "Torn"}}}))
    return [*places, len(log)]


@pytest.mark.parametrize("number", [0, 3, 5])
@pytest.mark.parametrize(
    ("field", "value"),
    [("queue id", -1), ("queue id", 70_000), ("queue offset", -7), ("queue offset", 1 << 60), ("physical offset", 7)],
)
def test_recovery_keeps_the_record_and_no_queue_counts_it(tmp_path: Path, number: int, field: str, value: int) -> None:
    places = damaged_store(tmp_path, number, field, value)
    result = recover(small_config(tmp_path))
    assert (result.append_offset, result.cut_bytes) == (places[-1], 0)
    assert list(result.queues) == [("Torn", 0)]
    state = result.queues["Torn", 0]
    assert state.next_offset == (5 if number == 5 else 6)
    assert state.missing_from == places[number == 0]
    lines = [reason for reason in result.reasons if "not indexed" in reason]
    assert len(lines) == 1 and f"at {places[number]}, has an impossible {field}" in lines[0]


def test_a_place_far_behind_the_queue_is_not_of_it(tmp_path: Path) -> None:
    damaged_store(tmp_path, 5, "queue offset", 5 + 301)
    assert recover(small_config(tmp_path)).queues["Torn", 0].next_offset == 5


def test_a_place_that_fell_back_does_not_begin_a_new_life(tmp_path: Path) -> None:
    places = damaged_store(tmp_path, 5, "queue offset", 4)
    state = recover(small_config(tmp_path)).queues["Torn", 0]
    assert (state.next_offset, state.missing_from) == (5, places[0])


def test_verify_names_each_of_them(tmp_path: Path) -> None:
    places = damaged_store(tmp_path, 3, "queue id", -1)
    units = [Unit(i, places[i], places[i + 1] - places[i], 0) for i in range(6) if i != 3]
    folder = tmp_path / "consumequeue" / "Torn" / "0"
    folder.mkdir(parents=True)
    filler = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
    packed = [struct.pack(">qiq", unit.commit_log_offset, unit.size, unit.tags_code) for unit in units]
    (folder / ("0" * 20)).write_bytes(b"".join([*packed[:3], filler, *packed[3:]]).ljust(6000, b"\0"))
    report = verify(MessageStore(small_config(tmp_path)), places[-1], check_index=False)
    assert report.not_indexed == record_values.NotIndexed(1, places[3], record_values.QUEUE_ID)
    found = [finding for finding in report.findings if "not indexed" in finding.text]
    assert [(finding.severity, finding.place) for finding in found] == [("warning", f"commit log {places[3]}")]
    assert "queue id" in found[0].text
    assert report.records == 6


def lay_units(root: Path, places: list[int], number: int) -> None:
    """The queue of `damaged_store` as dispatch leaves it, the damaged record left out."""
    folder = root / "consumequeue" / "Torn" / "0"
    folder.mkdir(parents=True)
    units = b"".join(
        struct.pack(">qiq", 0, 0x7FFFFFFF, 0) if i == number else struct.pack(">qiq", at, places[i + 1] - at, 0)
        for i, at in enumerate(places[:-1])
        if i != number or number < 5
    )
    (folder / ("0" * 20)).write_bytes(units.ljust(6000, b"\0"))
    (root / "abort").unlink()


@pytest.mark.parametrize("number", [2, 5])
def test_inspect_and_verify_and_doctor_say_how_many_where_and_what(tmp_path: Path, number: int) -> None:
    """The last record has no unit behind it, so no queue tells that the log is longer."""
    places = damaged_store(tmp_path, number, "queue id", -1)
    lay_units(tmp_path, places, number)
    wanted = f"1 records with impossible values are kept in the log and not indexed; the first, at {places[number]}"
    sizes = [f"--set=mappedFileSizeCommitLog={FILE_BYTES}", "--set=mappedFileSizeConsumeQueue=6000"]
    run = CliRunner()
    shown = run.invoke(main, ["store", "inspect", str(tmp_path), "-o", "json", *sizes])
    facts = json.loads(shown.output)
    assert facts["not_indexed"].startswith(wanted) and "queue id" in facts["not_indexed"]
    lines = run.invoke(main, ["store", "inspect", str(tmp_path), "--records", *sizes]).output.splitlines()
    assert [("not indexed, impossible queue id" in line) for line in lines[1:]] == [i == number for i in range(6)]
    checked = run.invoke(main, ["store", "verify", str(tmp_path), "--no-cross-check", "--no-index", *sizes]).output
    assert wanted in checked.splitlines()[-1] and "look at memory and disk" in checked
    (found,) = [
        finding
        for finding in check_store(gather_store(small_config(tmp_path)), accept_unserved=False)
        if finding.name == "impossible values"
    ]
    assert found.level == WARN and wanted in found.value and "store verify" in found.advice


def test_a_sound_store_has_none_to_name(golden_basic: Path) -> None:
    store = MessageStore(basic_config(golden_basic))
    assert store.log_end() == store.queue_end()
    assert list(store.commit_log.impossible(0, store.log_end())) == []
    assert overview(store, store.log_end())["not_indexed"] is None


def test_a_scan_goes_on_behind_it(tmp_path: Path) -> None:
    """Staged writes, tails for Spark and the border of a cut are found by such scans."""
    places = damaged_store(tmp_path, 2, "physical offset", 7)
    log = MessageStore(small_config(tmp_path)).commit_log
    found = [record.commit_log_offset for _, record in log.scan(0, places[-1])]
    assert found == [place for place in places[:-1] if place != places[2]]
    assert [place for place, _ in log.places(0, places[-1])] == places[:-1]


def test_a_cut_behind_it_keeps_what_is_in_front(tmp_path: Path) -> None:
    places = damaged_store(tmp_path, 2, "physical offset", 7)
    assert truncate(small_config(tmp_path), places[4] + 10).end_offset == places[4]
