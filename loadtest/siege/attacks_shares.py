"""Attacks of one client on the shares of others: topics, transactions, staged writes, expressions, locks, memory.

Each comes from one host or a few, and must take no more than the share of one.
"""

import itertools
import random
import re
from collections.abc import Sequence

from ringmq.client.compression import compress_body
from ringmq.loadtest.siege.attack import QUEUES, Target
from ringmq.loadtest.siege.attacks_clients import closed_loop
from ringmq.loadtest.siege.attacks_wire import Steps
from ringmq.loadtest.siege.colliding_names import colliding_names
from ringmq.loadtest.siege.requests import heartbeat, lock_body, pull, request, send, sql_consumer, staged_commit
from ringmq.loadtest.siege.swarm import ANSWER, HOLD, Link, Wave
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.flags import Compression, MessageSysFlag
from ringmq.remoting.json_text import dump_json
from ringmq.remoting.names import COMMITS_TOPIC
from ringmq.remoting.staged_writes import COMMIT

FEW_TOPICS = {"ringmqTopicsMax": 4000, "autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false"}
FEW_HALVES = {"ringmqOpenHalvesMax": 40_000, "ringmqHostOpenHalvesMax": 10_000, "ringmqGroupOpenHalvesMax": 20_000}
"""A hundredth of the defaults, which the attack would reach after minutes."""
WITH_RECALLS = {"recallMessageEnable": "true"}
WITH_FILTERS = {"enablePropertyFilter": "true"}

HALVES_AT_ONCE = 500
UNPACKED_BYTES = 48 << 20
PACKED_AT_ONCE = 64
PACKED_PAUSE_S = 0.2
CONSUMER_BYTES_MAX = 512 << 20
"""Interpreter and client, 16 MiB of a poll, its last message, and a body on its way through the decompressor."""
FAR_BATCH = 10**12
NEW_QUERIES = 50
COLLIDING, TOPICS_AT_ONCE = 30_000, 500
LOOK_UPS_AT_ONCE = 12  # their answers are counted as long as they are in one read
READER_US_MAX = 10.0
"""A pull of nothing and its share of the canary's requests take 4 us, a walk over 5,000 names 10 us more."""
COMMIT_PAUSE_S = 0.2
SQL_GROUPS, SQL_TOPICS = 11, 100
WIDE_TOPIC, WIDE_QUEUES = "SiegeWide", 4000
LOCK_PAUSE_S = 0.5  # 64,000 locks a second


