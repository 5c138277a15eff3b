"""`<root>/config/ringmqTenure.json`: the role of this broker after its first change, over every restart.

    {"version": 1, "owner": {"cluster": "DefaultCluster", "brokerName": "broker-a", "brokerId": 1},
     "isMaster": true, "epoch": 65537, "policy": {"brokerRole": "SYNC_MASTER", ...},
     "master": {"broker": "10.0.0.1:10911", "ha": "10.0.0.1:10912"}, "peers": ["10.0.0.1:10911"],
     "history": [[65537, 4096]], "promises": []}

Without the file brokerRole and brokerId of the configuration count. With it they do not, so a file that cannot be read
ends the start: a broker that was demoted would be a master again.

A death leaves the old file or the new one:

    tenure-written    the old one. The next write replaces the temporary file.
    tenure-replaced   the new one. After a power cut either may be there. No word and no peer shows the new role yet.
    tenure-synced     the new one. The next process goes on by it.

The owner is the broker of the configuration. The copy of a store that became another broker's has the file of the
other one. Then the configuration counts, and of the file only what is true for each copy of the log.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ringmq.fastjson.files import read_json_file
from ringmq.store import layout
from ringmq.store.config_files import ConfigFileError, moved_away
from ringmq.store.crash_points import passed
from ringmq.store.markers import failed_cause, sync_directory
from ringmq.store.safe_files import open_to_write, write_new_file

TENURE_FILE = "ringmqTenure.json"
VERSION = 1
FILE_BYTES_MAX = 65_536
PEERS_MAX = 16
"""Other brokers of a group: a replication port has as many places."""
PROMISES_MAX = 8
ADDRESS_CHARS_MAX = 300
HISTORY_MAX = 64
"""Epochs of a log that are kept, the newest ones."""
EPOCH_MAX = (1 << 56) - 1

_Epoch = Annotated[int, Meta(ge=0, le=EPOCH_MAX)]
_Offset = Annotated[int, Meta(ge=0, le=1 << 62)]
_Count = Annotated[int, Meta(ge=1, le=1 << 16)]
_Address = Annotated[str, Meta(max_length=ADDRESS_CHARS_MAX)]


class Policy(Struct, frozen=True, rename="camel"):
    """The properties that go with the role of a master. The fields are theirs, with their defaults."""

    broker_role: Literal["ASYNC_MASTER", "SYNC_MASTER"] = "ASYNC_MASTER"
    replication_policy: Literal["", "none", "handed", "sent", "received", "cached", "flushed"] = ""
    replica_policy: Literal["", "none", "one", "majority", "all", "rooms"] = ""
    in_sync_replicas: _Count = 1
    min_in_sync_replicas: _Count = 1
    total_replicas: _Count = 1
    enable_auto_in_sync_replicas: bool = False
    ha_allowed_networks: Annotated[str, Meta(max_length=16_384)] = ""


class Addresses(Struct, frozen=True):
    """The ports of a broker, host:port each. "" is unknown."""

    broker: _Address = ""
    ha: _Address = ""


class Promise(Struct, frozen=True, array_like=True):
    """This broker follows no master below `epoch`, for which the broker at `address` has asked."""

    epoch: _Epoch
    address: _Address


class EpochStart(Struct, frozen=True, array_like=True):
    """Bytes of the CommitLog from `offset` on are of this epoch, up to the offset of the next one."""

    epoch: _Epoch
    offset: _Offset


class TenureRecord(Struct, frozen=True, rename="camel"):
    """The content of the file, without version and owner.

    epoch: of this master, or of the master that this slave has followed last. master: the last one, of a slave. peers:
    the other brokers of the group, by their broker ports. history: of the log, in the order of the offsets.
    """

    is_master: bool
    epoch: _Epoch = 0
    policy: Policy = Policy()
    master: Addresses = Addresses()
    peers: Annotated[tuple[_Address, ...], Meta(max_length=PEERS_MAX)] = ()
    history: Annotated[tuple[EpochStart, ...], Meta(max_length=HISTORY_MAX)] = ()
    promises: Annotated[tuple[Promise, ...], Meta(max_length=PROMISES_MAX)] = ()


class Owner(Struct, frozen=True, rename="camel"):
    """The broker of a file, by its configuration."""

    cluster: str
    broker_name: str
    broker_id: int


class Found(Struct, frozen=True):
    """The file as a start finds it."""

    record: TenureRecord | None = None
    """None: the configuration counts."""
    copied: TenureRecord | None = None
    """The record of another broker of this group, whose store was copied. Its log has this history, and its epochs are
    taken."""
    note: str = ""
    """A line for the operator about a file that does not count."""
    is_sure: bool = True
    """False: a sync has failed in the last run, so the kernel may show a file that is not on the disk."""


class UnsyncedTenureError(OSError):
    """The new file is in its place, and may not be on the disk. After a power cut the old one may be there."""


def read_tenure(root: Path, owner: Owner, *, syncs: bool = True) -> Found:
    """Read the file of the broker `owner`, and sync it: the process that wrote it may have died before that.
    `syncs`: False = this process only looks.

    A start reads it before its recovery removes the mark of a failed sync. Raises ConfigFileError for a file that is
    torn or of a newer version, or that cannot be synced.
    """
    path = root / layout.CONFIG / TENURE_FILE
    try:
        value = read_json_file(path, FILE_BYTES_MAX)
        version = _version(value)
        if version > VERSION:
            text = f"{path}: version {version} is of a newer RingMQ, this one reads {VERSION}: start the newer one"
            raise ConfigFileError(text, [path])
        found = msgspec.convert(value["owner"], Owner)
        record = msgspec.convert(value, TenureRecord)
        if syncs:
            _sync(path)
    except FileNotFoundError:
        return Found()
    except OSError as error:
        raise ConfigFileError(f"{path}: {error.strerror}", [path]) from error
    except (ValueError, KeyError, TypeError) as error:
        remedy = f"make sure that no other broker of the group is its master, then run: {moved_away([path])}"
        text = f"{path} does not say the role of this broker: {error}. To start with brokerRole, {remedy}"
        raise ConfigFileError(text, [path]) from error
    if found == owner:
        return Found(record, is_sure=failed_cause(root) is None)
    is_of_group = (found.cluster, found.broker_name) == (owner.cluster, owner.broker_name)
    whose = f"broker {found.broker_id} of {found.broker_name} in {found.cluster}"
    note = f"{path} is of {whose}, so the role is that of brokerRole"
    return Found(copied=record if is_of_group else None, note=note)


def _version(value: Any) -> int:
    """The version of the file. Raises ValueError, TypeError, KeyError if it is no file of RingMQ."""
    version = value["version"]
    if type(version) is not int or version < 1:
        raise ValueError(f"version = {version!r} is no version")
    return version


def write_tenure(root: Path, owner: Owner, record: TenureRecord) -> None:
    """Write the file durably. Raises UnsyncedTenureError, and OSError if the old file is still there. A record that no
    start could read is an OSError, too."""
    path = root / layout.CONFIG / TENURE_FILE
    data = _readable(owner, record)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(TENURE_FILE + ".tmp")
    write_new_file(temporary, data)
    passed("tenure-written")
    temporary.replace(path)
    passed("tenure-replaced")
    try:
        sync_directory(path.parent)
    except OSError as error:
        raise UnsyncedTenureError(error.errno, error.strerror, str(path.parent)) from error
    passed("tenure-synced")


def _readable(owner: Owner, record: TenureRecord) -> bytes:
    """The content of the file, once it has been decoded as `read_tenure` does. Raises OSError."""
    try:
        content = {"version": VERSION, "owner": msgspec.to_builtins(owner), **msgspec.to_builtins(record)}
        data = msgspec.json.encode(content)
        value = msgspec.json.decode(data)
        msgspec.convert(value["owner"], Owner)
        msgspec.convert(value, TenureRecord)
    except ValueError as error:
        raise OSError(f"this record cannot be kept: {error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise OSError(f"this record has {len(data)} bytes, at most {FILE_BYTES_MAX} are read")
    return data


def _sync(path: Path) -> None:
    descriptor = open_to_write(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(path.parent)
