"""What a stock broker leaves waiting is counted from its queues and progress files, without writing anything."""

import shutil
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from ringmq.cli.main import main
from ringmq.store import layout, markers
from ringmq.store.commit_log import CommitLog
from ringmq.store.config_files import load_config, persist_config
from ringmq.store.message_store import MessageStore
from ringmq.store.store_format import FORMAT, StoreFormatError, check_format, read_format, write_format
from ringmq.store.unsupported import Unsupported, _add_timers_of_pop, find_unsupported
from ringmq.store.unsupported_pop import PopLedger
from tests.store.golden_stores import basic_config, pop_config

REVIVED = "rmq_sys_REVIVE_LOG_GoldCluster@CID_RMQ_SYS_REVIVE_GROUP"


def counts(root: Path) -> dict[str, int | None]:
    return {entry.kind: entry.count for entry in find_unsupported(basic_config(root))}


def set_offset(root: Path, key: str, queue_id: int, offset: int) -> None:
    value = load_config(root, "consumerOffset.json")
    value["offsetTable"].setdefault(key, {})[queue_id] = offset
    persist_config(root, "consumerOffset.json", value)


def test_the_golden_store_has_nothing_that_is_not_served(golden_basic: Path) -> None:
    """Its timer messages, delayed and half messages are."""
    assert find_unsupported(basic_config(golden_basic)) == []


