"""The check of expressions that brokers evaluate, when a consumer starts."""

from collections.abc import Iterable, Mapping

from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.heartbeat import encode_client_config
from ringmq.remoting.subscription import EXPRESSION_TAG, SubscriptionData


async def check_expressions(
    client: RemotingClient,
    client_id: str,
    group: str,
    subscriptions: Iterable[SubscriptionData],
    addresses: Mapping[str, set[str]],
) -> None:
    """Have brokers check expressions other than tags (46), those at the `addresses` of each topic.

    Raises `BrokerError` for a refusal.
    """
    for wanted in subscriptions:
        for address in () if wanted.expression_type == EXPRESSION_TAG else sorted(addresses.get(wanted.topic, ())):
            body = encode_client_config(client_id, group, wanted)
            await client.call(address, RequestCode.CHECK_CLIENT_CONFIG, body=body)
