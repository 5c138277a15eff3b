"""Offsets of a queue: requests, commits, and the rule for the start of a group."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.connections.routes import TopicRoute
from ringmq.client.errors import BrokerError, ConnectError, RequestTimeoutError, RingmqError, RouteError
from ringmq.client.runtimes.runtime import Lock, bounded_gather, sleep
from ringmq.client.runtimes.waiting import finish
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import (
    CONSUME_FROM_FIRST_OFFSET,
    CONSUME_FROM_LAST_OFFSET,
    CONSUME_FROM_TIMESTAMP,
)
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.names import is_retry_topic

log = logging.getLogger("ringmq.client")

LATE_QUEUE_MARGIN_MS = 600_000  # clocks of client and broker may differ this much
FIRST_COMMITS_PAUSE_S = 1.0  # in which the members of a group that has just been made commit some of its starts
FIRST_COMMITS_PAUSES_MAX = 10
QUESTIONS_AT_ONCE = 32


class ConsumeFrom(Enum):
    """The start of a group without a committed offset."""

    LAST = CONSUME_FROM_LAST_OFFSET
    FIRST = CONSUME_FROM_FIRST_OFFSET
    TIMESTAMP = CONSUME_FROM_TIMESTAMP


@dataclass(frozen=True, slots=True)
class StartRule:
    """`consume_from` with its time (ms, TIMESTAMP only), and the start time of the consumer (ms)."""

    consume_from: ConsumeFrom
    timestamp_ms: int
    started_ms: int


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue's offsets when a member begins to read it.

    `max_offset` was requested before `committed_offset`, for a queue without one before the member joined.
    """

    max_offset: int
    committed_offset: int | None
    appeared_late: bool  # the topic had no such queue when the consumer started, or has lost it since, or hid its end


@dataclass(frozen=True, slots=True)
class SearchFrom:
    """Begin at the first message stored at or after this time."""

    timestamp_ms: int


class FromMinimum(Enum):
    """Begin at the queue's first message."""

    MINIMUM = 0


def choose_start(queue: MessageQueue, facts: QueueFacts, rule: StartRule) -> int | SearchFrom | FromMinimum:
    """Return the offset at which to begin reading `queue`, or the query for it. No IO.

    The rule is RocketMQ's `RebalancePushImpl.computePullFromWhere`, with two additions. They ensure that a consumer
    misses no message that is sent after its start.

    * A broker may say "no offset" (22) about an empty queue, get the first message, and then name 1 as maximum. So
      the maximum is requested first, and later messages lie above it.
    * A queue that appears after the start of the consumer is read from the start time on, at whatever time it is
      seen.
    """
    if facts.committed_offset is not None:
        return facts.committed_offset
    if is_retry_topic(queue.topic):
        return 0
    if rule.consume_from is ConsumeFrom.FIRST:
        return FromMinimum.MINIMUM
    if rule.consume_from is ConsumeFrom.TIMESTAMP:
        return SearchFrom(rule.timestamp_ms)
    if facts.appeared_late:
        return SearchFrom(rule.started_ms - LATE_QUEUE_MARGIN_MS)
    return facts.max_offset


