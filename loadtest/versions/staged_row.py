"""The rows of staged writes: chunks are staged, and commits publish them, as in Spark's sink."""

import asyncio
import itertools
import time
import zlib
from collections import deque
from concurrent.futures import Future

from ringmq.client.blocking import Producer
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.producing.send_result import SendResult
from ringmq.client.producing.staged_writes import (
    CommitRequest,
    StagedChunk,
    StagingArea,
    commit_staged,
    describe_staging,
    place_of_message,
    staging_request,
)
from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.load.process_stats import busy_seconds, cpu_seconds
from ringmq.loadtest.load.targets import Target
from ringmq.loadtest.measuring.measurement import RATE, Measurement
from ringmq.remoting import staged_writes
from ringmq.remoting.batch import encode_batch
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.message import Message

ROWS_A_CHUNK = 1000
CHUNKS_A_COMMIT = 8
BODY_BYTES = 200
QUEUES = 4
COMMIT_TIMEOUT_MS = 30_000
QUERIES = 16
ROWS_OF_MANY = 50
"""Rows of a chunk with many committing queries: the commits shall cost more than the rows."""
COMMITS = "commits_per_s"
CONTROL_US = "control_us_per_commit"
"""Processor time of the control worker during commits, less its usual use in the same time."""


def staged_row(context: Context, target: Target) -> Measurement:
    """Return messages a second that commits of eight chunks make readable. Counts if all of them are read back."""
    topic = context.topic("staged")
    loader = context.loader(target.port)
    loader.run("create", topic=topic, queues=QUEUES)
    place = describe_staging(f"127.0.0.1:{target.port}")
    if place is None:
        return Measurement({}, ok=False, note="the broker does not know of staged writes")
    body = encode_batch([Message(topic, bytes(BODY_BYTES)) for _ in range(ROWS_A_CHUNK)])
    pids, committed = target.pids(), 0
    with Producer(target.namesrv, "staged_row") as producer:
        began, used = time.monotonic(), cpu_seconds(pids)
        for batch_id in itertools.count():
            chunks = _stage(producer, place, topic, topic, body, batch_id)
            request = CommitRequest(topic, batch_id, chunks)
            commit_staged(target.namesrv, place.broker_name, request, COMMIT_TIMEOUT_MS)
            committed += ROWS_A_CHUNK * len(chunks)
            seconds = time.monotonic() - began
            if seconds > context.seconds:
                break
        share = (cpu_seconds(pids) - used) / seconds
    back = loader.run("verify", topic=topic)
    note = "" if back["read"] == committed else f"{committed} committed, {back['read']} read back"
    return Measurement(
        {RATE: committed / seconds}, ok=bool(back["ok"]) and not note, note=note, raw={"server_cpu": {"all": share}}
    )


def many_queries_row(context: Context, target: Target) -> Measurement:
    """Return messages a second that commits of 16 queries at once make readable, while commits are in progress.

    The chunks of a round are staged before its commits begin. Each query commits on a connection of its own.
    """
    topic = context.topic("staged_many")
    loader = context.loader(target.port)
    loader.run("create", topic=topic, queues=QUEUES)
    address = f"127.0.0.1:{target.port}"
    place = describe_staging(address)
    if place is None:
        return Measurement({}, ok=False, note="the broker does not know of staged writes")
    body = encode_batch([Message(topic, bytes(BODY_BYTES)) for _ in range(ROWS_OF_MANY)])
    pids = target.pids()
    control = [pid for pid, name in pids.items() if name == "control"]
    committing = controlling = used = 0.0
    rounds, all_began, all_busy_control = 0, time.monotonic(), busy_seconds(control)
    with Producer(target.namesrv, "many_queries_row") as producer, asyncio.Runner() as runner:
        clients = [RemotingClient() for _ in range(QUERIES)]
        while time.monotonic() < all_began + context.seconds:
            requests = [
                CommitRequest(query, rounds, _stage(producer, place, topic, query, body, rounds))
                for query in (f"{topic}-{number}" for number in range(QUERIES))
            ]
            began, busy, busy_control = time.monotonic(), busy_seconds(pids), busy_seconds(control)
            runner.run(_commit_all(clients, address, requests))
            committing += time.monotonic() - began
            used += busy_seconds(pids) - busy
            controlling += busy_seconds(control) - busy_control
            rounds += 1
        idle_s = time.monotonic() - all_began - committing
        idle_share = max(0.0, busy_seconds(control) - all_busy_control - controlling) / idle_s
        runner.run(_close_all(clients))
    commits = rounds * QUERIES
    committed = commits * CHUNKS_A_COMMIT * ROWS_OF_MANY
    back = loader.run("verify", topic=topic)
    note = "" if back["read"] == committed else f"{committed} committed, {back['read']} read back"
    values = {
        RATE: committed / committing,
        COMMITS: commits / committing,
        CONTROL_US: (controlling - idle_share * committing) / commits * 1e6,
    }
    return Measurement(values, bool(back["ok"]) and not note, note, {"server_cpu": {"all": used / committing}})


async def _commit_all(clients: list[RemotingClient], address: str, requests: list[CommitRequest]) -> None:
    fields = {staged_writes.OPERATION: staged_writes.COMMIT}
    await asyncio.gather(
        *(
            client.call(address, RequestCode.STAGED_WRITES, fields, request.encode(), COMMIT_TIMEOUT_MS)
            for client, request in zip(clients, requests, strict=True)
        )
    )


async def _close_all(clients: list[RemotingClient]) -> None:
    await asyncio.gather(*(client.close() for client in clients))


def _stage(
    producer: Producer, place: StagingArea, topic: str, query: str, body: bytes, batch_id: int
) -> tuple[StagedChunk, ...]:
    waiting: deque[Future[SendResult]] = deque()
    crc = zlib.crc32(body) & 0x7FFFFFFF  # as RocketMQ keeps it
    for sequence in range(CHUNKS_A_COMMIT):
        said = StagedChunk(0, 0, sequence, 0, len(body), crc)
        properties = said.properties(query, batch_id, topic, sequence % QUEUES)
        request = staging_request(place, sequence, body, properties, int(time.time() * 1000))
        waiting.append(producer.begin_request(request))
    results = [future.result() for future in waiting]
    return tuple(
        StagedChunk(0, 0, sequence, place_of_message(result.offset_message_ids[0]), len(body), crc)
        for sequence, result in enumerate(results)
    )
