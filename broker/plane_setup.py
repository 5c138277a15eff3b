"""Fills the plane's settings for the C roles from the configuration, once before they start."""

import ipaddress
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import store_config
from ringmq.broker.live_settings import show_live
from ringmq.broker.side_words import show_side
from ringmq.broker.start_error import StartError
from ringmq.ipc.named_functions import function_of
from ringmq.ipc.placement import Placement
from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.ports import REQUEST_SLOTS
from ringmq.ipc.segment import SHM_DIR
from ringmq.ipc.tenure import follows_master
from ringmq.ipc.workers import WorkerRow, answerer_plans, port_plans
from ringmq.native import ffi, lib
from ringmq.remoting.address import for_lookup
from ringmq.store.recovery_state import RecoveredStore

FRAME_BYTES_MAX = 16_777_216
ANSWER_BYTES_LEAST = 8_388_608
"""Least answer memory of one read worker, however many share ringmqAnswerBytesMax."""
SHM_FREE_MIN_BYTES = 4 << 20
"""Twice the memory that an empty store touches at its start."""


def check_shared_memory() -> None:
    """Raise StartError if the tables would not fit. Segments are sparse, and a full tmpfs shows only as SIGBUS."""
    room = os.statvfs(SHM_DIR)
    free = room.f_bavail * room.f_frsize
    if room.f_blocks and free < SHM_FREE_MIN_BYTES:  # no blocks: a tmpfs without a limit
        raise StartError(
            f"{SHM_DIR} has {free >> 10} KiB free, the workers' shared memory needs {SHM_FREE_MIN_BYTES >> 10}: "
            "make room there, or give it a larger size (mount -o size, docker --shm-size)"
        )


def capacity_of(config: BrokerConfig, rows: Iterable[WorkerRow]) -> Capacity:
    """The table sizes of the configuration, and the ports and inboxes of these workers."""
    known = tuple(rows)
    return Capacity(
        topics=config.topics_max,
        queues=config.queues_max,
        groups=config.groups_max,
        subscriptions=config.subscriptions_max,
        offsets=config.offsets_max,
        ports=port_plans(known, lambda function: int(function_of(function)(config))),
        answerers=answerer_plans(known),
    )


def arena_bytes(config: BrokerConfig) -> int:
    """Size of one reader's arena: receive buffers, frame blocks, and the pairs that the broker adds."""
    received = config.receive_buffer_bytes * config.receive_buffer_count + config.reassembly_bytes_max
    return received + int(lib.rmq_reader_scratch_bytes(REQUEST_SLOTS))


def advertised_host(config: BrokerConfig) -> str:
    """The address in routes and message ids: brokerIP1, else the bound one, else this host's."""
    if config.broker_ip1:
        return config.broker_ip1
    if config.bind_address not in ("0.0.0.0", "::"):
        return config.bind_address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # documentation address: only asks the routing table, sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def address_of(host: str) -> str:
    """The address of a name, IPv4 if it has both. An address stays as it is. Raises OSError and UnicodeError for an
    unknown name."""
    found = socket.getaddrinfo(for_lookup(host), None, type=socket.SOCK_STREAM)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0]).partition("%")[0]


def additions_of(config: BrokerConfig) -> bytes:
    """Property pairs that the broker adds to every message, in stored form (`SendMessageProcessor`)."""
    pairs = {
        "MSG_REGION": config.region_id,
        "TRACE_ON": str(config.trace_on).lower(),
        "CLUSTER": config.broker_cluster_name,
    }
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()


