"""The control worker: builds the core from config files and shared memory, then runs the loop of `control`."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from msgspec.structs import asdict, replace

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.file_role import FirstRole, changed_role
from ringmq.broker.config.identity import Identity
from ringmq.broker.config.run_config import read_run_config, store_config, write_run_config
from ringmq.broker.control import now_ms, run_control
from ringmq.broker.control_wiring import saved_by, slave_role_of
from ringmq.broker.core import Broker
from ringmq.broker.live_settings import show_live
from ringmq.broker.outbound_calls import OutboundCalls
from ringmq.broker.replication.slave_role import SlaveRole
from ringmq.broker.replication.state import Replication
from ringmq.broker.replication.tenure_role import TenureRole
from ringmq.broker.role_modes import RoleModes
from ringmq.broker.store_view import StoreView
from ringmq.broker.tables.loading import load_modes, load_state
from ringmq.broker.tables.persistence import Persistence
from ringmq.broker.tables.topics import compaction_notice
from ringmq.ipc.collector import bound_collections
from ringmq.ipc.exit_status import EXIT_RESTART_STORE
from ringmq.ipc.plane import Plane
from ringmq.ipc.plane_counts import PlaneCounts
from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING, StopFlag, WorkerSpec
from ringmq.ipc.workers import WORKERS
from ringmq.native import lib
from ringmq.remoting.ha_bodies import Divergence
from ringmq.remoting.response_headers import GetBrokerRuntimeInfoResponseHeader
from ringmq.store import layout
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import ConfigFileError
from ringmq.store.markers import BOOT_ID
from ringmq.store.message_store import MessageStore
from ringmq.store.store_task import write_task
from ringmq.store.tenure_file import TenureRecord, read_tenure
from ringmq.store.write_hold import read_hold

log = logging.getLogger(__name__)


def serve_control(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> None:
    """Run until SIGTERM. After a restart the plane holds the tables that the dead process has published."""
    config = read_run_config(Path(spec.config_path))
    root = Path(config.store_path_root_dir)
    settings = plane.header.settings
    identity = Identity(
        host=config.broker_ip1,
        port=int(settings.store_port),
        ha_host=config.broker_ip2 or config.broker_ip1,
        started_ms=now_ms(),
        store_path=os.fspath(root),
        store_folder=store_folder(store_config(config)),
    )
    store = StoreView(plane, MessageStore(store_config(config)))
    broker = Broker(config, identity, plane, store, PlaneCounts(plane))
    broker.outbox.begin_opaques(int(plane.role(spec.role).generation))
    follows = broker.live.follows_master
    broker.deletions.write_turns = lambda: write_turns(plane)
    broker.prepare(now_ms())
    sends_from_ms = config.start_accept_send_request_time_stamp
    if sends_from_ms > now_ms():
        until = time_text(sends_from_ms)
        log.warning("sends are refused until %s (startAcceptSendRequestTimeStamp = %d)", until, sends_from_ms)
    if not follows:
        resume_hold(root, broker.replication)
    load_state(root, config, broker.topics, broker.groups, broker.offsets, now_ms(), fresh=False)
    load_modes(root, broker.modes, fresh=False)
    notice = compaction_notice(broker.topics)
    if notice is not None:
        log.warning("%s", notice)
    broker.admission.publish()
    plane.subscriptions_clear()  # those of the dead process; clients register again
    plane.filters_clear()
    persistence = Persistence(root, saved_by(broker))
    resume_deletions(broker, persistence, store.topics_on_disk())

    def apply_change(changed: BrokerConfig) -> None:
        try:
            write_run_config(spec.plane_name, changed)  # for a replacement of this process
        except OSError as error:
            log.error("the changed configuration cannot be saved, a restart of worker control loses it: %s", error)
        show_live(settings, changed)

    broker.on_config = apply_change
    name_servers = OutboundCalls(lambda: plane.wake(lib.RMQ_ROLE_CONTROL))
    role = plane.role(spec.role)

    def on_serving() -> None:
        role.state = STATE_SERVING

    broker.copied_files.load(root)
    try:
        persistence.load_client_names()
    except (ConfigFileError, OSError) as error:
        log.error("%s: topics and groups that clients have created count as created by administrators", error)
    broker.slave = slave_of(plane, broker, root, persistence) if follows else None
    broker.role = role_of(spec, plane, broker, root, FirstRole.of_parameter(spec.extra["first_role"]))
    bound_collections()
    run_control(plane, broker, persistence, name_servers, lambda: stop.is_set, on_serving)
    role.state = STATE_STOPPING
    if broker.replication.restart is not None:
        write_task(root, broker.replication.restart)
        raise SystemExit(EXIT_RESTART_STORE)


def write_turns(plane: Plane) -> int | None:
    """Number of write's polls for requests. None while ha owns the journal: no send can be under way then."""
    is_writes = int(plane.header.ports.journal.owner) == lib.RMQ_ROLE_WRITE
    return int(plane.role(lib.RMQ_ROLE_WRITE).progress) if is_writes else None


