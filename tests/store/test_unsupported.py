"""What a stock broker leaves waiting is counted from its queues and progress files, without writing anything."""

import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from ringmq.cli.main import main
from ringmq.store.config_files import persist_config
from ringmq.store.store_format import FORMAT, StoreFormatError, check_format, read_format, write_format
from ringmq.store.unsupported import find_unsupported
from tests.store.golden_stores import basic_config, pop_config


def counts(root: Path) -> dict[str, int | None]:
    return {entry.kind: entry.count for entry in find_unsupported(basic_config(root))}


def test_the_golden_store_has_nothing_that_is_not_served(golden_basic: Path) -> None:
    """Its timer messages, delayed and half messages are."""
    assert find_unsupported(basic_config(golden_basic)) == []


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


def test_a_table_of_another_type_is_no_traceback(tmp_path: Path) -> None:
    """The load of the tables refuses such a file later, by its name."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topicQueueMapping.json").write_text('{"topicQueueMappingInfoMap": 5}')
    assert counts(tmp_path) == {}


def test_open_messages_of_pop_are_taken_over(pop_copy: Path) -> None:
    with (pop_copy / "config/timercheck").open("r+b") as file:
        file.write(struct.pack(">q", 1795209427000))
    assert find_unsupported(pop_config(pop_copy)) == []


def test_open_messages_in_rocksdb_are_named_with_the_way_on(tmp_path: Path) -> None:
    (tmp_path / "kvStore").mkdir()
    (tmp_path / "kvStore" / "CURRENT").write_text("MANIFEST-000001")
    (found,) = find_unsupported(basic_config(tmp_path))
    assert "popConsumerKVServiceEnable" in str(found) and "200056" in str(found)
