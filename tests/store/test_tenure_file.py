"""The file of the role: what is written is read, and a file that cannot count never makes a master."""

import contextlib
import errno
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringmq.ipc import tenure
from ringmq.store import tenure_file
from ringmq.store.config_files import ConfigFileError
from ringmq.store.markers import write_failed_marker
from ringmq.store.tenure_file import (
    Addresses,
    EpochStart,
    Found,
    Owner,
    Policy,
    Promise,
    TenureRecord,
    UnsyncedTenureError,
    read_tenure,
    write_tenure,
)

OWNER = Owner("DefaultCluster", "broker-a", 1)
RECORD = TenureRecord(
    is_master=True,
    epoch=65537,
    policy=Policy("SYNC_MASTER", replica_policy="majority", total_replicas=3, ha_allowed_networks="10.0.0.0/24"),
    master=Addresses("10.0.0.1:10911", "10.0.0.1:10912"),
    peers=("10.0.0.1:10911", "10.0.0.3:10911"),
    history=(EpochStart(65537, 4096),),
    promises=(Promise(131074, "10.0.0.3:10911"),),
)
POINTS = ["tenure-written", "tenure-replaced", "tenure-synced"]
TOO_MANY_PROMISES = [[epoch, "h:1"] for epoch in range(9)]


def path_of(root: Path) -> Path:
    return root / "config" / "ringmqTenure.json"


