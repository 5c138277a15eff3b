"""Which handler answers which request code, and what every request has in common.

Errors that any handler may raise become answers here: a bad field its code and remark, a full table of the shared
memory 1. Oneway requests are never answered, whatever became of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ringmq.broker.core import Broker
from ringmq.broker.handlers import (
    admin_clients,
    admin_config,
    admin_groups,
    admin_stats,
    admin_topics,
    clients,
    pulls,
    queries,
    runtime_info,
    sends,
)
from ringmq.broker.handlers import ha as ha_requests
from ringmq.broker.handlers import offsets as offset_requests
from ringmq.broker.handlers import slaves as slave_requests
from ringmq.broker.requests import access
from ringmq.broker.requests.request import Answer, Drop, Effect, Request, Slices, verdict_of
from ringmq.broker.requests.turns import Steps, finish
from ringmq.broker.staged import requests as staged_requests
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting.access import BROKER, Access
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RequestError

Handler = Callable[[Broker, Request], Answer | Slices]
HANDLERS: dict[int, Handler] = {
    RequestCode.SEND_MESSAGE: sends.send,
    RequestCode.SEND_MESSAGE_V2: sends.send,
    RequestCode.SEND_BATCH_MESSAGE: sends.send,
    RequestCode.CONSUMER_SEND_MSG_BACK: sends.not_yet,
    RequestCode.END_TRANSACTION: sends.not_yet,
    RequestCode.PULL_MESSAGE: pulls.pull,
    RequestCode.LITE_PULL_MESSAGE: pulls.pull,
    RequestCode.QUERY_MESSAGE: queries.query_message,
    RequestCode.VIEW_MESSAGE_BY_ID: queries.view_message,
    RequestCode.QUERY_CONSUMER_OFFSET: offset_requests.query_consumer_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: offset_requests.update_consumer_offset,
    RequestCode.GET_ALL_CONSUMER_OFFSET: offset_requests.all_consumer_offsets,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offset_requests.offset_by_time,
    RequestCode.GET_MAX_OFFSET: offset_requests.max_offset,
    RequestCode.GET_MIN_OFFSET: offset_requests.min_offset,
    RequestCode.GET_EARLIEST_MSG_STORETIME: offset_requests.earliest_store_time,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: offset_requests.reset_offset,
    RequestCode.HEART_BEAT: clients.heart_beat,
    RequestCode.UNREGISTER_CLIENT: clients.unregister_client,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
    RequestCode.CHECK_CLIENT_CONFIG: clients.check_client_config,
    RequestCode.LOCK_BATCH_MQ: clients.lock_queues,
    RequestCode.UNLOCK_BATCH_MQ: clients.unlock_queues,
    RequestCode.UPDATE_AND_CREATE_TOPIC: admin_topics.update_topic,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: admin_topics.update_topics,
    RequestCode.DELETE_TOPIC_IN_BROKER: admin_topics.delete_topic,
    RequestCode.GET_ALL_TOPIC_CONFIG: admin_topics.all_topics,
    RequestCode.GET_TOPIC_CONFIG: admin_topics.topic_config,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: admin_topics.system_topics,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: admin_groups.update_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: admin_groups.update_groups,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: admin_groups.delete_group,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: admin_groups.all_groups,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: admin_groups.group_config,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: admin_groups.group_forbidden,
    RequestCode.GET_TOPIC_STATS_INFO: admin_stats.topic_stats,
    RequestCode.GET_CONSUME_STATS: admin_stats.consume_stats,
    RequestCode.QUERY_CONSUME_TIME_SPAN: admin_stats.consume_time_span,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: admin_stats.groups_of_topic,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: admin_stats.topics_of_group,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: admin_stats.subscription_of_group,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: admin_stats.consumer_connections,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: admin_stats.producer_connections,
    RequestCode.GET_ALL_PRODUCER_INFO: admin_stats.all_producers,
    RequestCode.UPDATE_BROKER_CONFIG: admin_config.update_config,
    RequestCode.GET_BROKER_CONFIG: admin_config.get_config,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: admin_config.clean,
    RequestCode.CLEAN_UNUSED_TOPIC: admin_topics.clean_unused,
    RequestCode.DELETE_EXPIRED_COMMITLOG: admin_config.clean,
    RequestCode.GET_BROKER_RUNTIME_INFO: runtime_info.runtime_info,
    RequestCode.GET_CONSUMER_RUNNING_INFO: admin_clients.consumer_running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: admin_clients.consume_directly,
    RequestCode.GET_ALL_DELAY_OFFSET: slave_requests.delay_offsets,
    RequestCode.GET_TIMER_CHECK_POINT: slave_requests.timer_checkpoint,
    RequestCode.GET_TIMER_METRICS: slave_requests.timer_metrics,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: slave_requests.message_request_modes,
    RequestCode.EXCHANGE_BROKER_HA_INFO: ha_requests.exchange,
    RequestCode.GET_BROKER_HA_STATUS: ha_requests.runtime_status,
    RequestCode.STAGED_WRITES: staged_requests.staged,
    RequestCode.HA_HANDSHAKE: ha_requests.shake_hands,
    RequestCode.HA_DECIDE: ha_requests.decide,
    RequestCode.HA_READ_LOG: ha_requests.read_log,
    RequestCode.HA_STATUS: ha_requests.status,
}

NOT_ON_SLAVE = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    }
)
"""Changes that a slave would lose when it takes its master's tables over."""
CHANGES_TABLES = NOT_ON_SLAVE | {RequestCode.CLEAN_UNUSED_TOPIC}
"""What an operator asks for, and what is on disk when it is answered."""
TOLD_FIRST = frozenset({RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST})
"""Answered when the name servers know the topic, as stock does: its maker may use it at once."""
NOT_ON_VIP = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
"""Requests that the VIP port (listenPort - 2) does not serve; answered as unknown there."""


