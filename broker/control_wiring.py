"""Control's handlers and files, built from the parts of its `Broker`. Only this module wires them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ringmq.broker.core import Broker
from ringmq.broker.handlers import (
    admin_clients,
    admin_config,
    admin_groups,
    admin_stats,
    admin_topics,
    assignments,
    broker_stats,
    clients,
    ha,
    offset_copies,
    offsets,
    pulls,
    queries,
    role,
    runtime_info,
    sends,
)
from ringmq.broker.handlers.client_limits import ClientLimits
from ringmq.broker.handlers.group_progress import GroupProgress
from ringmq.broker.handlers.table import Handler, HandlerTable
from ringmq.broker.outbound_calls import OutboundCalls
from ringmq.broker.replication.slave_role import SlaveRole
from ringmq.broker.replication.slave_tables import SlaveTables
from ringmq.broker.requests.guest_answers import ControlParts
from ringmq.broker.tables.persistence import Saved
from ringmq.ipc.guests import guests, parts
from ringmq.ipc.named_functions import function_of
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode


def handlers_of(broker: Broker) -> HandlerTable:
    """The handlers of all requests that control answers."""
    codes: dict[int, Handler] = {
        **_handlers_of_messages(broker),
        **_handlers_of_positions(broker),
        **_handlers_of_clients(broker),
        **_handlers_of_assignments(broker),
        **_handlers_of_topics(broker),
        **_handlers_of_groups(broker),
        **_handlers_of_statistics(broker),
        **_handlers_of_the_broker(broker),
        **_handlers_of_replicas(broker),
        **_handlers_of_guests(broker),
    }
    return HandlerTable(
        codes=codes,
        live=broker.live,
        now=broker.now,
        outbox=broker.outbox,
        refusals=broker.refusals,
        forwards=broker.forwards,
        held_pulls=broker.held_pulls,
        audit=broker.audit,
    )


def limits_of(broker: Broker) -> ClientLimits:
    """The limits of the entries that clients may create in control."""
    return ClientLimits(
        live=broker.live,
        consumers=broker.consumers,
        producers=broker.producers,
        locks=broker.locks,
        offsets=broker.offsets,
        forwards=broker.forwards,
        held_pulls=broker.held_pulls,
        client_names=broker.client_names,
        modes=broker.modes,
        routes=broker.routes,
        statistics=broker.statistics,
    )


def may_hold(broker: Broker) -> Callable[[str], bool]:
    """The function of `Holders.is_concerned`: guests know whether their workers were used."""
    root = Path(broker.config.store_path_root_dir)
    columns = {guest.name: function_of(guest.holds) for guest in guests() if guest.holds}
    return lambda worker: worker not in columns or bool(columns[worker](root))


def saved_by(broker: Broker) -> Saved:
    """The parts of the broker that have files."""
    return Saved(
        live=broker.live,
        topics=broker.topics,
        groups=broker.groups,
        offsets=broker.offsets,
        modes=broker.modes,
        client_names=broker.client_names,
        deletions=broker.deletions,
        hold=broker.replication,
        store=broker.store,
    )


def slave_tables_of(broker: Broker) -> SlaveTables:
    """The tables that a slave copies from its master."""
    return SlaveTables(
        topics=broker.topics,
        groups=broker.groups,
        offsets=broker.offsets,
        modes=broker.modes,
        deletions=broker.deletions,
        consumers=broker.consumers,
    )


def slave_role_of(broker: Broker, root: Path, master_calls: OutboundCalls) -> SlaveRole:
    """A slave's part of control. `root`: of the store."""
    return SlaveRole(
        identity=broker.identity,
        live=broker.live,
        replication=broker.replication,
        tables=slave_tables_of(broker),
        files=broker.copied_files,
        root=root,
        progress=tuple(make(broker.live, root) for make in parts("slave_progress")),
        master_calls=master_calls,
    )


def _handlers_of_messages(broker: Broker) -> dict[int, Handler]:
    sending = sends.SendRequests(
        live=broker.live,
        identity=broker.identity,
        plane=broker.plane,
        topics=broker.topics,
        locks=broker.locks,
        deletions=broker.deletions,
        new_entries=broker.new_entries,
        retry_topics=broker.retry_topics,
        of_guests=tuple(parts("send_check")),
    )
    pulling = pulls.PullRequests(
        live=broker.live,
        identity=broker.identity,
        plane=broker.plane,
        store=broker.store,
        tables=broker.tables,
        topics=broker.topics,
        groups=broker.groups,
        consumers=broker.consumers,
        offsets=broker.offsets,
        held_pulls=broker.held_pulls,
        new_entries=broker.new_entries,
        publication=broker.publication,
    )
    querying = queries.QueryRequests(
        live=broker.live,
        store=broker.store,
    )
    return {
        RequestCode.SEND_MESSAGE: sending.send,
        RequestCode.SEND_MESSAGE_V2: sending.send,
        RequestCode.SEND_BATCH_MESSAGE: sending.send,
        RequestCode.PULL_MESSAGE: pulling.pull,
        RequestCode.LITE_PULL_MESSAGE: pulling.pull,
        RequestCode.QUERY_MESSAGE: querying.query_message,
        RequestCode.VIEW_MESSAGE_BY_ID: querying.view_message,
    }