def role_of(spec: WorkerSpec, plane: Plane, broker: Broker, root: Path, first: FirstRole) -> TenureRole:
    """The role of this broker by its tenure file. `first`: by the configuration. Raises ConfigFileError."""
    calls, peer_calls = (OutboundCalls(lambda: plane.wake(lib.RMQ_ROLE_CONTROL)) for _ in range(2))
    found, view = read_tenure(root, first.owner), broker.replication.view
    role = TenureRole.of(first, found, broker.identity, broker.live, view, calls, peer_calls, broker.audit)

    def take_config(is_master: bool) -> None:
        use_role(broker, first, replace(role.core.record, is_master=is_master))

    role.link = role.modes = modes = RoleModes(
        plane,
        broker,
        WORKERS,
        make_slave=lambda: slave_role_of(broker, root, OutboundCalls(lambda: plane.wake(lib.RMQ_ROLE_CONTROL))),
        resume_hold=lambda: resume_hold(root, broker.replication),
        load_files=lambda: broker.copied_files.load(root),
        take_config=take_config,
    )
    role.on_register = partial(take_role, broker, first)
    is_replacement = plane.role(spec.role).generation > 1
    if is_replacement and found.record is not None:  # without the file no role has changed here
        modes.resume()
    role.begin(now_ms(), is_first=first.is_sure and not is_replacement)
    return role


def take_role(broker: Broker, first: FirstRole, record: TenureRecord) -> None:
    """Take the role of this record to the configuration in use, and register with it. `first`: of the configuration."""
    use_role(broker, first, record)
    broker.topics.begin_epoch(record.epoch if record.is_master else 0, now_ms())
    broker.outbox.register = True


def use_role(broker: Broker, first: FirstRole, record: TenureRecord) -> None:
    """Take the role of this record to the configuration in use, which workers read when they change their modes."""
    config = changed_role(broker.config, first, record)
    if config != broker.config:
        broker.config = config
        if broker.on_config is not None:
            broker.on_config(config)


def slave_of(plane: Plane, broker: Broker, root: Path, persistence: Persistence) -> SlaveRole:
    """The role of a slave, with the offsets that consumers have committed on it."""
    try:
        persistence.load_slave_commits()
    except (ConfigFileError, OSError) as error:
        log.error("%s: the master's offsets replace those that consumers have committed here", error)
    return slave_role_of(broker, root, OutboundCalls(lambda: plane.wake(lib.RMQ_ROLE_CONTROL)))


def time_text(milliseconds: int) -> str:
    """A time in UTC for people. A time outside of the calendar is given in milliseconds since 1970."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms after 1970, outside of the calendar"


def resume_deletions(broker: Broker, persistence: Persistence, topics_on_disk: Collection[str]) -> None:
    """Continue the deletions that the previous run or a dead process has left."""
    try:
        pending = persistence.load_deletions()
    except (ConfigFileError, OSError) as error:
        log.error("%s: queue files of deleted topics may stay on the disk", error)
        pending = frozenset()
    # a topic that is not in the plane: the dead process had not saved the deletion yet
    doomed = pending | {topic for topic in topics_on_disk if broker.plane.topic_find(topic) is None}
    gone = sorted(topic for topic in doomed if topic not in broker.topics)
    if gone:
        broker.offsets.forget_topics(gone)
        broker.offsets.note_erasure()  # the file may have offsets that the plane does not have
    for topic in gone:
        broker.tables.withdraw_topic(topic)
        broker.deletions.add(topic, now_ms())


def resume_hold(root: Path, replication: Replication) -> None:
    """Continue to hold writes for the slaves of the previous run or of a dead process."""
    try:
        held = read_hold(root)
    except (ConfigFileError, OSError) as error:
        log.error("%s: held writes stay held (ringmq ha status)", error)
        held = ()
    replication.resume([Divergence(**asdict(entry)) for entry in held])


def store_folder(store: StoreConfig) -> GetBrokerRuntimeInfoResponseHeader | None:
    """The folder of the store. None if its log is elsewhere (storePathCommitLog)."""
    folder = store.root / layout.COMMIT_LOG
    if store.commit_log_directories != (folder,):
        return None
    status = folder.stat()
    return GetBrokerRuntimeInfoResponseHeader(
        store_root=os.fspath(store.root.absolute()),
        boot_id=BOOT_ID.read_text().strip(),
        commit_log_device=str(status.st_dev),
        commit_log_inode=str(status.st_ino),
    )