def refused_topics(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send to retry topics of groups that do not exist, by a default topic that does not exist: all are refused."""
    return closed_loop(target, lambda number: send(b"x", f"%RETRY%x{number}", c="nonesuch"), 32)


def open_halves(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send halves on 8 connections of a host, as fast as the broker accepts them, and end none."""
    pairs = "TRAN_MSG\x01true\x02PGROUP\x01siege\x02"
    halves = b"".join(
        send(b"h", queue_id=n % QUEUES, properties=pairs, f=int(MessageSysFlag.TRANSACTION_PREPARED))
        for n in range(HALVES_AT_ONCE)
    )

    def script(link: Link) -> Steps:
        while True:
            yield halves

    return [Wave(script, 8, target.port, one_host=True)]


def unpacked_bodies(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send bodies of a few kilobytes that are 48 MiB when a consumer decompresses them: 64 at once, then on and on."""
    packed = []
    for algorithm in (Compression.ZSTD, Compression.LZ4, Compression.ZLIB):
        body, bits = compress_body(bytes(UNPACKED_BYTES), algorithm)
        packed.append([send(body, queue_id=n, f=bits) for n in range(QUEUES)])

    def script(link: Link) -> Steps:
        sends = packed[link.number % len(packed)]
        if link.number % len(packed) == 0:  # the smallest: many of them are in one answer
            yield b"".join(sends) * (PACKED_AT_ONCE // QUEUES)
        for number in itertools.count():
            yield sends[number % QUEUES]
            yield ANSWER
            yield PACKED_PAUSE_S

    return [Wave(script, 12, target.port)]


_QUERY_ID = re.compile(rb'"(?:queryId|query)"\s*:\s*"([^"]{1,128})"')


def strange_commit(query_id: str, batch_id: int) -> bytes:
    """Return a commit without chunks."""
    body = dump_json({"queryId": query_id, "batchId": batch_id, "partitions": []})
    return request(RequestCode.STAGED_WRITES, {"operation": COMMIT}, body)


def strange_commits(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Read ids of queries in the topic of decisions, commit batch 10^12 of each, and commit nothing for new queries."""
    numbers = itertools.count()

    def script(link: Link) -> Steps:
        codes = itertools.cycle((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))
        while True:
            for offset in range(0, 320, 32):
                yield pull(COMMITS_TOPIC, 0, offset, code=next(codes))
                yield ANSWER
                for query_id in set(_QUERY_ID.findall(link.last)):
                    yield strange_commit(query_id.decode(errors="replace"), FAR_BATCH)
                    yield ANSWER
                for _ in range(NEW_QUERIES):
                    yield strange_commit(f"stranger-{next(numbers)}", 0)
                    yield ANSWER

    return [Wave(script, 8, target.port)]


def colliding_topics(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Make topics (18) whose names share a cell under a hash without a secret, and pull from the latest ones."""
    names = colliding_names(COLLIDING, dice)
    made = [names[0]]

    def make(link: Link) -> Steps:
        for at in range(0, len(names), TOPICS_AT_ONCE):
            some = names[at : at + TOPICS_AT_ONCE]
            body = dump_json({"topicConfigList": [TopicConfig(name, 1, 1).to_json() for name in some]})
            yield request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
            yield ANSWER
            made[0] = some[-1]
        yield HOLD

    def look_up(link: Link) -> Steps:
        while True:
            yield pull(made[0], 0, 1 << 40) * LOOK_UPS_AT_ONCE
            yield ANSWER

    return [Wave(make, 1, target.port, again=False), Wave(look_up, 2, target.port)]


def large_commits(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Commit 12,000 chunks that do not exist, five times a second on each of 16 connections."""
    commits = [staged_commit(f"siege-{number}") for number in range(16)]
    return closed_loop(target, lambda number: commits[number % 16], 16, pause_s=COMMIT_PAUSE_S)


def sql_expressions(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Subscribe 11 groups of one connection to 100 topics each, with 1,100 different expressions, and pull by them."""

    def script(link: Link) -> Steps:
        for topic in range(SQL_TOPICS):
            yield send(b"sql", f"Sql{topic}", d=1)
            yield ANSWER
        groups = [
            sql_consumer(f"sql{group}", [(f"Sql{topic}", f"g{group} = {topic}") for topic in range(SQL_TOPICS)])
            for group in range(SQL_GROUPS)
        ]
        while True:
            yield heartbeat("siege-sql", groups)
            yield ANSWER
            for group in range(SQL_GROUPS):
                yield b"".join(
                    pull(f"Sql{topic}", 0, group=f"sql{group}", sysFlag=0, subVersion=1) for topic in range(SQL_TOPICS)
                )
                yield ANSWER

    return [Wave(script, 1, target.port, one_host=True)]


def queue_locks(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Lock 4,000 queues of a topic in each request, for ever new groups and clients, on 8 connections of a host."""
    numbers = itertools.count()
    create = request(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {"topic": WIDE_TOPIC, "defaultTopic": "TBW102", "readQueueNums": WIDE_QUEUES, "writeQueueNums": WIDE_QUEUES,
         "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"},
    )  # fmt: skip

    def script(link: Link) -> Steps:
        yield create
        yield ANSWER
        while True:
            name = f"lock{next(numbers)}"
            body = lock_body(target.broker_name, WIDE_TOPIC, range(WIDE_QUEUES), name, name)
            yield request(RequestCode.LOCK_BATCH_MQ, body=body)
            yield ANSWER
            yield LOCK_PAUSE_S

    return [Wave(script, 8, target.port, one_host=True)]