def _handlers_of_positions(broker: Broker) -> dict[int, Handler]:
    positions = offsets.OffsetRequests(
        live=broker.live,
        plane=broker.plane,
        store=broker.store,
        tables=broker.tables,
        topics=broker.topics,
        groups=broker.groups,
        offsets=broker.offsets,
        offsets_body=broker.offsets_body,
        publication=broker.publication,
        consumers=broker.consumers,
        retry_topics=broker.retry_topics,
        holders=broker.holders,
        audit=broker.audit,
    )
    copies = offset_copies.OffsetCopyRequests(
        live=broker.live,
        tables=broker.tables,
        topics=broker.topics,
        consumers=broker.consumers,
        offsets=broker.offsets,
        holders=broker.holders,
        audit=broker.audit,
    )
    return {
        RequestCode.QUERY_CONSUMER_OFFSET: positions.query_consumer_offset,
        RequestCode.UPDATE_CONSUMER_OFFSET: positions.update_consumer_offset,
        RequestCode.CLONE_GROUP_OFFSET: copies.copy_offsets,
        RequestCode.GET_ALL_CONSUMER_OFFSET: positions.all_consumer_offsets,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: positions.offset_by_time,
        RequestCode.GET_MAX_OFFSET: positions.max_offset,
        RequestCode.GET_MIN_OFFSET: positions.min_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: positions.earliest_store_time,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: positions.reset_offset,
    }


def _handlers_of_clients(broker: Broker) -> dict[int, Handler]:
    client = clients.ClientRequests(
        live=broker.live,
        topics=broker.topics,
        consumers=broker.consumers,
        producers=broker.producers,
        locks=broker.locks,
        new_entries=broker.new_entries,
        retry_topics=broker.retry_topics,
        membership=broker.membership,
        limits=limits_of(broker),
        filters=broker.tables.filters,
        hold_send_back_worker=partial(broker.plane.hold, lib.RMQ_ROLE_SERVICES),
    )
    return {
        RequestCode.HEART_BEAT: client.heart_beat,
        RequestCode.UNREGISTER_CLIENT: client.unregister_client,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: client.consumer_list,
        RequestCode.CHECK_CLIENT_CONFIG: client.check_client_config,
        RequestCode.LOCK_BATCH_MQ: client.lock_queues,
        RequestCode.UNLOCK_BATCH_MQ: client.unlock_queues,
    }


def _handlers_of_assignments(broker: Broker) -> dict[int, Handler]:
    assigning = assignments.AssignmentRequests(
        live=broker.live,
        topics=broker.topics,
        groups=broker.groups,
        consumers=broker.consumers,
        modes=broker.modes,
        modes_body=broker.modes_body,
        routes=broker.routes,
        new_entries=broker.new_entries,
        holders=broker.holders,
        offsets=broker.offsets,
    )
    return {
        RequestCode.QUERY_ASSIGNMENT: assigning.query,
        RequestCode.SET_MESSAGE_REQUEST_MODE: assigning.set_mode,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: assigning.all_modes,
    }


def _handlers_of_topics(broker: Broker) -> dict[int, Handler]:
    topic = admin_topics.TopicRequests(
        live=broker.live,
        store=broker.store,
        tables=broker.tables,
        topics=broker.topics,
        offsets=broker.offsets,
        topics_body=broker.topics_body,
        deletions=broker.deletions,
        client_names=broker.client_names,
        publication=broker.publication,
        holders=broker.holders,
        audit=broker.audit,
    )
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: topic.update_topic,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: topic.update_topics,
        RequestCode.DELETE_TOPIC_IN_BROKER: topic.delete_topic,
        RequestCode.GET_ALL_TOPIC_CONFIG: topic.all_topics,
        RequestCode.GET_TOPIC_CONFIG: topic.topic_config,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topic.system_topics,
        RequestCode.CLEAN_UNUSED_TOPIC: topic.clean_unused,
    }


