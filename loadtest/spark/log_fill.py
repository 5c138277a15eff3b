"""Fills topics of a running broker up to a size of log, at the broker's own speed, for the Spark bench.

Frames are built once. A send patches the numbers that make each message unique (in body, KEYS and UNIQ_KEY) into a
copy. So the fill costs Python per frame, not per message, and works against stock brokers too.
"""

import argparse
import itertools
import json
import random
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ringmq.loadtest.load.beforehand import prepare_results
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.targets import COMMON_SETTINGS
from ringmq.loadtest.load.tools import Loader, ToolError, build_tools
from ringmq.loadtest.spark.log_text import bodies
from ringmq.remoting.batch import encode_batch
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, SerializeType, decode_frame, encode_frame
from ringmq.remoting.message import Message
from ringmq.remoting.properties import encode_properties

TOPICS = tuple(f"spark_bench_{number}" for number in range(4))
QUEUES = 4
BATCH_BYTES = 16 << 10  # of bodies in a frame: a queue's messages stand together in the log for no longer
TEMPLATES = 32
FRAMES_IN_FLIGHT = 8
# A record with IPv4 hosts without body, topic and properties; and MSG_REGION, TRACE_ON and CLUSTER, which brokers add.
RECORD_FIXED_BYTES = 91 + 62
NUMBER_MARK = b"##SEQUENCE##"
BORN_MARK = b"##BORN-TIME##"
_HEX = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
_SHIFTS = np.arange(len(NUMBER_MARK) - 1, -1, -1, dtype=np.int64) * 4
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Filled:
    """The acknowledged sends: messages, bytes of their bodies, and about their bytes in the log."""

    messages: int
    body_bytes: int
    log_bytes: int
    seconds: float


class BatchFrame:
    """A complete batch send for one queue, with the positions of its numbers."""

    def __init__(self, topic: str, queue_id: int, messages: Sequence[bytes]) -> None:
        batch = [Message(topic, body, _properties(number)) for number, body in enumerate(messages)]
        self.messages = len(batch)
        self.body_bytes = sum(map(len, messages))
        properties = sum(len(encode_properties(message.properties)) for message in batch)
        self.log_bytes = self.messages * (RECORD_FIXED_BYTES + len(topic)) + self.body_bytes + properties
        frame = encode_frame(
            RemotingCommand.request(
                RequestCode.SEND_BATCH_MESSAGE,
                _header(topic, queue_id),
                encode_batch(batch),
                serialize_type=SerializeType.ROCKETMQ,
            )
        )
        self._bytes: Bytes = np.frombuffer(frame, dtype=np.uint8)
        self._born_at = frame.index(BORN_MARK)
        marks = [found.start() for found in re.finditer(re.escape(NUMBER_MARK), frame)]
        places = np.array(marks, dtype=np.int64).reshape(self.messages, -1)  # body, KEYS, UNIQ_KEY of each message
        self._places = places[:, :, None] + np.arange(len(NUMBER_MARK))

    def numbered(self, first: int, born_ms: int) -> Bytes:
        """Return the frame with messages `first`, `first` + 1, ... born at `born_ms`."""
        frame = self._bytes.copy()
        numbers = np.arange(first, first + self.messages, dtype=np.int64)
        digits = _HEX[(numbers[:, None] >> _SHIFTS) & 15]
        frame[self._places] = digits[:, None, :]
        born = np.frombuffer(f"{born_ms:0{len(BORN_MARK)}d}".encode(), dtype=np.uint8)
        frame[self._born_at : self._born_at + len(BORN_MARK)] = born
        return frame


def _properties(number: int) -> dict[str, str]:
    mark = NUMBER_MARK.decode()
    return {"KEYS": f"K{mark}", "UNIQ_KEY": f"7F00000100000000000F{mark}", "WAIT": "true", "TAGS": f"Tag{number % 4}"}


def _header(topic: str, queue_id: int) -> dict[str, str]:
    """Return the fields of a batch send by their letters, as the Java client sends them."""
    values = (
        "spark_bench",
        topic,
        "TBW102",
        QUEUES,
        queue_id,
        0,
        BORN_MARK.decode(),
        0,
        "WAIT\x01true\x02",
        0,
        "false",
    )
    return {**dict(zip("abcdefghijk", map(str, values), strict=True)), "m": "true"}


