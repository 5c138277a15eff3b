"""Attacks on the frame layer: connections, halves of frames, bytes that are no frames, readers that do not read."""

import random
import struct
import zlib
from collections.abc import Generator, Sequence

from ringmq.loadtest.siege.attack import QUEUES, TOPIC, Target
from ringmq.loadtest.siege.requests import PULL_HOLD_MS, frame, pull, request, send
from ringmq.loadtest.siege.swarm import ANSWER, HALF_CLOSE, HOLD, RESET, Link, Step, Take, Wave
from ringmq.remoting.codes import RequestCode

Steps = Generator[Step, None, None]
FRAME_MAX_BYTES = 16 << 20
HALF_FRAME = bytes.fromhex("00f424000000")  # 16 MB are announced, 6 bytes come
HALF_FRAME_STAYS_S = 5.0
BIG_MESSAGES, BIG_BODY_BYTES = 32, 1 << 20


def half_frames(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Announce 16 MB on each of 2,800 connections, send 6 bytes and close after 5 s."""

    def script(link: Link) -> Steps:
        yield HALF_FRAME
        yield HALF_FRAME_STAYS_S

    return [Wave(script, 2800, target.port)]


def announced_sizes(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Announce frames of the largest size, of which 64 KiB come and then a byte a second."""
    header = b'{"code":310,"flag":0,"opaque":1}'
    start = struct.pack(">iI", FRAME_MAX_BYTES - 4, len(header)) + header + bytes(65_536)

    def script(link: Link) -> Steps:
        yield start
        while True:
            yield 1.0
            yield b"x"

    return [Wave(script, 1000, target.port)]


def byte_wise(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send whole sends, a byte at a time."""
    data = send(b"slow")

    def script(link: Link) -> Steps:
        for at in range(len(data)):
            yield data[at : at + 1]
            yield 0.1

    return [Wave(script, 1500, target.port)]


def churn(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Open and close connections at once."""

    def script(link: Link) -> Steps:
        yield b""

    return [Wave(script, 128, target.port), Wave(script, 64, target.vip_port)]


def idle_connections(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Open as many silent connections as descriptors allow."""

    def script(link: Link) -> Steps:
        yield HOLD

    return [Wave(script, 18_500, target.port)]


def aborted_connections(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Reset connections in the middle of frames, and close one direction of others."""
    data = send(b"aborted" * 100)

    def reset(link: Link) -> Steps:
        yield data[: dice.randrange(len(data))]
        yield RESET

    def half_closed(link: Link) -> Steps:
        yield data * 10
        yield HALF_CLOSE
        yield HOLD

    return [Wave(reset, 256, target.port), Wave(half_closed, 500, target.port)]


def unknown_codes(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Pipeline requests that no broker knows, and answers without a request."""
    unknown = b"".join(request(code, {"a": "b"}) for code in range(9000, 9200))
    forged = b"".join(frame(b'{"code":0,"flag":1,"opaque":%d,"remark":"forged"}' % n, b"{}") for n in range(200))

    def script(link: Link) -> Steps:
        while True:
            yield forged if link.number % 2 else unknown

    return [Wave(script, 64, target.port)]


def oneway_flood(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send one-way requests to control and one-way sends, as fast as the broker accepts them."""
    cold = request(RequestCode.GET_BROKER_RUNTIME_INFO, oneway=True) * 100
    sends = b"".join(send(b"oneway" * 10, queue_id=n % QUEUES, oneway=True) for n in range(50))

    def script(link: Link) -> Steps:
        while True:
            yield cold
            yield sends
            yield 0.01

    return [Wave(script, 64, target.port)]


def huge_headers(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send headers of a megabyte: one long field, thousands of short ones, and nesting."""
    long = request(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0, "x": "y" * (1 << 20)})
    many = request(RequestCode.GET_MAX_OFFSET, {f"field{n}": n for n in range(40_000)})
    deep = frame(b'{"code":30,"opaque":1,"extFields":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}")

    def script(link: Link) -> Steps:
        while True:
            yield (long, many, deep)[link.number % 3]
            yield ANSWER

    return [Wave(script, 12, target.port)]


def foreign_protocols(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Speak TLS, HTTP, SSH and Redis on the broker's ports."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2
    words = (hello, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"*1\r\n$4\r\nPING\r\n")

    def script(link: Link) -> Steps:
        yield words[link.number % len(words)]
        yield HOLD

    return [Wave(script, 200, port) for port in (target.port, target.vip_port, target.name_server_port)]


def damaged_frames(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send requests with random bytes changed."""
    whole = [send(b"x" * 50), pull(), request(30, {"topic": TOPIC, "queueId": 0}), request(34, body=b"{}")]
    whole += [request(15, {"consumerGroup": "g", "topic": TOPIC, "queueId": 0, "commitOffset": 1}), request(41)]
    damaged = []
    for number in range(4000):
        data = bytearray(whole[number % len(whole)])
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(4, len(data))] = dice.randrange(256)
        damaged.append(bytes(data))

    def script(link: Link) -> Steps:
        while True:
            yield dice.choice(damaged)

    return [Wave(script, 128, target.port)]


def never_reading(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Request 1 MiB messages on 300 connections and never read an answer."""
    pulls = pull(queue_id=1) * 32

    def fill(link: Link) -> Steps:
        for _ in range(BIG_MESSAGES):
            yield send(bytes(BIG_BODY_BYTES), queue_id=1)
            yield ANSWER
        yield HOLD

    def script(link: Link) -> Steps:
        while True:
            yield pulls
            yield 0.2

    return [
        Wave(fill, 1, target.port, again=False),
        Wave(script, 300, target.port, reads=False, receive_buffer=4096),
    ]


def slow_readers(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Read answers of a megabyte at 4 KiB a second."""

    def fill(link: Link) -> Steps:
        yield send(bytes(BIG_BODY_BYTES), queue_id=2)
        yield HOLD

    def script(link: Link) -> Steps:
        yield pull(queue_id=2) * 4
        while True:
            yield 1.0
            yield Take(4096)

    return [
        Wave(fill, 1, target.port, again=False),
        Wave(script, 1000, target.port, reads=False, receive_buffer=4096),
    ]


def parked_pulls(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Park 60,000 long polls at the end of queues, and wake them by sends."""
    polls = b"".join(pull(queue_id=3, offset=1 << 40, hold_ms=PULL_HOLD_MS, group=f"poll{n}") for n in range(300))
    polls += b"".join(pull("SiegeQuiet", n % QUEUES, 0, hold_ms=PULL_HOLD_MS) for n in range(300))

    def script(link: Link) -> Steps:
        yield polls
        while True:
            yield 5.0
            yield polls

    def wake(link: Link) -> Steps:
        while True:
            yield send(b"wake", "SiegeQuiet", link.number % QUEUES)
            yield ANSWER
            yield 0.1

    return [Wave(script, 100, target.port), Wave(wake, 4, target.port)]


def impossible_fields(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Pull and send with missing queues and topics, and with offsets that are no numbers."""
    numbers = (-1, 4, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), "", "x", 10**30)
    data = [pull(queue_id=1, queueOffset=n) for n in numbers] + [pull(queueId=n) for n in numbers]
    data += [pull(f"Nothing{n}") for n in range(100)] + [pull(maxMsgNums=n) for n in numbers]
    data += (
        [send(b"x", e=n) for n in numbers]
        + [send(b"x", g=n, h=n) for n in numbers]
        + [send(b"x", f=n) for n in numbers]
    )
    data += [send(b"x", properties=text) for text in ("\x01\x02", "KEYS\x01", "a\x01b\x02" * 3000, "\x02" * 1000)]
    everything = b"".join(data)

    def script(link: Link) -> Steps:
        while True:
            yield everything

    return [Wave(script, 64, target.port)]


def compressed(size_bytes: int) -> bytes:
    """Return a small body that decompresses to `size_bytes`."""
    packer = zlib.compressobj(9)
    part = bytes(1 << 20)
    return b"".join(packer.compress(part) for _ in range(size_bytes >> 20)) + packer.flush()
