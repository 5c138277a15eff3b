"""A row about requests that wait for a slave whose link breaks, or falls silent."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.ceiling.delay_link import Command
from ringmq.loadtest.measuring.measurement import RINGMQ, STOCK, Measurement
from ringmq.loadtest.replication.pairs import POLL_S, SYNC_MASTER, Pair
from ringmq.loadtest.replication.remote import SUCCESS, Remote
from ringmq.loadtest.replication.rows import open_pair

SEND_MESSAGE_V2 = 310
SLAVE_NOT_AVAILABLE = 11
PARKED = 64
LATER = {RINGMQ: 16, STOCK: 2}  # each of stock's waits for the whole slaveTimeout
ANSWER_TIMEOUT_S = 15.0
RECORD_BYTES_MIN = 91  # of a message without topic, body and properties


@dataclass(frozen=True)
class Answered:
    """The time (CLOCK_MONOTONIC) and code of an answer."""

    at_ns: int
    code: int


def link_loss_row(context: Context, system: str) -> Measurement:
    """Measure ms until the last of 64 parked requests is answered: after RST and FIN of the link, and in silence."""
    values: dict[str, float] = {}
    codes: dict[str, set[int]] = {}
    with open_pair(context, system, SYNC_MASTER, 0.0) as pair:
        topic = context.topic("link_loss")
        context.loader(pair.port).run("create", topic=topic)
        for command in ("reset", "close"):
            answers, at_ns = _break(pair, topic, command)
            values[f"{command}_ms"] = (max(answer.at_ns for answer in answers) - at_ns) / 1e6
            codes[command] = {answer.code for answer in answers}
        first, later = _fall_silent(pair, topic)
        values |= {"silence_first_ms": max(first.values()), "silence_later_ms": max(later.values())}
        codes["silence"] = set(first) | set(later)
    wanted = {"reset": {SLAVE_NOT_AVAILABLE}, "close": {SLAVE_NOT_AVAILABLE}}
    ok = all(SUCCESS not in found for found in codes.values())
    if system == RINGMQ:  # stock lets them time out
        ok = ok and all(codes[command] == found for command, found in wanted.items())
    text = ", ".join(f"{name} {value:.1f}" for name, value in values.items())
    return Measurement(
        values, ok=ok, note=f"{text}; codes { ({name: sorted(found) for name, found in codes.items()}) }"
    )


def _send(remote: Remote, topic: str) -> int:
    fields = {"a": "link_loss", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": int(time.time() * 1000)}
    fields |= {"h": 0, "i": "WAIT\x01true\x02", "j": 0, "k": "false", "m": "false", "n": "pair"}
    return remote.send(SEND_MESSAGE_V2, fields, b"body")


def _answers(remote: Remote, count: int) -> Sequence[Answered]:
    found = []
    for _ in range(count):
        reply = remote.receive()
        found.append(Answered(time.monotonic_ns(), reply.code))
    return found


def _park(pair: Pair, topic: str, remote: Remote, count: int) -> int:
    """Send `count` requests while the slave's reports are held. After all are appended, return the send time."""
    assert pair.link is not None
    before = pair.wait_in_sync().end
    pair.link.run("hold-back")
    began = time.monotonic_ns()
    for _ in range(count):
        _send(remote, topic)
    while pair.progress().end - before < count * RECORD_BYTES_MIN:
        if time.monotonic_ns() - began > ANSWER_TIMEOUT_S * 1e9:
            raise RuntimeError(f"{count} requests were not appended: {pair.progress()}")
        time.sleep(POLL_S)
    return began


def _break(pair: Pair, topic: str, command: str) -> tuple[Sequence[Answered], int]:
    assert pair.link is not None
    with Remote(pair.port, timeout_s=ANSWER_TIMEOUT_S) as remote:
        _park(pair, topic, remote, PARKED)
        verb: Command = "reset" if command == "reset" else "close"
        state = pair.link.run(verb)
        answers = _answers(remote, PARKED)
    pair.link.run("flow")
    return answers, state.at_ns


def _fall_silent(pair: Pair, topic: str) -> tuple[dict[int, float], dict[int, float]]:
    """Return the slowest answers in ms by code: of requests at the begin of the silence, and of later ones."""
    assert pair.link is not None
    first: dict[int, float] = {}
    later: dict[int, float] = {}
    with Remote(pair.port, timeout_s=ANSWER_TIMEOUT_S) as remote:
        began = _park(pair, topic, remote, 1)
        (answer,) = _answers(remote, 1)
        first[answer.code] = (answer.at_ns - began) / 1e6
        for _ in range(LATER[pair.name]):
            began = time.monotonic_ns()
            _send(remote, topic)
            (answer,) = _answers(remote, 1)
            later[answer.code] = max(later.get(answer.code, 0.0), (answer.at_ns - began) / 1e6)
    pair.link.run("flow")
    return first, later