def test_timer_messages_of_clients_are_not_decoded(golden_basic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start with millions of them reads only their bytes."""
    decoded: list[int] = []
    monkeypatch.setattr(CommitLog, "record_at", lambda log, offset, *rest: decoded.append(offset))
    store = MessageStore(basic_config(golden_basic))
    ledger = PopLedger()
    _add_timers_of_pop(store, {}, ledger)
    assert store.queue_names([layout.TIMER_TOPIC]) and not decoded and not ledger.is_partial
    monkeypatch.setattr(layout, "REVIVE_TOPIC_PREFIX", "GoldDelay")
    _add_timers_of_pop(store, {}, ledger)
    assert decoded and ledger.is_partial


def test_what_a_killed_stock_broker_has_not_dispatched_makes_the_count_an_upper_bound(pop_copy: Path) -> None:
    set_offset(pop_copy, REVIVED, 0, 4)
    queue = pop_copy / "consumequeue" / layout.TIMER_TOPIC / "0" / ("0" * 20)
    data = queue.read_bytes()
    units = sum(any(data[at : at + 20]) for at in range(0, len(data), 20))
    queue.write_bytes(data[: 20 * (units - 2)].ljust(len(data), b"\0"))  # the last two units are gone
    exact = popped(pop_copy)
    assert exact is not None and exact.is_exact
    (pop_copy / "abort").write_text("4711")
    found = popped(pop_copy)
    assert found is not None and not found.is_exact, "records behind the queues may be POP's"
    markers.write_abort(pop_copy, 4711)
    found = popped(pop_copy)
    assert found is not None and found.is_exact, "what dies as RingMQ has taken none in"


def popped(root: Path) -> Unsupported | None:
    found = [entry for entry in find_unsupported(pop_config(root)) if entry.kind == "pop"]
    assert len(found) <= 1
    return found[0] if found else None


def test_acks_behind_the_last_check_point_are_nobodys_messages(pop_copy: Path) -> None:
    """Stock leaves them there for ever: it could not deliver them first."""
    assert find_unsupported(pop_config(pop_copy)) == []


def test_what_was_popped_and_not_acknowledged_is_counted_behind_the_last_check_point_handled(pop_copy: Path) -> None:
    """In queue 0 behind 4: two pops of one message without an ack, and one of six of which a batch ack names three."""
    set_offset(pop_copy, REVIVED, 0, 4)
    found = popped(pop_copy)
    assert found is not None
    assert (found.count, found.is_exact, found.due_ms) == (5, True, 1795209148571 + 5000)
    set_offset(pop_copy, REVIVED, 0, 8)
    set_offset(pop_copy, REVIVED, 1, -1)
    assert popped(pop_copy) is None, "four pops, all acknowledged, one by one and in a batch"


def test_a_revive_offset_beyond_its_queue_hides_no_message(pop_copy: Path) -> None:
    """It is true of another log. The check points of the whole queue count, as without an offset."""
    set_offset(pop_copy, REVIVED, 0, -1)
    expected = popped(pop_copy)
    set_offset(pop_copy, REVIVED, 0, 1 << 40)
    assert expected is not None and popped(pop_copy) == expected


def test_what_pop_has_in_the_timer_counts_with_its_acks_wherever_they_are(pop_copy: Path) -> None:
    """GPB 3 of 6, GPM 2 of 6, GP1 3, GPW 1; a retry of GPW has its ack in the timer, another pop in a revive queue."""
    with (pop_copy / "config/timercheck").open("r+b") as file:
        file.write(struct.pack(">q", 1795209427000))
    found = find_unsupported(pop_config(pop_copy))
    assert [(entry.kind, entry.count, entry.is_exact) for entry in found] == [("pop", 9, True)]
    assert found[0].due_ms == 1795209409941 + 20_000


def test_records_that_are_no_check_points_may_be_messages(basic_copy: Path) -> None:
    shutil.copytree(basic_copy / "consumequeue/GoldA/0", basic_copy / "consumequeue" / REVIVED.partition("@")[0] / "3")
    assert counts(basic_copy)["pop"] == 196
    set_offset(basic_copy, REVIVED, 3, 99)
    (found,) = [entry for entry in find_unsupported(basic_config(basic_copy)) if entry.kind == "pop"]
    assert (found.count, found.is_exact) == (96, False)


def test_what_pop_has_in_the_timer_is_not_served(golden_basic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The golden store has none: its timer messages are taken for such."""
    monkeypatch.setattr(layout, "REVIVE_TOPIC_PREFIX", "GoldDelay")
    found = {entry.kind: entry.count for entry in find_unsupported(basic_config(golden_basic))}
    assert found["pop"]


@pytest.mark.parametrize(
    ("path", "text", "kind", "count"),
    [
        ("consumequeue/CURRENT", "MANIFEST-000001", "rocksdb", None),
        ("config/rdb/CURRENT", "MANIFEST-000001", "rocksdb", None),
        ("kvStore/CURRENT", "MANIFEST-000001", "rocksdb", None),
        ("rocksdbstore/CURRENT", "MANIFEST-000001", "rocksdb timers", None),
        ("dledger-n0/data/x", "x", "dledger", None),
        ("epochFileCheckpoint", "1-0", "controller", None),
        ("consumequeue/%LMQ%a/0/x", "", "light queue", 1),
        ("config/topicQueueMapping.json", '{"topicQueueMappingInfoMap":{"T":{"topic":"T"}}}', "static topic", 1),
        ("compaction/compactionLog/A/0/x", "", "compaction", 1),
    ],
)
def test_other_forms_of_data_are_named(tmp_path: Path, path: str, text: str, kind: str, count: int | None) -> None:
    assert counts(tmp_path) == {}
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    assert counts(tmp_path) == {kind: count}


def test_a_topic_that_is_marked_for_compaction_may_be_ours(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    marked = {"topicConfigTable": {"A": {"attributes": {"cleanup.policy": "COMPACTION"}}}}
    persist_config(tmp_path, "topics.json", marked)
    assert counts(tmp_path) == {}


def test_progress_files_that_say_nonsense_count_as_no_progress(basic_copy: Path) -> None:
    (basic_copy / "config/timercheck").write_bytes(b"\x01")
    persist_config(basic_copy, "consumerOffset.json", {"offsetTable": {REVIVED: 7}})
    assert "pop" not in counts(basic_copy)


def test_a_format_of_a_newer_ringmq_is_refused(tmp_path: Path) -> None:
    assert read_format(tmp_path) == 0
    check_format(tmp_path)
    write_format(tmp_path, lambda: "ringmq 0.1.0")
    assert (tmp_path / "ringmq.format").read_text() == f"{FORMAT} ringmq 0.1.0\n"
    inode = (tmp_path / "ringmq.format").stat().st_ino
    write_format(tmp_path, lambda: "ringmq 0.2.0")
    assert (tmp_path / "ringmq.format").stat().st_ino == inode, "one of the same format leaves it"
    check_format(tmp_path)
    (tmp_path / "ringmq.format").write_text("7 ringmq 9.1.0\n")
    with pytest.raises(StoreFormatError, match=rf"format 7, written by ringmq 9.1.0; .* up to {FORMAT}"):
        check_format(tmp_path)
    (tmp_path / "ringmq.format").write_text("\0\0\0")
    with pytest.raises(StoreFormatError, match="no format number"):
        check_format(tmp_path)


def test_the_commands_that_look_into_a_store_respect_its_format(tmp_path: Path) -> None:
    (tmp_path / "ringmq.format").write_text("7 ringmq 9.1.0\n")
    for command in ("inspect", "verify", "unserved"):
        done = CliRunner().invoke(main, ["store", command, str(tmp_path)])
        assert (done.exit_code, "written by ringmq 9.1.0" in done.output) == (1, True)
    (tmp_path / "ringmq.format").unlink()
    (tmp_path / "commitlog").mkdir()
    done = CliRunner().invoke(main, ["store", "unserved", str(tmp_path)])
    assert (done.exit_code, done.output) == (0, "nothing waits\n")


def test_a_table_of_another_type_is_no_traceback(pop_copy: Path) -> None:
    """The load of the tables refuses such a file later, by its name."""
    (pop_copy / "config" / "consumerOffset.json").write_text('{"offsetTable": [1]}')
    (pop_copy / "config" / "topicQueueMapping.json").write_text('{"topicQueueMappingInfoMap": 5}')
    assert {entry.kind for entry in find_unsupported(pop_config(pop_copy))} == {"pop"}
