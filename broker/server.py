"""The broker's main process: lock, recovery, shared memory, listeners, workers, clean stop.

Order at start: refuse impossible conditions (engine, a locked store, a taken port) -> perform an order for the closed
store -> recover -> plane -> tables -> workers. Order at stop: workers by phases -> checkpoint -> remove the abort
marker -> remove segments -> release the lock. If a worker requests it, the broker goes on with the order for the closed
store instead of releasing the lock.
"""

import contextlib
import json
import logging
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from msgspec import Struct, field, structs

from ringmq.broker import plane_setup
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.file_role import FirstRole
from ringmq.broker.config.first_tenure import asks_first, first_tenure, role_words, starts_as_slave
from ringmq.broker.config.relations import waits_for_replicas
from ringmq.broker.config.run_config import read_run_config, run_config_path, store_config, write_run_config
from ringmq.broker.dispatch_shell import leave_failed_marker
from ringmq.broker.engine_choice import EngineChoice, choose_engine, engine_line, fill_engine
from ringmq.broker.listening import (
    METRICS_PORT,
    ListenRequest,
    endpoints_of,
    listen_pair,
    listener_per_reader,
    unreachable_note,
    unregistered_note,
)
from ringmq.broker.log_cut import forget_behind, forget_unless_master
from ringmq.broker.memory_watch import MemoryWatch
from ringmq.broker.open_files import FEW_CONNECTIONS, fit_connections, too_few_files
from ringmq.broker.queue_ends import leave_queue_ends
from ringmq.broker.reader_watch import ReaderWatch
from ringmq.broker.replication.adopted_tables import take_tables
from ringmq.broker.self_probe import address_to_ask
from ringmq.broker.service_report import ServiceReport
from ringmq.broker.side_words import begin_without_slaves
from ringmq.broker.start_error import StartError, unloadable, unusable_config, unusable_file
from ringmq.broker.start_files import (
    check_kv_config,
    check_own_files,
    check_store_owner,
    take_lock,
    take_plane_name,
    take_role,
)
from ringmq.broker.stock_store_check import StockStoreError, stock_store_notices
from ringmq.broker.tables.loading import load_into
from ringmq.broker.worker_image import worker_image
from ringmq.broker.worker_specs import dormant_at_start, open_listeners, with_own_ports, worker_specs
from ringmq.ha.log_source import open_log_source
from ringmq.ipc.audit import Actor, Change, Kind, write_change
from ringmq.ipc.errors import PlaneFullError
from ringmq.ipc.exit_status import (
    EXIT_CLEAN,
    EXIT_CRASH_LOOP,
    EXIT_PACKAGE_REPLACED,
    EXIT_STORE_REFUSED,
    EXIT_UNCLEAN_STOP,
)
from ringmq.ipc.fd_store import FdStore
from ringmq.ipc.image import WorkerImage
from ringmq.ipc.logs import set_level
from ringmq.ipc.notify import ServiceManager, service_manager
from ringmq.ipc.placement import Placement, default_readers, place
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import SHM_DIR, plane_name, remove_segments
from ringmq.ipc.supervisor import Supervisor
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.ipc.worker import WorkerSpec
from ringmq.ipc.workers import WORKERS, WorkerRow, read_name
from ringmq.native import lib
from ringmq.remoting.endpoints import Endpoint, public_endpoints
from ringmq.store import layout, markers, store_task
from ringmq.store.broker_name import write_broker_name
from ringmq.store.config_files import ConfigFileError
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.queue_ends import remove_rebuild
from ringmq.store.recovery import recover
from ringmq.store.recovery_caches import LogInUseError
from ringmq.store.recovery_state import RecoveredStore
from ringmq.store.salvage import SalvageError
from ringmq.store.store_format import StoreFormatError, write_format
from ringmq.store.store_lock import StoreLock
from ringmq.store.write_hold import read_hold

log = logging.getLogger(__name__)

BROKEN_PLANES_MAX, BROKEN_PLANES_MS = 3, 60_000
"""The broker ends after so many broken planes in a row, each within this time of its start."""


