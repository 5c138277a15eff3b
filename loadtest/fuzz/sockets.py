"""Damaged requests over sockets against a running broker, its name server and its HTTP port: no worker may end."""

import itertools
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ringmq.loadtest.fuzz.drivers import FuzzError
from ringmq.loadtest.fuzz.golden import frames
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.siege.swarm import Await, Link, Step, Swarm, Tally, Wave
from ringmq.remoting.codes import RequestCode

CONNECTIONS = 48
SILENT_TIMES = 20
"""Times the inputs after which an endpoint that has not answered is silent."""
EDGES = (
    b"-1",
    b"0",
    b"2147483647",
    b"-2147483648",
    b"9223372036854775807",
    b"65536",
    b"99999999999999999999",
    b"x",
    b"",
)
TOKENS = (b'"', b"\\", b"{", b"}", b"[", b"]", b"\x00", b"\xff", b"\r\n", b"\x01", b"\x02", b"null", b"1e999", b"$ref")
NAME_SERVER_CODES = (100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 318, 319, 327, 901, 904)
BROKER_CODES = tuple(int(code) for code in RequestCode)
FIELDS = (
    b"Host: x", b"Content-Length: 5", b"Transfer-Encoding: chunked", b"Connection: close", b"Accept-Encoding: gzip",
    b"Expect: 100-continue", b"X: " + b"y" * 3000,
)  # fmt: skip
PATHS = (b"/metrics", b"/health", b"/ready", b"/", b"/%00", b"/../..", b"*", b"http://x/")

Make = Callable[[random.Random], bytes]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A port and the maker of its inputs. inputs: of a full run. in_a_row: the most inputs before each answer."""

    name: str
    inputs: int
    port: Callable[[RunningBroker], int]
    make: Callable[[Sequence[bytes]], Make]
    in_a_row: int = 8
    answer_s: float = 0.02


@dataclass(slots=True)
class EndpointResult:
    """The number of inputs that were sent, and the tally of their answers."""

    inputs: int = 0
    tally: Tally = field(default_factory=Tally)


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Return the data with up to four changes: bits, tokens, repeated or missing ranges, numbers at their edges."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        if not changed:
            break
        at = dice.randrange(len(changed))
        match dice.randrange(6):
            case 0:
                changed[at] ^= 1 << dice.randrange(8)
            case 1:
                changed[at : at + 1] = dice.choice(TOKENS)
            case 2:
                changed[at : at + dice.randint(1, 16)] = b""
            case 3:
                changed[at:at] = changed[at : at + dice.randint(1, 64)]
            case _:
                while at < len(changed) and not 48 <= changed[at] <= 57:
                    at += 1
                end = at
                while end < len(changed) and 48 <= changed[end] <= 57:
                    end += 1
                changed[at:end] = dice.choice(EDGES)
    return bytes(changed)


def remoting_inputs(codes: Sequence[int]) -> Callable[[Sequence[bytes]], Make]:
    """Return recorded requests with damage: header or body under right lengths, other codes, wrong lengths."""
    names = [b'"code":%d' % code for code in codes]

    def of(golden: Sequence[bytes]) -> Make:
        def make(dice: random.Random) -> bytes:
            data = dice.choice(golden)
            kind, size = data[4], int.from_bytes(data[5:8], "big")
            header, body = data[8 : 8 + size], data[8 + size :]
            if kind == 0 and dice.random() < 0.5:
                begin = header.find(b'"code":')
                end = begin + 7
                while end < len(header) and header[end] in b"0123456789-":
                    end += 1
                header = header[:begin] + dice.choice(names) + header[end:] if begin >= 0 else header
            elif kind == 1 and dice.random() < 0.5:
                header = (dice.choice(codes) & 0xFFFF).to_bytes(2, "big") + header[2:]
            way = dice.random()
            header = damaged(header, dice) if way < 0.6 else header
            body = damaged(body, dice) if way > 0.4 else body
            prefix = (4 + len(header) + len(body)).to_bytes(4, "big") + bytes((kind,)) + len(header).to_bytes(3, "big")
            return damaged(prefix, dice) + header + body if dice.random() < 0.02 else prefix + header + body

        return make

    return of


def http_inputs(golden: Sequence[bytes]) -> Make:
    """Return requests of all kinds, more or less damaged."""

    def make(dice: random.Random) -> bytes:
        line = dice.choice((b"GET", b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS")) + b" " + dice.choice(PATHS)
        line += dice.choice((b" HTTP/1.1\r\n", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"\r\n", b" HTTP/9.9\r\n"))
        fields = b"".join(dice.choice(FIELDS) + b"\r\n" for _ in range(dice.randrange(6)))
        data = line + fields + b"\r\n" + (b"hello" if dice.random() < 0.1 else b"")
        return damaged(data, dice) if dice.random() < 0.7 else data

    return make


ENDPOINTS = (
    Endpoint("remoting", 500_000, lambda broker: broker.port, remoting_inputs(BROKER_CODES)),
    Endpoint("name server", 100_000, lambda broker: broker.namesrv_port, remoting_inputs(NAME_SERVER_CODES)),
    Endpoint("http", 50_000, lambda broker: int(broker.metrics_url.rsplit(":", 1)[1]), http_inputs, 2, 0.3),
)


def fuzz_endpoint(
    endpoint: Endpoint, broker: RunningBroker, golden: Path, seed: int, inputs: int, timeout_s: float
) -> EndpointResult:
    """Send `inputs` inputs. Raises FuzzError if a worker has ended, or if no input was answered."""
    dice = random.Random(seed)
    make = endpoint.make(frames(golden, requests_only=True))
    numbers = itertools.count(1)
    result = EndpointResult()

    def script(link: Link) -> Generator[Step, None, None]:
        for _ in range(dice.randint(1, 40)):
            for _ in range(dice.randint(1, endpoint.in_a_row)):
                result.inputs = next(numbers)
                yield make(dice)
            yield Await(endpoint.answer_s)

    workers = broker.worker_pids()
    swarm = Swarm([Wave(script, CONNECTIONS, endpoint.port(broker))])

    def is_done() -> bool:
        """An endpoint that gets no CPU gets more inputs before it counts as silent."""
        answered = swarm.tally.received_bytes > 0
        return result.inputs >= (inputs if answered else SILENT_TIMES * inputs)

    result.tally = swarm.run(timeout_s, is_done)
    if ended := [name for name, pid in workers.items() if broker.worker_pids().get(name) != pid]:
        raise FuzzError(f"{endpoint.name}, seed {seed}: {', '.join(ended)} ended:\n{broker.log_tail()}")
    if result.inputs < inputs or not result.tally.received_bytes:
        raise FuzzError(f"{endpoint.name}, seed {seed}: {result.inputs} of {inputs} inputs, {result.tally}")
    return result