def handle(broker: Broker, request: Request) -> list[Effect]:
    """Everything that follows from one cold frame, its verdict last. All its slices are run."""
    begun = begin(broker, request)
    return effects_of(broker, request, finish(begun.steps) if isinstance(begun, Slices) else begun)


def effects_of(broker: Broker, request: Request, answer: Answer) -> list[Effect]:
    """The effects of a request that is answered, its verdict last."""
    verdict = verdict_of(request, answer)
    effects = broker.outbox.take()
    return effects if verdict is None else [*effects, verdict]


def tick(broker: Broker, now_ms: int) -> list[Effect]:
    """Whatever is due at `now_ms`, held pulls included."""
    effects = broker.on_tick(now_ms)
    for request in broker.held_pulls.take_due(now_ms):
        request.now_ms, request.is_again = now_ms, True
        effects += handle(broker, request)
    return effects


def begin(broker: Broker, request: Request) -> Answer | Slices:
    """Run the handler of the request's code if its sender may send it; RequestErrors become answers, in slices too."""
    broker.now_ms = request.now_ms
    if request.command.is_response:
        broker.forwards.answer(broker.outbox, request.connection, request.command)
        return Drop()
    code = request.command.code
    handler = HANDLERS.get(code)
    if handler is None or (request.connection.vip and code in NOT_ON_VIP):
        remark = f" request type {code} not supported"
        return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
    refused = access.refusal(broker.config, code, request.connection)
    if refused is not None:
        broker.refusals.add(code, refused)
        return request.reply(ResponseCode.NO_PERMISSION, refused)
    if request.command.is_oneway and BROKER.get(code) is Access.READ_ADMIN:
        return Drop()  # the answer is all that the request is for, and its sender wants none
    if code in NOT_ON_SLAVE and broker.config.broker_role == "SLAVE":
        remark = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
        return request.reply(ResponseCode.SYSTEM_ERROR, remark)
    try:
        answer = handler(broker, request)
    except (RequestError, PlaneFullError) as error:
        return _refusal(request, error)
    return replace(answer, steps=_guarded(request, answer.steps)) if isinstance(answer, Slices) else answer


def _guarded(request: Request, steps: Steps[Answer]) -> Steps[Answer]:
    try:
        return (yield from steps)
    except (RequestError, PlaneFullError) as error:
        return _refusal(request, error)


def _refusal(request: Request, error: RequestError | PlaneFullError) -> RemotingCommand:
    code = error.code if isinstance(error, RequestError) else ResponseCode.SYSTEM_ERROR
    return request.reply(code, str(error))