def batch_frames(topic: str, body_bytes: int, seed: int) -> list[BatchFrame]:
    """Return frames of about `BATCH_BYTES` for all queues of `topic`, no two with the same bodies."""
    count = max(1, BATCH_BYTES // body_bytes)
    made = iter(bodies(seed, TEMPLATES * QUEUES * count, body_bytes, NUMBER_MARK))
    return [
        BatchFrame(topic, queue_id, list(itertools.islice(made, count)))
        for _ in range(TEMPLATES)
        for queue_id in range(QUEUES)
    ]


def fill_topics(port: int, log_bytes: int, body_bytes: int, *, topics: Sequence[str] = TOPICS, seed: int = 1) -> Filled:
    """Create `topics` on the broker at 127.0.0.1:`port` and send until about `log_bytes` of log are written.

    Raises `ToolError` if the broker refuses a batch.
    """
    loader = Loader(build_tools(), port)
    for topic in topics:
        loader.run("create", topic=topic, queues=QUEUES)
    began = time.monotonic()
    senders = [
        _Sender(port, topic, number, log_bytes // len(topics), body_bytes, seed + number)
        for number, topic in enumerate(topics)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    for sender in senders:
        if sender.error is not None:
            raise ToolError(f"filling {sender.topic}: {sender.error}") from sender.error
    return Filled(
        sum(sender.messages for sender in senders),
        sum(sender.body_bytes for sender in senders),
        sum(sender.log_bytes for sender in senders),
        time.monotonic() - began,
    )


class _Sender(threading.Thread):
    """One topic's connection, with a few frames in flight."""

    def __init__(self, port: int, topic: str, number: int, wanted: int, body_bytes: int, seed: int) -> None:
        super().__init__(name=f"fill-{topic}", daemon=True)
        self.topic = topic
        self.error: Exception | None = None
        self.messages = self.body_bytes = self.log_bytes = 0
        self._port, self._wanted, self._first = port, wanted, number << 40
        self._frames = batch_frames(topic, body_bytes, seed)
        self._order = random.Random(seed)

    def run(self) -> None:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=60) as connection:
                self._send_all(connection)
        except (OSError, ValueError, ToolError) as error:
            self.error = error

    def _send_all(self, connection: socket.socket) -> None:
        answers = connection.makefile("rb")
        on_their_way = 0
        for frame in self._turns():
            connection.sendall(frame.numbered(self._first + self.messages, time.time_ns() // 1_000_000).data)
            self.messages += frame.messages
            self.body_bytes += frame.body_bytes
            self.log_bytes += frame.log_bytes
            on_their_way += 1
            if on_their_way == FRAMES_IN_FLIGHT:
                _check_answer(answers)
                on_their_way -= 1
        for _ in range(on_their_way):
            _check_answer(answers)

    def _turns(self) -> Iterator[BatchFrame]:
        while self.log_bytes < self._wanted:
            yield self._order.choice(self._frames)


def _check_answer(answers: BinaryIO) -> None:
    prefix = answers.read(4)
    if len(prefix) < 4:
        raise ToolError("the broker closed the connection")
    (length,) = struct.unpack(">i", prefix)
    answer = decode_frame(prefix + answers.read(length))
    if answer.code != ResponseCode.SUCCESS:
        raise ToolError(f"the broker answered code {answer.code}: {answer.remark}")


def make_store(store: Path, log_bytes: int, body_bytes: int, *, seed: int = 1) -> Filled:
    """Make a RingMQ store at `store` (which must not exist) with about `log_bytes` of log. Its broker is stopped."""
    if store.exists():
        raise ToolError(f"{store} exists already; remove it or name another folder")
    with RunningBroker(store, {**COMMON_SETTINGS, "messageIndexEnable": False}) as broker:
        filled = fill_topics(broker.port, log_bytes, body_bytes, seed=seed)
        status = broker.stop()
    if status != 0:
        raise ToolError(f"the broker of {store} ended with status {status}:\n{broker.log_tail()}")
    return filled


def main() -> int:
    """Run `python -m ringmq.loadtest.spark.log_fill STORE`: make a store for measurements, print one JSON object."""
    parser = argparse.ArgumentParser(description=make_store.__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--gib", type=float, default=2.0, help="GiB of log (%(default)s)")
    parser.add_argument("--body-bytes", type=int, default=1024, help="mean size of a body (%(default)s)")
    options = parser.parse_args()
    prepare_results(options.store.absolute().parent, needed_bytes=int(options.gib * (1 << 30)))
    filled = make_store(options.store.absolute(), int(options.gib * (1 << 30)), options.body_bytes)
    print(json.dumps({"store": str(options.store), **vars(filled)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