def rewrite(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the fields of a good file."""
    write_tenure(root, OWNER, RECORD)
    content = json.loads(path_of(root).read_text())
    change(content)
    path_of(root).write_text(json.dumps(content))


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_tenure(tmp_path, OWNER) == Found()
    write_tenure(tmp_path, OWNER, RECORD)
    assert read_tenure(tmp_path, OWNER) == Found(RECORD)
    slave = TenureRecord(is_master=False)
    write_tenure(tmp_path, OWNER, slave)
    assert read_tenure(tmp_path, OWNER) == Found(slave)
    assert [entry.name for entry in path_of(tmp_path).parent.iterdir()] == ["ringmqTenure.json"]


def test_the_file_has_the_names_that_the_page_of_it_says(tmp_path: Path) -> None:
    write_tenure(tmp_path, OWNER, RECORD)
    content = json.loads(path_of(tmp_path).read_text())
    assert list(content) == [
        "version", "owner", "isMaster", "epoch", "policy", "master", "peers", "history", "promises",
    ]  # fmt: skip
    assert content["owner"] == {"cluster": "DefaultCluster", "brokerName": "broker-a", "brokerId": 1}
    assert content["policy"]["replicaPolicy"] == "majority"
    assert content["history"] == [[65537, 4096]]


def test_a_field_of_a_later_build_is_ignored(tmp_path: Path) -> None:
    rewrite(tmp_path, lambda content: content.update(later=1))
    assert read_tenure(tmp_path, OWNER) == Found(RECORD)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda content: content.pop("version"), "version"),
        (lambda content: content.update(version="1"), "version = '1' is no version"),
        (lambda content: content.update(version=0), "version = 0 is no version"),
        (lambda content: content.pop("owner"), "owner"),
        (lambda content: content.update(owner={}), "cluster"),
        (lambda content: content.pop("isMaster"), "isMaster"),
        (lambda content: content.update(isMaster="true"), r"Expected `bool`, got `str` - at `\$\.isMaster`"),
        (lambda content: content.update(epoch=-1), r"Expected `int` >= 0 - at `\$\.epoch`"),
        (lambda content: content.update(epoch=1 << 56), r"Expected `int` <= 72057594037927935 - at `\$\.epoch`"),
        (lambda content: content["policy"].update(brokerRole="SLAVE"), r"\$\.policy\.brokerRole"),
        (lambda content: content["policy"].update(inSyncReplicas=0), r"\$\.policy\.inSyncReplicas"),
        (lambda content: content.update(peers=["h:1"] * 17), r"length <= 16 - at `\$\.peers`"),
        (lambda content: content.update(peers=["h" * 301]), r"length <= 300 - at `\$\.peers"),
        (lambda content: content.update(history=[[1, 2]] * 65), r"length <= 64 - at `\$\.history`"),
        (lambda content: content.update(history=[[1, -2]]), r"\$\.history"),
        (lambda content: content.update(promises=TOO_MANY_PROMISES), r"length <= 8 - at `\$\.promises`"),
    ],
)
def test_a_field_that_is_not_possible_ends_the_start(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], why: str
) -> None:
    rewrite(tmp_path, change)
    with pytest.raises(ConfigFileError, match=why) as raised:
        read_tenure(tmp_path, OWNER)
    assert "make sure that no other broker of the group is its master, then run: mv -- " in str(raised.value)
    assert raised.value.paths == (path_of(tmp_path),)


def test_each_torn_file_ends_the_start(tmp_path: Path) -> None:
    """A disk that lies may leave the beginning of a file, or a file of zeros."""
    write_tenure(tmp_path, OWNER, RECORD)
    whole = path_of(tmp_path).read_bytes()
    for size in range(len(whole)):
        for content in (whole[:size], whole[:size] + bytes(len(whole) - size)):
            path_of(tmp_path).write_bytes(content)
            with pytest.raises(ConfigFileError):
                read_tenure(tmp_path, OWNER)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"7", b"\xff", b"[" * 5000, b'{"version": 1} x'])
def test_other_content_ends_the_start(tmp_path: Path, content: bytes) -> None:
    path_of(tmp_path).parent.mkdir()
    path_of(tmp_path).write_bytes(content)
    with pytest.raises(ConfigFileError, match="does not say the role of this broker"):
        read_tenure(tmp_path, OWNER)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path_of(tmp_path).parent.mkdir()
    path_of(tmp_path).write_bytes(b" " * 65_537)
    with pytest.raises(ConfigFileError, match="it has 65537 bytes, at most 65536 are read"):
        read_tenure(tmp_path, OWNER)


def test_a_newer_version_ends_the_start_without_a_command_that_loses_it(tmp_path: Path) -> None:
    rewrite(tmp_path, lambda content: content.update(version=2, isMaster="other"))
    with pytest.raises(ConfigFileError, match="version 2 is of a newer RingMQ, this one reads 1: start the newer"):
        read_tenure(tmp_path, OWNER)


@pytest.mark.parametrize(
    ("owner", "is_of_group"),
    [
        (Owner("DefaultCluster", "broker-a", 0), True),
        (Owner("DefaultCluster", "broker-a", 2), True),
        (Owner("DefaultCluster", "broker-b", 1), False),
        (Owner("Other", "broker-a", 1), False),
    ],
)
def test_a_copied_store_does_not_inherit_the_role(tmp_path: Path, owner: Owner, is_of_group: bool) -> None:
    """The log's history is true for each copy of the log. No second broker may have the first one's epoch."""
    write_tenure(tmp_path, OWNER, RECORD)
    found = read_tenure(tmp_path, owner)
    assert found.record is None
    assert found.copied == (RECORD if is_of_group else None)
    assert "is of broker 1 of broker-a in DefaultCluster, so the role is that of brokerRole" in found.note


@pytest.mark.parametrize(("point", "is_new"), list(zip(POINTS, (False, True, True), strict=True)))
def test_a_death_leaves_one_of_the_files(tmp_path: Path, point: str, is_new: bool) -> None:
    new = TenureRecord(is_master=False, epoch=131073)
    write_tenure(tmp_path, OWNER, RECORD)
    pid = os.fork()
    if not pid:
        tenure_file.passed = lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == point else None
        with contextlib.suppress(BaseException):
            write_tenure(tmp_path, OWNER, new)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert read_tenure(tmp_path, OWNER) == Found(new if is_new else RECORD)
    write_tenure(tmp_path, OWNER, new)
    assert read_tenure(tmp_path, OWNER) == Found(new)


def test_each_crash_point_is_told_and_tried() -> None:
    source = Path(tenure_file.__file__).read_text()
    assert re.findall(r'passed\("([^"]+)"\)', source) == re.findall(r"^    (tenure-\w+) ", source, re.M) == POINTS


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tenure(tmp_path, OWNER, RECORD)

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(tenure_file, "write_new_file", full)
    with pytest.raises(OSError, match="No space left") as raised:
        write_tenure(tmp_path, OWNER, TenureRecord(is_master=False))
    assert not isinstance(raised.value, UnsyncedTenureError)
    assert read_tenure(tmp_path, OWNER) == Found(RECORD)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (TenureRecord(False, peers=("h" * 301,)), r"length <= 300 - at `\$\.peers"),
        (TenureRecord(False, master=Addresses("\ud800:1")), "surrogates not allowed"),
        (TenureRecord(False, epoch=1 << 56), r"<= 72057594037927935 - at `\$\.epoch`"),
        (TenureRecord(False, policy=Policy(ha_allowed_networks="9" * 16_385)), r"\$\.policy\.haAllowedNetworks"),
    ],
)
def test_a_record_that_no_start_could_read_leaves_the_old_file(tmp_path: Path, record: TenureRecord, why: str) -> None:
    write_tenure(tmp_path, OWNER, RECORD)
    with pytest.raises(OSError, match=f"this record cannot be kept: .*{why}") as raised:
        write_tenure(tmp_path, OWNER, record)
    assert not isinstance(raised.value, UnsyncedTenureError)
    assert read_tenure(tmp_path, OWNER) == Found(RECORD)


def test_a_record_that_is_too_large_leaves_the_old_file(tmp_path: Path) -> None:
    write_tenure(tmp_path, OWNER, RECORD)
    owner = Owner("c" * tenure_file.FILE_BYTES_MAX, OWNER.broker_name, OWNER.broker_id)
    with pytest.raises(OSError, match="at most 65536 are read"):
        write_tenure(tmp_path, owner, RECORD)
    assert read_tenure(tmp_path, OWNER) == Found(RECORD)


def test_a_failed_sync_of_the_folder_says_that_either_file_may_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(tenure_file, "sync_directory", broken)
    with pytest.raises(UnsyncedTenureError, match="Input/output error"):
        write_tenure(tmp_path, OWNER, RECORD)


def test_a_start_syncs_what_it_goes_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that wrote the file may have died before its sync."""
    write_tenure(tmp_path, OWNER, RECORD)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    assert read_tenure(tmp_path, OWNER) == Found(RECORD)
    assert len(synced) == 2  # the file, then its folder

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(ConfigFileError, match="Input/output error"):
        read_tenure(tmp_path, OWNER)


def test_a_file_may_not_be_on_the_disk_after_a_failed_sync(tmp_path: Path) -> None:
    write_tenure(tmp_path, OWNER, RECORD)
    write_failed_marker(tmp_path, "Input/output error")
    assert read_tenure(tmp_path, OWNER) == Found(RECORD, is_sure=False)


def test_the_bounds_of_the_file_hold_what_the_cores_keep() -> None:
    assert tenure_file.EPOCH_MAX == tenure.EPOCH_MAX
    largest = TenureRecord(
        is_master=True,
        epoch=tenure.EPOCH_MAX,
        policy=Policy(ha_allowed_networks="9" * 16_384),
        peers=("p" * 300,) * 16,
        history=(EpochStart(tenure.EPOCH_MAX, 1 << 62),) * 64,
        promises=(Promise(tenure.EPOCH_MAX, "p" * 300),) * 8,
    )
    assert len(msgspec.json.encode(largest)) < tenure_file.FILE_BYTES_MAX / 2
