"""Small files that a start reads: plain files of so many bytes, JSON of so many levels, and nothing else."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from ringmq.broker.start_error import StartError
from ringmq.broker.start_files import check_kv_config, check_own_files
from ringmq.broker.tables import client_names
from ringmq.broker.tables.persistence import SLAVE_COMMITS_FILE
from ringmq.cli.main import main
from ringmq.fastjson.files import FILE_BYTES_MAX, read_json_file
from ringmq.fastjson.reader import DEPTH_MAX
from ringmq.ipc.exit_status import EXIT_STORE_REFUSED
from ringmq.namesrv.kv import KvFileError, load_kv
from ringmq.remoting.properties_text import BadProperties, read_properties_text
from ringmq.spark_bridge.configured_queues import configured_queues
from ringmq.store.config_files import ConfigFileError, load_config
from ringmq.store.pending_deletions import DELETIONS_FILE
from ringmq.store.queue_ends import read_queue_ends
from ringmq.store.topic_start_offsets import START_OFFSETS_FILE
from ringmq.store.write_hold import HOLD_FILE
from ringmq.timer.metrics import NumbersFile

NO_JSON = {
    "nested": (b"[" * 100_000, "nested deeper than 64 levels"),
    "a level too many": (b"[" * (DEPTH_MAX + 2) + b"]" * (DEPTH_MAX + 2), "nested deeper than 64 levels"),
    "digits": (b'["x", ' + b"9" * 10_000 + b"]", "the number 9999999999999999... has 10000 digits"),
    "NaN": (b"[NaN]", "NaN is no number"),
    "twice": (b'{"Topic": 1, "Topic": 2}', "the key 'Topic' occurs twice"),
    "no UTF-8": (b'["\xff"]', "utf-8"),
    "half a pair": (b'["\\ud800"]', "surrogates not allowed"),
    "another type": (b"7", "holds no"),
}


@pytest.mark.parametrize("kind", [kind for kind in NO_JSON if kind != "another type"])
def test_what_is_no_json_of_ours_is_named(tmp_path: Path, kind: str) -> None:
    data, words = NO_JSON[kind]
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ValueError, match=words):
        read_json_file(tmp_path / "file")


def fill(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def make_folder(path: Path, data: bytes) -> None:
    path.mkdir()


def make_pipe(path: Path, data: bytes) -> None:
    os.mkfifo(path)


def make_device_link(path: Path, data: bytes) -> None:
    path.symlink_to("/dev/zero")


def make_gigabytes(path: Path, data: bytes) -> None:
    path.touch()
    os.truncate(path, 2 << 30)


OTHERS: dict[str, tuple[Callable[[Path, bytes], None], str]] = {
    "folder": (make_folder, "no plain file"),
    "pipe": (make_pipe, "no plain file"),
    "device": (make_device_link, "no plain file"),
    "gigabytes": (make_gigabytes, f"has {2 << 30} bytes, at most {FILE_BYTES_MAX} are read"),
}
OWN = (DELETIONS_FILE, START_OFFSETS_FILE, HOLD_FILE, client_names.FILE, SLAVE_COMMITS_FILE)


@pytest.mark.parametrize("kind", [*NO_JSON, *OTHERS])
@pytest.mark.parametrize("name", OWN)
def test_a_start_refuses_a_file_of_its_own_that_says_nothing(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "config").mkdir()
    data, words = NO_JSON[kind] if kind in NO_JSON else (b"", OTHERS[kind][1])
    OTHERS.get(kind, (fill, ""))[0](tmp_path / "config" / name, data)
    with pytest.raises(StartError) as caught:
        check_own_files(tmp_path, is_slave=name == SLAVE_COMMITS_FILE)
    assert caught.value.status == EXIT_STORE_REFUSED
    said = str(caught.value)
    assert f"config/{name}: " in said and words in said
    assert "o start without its content, run: mv -- " in said and said.endswith(f"config/{name}.damaged")


def test_sound_files_and_none_are_no_reason(tmp_path: Path) -> None:
    check_own_files(tmp_path, is_slave=False)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / DELETIONS_FILE).write_text('["T", "\\u00e4"]')
    (tmp_path / "config" / START_OFFSETS_FILE).write_text(f'{{"T": {(1 << 63) - 1}}}')
    check_own_files(tmp_path, is_slave=False)
    check_own_files(tmp_path, is_slave=True)


@pytest.mark.parametrize("kind", OTHERS)
def test_tables_properties_and_kv_are_plain_files_too(tmp_path: Path, kind: str) -> None:
    (tmp_path / "config").mkdir()
    make, words = OTHERS[kind]
    topics, kv = tmp_path / "config" / "topics.json", tmp_path / "config" / "kvConfig.json"
    make(topics, b"")
    with pytest.raises(ConfigFileError, match=words):
        load_config(tmp_path, "topics.json")
    make(kv, b"")
    with pytest.raises(KvFileError, match=r"kvConfig.json: .*; repair the file, or move it away"):
        load_kv(kv)
    with pytest.raises(StartError, match=r"kvConfig.json: ") as caught:
        check_kv_config(tmp_path, {})
    assert caught.value.status == EXIT_STORE_REFUSED
    with pytest.raises((OSError, BadProperties)):
        read_properties_text(topics)


def test_a_name_server_refuses_its_file_for_good(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_bytes(b"[" * 100_000)
    result = CliRunner().invoke(main, ["namesrv", "--port", "0", "--kv-config", str(tmp_path / "kvConfig.json")])
    assert result.exit_code == EXIT_STORE_REFUSED
    unit = (Path(__file__).parents[2] / "systemd/ringmq-namesrv@.service").read_text()
    assert re.search(rf"^RestartPreventExitStatus=.*\b{EXIT_STORE_REFUSED}\b", unit, re.MULTILINE)


def test_properties_of_an_open_pipe_are_read(tmp_path: Path) -> None:
    """A shell makes one for `-c <(command)`."""
    reading, writing = os.pipe()
    os.write(writing, b"a=1\n")
    os.close(writing)
    try:
        assert read_properties_text(Path(f"/dev/fd/{reading}")) == "a=1\n"
    finally:
        os.close(reading)


def test_readers_beside_the_broker_go_on_without_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "topics.json"
    numbers: NumbersFile[int] = NumbersFile(path, dict)
    path.write_text('{"T": 5}')
    assert numbers.read() == {"T": 5}
    path.write_bytes(b"[" * 100_000)
    assert numbers.read() == {"T": 5}
    assert list(configured_queues(tmp_path, lambda topic: True, with_own=True)) == []
    assert "nested deeper than 64 levels" in caplog.text


def test_bounds_of_another_type_are_no_bounds(tmp_path: Path) -> None:
    (tmp_path / "ringmq.queues").mkdir()
    assert read_queue_ends(tmp_path) is None
