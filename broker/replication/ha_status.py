"""The state of replication: the answers to `ringmq ha status` (270005) and stock's `mqadmin haStatus` (907)."""

from __future__ import annotations

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.replication.state import Replication
from ringmq.broker.replication.view import (
    HOLD_WORDS,
    LEVEL_WORDS,
    REPLICATION_WORDS,
    STATE_WORDS,
    Peer,
    ReplicationMarks,
    mono_ms,
)
from ringmq.ha.replica_policy import ReplicaPolicy
from ringmq.ha.settings import HaSettings
from ringmq.remoting.ha_bodies import (
    HaClientInfo,
    HaConnectionInfo,
    HaRuntimeInfo,
    HaStatus,
    MasterStatus,
    SlaveStatus,
)


def status(live: LiveConfig, replication: Replication) -> HaStatus:
    """The current state."""
    config, view = live.config, replication.view
    marks, now = view.marks(), mono_ms()
    is_slave = live.follows_master
    wanted = ReplicaPolicy.from_settings(HaSettings.from_properties(config.as_properties())).need
    in_sync = 0 if is_slave else max(1, marks.in_sync_replicas)  # the HA writer sleeps until its first slave comes
    return HaStatus(
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        role="slave" if is_slave else "master",
        min_offset=marks.min_offset,
        append_offset=marks.append_offset,
        flushed_offset=marks.flushed_offset,
        confirm_offset=marks.confirm_offset,
        replicated_offset=marks.replicated_offset,
        replication_state=REPLICATION_WORDS.get(marks.replication_state, str(marks.replication_state)),
        in_sync_replicas=in_sync,
        wanted_replicas=wanted,
        is_degraded=not is_slave and in_sync < wanted,
        write_hold=HOLD_WORDS.get(marks.write_hold, str(marks.write_hold)),
        slaves=tuple(slave_status(peer, marks, now) for peer in view.peers()),
        master=_master_status(replication, marks, now) if is_slave else None,
        divergences=tuple(replication.divergences.values()),
    )


def slave_status(peer: Peer, marks: ReplicationMarks, now_mono_ms: int) -> SlaveStatus:
    """One slave as the master sees it."""
    behind = max(0, marks.append_offset - peer.reported_offset)
    return SlaveStatus(
        address=peer.address,
        broker_id=peer.broker_id,
        room=peer.room,
        state=STATE_WORDS.get(peer.state, str(peer.state)),
        level=LEVEL_WORDS.get(peer.level, str(peer.level)),
        counts=peer.counts,
        in_sync=peer.in_sync,
        start_offset=peer.start_offset,
        sent_offset=peer.sent_offset,
        received_offset=peer.received_offset,
        reported_offset=peer.reported_offset,
        window_bytes=max(0, peer.sent_offset - peer.reported_offset),
        lag_bytes=behind,
        lag_ms=max(0, now_mono_ms - (peer.caught_up_mono_ms or peer.connected_mono_ms)) if behind else 0,
        bytes_per_second=peer.bytes_per_second,
        connected_ms=max(0, now_mono_ms - peer.connected_mono_ms),
        silent_ms=max(0, now_mono_ms - peer.last_read_mono_ms),
    )


def _master_status(replication: Replication, marks: ReplicationMarks, now_mono_ms: int) -> MasterStatus:
    link, news = replication.view.link(), replication.link_news
    return MasterStatus(
        ha_address=replication.master.ha,
        broker_address=replication.master.broker,
        is_registered=replication.is_master_registered,
        state=STATE_WORDS.get(link.state, str(link.state)),
        master_offset=link.master_offset,
        reported_offset=link.reported_offset,
        lag_bytes=max(0, link.master_offset - marks.append_offset),
        bytes_per_second=link.bytes_per_second,
        silent_ms=max(0, now_mono_ms - link.last_read_mono_ms) if link.last_read_mono_ms else 0,
        attempts=link.attempts,
        note="" if news is None else news.why,
    )


def runtime_info(live: LiveConfig, replication: Replication, now_ms: int) -> HaRuntimeInfo:
    """907, by stock's rules (`DefaultHAService.getRuntimeInfo`)."""
    view = replication.view
    marks = view.marks()
    if live.follows_master:
        link, now = view.link(), mono_ms()

        def wall(mono: int) -> int:
            return now_ms - (now - mono) if mono else 0

        client = HaClientInfo(
            master_addr=replication.master.ha or None,
            max_offset=marks.append_offset,
            transferred_bytes_per_second=link.bytes_per_second,
            last_read_ms=wall(link.last_read_mono_ms),
            last_write_ms=wall(link.last_write_mono_ms),
        )
        return HaRuntimeInfo(is_master=False, client=client)
    peers = view.peers()
    connections = tuple(
        HaConnectionInfo(
            addr=peer.address,
            slave_ack_offset=peer.reported_offset,
            diff=marks.append_offset - peer.reported_offset,
            in_sync=peer.in_sync,
            transferred_bytes_per_second=peer.bytes_per_second,
            transfer_from_where=peer.sent_offset,
        )
        for peer in peers
    )
    in_sync = sum(peer.in_sync for peer in peers)
    return HaRuntimeInfo(True, marks.append_offset, in_sync, connections)
