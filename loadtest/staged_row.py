"""The row of staged writes: chunks are staged, and commits publish them, as Spark's sink does it."""

import itertools
import time
import zlib
from collections import deque
from concurrent.futures import Future

from ringmq.client.blocking import Producer
from ringmq.client.producing.send_result import SendResult
from ringmq.client.producing.staged_writes import (
    CommitRequest,
    StagedChunk,
    StagingPlace,
    commit_staged,
    describe_staging,
    place_of_message,
    staging_request,
)
from ringmq.loadtest.measurement import Measurement
from ringmq.loadtest.process_stats import cpu_seconds
from ringmq.loadtest.rows import RATE, Context
from ringmq.loadtest.targets import Target
from ringmq.remoting.batch import encode_batch
from ringmq.remoting.message import Message

ROWS_A_CHUNK = 1000
CHUNKS_A_COMMIT = 8
BODY_BYTES = 200
QUEUES = 4
COMMIT_TIMEOUT_MS = 30_000


def staged_row(context: Context, target: Target) -> Measurement:
    """Messages a second that commits of eight chunks make readable. It counts when all of them are read back."""
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
            chunks = _stage(producer, place, topic, body, batch_id)
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


def _stage(producer: Producer, place: StagingPlace, topic: str, body: bytes, batch_id: int) -> tuple[StagedChunk, ...]:
    waiting: deque[Future[SendResult]] = deque()
    crc = zlib.crc32(body) & 0x7FFFFFFF  # as RocketMQ keeps it
    for sequence in range(CHUNKS_A_COMMIT):
        said = StagedChunk(0, 0, sequence, 0, len(body), crc)
        properties = said.properties(topic, batch_id, topic, sequence % QUEUES)
        request = staging_request(place, sequence, body, properties, int(time.time() * 1000))
        waiting.append(producer.begin_request(request))
    results = [future.result() for future in waiting]
    return tuple(
        StagedChunk(0, 0, sequence, place_of_message(result.offset_message_ids[0]), len(body), crc)
        for sequence, result in enumerate(results)
    )