class ServeOptions(Struct, frozen=True):
    """The options of the command line beside the configuration."""

    config: BrokerConfig
    namesrv_port: int | None = None
    """Port of a name server to run, too (0 = any). None = no name server."""
    namesrv_properties: Mapping[str, str] = field(default_factory=dict)
    """The name server's properties that were set. Without adminAddresses here, the broker's value applies."""
    cpus: tuple[int, ...] = ()
    """CPUs to use. Empty = those of the process's affinity mask."""
    connections_given: bool = False
    """True if ringmqConnectionsMax was set, so that a start with fewer connections is logged."""
    announce: Callable[[str], None] = print


def check_stock_store(config: BrokerConfig) -> None:
    """Refuse a store that this broker may not or should not serve. Logs the parts that it leaves alone. Changes
    nothing."""
    try:
        for line in stock_store_notices(store_config(config), config):
            log.warning("%s", line)
    except (StockStoreError, StoreFormatError) as error:
        raise StartError(str(error), status=EXIT_STORE_REFUSED) from error
    except StoreLoadError as error:
        raise unloadable(config, error) from error
    except OSError as error:
        raise unusable_file(store_config(config).root, error) from error
    except ConfigFileError as error:
        raise unusable_config(error) from error


def resolve_host(config: BrokerConfig) -> tuple[str, str]:
    """The address in routes, and the number stored with messages."""
    host = plane_setup.advertised_host(config)
    try:
        return host, plane_setup.address_of(host)
    except (OSError, UnicodeError) as error:
        raise StartError(f"brokerIP1 = {host!r} has no address: {error}; give a numeric address") from error


def recover_store(
    config: BrokerConfig, tell: Callable[[str], None], *, unknown_topics_from: int | None
) -> RecoveredStore:
    """Recover the store so that the workers can continue it. Logs the work done."""
    began = time.monotonic()
    try:
        recovered = recover(store_config(config), unknown_topics_from=unknown_topics_from, tell=tell)
    except OSError as error:
        raise unusable_file(store_config(config).root, error) from error
    except LogInUseError as error:
        raise StartError(f"the store cannot be loaded: {error}", status=EXIT_STORE_REFUSED) from error
    except StoreLoadError as error:
        raise unloadable(config, error) from error
    stages = ", ".join(f"{name} {ms:.0f} ms" for name, ms in recovered.stage_ms.items() if ms >= 1)
    seconds = time.monotonic() - began
    text = f"store recovered in {seconds:.2f} s ({recovered.mode}) up to offset {recovered.append_offset}"
    log.info("%s", f"{text}: {stages}" if stages else text)
    for note in recovered.notes:
        log.info("recovery: %s", note)
    for reason in recovered.reasons:
        log.warning("recovery: %s", reason)
    return recovered


