"""Attacks on control: heartbeats, locks, offsets, JSON, and names that clients make up."""

import itertools
import random
from collections.abc import Callable, Sequence

from ringmq.loadtest.siege.attack import TOPIC, Target
from ringmq.loadtest.siege.attacks_wire import Steps
from ringmq.loadtest.siege.requests import consumer, heartbeat, pull, request, send
from ringmq.loadtest.siege.swarm import ANSWER, HOLD, Link, Wave
from ringmq.remoting.codes import RequestCode

GROUPS_A_HEARTBEAT = 15_000  # 3.9 MB
FAR_FUTURE_MS = 4_611_686_018_427_387_904


def closed_loop(
    target: Target, make: Callable[[int], bytes], connections: int, *, pause_s: float = 0.0
) -> Sequence[Wave]:
    """Return connections that each wait for an answer before the next request. `make(n)` is the n-th of all."""
    numbers = itertools.count()

    def script(link: Link) -> Steps:
        while True:
            yield make(next(numbers))
            yield ANSWER
            if pause_s:
                yield pause_s

    return [Wave(script, connections, target.port)]


def prebuilt(requests: Sequence[bytes]) -> Callable[[int], bytes]:
    """Return the same requests repeatedly."""
    return lambda number: requests[number % len(requests)]


def group_heartbeats(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send heartbeats of 3.9 MB, each with 15,000 consumer groups of its own."""
    beats = [
        heartbeat(f"siege-{beat}", (consumer(f"g{beat}-{n}") for n in range(GROUPS_A_HEARTBEAT))) for beat in range(4)
    ]
    return closed_loop(target, prebuilt(beats), 4)


def dialect_heartbeats(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send heartbeats of 3.9 MB in fastjson's dialect, which standard readers of JSON reject."""
    table = ",".join(f"{n}:{{'a':{n}}}" for n in range(200_000))
    numeric = f"{{clientID:'dialect',producerDataSet:[],consumerDataSet:[],table:{{{table}}}}}".encode()
    reference = b"{'clientID':'r','producerDataSet':[" + b"{'$ref':'$.clientID'}," * 170_000 + b"{}]}"
    text = b"{'clientID':'" + b"\\u0061" * 600_000 + b"','consumerDataSet':[" + b"[" * 10_000
    return closed_loop(target, prebuilt([request(34, body=body) for body in (numeric, reference, text)]), 3)


def producer_groups(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send heartbeats with ever new producer groups on one connection and on many."""

    def beat(number: int) -> bytes:
        return heartbeat(f"p{number % 64}", producers=(f"producer-{number}-{n}" for n in range(2000)))

    return [*closed_loop(target, prebuilt([beat(n) for n in range(256)]), 1),
            *closed_loop(target, prebuilt([beat(n) for n in range(256, 512)]), 16)]  # fmt: skip


def deep_json(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send bodies that nest a million deep, in every request that reads one."""
    codes = (34, 41, 42, 17, 200, 46, 200, RequestCode.HA_HANDSHAKE, RequestCode.STAGED_WRITES)
    deep = [b"[" * 1_000_000, b'{"a":' * 700_000, b"[{'a':" * 500_000, b"[" * 500_000 + b"]" * 500_000]
    return closed_loop(target, prebuilt([request(code, body=body) for code in codes for body in deep]), 4)


def offset_commits(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Commit offsets of groups without members, as fast as the broker accepts them."""

    def commits(number: int) -> bytes:
        fields = {"topic": TOPIC, "queueId": 0, "commitOffset": number}
        groups = range(number * 100, number * 100 + 100)
        return b"".join(request(15, {"consumerGroup": f"commit{n}", **fields}) for n in groups) + b"".join(
            pull(group=f"pulling{n}", sysFlag=5, commitOffset=1) for n in groups
        )

    return closed_loop(target, prebuilt([commits(n) for n in range(500)]), 8)


def new_topics(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Send to topics that do not exist yet: each send makes one."""
    return closed_loop(target, lambda number: send(b"new", f"Auto{number}", number % 4), 32)


def leaving_clients(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Unregister clients and groups that never existed, while others come and go at once."""
    leave = [
        request(35, {"clientID": f"c{n}", "producerGroup": f"p{n}", "consumerGroup": f"g{n % 50}"}) for n in range(500)
    ]
    come = [heartbeat(f"c{n}", [consumer(f"g{n % 50}")], [f"p{n}"]) for n in range(500)]
    both = [data for pair in zip(come, leave, strict=True) for data in pair]

    def script(link: Link) -> Steps:
        yield come[link.number % len(come)]
        yield ANSWER

    return [*closed_loop(target, prebuilt(both), 32), Wave(script, 64, target.port)]


def index_queries(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Query the index by keys, by time, by message id, for existing and missing messages."""
    span = {"maxNum": 1024, "beginTimestamp": 0, "endTimestamp": 2**62}
    data = [request(12, {"topic": TOPIC, "key": f"key{n}", **span}) for n in range(200)]
    data += [request(29, {"topic": TOPIC, "queueId": n % 4, "timestamp": n * 10**9}) for n in range(200)]
    data += [request(33, {"offset": n * 1000}) for n in range(200)]
    fill = b"".join(
        send(b"indexed", properties=f"KEYS\x01{' '.join(f'key{m}' for m in range(50))}\x02") for _ in range(64)
    )

    def first(link: Link) -> Steps:
        yield fill
        yield HOLD

    return [Wave(first, 1, target.port, again=False), *closed_loop(target, prebuilt(data), 64)]


def settings_from_outside(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Set properties that would stop all sends for ever, or mean nothing."""
    lines = [f"startAcceptSendRequestTimeStamp={FAR_FUTURE_MS}", "startAcceptSendRequestTimeStamp=-1", "x=1\ny=2"]
    lines += ["startAcceptSendRequestTimeStamp=" + "9" * 400, "=\n" * 10_000, "a" * 1_000_000]
    return closed_loop(target, prebuilt([request(25, body=line.encode()) for line in lines]), 4, pause_s=0.02)


def whole_tables(target: Target, dice: random.Random) -> Sequence[Wave]:
    """Request the largest answers of control on 100 connections that never read them, and on 8 that do."""
    codes = (21, 43, 201, 45, 402, 28, 26, 270005)
    data = b"".join(request(code) for code in codes)

    def script(link: Link) -> Steps:
        while True:
            yield data
            yield 0.5

    deaf = Wave(script, 100, target.port, reads=False, receive_buffer=4096)
    return [deaf, *closed_loop(target, prebuilt([request(code) for code in codes]), 8)]
