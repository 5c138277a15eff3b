"""Attacks on the other listeners: replication port, requests of replication, HTTP, name server."""

import itertools
import random
import re
import struct
import time
import zlib
from collections.abc import Sequence

from ringmq.loadtest.siege.attack import QUEUES, TOPIC, Target
from ringmq.loadtest.siege.attacks_clients import prebuilt
from ringmq.loadtest.siege.attacks_wire import HALF_FRAME, HALF_FRAME_STAYS_S, Steps
from ringmq.loadtest.siege.requests import frame, request
from ringmq.loadtest.siege.swarm import ANSWER, HOLD, Link, Wave
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.json_text import dump_json

LONG_LOG = 500_000_000
_OPAQUE = re.compile(rb'"opaque":(\d+)')
SLAVE_PACE_S = 0.05


# ---- replication ----


def longer_log(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Report an offset beyond the log's end as a slave."""

    def script(link: Link) -> Steps:
        yield struct.pack(">q", LONG_LOG + link.number)
        yield 0.2

    return [Wave(script, 8, target.ha_port)]


def handshake_body(target: Target, number: int, address: str, crc: int) -> bytes:
    """Return the body of a handshake of a slave that claims a longer, different log."""
    claim = {
        "cluster": target.cluster, "broker_name": target.broker_name, "broker_id": 1 + number % 50,
        "start_id": f"{number + 1:x}", "min_offset": 0, "max_offset": LONG_LOG, "file_bytes": target.log_file_bytes,
        "broker_addr": address, "ha_port": 1 + number % 60_000, "room": "", "report_level": "cached",
        "operation": "join", "tail": [[0, 100, crc]],
    }  # fmt: skip
    return dump_json(claim)


def false_claims(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send handshakes of slaves whose logs differ, on the ordinary port."""
    data = [
        request(RequestCode.HA_HANDSHAKE, body=handshake_body(target, n, f"127.0.0.{n % 200 + 2}:10911", n))
        for n in range(500)
    ]
    numbers = itertools.count()

    def script(link: Link) -> Steps:
        while True:
            yield data[next(numbers) % len(data)]
            yield ANSWER

    return [Wave(script, 16, target.port)]


def adoption(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send claims, and decisions to adopt logs from addresses with invalid bytes or without a listener."""
    sources = (f"127.0.0.1:{target.lying_port}", "127.0.0.1:1")

    def script(link: Link) -> Steps:
        while True:
            for number in range(1, 40):
                address = sources[number % 2]
                yield request(RequestCode.HA_HANDSHAKE, body=handshake_body(target, number, address, number))
                yield ANSWER
                for more in ({}, {"address": address}):
                    yield request(RequestCode.HA_DECIDE, {"brokerId": 1 + number, "choice": "adopt", **more})
                    yield ANSWER
                yield SLAVE_PACE_S

    def lie(link: Link) -> Steps:
        while True:
            yield ANSWER
            for opaque in _OPAQUE.findall(link.last):
                header = b'{"code":0,"flag":1,"opaque":%s,"extFields":{"offset":"0","maxOffset":"%d"}}'
                yield frame(header % (opaque, LONG_LOG), dice.randbytes(1 << 16))

    return [Wave(script, 4, target.port), Wave(lie, 0, listen_port=target.lying_port)]


def ha_connections(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Open silent connections that occupy every slot of a slave, and send bytes that are no reports."""

    def idle(link: Link) -> Steps:
        yield HOLD

    def junk(link: Link) -> Steps:
        yield dice.randbytes(dice.randint(1, 64))
        yield 0.05

    return [Wave(idle, 200, target.ha_port), Wave(junk, 50, target.ha_port)]


def anonymous_slaves(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Request the whole log as anonymous clients that report false progress and do not read."""

    def deaf(link: Link) -> Steps:
        yield struct.pack(">q", 0)
        offset = 0
        while True:
            yield 0.02
            offset += 1 << 14
            yield struct.pack(">q", offset)

    def reading(link: Link) -> Steps:
        yield struct.pack(">q", 0)
        yield HOLD

    return [Wave(deaf, 8, target.ha_port, reads=False, receive_buffer=4096), Wave(reading, 8, target.ha_port)]


def _record(offset: int, queue_id: int, queue_offset: int, body: bytes = b"from a master") -> bytes:
    topic, now = TOPIC.encode(), int(time.time() * 1000)
    host = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)
    rest = struct.pack(">i", queue_id) + struct.pack(">i", 0) + struct.pack(">q", queue_offset)
    rest += struct.pack(">q", offset) + struct.pack(">i", 0) + struct.pack(">q", now) + host + struct.pack(">q", now)
    rest += host + struct.pack(">i", 0) + struct.pack(">q", 0) + struct.pack(">i", len(body)) + body
    rest += bytes((len(topic),)) + topic + struct.pack(">h", 0)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    return struct.pack(">iII", 12 + len(rest), 0xDAA320A7, crc) + rest


def false_master(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Stream records with impossible queue ids and offsets, then invalid bytes, as a master to its slave."""
    queue_ids = (-1, 0, -(2**31), 2**31 - 1, 1, 70_000, 2, -7)

    def script(link: Link) -> Steps:
        yield ANSWER
        offset = struct.unpack(">q", link.last[:8])[0] if len(link.last) >= 8 else 0
        yield struct.pack(">qi", offset, 0)
        for number in itertools.count():
            queue_offset = dice.choice((0, 1, -5, 2**62, number))
            record = _record(offset, queue_ids[number % len(queue_ids)], queue_offset)
            yield struct.pack(">qi", offset, len(record)) + record
            offset += len(record)
            if number % 200 == 199:
                yield struct.pack(">qi", offset, 40) + dice.randbytes(40)
            yield 0.01

    return [Wave(script, 0, listen_port=target.master_port)]


# ---- HTTP ----


def slow_http(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send requests for /health that never end, and open idle connections."""
    data = b"GET /health HTTP/1.1\r\nHost: siege\r\nX-Slow: " + b"x" * 10_000

    def script(link: Link) -> Steps:
        if link.number % 4 == 0:
            yield HOLD
        for at in range(len(data)):
            yield data[at : at + 1]
            yield 0.5

    return [Wave(script, 64, target.http_port)]


def large_http(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send pipelined requests, endless headers, bodies, scrapes that are never read, TLS."""
    pipelined = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 2000
    headers = b"GET / HTTP/1.1\r\n" + b"".join(b"H%d: %s\r\n" % (n, b"y" * 1000) for n in range(5000))
    body = b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n" + bytes(1 << 20)
    line = b"GET /" + b"a" * (4 << 20)
    data = (
        pipelined,
        headers,
        body,
        line,
        b"\x16\x03\x01" + bytes(500),
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50,
    )

    def script(link: Link) -> Steps:
        yield data[link.number % len(data)]
        yield 2.0

    return [Wave(script, 24, target.http_port), Wave(script, 24, target.http_port, reads=False, receive_buffer=4096)]


# ---- name server ----


def _registration(target: Target, name: str, address: str, table: dict[str, object], cluster: str = "") -> bytes:
    fields = {
        "brokerName": name, "brokerAddr": address, "clusterName": cluster or target.cluster, "haServerAddr": address,
        "brokerId": 0, "compressed": "false", "bodyCrc32": 0,
    }  # fmt: skip
    version = {"counter": 1, "stateVersion": 0, "timestamp": int(time.time() * 1000)}
    body = {"filterServerList": [], "topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}}
    data = dump_json(body)
    return request(RequestCode.REGISTER_BROKER, fields | {"bodyCrc32": zlib.crc32(data)}, data)


def _topics(count: int, prefix: str) -> dict[str, object]:
    bean = {"order": False, "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "topicSysFlag": 0}
    return {
        f"{prefix}{n}": {**bean, "topicName": f"{prefix}{n}", "topicFilterType": "SINGLE_TAG"} for n in range(count)
    }


def _at_name_server(target: Target, data: Sequence[bytes], connections: int, pause_s: float = 0.0) -> Sequence[Wave]:
    take, numbers = prebuilt(data), itertools.count()

    def script(link: Link) -> Steps:
        while True:
            yield take(next(numbers))
            yield ANSWER
            if pause_s:
                yield pause_s

    return [Wave(script, connections, target.name_server_port)]


def second_masters(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Register a second master under the broker's name and unregister it again."""
    names = [target.broker_name, "siege-master"]
    data = [
        _registration(target, names[n % 2], f"127.0.0.{n % 200 + 2}:{10_911 + n}", _topics(3, "M")) for n in range(200)
    ]
    return _at_name_server(target, data, 4, 0.05)


def name_server_floods(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Register brokers with thousands of topics under ever new names, beside floods of small requests."""
    data = [
        _registration(target, f"b{n}", f"127.0.1.{n % 250}:{1000 + n}", _topics(5000, f"N{n}-"), f"cluster{n % 50}")
        for n in range(40)
    ]
    return [*_at_name_server(target, data, 8), *_small_requests(target)]


def _small_requests(target: Target) -> Sequence[Wave]:
    """Send key-value entries, requests for routes and topic lists, unregistrations of unknown brokers."""
    data = [request(100, {"namespace": f"n{n}", "key": f"k{n}", "value": "v" * 10_000}) for n in range(1000)]
    data += [request(105, {"topic": f"Nothing{n}"}) for n in range(1000)] + [
        request(code) for code in (106, 206, 304, 319)
    ]
    gone = {"brokerAddr": "127.0.0.9:1", "clusterName": "x", "brokerId": 0}
    data += [request(104, {"brokerName": f"gone{n}", **gone}) for n in range(200)]
    return _at_name_server(target, data, 64)


def name_server_frames(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send halves of frames, frames with changed bytes, requests without reading answers, and open idle connections."""
    whole = request(105, {"topic": TOPIC, "queueId": QUEUES})
    lists = request(206) * 200

    def half(link: Link) -> Steps:
        yield HALF_FRAME + bytes(100_000 if link.number % 2 else 0)
        yield HALF_FRAME_STAYS_S

    def damaged(link: Link) -> Steps:
        data = bytearray(whole)
        data[dice.randrange(len(data))] = dice.randrange(256)
        yield bytes(data)
        yield 0.1

    def deaf(link: Link) -> Steps:
        while True:
            yield lists
            yield 0.2

    port = target.name_server_port
    return [Wave(half, 2000, port), Wave(damaged, 64, port), Wave(deaf, 100, port, reads=False, receive_buffer=4096)]
