"""Files of the store that a start reads or makes before its workers, with errors that name file and remedy."""

import logging
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.file_role import FirstRole, changed_role, difference, owner_of
from ringmq.broker.start_error import StartError, unusable_config, unusable_file
from ringmq.broker.tables.persistence import read_client_names, read_slave_commits
from ringmq.ipc.exit_status import EXIT_STORE_REFUSED
from ringmq.ipc.guests import store_entries
from ringmq.ipc.segment import renew_plane_name
from ringmq.remoting import json_body
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.named_files import read_state_file
from ringmq.store import layout
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import ConfigFileError, moved_away
from ringmq.store.pending_deletions import read_deletions
from ringmq.store.store_lock import StoreLock
from ringmq.store.store_owner import ForeignStoreError, check_owner, is_open_to_all
from ringmq.store.tenure_file import TenureRecord, read_tenure
from ringmq.store.topic_start_offsets import read_start_offsets
from ringmq.store.write_hold import read_hold

log = logging.getLogger(__name__)

KV_FILE_BYTES_MAX = 1 << 30
"""As of a name server that runs alone (namesrv/kv.py)."""


def take_lock(root: Path) -> StoreLock:
    """The store's lock. Raises StartError if the folder cannot be used, StoreLockedError if another broker has it."""
    try:
        return StoreLock(root)
    except OSError as error:
        if error.filename == str(root / layout.LOCK):
            raise unusable_file(root, error) from error
        raise StartError(
            f"{root}: the store's folder cannot be used: {error.strerror}; "
            "choose one that this user may write to (--store, storePathRootDir)"
        ) from error


def check_store_owner(store: StoreConfig) -> None:
    """Refuse a store of another user, and warn of one that every user may write to. Raises StartError."""
    try:
        check_owner(store, store_entries())
        if store.root.is_dir() and is_open_to_all(store.root):
            text = "%s: every user of this machine may replace the store's files; chmod o-w on it ends this"
            log.warning(text, store.root)
    except ForeignStoreError as error:
        raise StartError(str(error), EXIT_STORE_REFUSED) from error
    except OSError as error:
        raise unusable_file(store.root, error) from error


def take_plane_name(root: Path) -> None:
    """Draw the name of this run's shared memory. Raises StartError."""
    try:
        renew_plane_name(root)
    except OSError as error:
        raise unusable_file(root, error) from error


def take_role(config: BrokerConfig, before: FirstRole | None = None) -> tuple[BrokerConfig, FirstRole]:
    """(`config` with the role of the tenure file, role of the configuration). `before`: that of the start of this
    process, if the store is opened again. The role may have changed since, and `config` with it.

    Called under the lock of the store. Raises StartError.
    """
    try:
        found = read_tenure(Path(config.store_path_root_dir), before.owner if before else owner_of(config))
    except ConfigFileError as error:
        raise StartError(str(error), EXIT_STORE_REFUSED) from error
    record = found.record
    epoch = record.epoch if record else 0
    if before is not None:
        first = replace(before, epoch=epoch, is_sure=found.is_sure)
    else:
        first = FirstRole.of(config, epoch, is_sure=found.is_sure)
        for line in filter(None, (found.note, record and difference(first, record))):
            log.warning("%s", line)
    return changed_role(config, first, record or TenureRecord(first.is_master)), first


def check_own_files(root: Path, *, is_slave: bool) -> None:
    """Check the files of `config/` that RingMQ alone writes and that no other file tells again. Raises StartError.

    Workers read them. A worker could only log the fault, and go on as if the file had said nothing.
    """
    of_role = read_slave_commits if is_slave else read_hold
    try:
        for read in (read_deletions, read_start_offsets, read_client_names, of_role):
            read(root)
    except ConfigFileError as error:
        raise unusable_config(error) from error


def kv_config_path(root: Path, namesrv_properties: Mapping[str, str]) -> str:
    """The file with the KV configuration of the broker's own name server."""
    return namesrv_properties.get("kvConfigPath", str(root / "config" / "kvConfig.json"))


def check_kv_config(root: Path, namesrv_properties: Mapping[str, str]) -> None:
    """Check the KV configuration, which the worker `namesrv` loads. Raises StartError."""
    path = kv_config_path(root, namesrv_properties)
    if not path:
        return
    try:
        content = json_body.read_object(read_state_file(Path(path), KV_FILE_BYTES_MAX), "kvConfig.json")
        table = json_body.mapping(content, "configTable")
        for namespace in table:
            json_body.text_mapping(table, namespace)
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable_file(root, error) from error
    except (RemotingError, ValueError) as error:
        raise StartError(
            f"{path}: {error}; repair it. To start without its content, run: {moved_away([Path(path)])}",
            EXIT_STORE_REFUSED,
        ) from error
