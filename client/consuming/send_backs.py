"""Messages that go back to their broker (36), for a repetition or to the group's dead letters."""

from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.consume_retry import DEAD_LETTER_LEVEL, ConsumeRetry, send_back_fields
from ringmq.client.consuming.pull_decoding import queue_of
from ringmq.client.consuming.queue_reader import QueueReader
from ringmq.client.errors import RouteError
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.message import MessageExt

SEND_BACK_TIMEOUT_MS = 5000


async def send_back(
    client: RemotingClient, routes: RouteTable, group: str, message: MessageExt, delay_level: int, retry: ConsumeRetry
) -> None:
    """Send `message` back to the master of its broker.

    Raises `RingmqError`: `RouteError` without a master, `BrokerError` for a refusal.
    """
    route = routes.known(queue_of(message).topic)  # None: unsubscribed
    address = None if route is None else route.master_address(message.broker_name)
    if address is None:
        raise RouteError(f"no master of broker {message.broker_name} is registered")
    fields = send_back_fields(message, group, delay_level, retry)
    await client.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, fields, timeout_ms=SEND_BACK_TIMEOUT_MS)


class Rejects:
    """Messages that the application rejects outside of a handler. Each becomes one dead letter."""

    def __init__(self, client: RemotingClient, routes: RouteTable, group: str) -> None:
        self._client = client
        self._routes = routes
        self._group = group
        self._sending: set[tuple[QueueReader, int]] = set()

    async def reject(self, reader: QueueReader | None, message: MessageExt) -> bool:
        """Store a dead letter, then acknowledge the message of `reader`.

        False if the message is not open, or is being rejected by another call: this call sends nothing. Raises
        `RingmqError`; the message is open then.
        """
        if reader is None or not reader.is_open(message.queue_offset):
            return False
        place = reader, message.queue_offset
        if place in self._sending:
            return False
        self._sending.add(place)
        try:
            await send_back(self._client, self._routes, self._group, message, DEAD_LETTER_LEVEL, ConsumeRetry())
            reader.ack(message.queue_offset)
        finally:
            self._sending.discard(place)
        return True