class QueueOffsets:
    """Offset requests about queues, sent to their master or, without one, to a slave. All raise `RingmqError`.

    Asked for an offset that a group has not committed, brokers answer 0 if the queue begins at 0 and its first message
    is in memory. So LAST and TIMESTAMP would read the whole history of a young topic. Requests with
    setZeroIfNotFound=false are answered "no offset" (22) instead, since RocketMQ 5.0. RocketMQ 4 ignores the field.

    The 0 is right for a queue that was added to a topic while all members were away. Without it the group would miss
    the messages that were stored meanwhile. So these queues are asked for without the field.
    """

    def __init__(self, client: RemotingClient, routes: RouteTable, timeout_ms: int = 3000) -> None:
        self._client = client
        self._routes = routes
        self._timeout_ms = timeout_ms
        self._kept: dict[MessageQueue, int] = {}  # the last commit, done or failed
        self._gone: set[MessageQueue] = set()  # and no start was committed since
        self._ends: dict[MessageQueue, int] = {}  # at first sight, of queues without an offset
        self._unseen: set[MessageQueue] = set()  # of a broker that did not answer then
        self._added: set[MessageQueue] = set()  # while the group was away
        self._start_turns: dict[tuple[str, str], Lock] = defaultdict(Lock)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the next message."""
        return await self._ask(queue, RequestCode.GET_MAX_OFFSET)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first existing message."""
        return await self._ask(queue, RequestCode.GET_MIN_OFFSET)

    async def search(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after `timestamp_ms`, the maximum if all are older."""
        return await self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=str(timestamp_ms))

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the group's committed offset, None without one."""
        return await self._query(group, queue, setZeroIfNotFound="false")

    async def look_before_joining(self, group: str, queues: Sequence[MessageQueue], rule: StartRule) -> None:
        """Note where a topic's queues end, given all of them, and which were added to it while the group was away.

        This member sends its first heartbeat afterwards. Until then the queues belong to the other members. If the
        group is made at this moment, they commit the start of each, one by one. Pauses tell these queues from added
        ones: in each of them some get an offset.
        """
        if rule.consume_from is ConsumeFrom.FIRST or not queues or is_retry_topic(queues[0].topic):
            return  # read from the beginning
        silent: set[str] = set()
        lacking = await self.note_ends(group, queues, silent)
        for _ in range(FIRST_COMMITS_PAUSES_MAX):
            if not 0 < len(lacking) < len(queues):
                return
            await sleep(FIRST_COMMITS_PAUSE_S)
            before, lacking = lacking, await self.note_ends(group, lacking, silent)
            if len(lacking) == len(before):
                self._added.update(lacking)
                return

    async def note_ends(
        self, group: str, queues: Iterable[MessageQueue], silent: set[str] | None = None
    ) -> list[MessageQueue]:
        """Return queues without an offset of the group, and note their ends. Later messages are not missed.

        A queue whose broker does not answer is one of them. Its reader asks again. `silent` gets the broker's name, and
        no queue of such a broker is asked for: each would take a time-out.
        """
        lacking: list[MessageQueue] = []
        silent = set() if silent is None else silent

        async def note(queue: MessageQueue) -> None:
            if queue.broker_name in silent:
                lacking.append(queue)
                self._unseen.add(queue)
                return
            try:
                maximum = await self.max_offset(queue)  # before the committed offset, see choose_start
                if await self.committed(group, queue) is not None:
                    return
                self._ends.setdefault(queue, maximum)
            except RingmqError as error:
                log.info("group %s: the end of %s is not known yet: %s", group, queue, error)
                self._unseen.add(queue)
                if isinstance(error, RequestTimeoutError) or (isinstance(error, ConnectError) and not error.sent):
                    silent.add(queue.broker_name)
            lacking.append(queue)

        await bounded_gather(note, queues, QUESTIONS_AT_ONCE)
        return lacking

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the group's committed offset."""
        self._kept[queue] = offset
        await self._call(
            queue, RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, "commitOffset": str(offset)}
        )

    async def start(
        self, group: str, queue: MessageQueue, rule: StartRule, *, appeared_late: bool
    ) -> tuple[int, int | None]:
        """Return (start offset by `choose_start`, committed offset or None).

        If a broker has lost its committed offset, or never got it, the start is this consumer's last commit.
        """
        maximum = await self.max_offset(queue)  # before the committed offset, see choose_start
        committed = await self.committed(group, queue)
        if committed is not None and committed > maximum and queue in self._gone:
            committed = None  # that of the topic before: stock 4 leaves it, and so does a broadcasting member's file
        kept = self._kept.get(queue)
        if committed is None and kept is not None and kept <= maximum:
            return kept, None
        if committed is None and queue in self._added and (begin := await self._query(group, queue)) is not None:
            return begin, None
        is_late = appeared_late or (queue in self._unseen and queue not in self._ends)
        end = min(maximum, self._ends.get(queue, maximum))
        start = choose_start(queue, QueueFacts(end, committed, is_late), rule)
        if isinstance(start, SearchFrom):
            return await self.search(queue, max(0, start.timestamp_ms)), committed
        if isinstance(start, FromMinimum):
            return await self.min_offset(queue), committed
        return start, committed

    async def commit_start(self, group: str, queue: MessageQueue, start: int) -> bool:
        """Commit a computed start before anything is read. False if that failed.

        Without this commit another member, or this one after a fault, would get "no offset" and begin at the queue's
        later end.
        """
        async with self._start_turns[queue.topic, queue.broker_name]:  # for stock's sake, see `commits.commit_all`
            try:
                await finish(self.commit(group, queue, start))
            except Exception as error:  # a hook's fault, too: it is committed with the others, soon
                log.info("group %s: the start %d of %s could not be committed yet: %s", group, start, queue, error)
                return False
        self._gone.discard(queue)
        self._added.discard(queue)
        self._unseen.discard(queue)
        self._ends.pop(queue, None)
        return True

    def forget(self, queue: MessageQueue) -> None:
        """Forget the commits of a deleted topic: they mean nothing for another topic of its name."""
        self._kept.pop(queue, None)
        self._ends.pop(queue, None)
        self._gone.add(queue)

    async def _query(self, group: str, queue: MessageQueue, **fields: str) -> int | None:
        try:
            return await self._ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, **fields)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def _ask(self, queue: MessageQueue, code: RequestCode, **fields: str) -> int:
        answer = await self._call(queue, code, fields)
        try:
            return int(answer.ext_fields["offset"])
        except (KeyError, ValueError):
            raise BrokerError(queue.broker_name, answer.code, f"answer to {code.name} has no offset") from None

    async def _call(self, queue: MessageQueue, code: RequestCode, fields: dict[str, str]) -> RemotingCommand:
        """Send a request to the master, or to a slave if none is registered.

        An unreachable master may be unregistered by now.
        """
        address = _address(self._routes.known(queue.topic) or await self._routes.fetch(queue.topic), queue)
        ext_fields = {"topic": queue.topic, "queueId": str(queue.queue_id)} | fields
        try:
            return await self._client.call(address, code, ext_fields, timeout_ms=self._timeout_ms)
        except ConnectError:
            other = _address(await self._routes.fetch(queue.topic), queue)
            if other == address:
                raise
            return await self._client.call(other, code, ext_fields, timeout_ms=self._timeout_ms)


def _address(route: TopicRoute | None, queue: MessageQueue) -> str:
    address = None if route is None else route.read_address(queue.broker_name)
    if address is None:
        raise RouteError(f"broker {queue.broker_name} of topic {queue.topic} is not registered")
    return address
