"""The bundle: bounded, without secrets and bodies, readable by its maker only."""

import json
import os
import signal
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.check import effective_values
from ringmq.broker.config.sources import Setting
from ringmq.doctor.bundle import ENTRY_BYTES_MAX, Entry, cut, text_entry, within, write_bundle
from ringmq.doctor.collect import broker_processes, collect, log_tail
from ringmq.doctor.finding import OK, Finding
from ringmq.ipc.redaction import redacted
from ringmq.store.store_task import CUT, StoreTask, write_task
from ringmq.store.write_hold import HeldFor, write_hold
from tests.store.conftest import basic_copy, golden_basic  # noqa: F401
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("secretKey=abc def", "secretKey=(hidden)"),
        ("a=1\nMY_PASSWORD: x y\nb=2", "a=1\nMY_PASSWORD: (hidden)\nb=2"),
        ('{"accessKey": "AK",\n "n": 1}', '{"accessKey": (hidden)\n "n": 1}'),
        ("ringmq serve --set aclToken=abc --port 1", "ringmq serve --set aclToken=(hidden)"),
        ("pwd=abc", "pwd=(hidden)"),
        ("api_key: abc\napi-key=def\nAPIKEY=g", "api_key: (hidden)\napi-key=(hidden)\nAPIKEY=(hidden)"),
        ("Authorization: Bearer abc.def", "Authorization: (hidden)"),
        ("header Bearer eyJhbGciOi.x-y_z== sent", "header Bearer (hidden) sent"),
        ("at https://user:p%40ss:x@host:1/a?b=c", "at https://user:(hidden)@host:1/a?b=c"),
        ("curl --password abc --port 1", "curl --password (hidden) --port 1"),
        (
            "a\n-----BEGIN RSA PRIVATE KEY-----\nMII\nabc\n-----END RSA PRIVATE KEY-----\nb",
            "a\n-----BEGIN RSA PRIVATE KEY-----(hidden)-----END RSA PRIVATE KEY-----\nb",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMII\nabc", "-----BEGIN PRIVATE KEY-----(hidden)"),
        ("brokerName=a", "brokerName=a"),
        ("http://host:9876/a@b and user@host:1", "http://host:9876/a@b and user@host:1"),
        ("a basic test; the bearer of it", "a basic test; the bearer of it"),
    ],
)
def test_values_named_like_secrets_are_hidden(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert text_entry("x", text).data == shown.encode()


def test_a_long_line_of_a_log_is_searched_in_linear_time() -> None:
    for text in ("a." * (ENTRY_BYTES_MAX // 2), "-" * ENTRY_BYTES_MAX, "token" * (ENTRY_BYTES_MAX // 5)):
        assert redacted(text) == text  # a quadratic search takes hours


def test_the_end_of_a_large_file_is_kept_and_said() -> None:
    entry = cut(Entry("log", b"a" * ENTRY_BYTES_MAX + b"end"))
    assert len(entry.data) == ENTRY_BYTES_MAX
    assert entry.data.endswith(b"aend")
    assert entry.note == f"the last {ENTRY_BYTES_MAX} of {ENTRY_BYTES_MAX + 3} bytes"


def test_what_does_not_fit_is_left_out_and_listed(tmp_path: Path) -> None:
    entries = [Entry("a", b"1" * 60), Entry("b", b"2" * 60), Entry("c", b"3" * 40)]
    kept, left = within(entries, 100)
    assert ([entry.name for entry in kept], [entry.name for entry in left]) == (["a", "c"], ["b"])


def test_an_archive_has_a_listing_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    rows = write_bundle(path, [Entry("one/x.txt", b"hello"), Entry("two", b"")], now_s=1)
    assert rows == [{"name": "one/x.txt", "bytes": 5, "note": None}, {"name": "two", "bytes": 0, "note": None}]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["b/MANIFEST.json", "b/one/x.txt", "b/two"]
        manifest = archive.extractfile("b/MANIFEST.json")
        assert manifest is not None and json.loads(manifest.read()) == rows
    with pytest.raises(FileExistsError):
        write_bundle(path, [])


def test_a_store_is_surveyed_without_bodies(basic_copy: Path) -> None:  # noqa: F811
    sizes = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "6000"}
    config = BrokerConfig(
        store_path_root_dir=str(basic_copy), mapped_file_size_commit_log=1048576, mapped_file_size_consume_queue=6000
    )
    values = effective_values(Setting(name, value, "here") for name, value in sizes.items())
    entries = {entry.name: entry.data for entry in collect(config, values, [Finding("a", "b", OK, "c", "d")])}
    assert {"doctor.json", "config.properties", "versions.json", "proc/meminfo"} <= entries.keys()
    assert b"mappedFileSizeCommitLog=1048576\t# here\n" in entries["config.properties"]
    survey = json.loads(entries["store/survey.json"])
    assert len(survey["log_files"]) == 4
    assert {row["topic"] for row in survey["queues"]} >= {"GoldA", "SCHEDULE_TOPIC_XXXX"}
    assert b"commitlog/00000000000000000000" in entries["store/files.txt"]
    assert not [name for name, data in entries.items() if b"timer pending" in data], "the body of a message"


def test_a_store_in_disorder_makes_a_bundle_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(b"x")
    (tmp_path / "ringmq.failed").write_text("EIO")
    (tmp_path / "config").mkdir()
    write_task(tmp_path, StoreTask(CUT, 4096))
    write_hold(tmp_path, [HeldFor(1, "10.0.0.9:10912", 0, 4096, 8192)])
    entries = {entry.name: entry.data for entry in collect(BrokerConfig(store_path_root_dir=str(tmp_path)), [], [])}
    assert entries["store/ringmq.failed"] == b"EIO"
    assert b"4096" in entries["store/config/haOrder.json"]
    assert b"10.0.0.9" in entries["store/config/ringmqWriteHold.json"]
    assert "store/survey.json" in entries


def test_a_brokers_processes_are_it_and_its_children() -> None:
    parent = (
        "import subprocess, sys; subprocess.Popen(['sleep', '60']); subprocess.Popen(['sleep', '60']); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE) as process:
        wait_until(lambda: len(broker_processes(process.pid)) == 3, "both children run")
        children = set(broker_processes(process.pid)) - {process.pid}
        assert len(children) == 2
        for child in children:
            os.kill(child, signal.SIGKILL)
    assert broker_processes(process.pid) == [process.pid], "a process that has ended has no children"


def test_the_end_of_a_log_is_taken(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"old\n" + b"n" * ENTRY_BYTES_MAX + b"\npassword=1")
    entry = log_tail(log)
    assert entry.name == "log/x.log"
    assert entry.data.startswith(b"n") and entry.data.endswith(b"password=(hidden)")