@contextlib.contextmanager
def no_segments_left(name: str) -> Iterator[None]:
    """Guard the creation of shared objects of the workers: a failure removes them and becomes a StartError."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(OSError):  # without descriptors no folder can be listed; the next start removes them
            remove_segments(name)
        match error:
            case ConfigFileError():
                raise unusable_config(error) from error
            case PlaneFullError() | ValueError():
                why = str(error)
            case OSError() if not str(error.filename or SHM_DIR).startswith(str(SHM_DIR)):
                raise unusable_file(Path(error.filename), error) from error
            case OSError():
                why = f"the workers' shared memory cannot be made: {error}; make room in {SHM_DIR}, see ulimit -n"
            case _:
                raise
        raise StartError(why) from error


def make_plane(
    config: BrokerConfig,
    root: Path,
    recovered: RecoveredStore,
    rows: list[WorkerRow],
    placement: Placement,
    store_host: str,
    epoch: int = 0,
) -> Plane:
    """Shared memory with settings, tables and watermarks; no worker runs yet. `epoch`: of the tenure."""
    plane_setup.check_shared_memory()
    capacity = plane_setup.capacity_of(config, rows)
    start_id = int.from_bytes(os.urandom(8)) >> 1
    plane = Plane.create(plane_name(root), capacity, root.stat(), start_id, tenure=first_tenure(config, epoch))
    plane_setup.fill_settings(plane, config, root, placement, store_host)
    plane.create_arenas()
    marks = plane.watermarks
    marks.append_offset = recovered.append_offset
    marks.flushed_offset = recovered.unsynced_offset
    marks.dispatched_offset = recovered.redispatch_offset
    marks.min_offset = recovered.min_offset
    if recovered.not_indexed_from < recovered.redispatch_offset:  # dispatch counts the later ones itself
        plane.role(lib.RMQ_ROLE_DISPATCH).counters[lib.RMQ_DISPATCH_NOT_INDEXED] = recovered.not_indexed
    plane.role(lib.RMQ_ROLE_DISPATCH).counters[lib.RMQ_DISPATCH_BAD_BODIES] = recovered.bad_bodies
    marks.confirm_limit = plane_setup.first_confirm_limit(recovered)
    begin_without_slaves(plane, config)
    if not starts_as_slave(config) and read_hold(root):
        marks.write_hold = lib.RMQ_HOLD_LONGER_SLAVE
    plane.header.ports.journal.entry[0].append_offset = recovered.append_offset
    plane.header.ports.journal.intent_high = recovered.append_offset
    load_into(plane, config, recovered, log.warning)
    plane.header.recovered_end, plane.header.first_append = readable_end(plane), recovered.append_offset
    return plane


def ensure_first_segments(config: BrokerConfig, root: Path, append_offset: int) -> None:
    """Make the file of the next append, which must exist before write starts."""
    store = store_config(config)
    directory = store.commit_log_directories[0]
    size = store.commit_log_file_bytes
    lib.rmq_folder_make(os.fsencode(directory))
    code = lib.rmq_segment_create(os.fsencode(root), os.fsencode(directory), append_offset // size * size, size)
    if code < 0:
        path = directory / layout.file_name(append_offset // size * size)
        raise unusable_file(root, OSError(-code, os.strerror(-code), str(path)))


def _own_name() -> str:
    return f"ringmq {import_module('ringmq').__version__}"


def leave_marks(plane: Plane, root: Path, broker_name: str, recovered: RecoveredStore) -> None:
    """Mark the store as running. Without the marks the next start could not tell how this run ended."""
    try:
        if recovered.is_tail_enough:
            markers.write_boot_marker(root)
        markers.write_abort(root, os.getpid())
        write_format(root, _own_name)
        write_broker_name(root, broker_name)
    except OSError as error:
        remove_segments(plane.name)
        raise unusable_file(root, error) from error


def readable_end(plane: Plane) -> int:
    """End of the recovered log that may be read before replicas confirm more."""
    marks = plane.watermarks
    limited = marks.confirm_policy & lib.RMQ_CONFIRM_LIMITED
    return int(min(marks.append_offset, marks.confirm_limit) if limited else marks.append_offset)


def all_is_readable(plane: Plane) -> bool:
    """True if dispatch has reached the end of the recovered log, or has a fault."""
    marks = plane.watermarks
    return bool(marks.dispatched_offset >= plane.header.recovered_end or marks.dispatch_fault)


class BootMarker:
    """Marks the store as of this boot, once a start after a kill would have to read only a tail of the log."""

    def __init__(self, plane: Plane, root: Path) -> None:
        self._plane = plane
        self._root = root
        self._done = False

    def tick(self) -> None:
        """Called by the supervisor several times a second."""
        marks = self._plane.watermarks
        if self._done or marks.dispatched_offset < self._plane.header.recovered_end or marks.dispatch_fault:
            return
        self._done = True
        try:
            markers.write_boot_marker(self._root)
        except OSError as error:
            text = "%s: cannot write the mark of this boot, a start after a kill takes longer: %s"
            log.warning(text, self._root, error)


class Announcer:
    """Prints the one line with `ready` once every worker serves and all recovered records can be read."""

    def __init__(self, text: str, announce: Callable[[str], None]) -> None:
        self._text = text
        self._announce = announce
        self._done = False

    def tick(self, serving: bool) -> None:
        """Called by the supervisor several times a second."""
        if not self._done and serving:
            self._done = True
            self._announce(self._text)


class BrokerContext(Struct, frozen=True):
    """The resources that a broker keeps while its store is closed and reopened."""

    config: BrokerConfig
    """The configuration with the actual ports and addresses."""
    root: Path
    lock: StoreLock
    placement: Placement
    store_host: str
    listeners: tuple[list[socket.socket], list[socket.socket]]
    """Main and VIP listeners, one per reader."""
    own: dict[str, socket.socket]
    """Worker -> its own listener, if it has one."""
    endpoints: list[Endpoint]
    """The open doors."""
    engine: EngineChoice
    namesrv_properties: Mapping[str, str]
    first_role: FirstRole

    @property
    def all_listeners(self) -> list[socket.socket]:
        """Every listening socket."""
        main, vip = self.listeners
        return [*main, *vip, *self.own.values()]

    @property
    def listeners_by_worker(self) -> dict[str, tuple[socket.socket, ...]]:
        """Worker -> its listeners. Those of a reader are main and VIP."""
        readers = {read_name(reader): pair for reader, pair in enumerate(zip(*self.listeners, strict=True))}
        return readers | {name: (listener,) for name, listener in self.own.items()}

    @property
    def rows(self) -> list[WorkerRow]:
        """The workers of this broker."""
        return [WORKERS.row(name) for name in self.placement.cpus_by_worker]

    @property
    def addresses(self) -> str:
        """The addresses to which clients connect, as text."""
        config = self.config
        text = f"broker {config.broker_name} on {config.broker_ip1}:{config.listen_port}"
        if namesrv := self.own.get("namesrv"):
            text += f", name server on {config.broker_ip1}:{namesrv.getsockname()[1]}"
        if metrics := self.own.get("metrics"):
            host, port = metrics.getsockname()[:2]
            text += f", metrics on http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
        return text


def open_context(options: ServeOptions, fd_store: FdStore) -> BrokerContext:
    """Choose the engine, take the lock, open the listeners, plan the workers. Raises StartError before any permanent
    change."""
    cpus = list(options.cpus) or sorted(os.sched_getaffinity(0))
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if why := too_few_files(options.config.readers or default_readers(len(cpus)), soft_limit, hard_limit):
        raise StartError(why)
    engine = choose_engine(options.config.engine)
    log.log(logging.WARNING if engine.is_fallback else logging.INFO, "%s", engine_line(engine))
    config, fewer_note = fit_connections(options.config, hard_limit)
    if fewer_note and (options.connections_given or config.connections_max < FEW_CONNECTIONS):
        log.warning("%s", fewer_note)
    root = Path(config.store_path_root_dir)
    check_store_owner(store_config(config))
    lock = take_lock(root)
    config, first = take_role(config)
    check_stock_store(config)
    check_own_files(root, is_slave=starts_as_slave(config))
    if options.namesrv_port is not None:
        check_kv_config(root, options.namesrv_properties)
    take_plane_name(root)  # a killed broker's page would count as live under this lock
    host, store_host = resolve_host(config)
    main, vip = listen_pair(config.bind_address, config.listen_port, fd_store)
    port = int(main.getsockname()[1])
    config = replace(config, listen_port=port, broker_ip1=host)
    request = ListenRequest(not options.config.listen_port, options.namesrv_port, fd_store)
    own = open_listeners(WORKERS, config, request)
    config = with_own_ports(config, own)
    placement = place(
        cpus,
        config.readers or None,
        sync_flush=config.flush_disk_type == "SYNC_FLUSH",
        sync_replication=waits_for_replicas(config),
        slave=starts_as_slave(config),
        listening=own,
    )
    notes = (unregistered_note(config.namesrv_addr), unreachable_note(config.broker_ip1, config.namesrv_addr))
    for note in filter(None, notes):
        log.warning("%s", note)
    metrics = own.get("metrics")
    is_usual = config.metrics_prom_exporter_port == METRICS_PORT and not request.any_port
    if metrics is not None and is_usual and (port := metrics.getsockname()[1]) != METRICS_PORT:
        text = "port %d is taken: metrics are on port %d; set metricsPromExporterPort to choose one"
        log.warning(text, METRICS_PORT, port)
    endpoints = public_endpoints(endpoints_of(config, own, options.namesrv_properties))
    for endpoint in endpoints:
        log.warning("%s", endpoint.warning)
    readers = placement.readers
    listeners = listener_per_reader(main, readers, fd_store), listener_per_reader(vip, readers, fd_store)
    context = BrokerContext(
        config, root, lock, placement, store_host, listeners, own, endpoints, engine, options.namesrv_properties, first
    )
    for address in fd_store.close_rest():
        text = "a listener on %s, kept by the service manager, is closed: the configuration does not name it"
        log.info(text, address)
    fd_store.keep(context.all_listeners)
    return context


def open_store(context: BrokerContext, tell: Callable[[str], None]) -> tuple[Plane, list[WorkerSpec]]:
    """Perform an order for the closed store, recover it, make shared memory. `tell` gets the current step. Raises
    StartError."""
    config, root = context.config, context.root
    adopted_from = perform_store_task(config)
    forget_unless_master(config)
    unknown_topics_from = 0 if starts_as_slave(config) else adopted_from
    recovered = recover_store(config, tell, unknown_topics_from=unknown_topics_from)
    ensure_first_segments(config, root, recovered.append_offset)
    with no_segments_left(plane_name(root)):
        epoch = context.first_role.epoch
        plane = make_plane(config, root, recovered, context.rows, context.placement, context.store_host, epoch)
        fill_engine(plane, context.engine)
        dormant = dormant_at_start(context.rows, plane, config, root, log.warning)
        config_path = write_run_config(plane.name, config)
        specs = worker_specs(
            plane, context.rows, context.placement, context.listeners_by_worker, dormant, config_path, extras(context)
        )
    leave_marks(plane, root, config.broker_name, recovered)
    if asks_first(config, epoch):
        plane.publish_tenure(Tenure(TenureState.TAKING, epoch))
    plane.publish_watermarks()
    return plane, specs


def perform_store_task(config: BrokerConfig) -> int | None:
    """Cut, move or complete the log by the order of the previous run (store/store_task.py), even a killed one.

    Returns the offset from which the log is adopted. That part may hold records of topics that no table names yet.
    """
    try:
        performed = store_task.perform(store_config(config), open_log_source, take_tables, log.info, forget_behind)
    except StoreLoadError as error:
        raise unloadable(config, error) from error
    except (OSError, SalvageError, ConfigFileError) as error:
        if isinstance(error, OSError) and error.filename:
            raise unusable_file(Path(config.store_path_root_dir), error) from error
        status = EXIT_STORE_REFUSED if isinstance(error, store_task.TaskFileError) else 1
        raise StartError(
            f"{config.store_path_root_dir}: the pending task of the store cannot be performed: {error}", status
        ) from error
    for line in performed.lines:
        log.info("%s", line)
    if performed.failure:
        log.warning("%s", performed.failure)
    return performed.adopted_from


def run_store(
    context: BrokerContext,
    image: WorkerImage | None,
    report: ServiceReport,
    announce: Callable[[str], None],
    before: Supervisor | None,
) -> tuple[BrokerContext, Supervisor, int]:
    """Open the store, run until it is closed. Returns the context, the supervisor that has run, and the exit status.

    The context is that of the next round and has the live changes of the configuration.
    """
    with report.extended_timeouts():
        plane, specs = open_store(context, report.recovering)
    report.watch(plane)
    supervisor = Supervisor(plane, specs, (context.lock.descriptor,), image=image)
    if before is None:
        name, role = context.config.broker_name, role_words(context.config)
        write_change(Change(Kind.ROLE, name, Actor("broker", "start"), None, role))
    else:
        supervisor.replaced_only = before.replaced_only
    boot_mark, memory = BootMarker(plane, context.root), MemoryWatch(plane, context.config, log.warning)
    readers = ReaderWatch(plane, context.config, log.warning)
    announcer = Announcer(f"ready: {context.addresses}, store {context.root}", announce)

    def tick(all_serving: bool) -> None:
        if before is not None and before.stop_asked:  # the request came while the store was closed
            supervisor.stop()
        boot_mark.tick()
        set_level(int(plane.header.settings.log_level))
        readers.tick(time.monotonic_ns() // 1_000_000)
        memory.tick(time.monotonic_ns() // 1_000_000, supervisor.other_pids())
        serving = all_serving and all_is_readable(plane)
        announcer.tick(serving)
        report.tick(time.monotonic_ns() // 1_000_000, serving=serving, stopping=supervisor.stop_asked)

    ended = supervisor.run(tick)
    config, first = context.config, context.first_role
    if supervisor.restart_wanted:
        config, first = take_role(changed_config(plane, config), first)
    status = finish(plane, context.root, ended)
    supervisor.close()
    for descriptor in specs[0].event_fds.values():
        os.close(descriptor)
    return structs.replace(context, config=config, first_role=first), supervisor, status


def changed_config(plane: Plane, config: BrokerConfig) -> BrokerConfig:
    """`config` with the changes that control has made while it ran."""
    try:
        return read_run_config(run_config_path(plane.name))
    except (OSError, ValueError) as error:
        log.error("live changes of the configuration are lost, their file cannot be read: %s", error)
        return config


def serve(options: ServeOptions) -> int:
    """Run a broker until SIGTERM. Returns the exit status. Raises StartError before any permanent change.

    A worker may request that the store be reopened: same process, lock and listeners, new workers.
    """
    manager = service_manager()
    fd_store = FdStore.of_this_process(manager)
    with worker_image(options.config) as image:
        return serve_from(image, options, manager, fd_store)


def serve_from(image: WorkerImage | None, options: ServeOptions, manager: ServiceManager, fd_store: FdStore) -> int:
    """`serve` with an image of the workers."""
    with manager.extended_timeouts():  # the store of a killed stock broker is read as a whole
        context = open_context(options, fd_store)
    report = ServiceReport(manager, context.config, address_to_ask(context.listeners[0][0]), context.addresses)
    waiting = [options.announce]  # notified once; the store may be reopened in between

    def announce(text: str) -> None:
        (waiting.pop() if waiting else log.info)(text)

    context, supervisor, status = run_store(context, image, report, announce, None)
    broken = 0
    while supervisor.restart_wanted:
        if image is not None and image.is_of_old_build():
            log.warning("the broker ends instead of opening its store again: the installed package was replaced")
            status = EXIT_PACKAGE_REPLACED
            break
        is_soon = supervisor.is_abandoned and supervisor.ran_ms < BROKEN_PLANES_MS
        broken = (broken if is_soon else 0) + supervisor.is_abandoned
        if broken >= BROKEN_PLANES_MAX:
            text = "the broker ends: %d times in a row its shared memory broke within %d s"
            log.critical(text, broken, BROKEN_PLANES_MS // 1000)
            status = EXIT_CRASH_LOOP
            break
        context, supervisor, status = run_store(context, image, report, announce, supervisor)
    context.lock.close()
    return status


def finish(plane: Plane, root: Path, status: int) -> int:
    """After the last worker: find out if the stop was clean, and remove the marks.

    Records that replicas have not confirmed stay undispatched after a clean stop. The next start continues with them.
    """
    marks = plane.watermarks
    may_wait = bool(marks.confirm_policy & lib.RMQ_CONFIRM_LIMITED) and not marks.dispatch_fault
    complete = marks.flushed_offset == marks.append_offset and (
        may_wait or marks.dispatched_offset == marks.append_offset
    )
    # After a full disk the store is sound. After a failed sync bytes may be lost, so the next start must recover.
    sound = marks.store_fault != lib.RMQ_FAULT_FSYNC and marks.dispatch_fault != lib.RMQ_FAULT_QUEUE_SYNC
    if marks.dispatch_fault == lib.RMQ_FAULT_QUEUE_SYNC and markers.failed_cause(root) is None:
        leave_failed_marker(root, marks.dispatch_fault_errno)  # dispatch has not left the marker itself
    if status == EXIT_CLEAN and not (complete and sound and leave_queue_ends(plane, root)):
        status = EXIT_UNCLEAN_STOP
    if status == EXIT_CLEAN:
        remove_rebuild(root)
        markers.remove_abort(root)
        log.info("stopped cleanly at offset %d", marks.append_offset)
    else:
        log.warning("stopped with work left (status %d): the next start recovers", status)
    remove_segments(plane.name)
    return status


def extras(context: BrokerContext) -> dict[str, dict[str, str]]:
    """Worker -> parameters beside its specification."""
    properties = {
        "kvConfigPath": str(context.root / "config" / "kvConfig.json"),
        "adminAddresses": context.config.admin_addresses,
        "logLevel": context.config.log_level,
        "logFormat": context.config.log_format,
        **context.namesrv_properties,
    }
    return {
        "control": {"first_role": context.first_role.to_parameter()},
        "metrics": {
            "public_endpoints": json.dumps([[endpoint.listener, endpoint.shut_by] for endpoint in context.endpoints])
        },
        "namesrv": {"properties": json.dumps(properties)},
    }