def fill_settings(plane: Plane, config: BrokerConfig, store_root: Path, placement: Placement, store_host: str) -> None:
    """Write struct rmq_settings. listenPort is the port that was actually bound, `store_host` the resolved
    brokerIP1."""
    settings = plane.header.settings
    show_live(settings, config)
    settings.log_json = config.log_format == "json"
    settings.segment_bytes = config.mapped_file_size_commit_log
    settings.queue_file_bytes = config.mapped_file_size_consume_queue
    settings.batch_queue_file_bytes = config.mapper_file_size_batch_consume_queue
    settings.index_slot_count = config.max_hash_slot_num
    settings.index_entry_count = config.max_index_num
    settings.message_index_enable = config.message_index_enable
    settings.sync_flush = config.flush_disk_type == "SYNC_FLUSH"
    settings.message_bytes_max = config.max_message_size
    settings.frame_bytes_max = FRAME_BYTES_MAX
    settings.populate_window_bytes = config.populate_window_bytes
    settings.idle_connection_ms = config.server_channel_max_idle_time_seconds * 1000
    settings.spin_pauses = placement.spin_pauses if config.spin_pauses < 0 else config.spin_pauses
    host = ipaddress.ip_address(store_host).packed
    settings.store_host_bytes = len(host)
    ffi.memmove(settings.store_host, host, len(host))
    settings.store_port = config.listen_port
    _text(settings, "additions", additions_of(config), "regionId and brokerClusterName together")
    settings.additions_length = len(additions_of(config))
    _text(settings, "region_id", config.region_id.encode(), "regionId")
    _text(settings, "broker_name", config.broker_name.encode(), "brokerName")
    _text(settings, "store_path", os.fsencode(store_root), "storePathRootDir")
    _text(
        settings, "commit_log_path", os.fsencode(store_config(config).commit_log_directories[0]), "storePathCommitLog"
    )
    settings.trace_on = config.trace_on
    settings.reassembly_bytes_max = config.reassembly_bytes_max
    settings.receive_buffer_bytes = config.receive_buffer_bytes
    settings.receive_buffer_count = config.receive_buffer_count
    settings.connections_max = config.connections_max
    settings.partial_frame_timeout_ms = config.partial_frame_timeout_ms
    settings.send_queue_bytes_max = config.send_queue_bytes_max
    settings.send_stall_timeout_ms = config.send_stall_timeout_ms
    settings.answer_bytes_max = max(ANSWER_BYTES_LEAST, config.answer_bytes_max // placement.readers)
    settings.held_polls_max = config.held_polls_max
    settings.held_connection_polls_max = config.held_connection_polls_max
    settings.held_bytes_max = config.held_poll_bytes_max
    share = config.connections_max - config.connections_max // 16
    settings.host_connections_max = min(config.connections_max, config.host_connections_max or share)
    _fill_replication(plane, config)
    show_side(plane, config, follows=follows_master(plane.watermarks))


def first_confirm_limit(recovered: RecoveredStore) -> int:
    """confirm_limit at a start. Readable records stay readable; the rest waits for replicas, or for the master's
    offset.

    Everything that dispatch has processed was confirmed, and dispatch works in order. The checkpoint covers units that
    queues may have lost.
    """
    known = [recovered.redispatch_offset, recovered.checkpoint.confirm_offset]
    known += [state.physical_end for state in recovered.queues.values()]
    return min(max(known), recovered.append_offset)


def _fill_replication(plane: Plane, config: BrokerConfig) -> None:
    settings = plane.header.settings
    settings.slave_timeout_ms = config.slave_timeout
    settings.ha_transfer_bytes = config.ha_transfer_batch_size
    settings.ha_window_bytes = config.ha_window_bytes
    settings.ha_bytes_per_second = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else 0
    settings.ha_heartbeat_ms = config.ha_send_heartbeat_interval
    settings.ha_housekeeping_ms = config.ha_housekeeping_interval


def _text(settings: object, field: str, value: bytes, name: str) -> None:
    """Copy text into a fixed field, NUL-terminated. Raises ValueError, which names the property and its limit."""
    target = getattr(settings, field)
    limit = len(target) - 1
    if len(value) > limit:
        raise ValueError(f"{name} takes {len(value)} bytes, the limit is {limit}: choose a shorter one")
    ffi.memmove(target, value + b"\0", len(value) + 1)