def _handlers_of_groups(broker: Broker) -> dict[int, Handler]:
    group = admin_groups.GroupRequests(
        groups=broker.groups,
        offsets=broker.offsets,
        groups_body=broker.groups_body,
        client_names=broker.client_names,
        new_entries=broker.new_entries,
        holders=broker.holders,
        audit=broker.audit,
    )
    return {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: group.update_group,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: group.update_groups,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: group.delete_group,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: group.all_groups,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: group.group_config,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: group.group_forbidden,
    }


def _handlers_of_statistics(broker: Broker) -> dict[int, Handler]:
    progress = GroupProgress(
        live=broker.live,
        store=broker.store,
        tables=broker.tables,
        offsets=broker.offsets,
        statistics=broker.statistics,
    )
    of_broker = broker_stats.BrokerStatsRequests(
        live=broker.live,
        identity=broker.identity,
        topics=broker.topics,
        groups=broker.groups,
        consumers=broker.consumers,
        offsets=broker.offsets,
        statistics=broker.statistics,
        progress=progress,
    )
    stats = admin_stats.StatsRequests(
        live=broker.live,
        identity=broker.identity,
        store=broker.store,
        tables=broker.tables,
        topics=broker.topics,
        consumers=broker.consumers,
        producers=broker.producers,
        offsets=broker.offsets,
        producers_body=broker.producers_body,
        statistics=broker.statistics,
        progress=progress,
    )
    return {
        RequestCode.GET_TOPIC_STATS_INFO: stats.topic_stats,
        RequestCode.GET_CONSUME_STATS: stats.consume_stats,
        RequestCode.QUERY_CONSUME_TIME_SPAN: stats.consume_time_span,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: stats.groups_of_topic,
        RequestCode.QUERY_TOPICS_BY_CONSUMER: stats.topics_of_group,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: stats.subscription_of_group,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: stats.consumer_connections,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: stats.producer_connections,
        RequestCode.GET_ALL_PRODUCER_INFO: stats.all_producers,
        RequestCode.VIEW_BROKER_STATS_DATA: of_broker.view,
        RequestCode.GET_BROKER_CONSUME_STATS: of_broker.all_groups,
    }


def _handlers_of_the_broker(broker: Broker) -> dict[int, Handler]:
    configuration = admin_config.ConfigRequests(
        live=broker.live,
        topics=broker.topics,
        config_version=broker.config_version,
        outbox=broker.outbox,
        apply_config=broker.apply_config,
    )
    info = runtime_info.RuntimeInfo(
        live=broker.live,
        identity=broker.identity,
        plane=broker.plane,
        store=broker.store,
        stats=broker.stats,
        put_times=broker.put_times,
        replication=broker.replication,
        of_guests=tuple(parts("runtime_info")),
    )
    forwarded = admin_clients.ForwardedRequests(
        live=broker.live,
        store=broker.store,
        topics=broker.topics,
        groups=broker.groups,
        consumers=broker.consumers,
        forwards=broker.forwards,
        outbox=broker.outbox,
    )
    return {
        RequestCode.UPDATE_BROKER_CONFIG: configuration.update_config,
        RequestCode.GET_BROKER_CONFIG: configuration.get_config,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: admin_config.clean,
        RequestCode.DELETE_EXPIRED_COMMITLOG: admin_config.clean,
        RequestCode.GET_BROKER_RUNTIME_INFO: info.runtime_info,
        RequestCode.GET_CONSUMER_RUNNING_INFO: forwarded.consumer_running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: forwarded.consume_directly,
    }


def _handlers_of_replicas(broker: Broker) -> dict[int, Handler]:
    replication = ha.HaRequests(
        live=broker.live,
        identity=broker.identity,
        store=broker.store,
        replication=broker.replication,
        role=broker.role,
    )
    roles = role.RoleRequests(broker.role, broker.plane)
    return {
        RequestCode.EXCHANGE_BROKER_HA_INFO: replication.exchange,
        RequestCode.GET_BROKER_HA_STATUS: replication.runtime_status,
        RequestCode.HA_HANDSHAKE: replication.shake_hands,
        RequestCode.HA_DECIDE: replication.decide,
        RequestCode.HA_READ_LOG: replication.read_log,
        RequestCode.HA_STATUS: replication.status,
        RequestCode.HA_ROLE: roles.order,
        RequestCode.HA_TENURE: roles.show,
    }


def _handlers_of_guests(broker: Broker) -> dict[int, Handler]:
    """Files that slaves copy, and what the guests' rows name."""
    view = broker.replication.view
    known = ControlParts(
        live=broker.live,
        started_ms=broker.identity.started_ms,
        log_end=lambda: view.marks().append_offset,
        stock_slave_ends=view.stock_slave_ends,
    )
    found: dict[int, Handler] = dict(broker.copied_files.handlers())
    for answers in parts("control_answers"):
        found |= answers(known)
    return found
