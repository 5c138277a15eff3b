"""The recorded pops of a stock broker (tests/golden/pop) as a script: what to send, what was answered, what to ask.

The recording has no ordinary sends. They are listed here, and take their properties from the recorded messages.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, decode_frame
from ringmq.remoting.message import decode_messages

GOLDEN = Path(__file__).parents[1] / "golden" / "pop"
BROKER, CLUSTER = "broker-p", "GoldCluster"
PARTS_OF_FRAMES = (range(1, 31), range(64, 222), range(327, 387), range(409, 411), range(417, 563))
"""By their numbers. Assignments are left out, they have tests of their own. So are 387 to 416: a run was broken off
there, so that their messages came from a pop before the recording. 222 and 223 are a pull."""
PAUSE_MS = 90
"""A shorter pause between two frames is the recorder's own."""
ADDED_BY_THE_BROKER = ("MSG_REGION", "TRACE_ON", "CLUSTER", "1ST_POP_TIME", "POP_CK")


@dataclass(frozen=True)
class Sends:
    """Messages that stand in their queues before a scene: a body each, in turn over `queues` queues."""

    topic: str
    bodies: tuple[str, ...]
    queues: int = 1
    tags: tuple[str, ...] = ()


def _numbered(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}-{number}" for number in range(count))


SENDS: Mapping[tuple[int, str], Sends] = {
    (1, "pop-found-all-queues"): Sends("GP", _numbered("m", 10), queues=4),
    (1, "pop-specific-queue"): Sends("GP1", _numbered("m", 12)),
    (1, "pop-initmode-max-inmem"): Sends("GPX", _numbered("m", 5)),
    (1, "pop-tag-filter"): Sends("GPT", _numbered("m", 8), tags=("A", "B")),
    (1, "pop-tag-filter-nothing"): Sends("GPT", _numbered("n", 3), tags=("B",)),
    (1, "change-pop"): Sends("GPC", _numbered("chg", 3)),
    (1, "unacked-pop"): Sends("GPR", _numbered("retry", 2)),
    (2, "order-pop-a1"): Sends("GPO", _numbered("ord", 6)),
    (3, "order-pop-rest"): Sends("GPO", _numbered("ord3", 4)),
    (3, "order-longpoll-ack-wake"): Sends("GPO", _numbered("ord2", 2)),
    (3, "v2-unacked"): Sends("GPV", _numbered("v2", 1)),
    (4, "buffer-pop"): Sends("GPB", _numbered("buf", 6)),
    (4, "buffer-pop-all-acked"): Sends("GPM", _numbered("bufall", 4)),
    (4, "buffer-pop-short-invisible"): Sends("GPM", _numbered("bufshort", 4)),
    (4, "buffer-pop-batchack"): Sends("GPM", _numbered("bufbatch", 6)),
    (4, "inflight-first"): Sends("GP1", _numbered("more", 6)),
    (5, "v1-wake-unacked"): Sends("GPW", _numbered("v1w", 1)),
    (5, "late-ack-pop"): Sends("GPW", _numbered("late", 1)),
}
OFFSETS: Mapping[str, tuple[str, str, int]] = {
    "offset-before-pop": ("CGP", "GP", 4),
    "offset-after-pop": ("CGP", "GP", 4),
    "offset-after-filtered": ("CGP", "GPT", 1),
    "offset-retry-topic": ("CGP", "%RETRY%CGP_GPR", 1),
    "orderinfo-after-pop": ("CGO", "GPO", 1),
    "orderinfo-after-ack-1": ("CGO", "GPO", 1),
    "orderinfo-after-ack-0": ("CGO", "GPO", 1),
    "orderinfo-after-repop": ("CGO", "GPO", 1),
    "orderinfo-part": ("CGO", "GPO", 1),
    "orderinfo-all-acked": ("CGO", "GPO", 1),
    "buffer-offset-after-pop": ("CGP", "GPB", 1),
    "buffer-offset-after-3-acks": ("CGP", "GPB", 1),
    "buffer-all-offset-after-pop": ("CGP", "GPM", 1),
    "buffer-all-offset-after-acks": ("CGP", "GPM", 1),
    "buffer-offset-after-stay-time": ("CGP", "GPM", 1),
}
"""Recorded consumer offsets: whose, of which topic, of how many queues."""


@dataclass(frozen=True)
class Step:
    """One step of the script. `at_ms` is the recorded time, `turn` the order among steps of that time.

    `pause_ms` is the time since the step before in the same part. Answers and repeated requests wait by themselves.
    """

    part: int
    scenario: str
    at_ms: int
    turn: int = 1
    pause_ms: int = 0


@dataclass(frozen=True)
class Ask(Step):
    """A request. Its answer may come after further requests. `is_repeated`: the recorder asked until it was FOUND."""

    number: int = 0
    request: RemotingCommand = field(default_factory=lambda: RemotingCommand(0))
    is_repeated: bool = False


@dataclass(frozen=True)
class Answer(Step):
    """The answer to the request of a number."""

    number: int = 0
    answer: RemotingCommand = field(default_factory=lambda: RemotingCommand(0))
    request: RemotingCommand = field(default_factory=lambda: RemotingCommand(0))


@dataclass(frozen=True)
class LookAtOffsets(Step):
    """Consumer offsets of the queues of a topic."""

    group: str = ""
    topic: str = ""
    offsets: tuple[int, ...] = ()


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text().splitlines()]


def _frames() -> Iterator[Ask | Answer]:
    pending: dict[int, Ask] = {}
    for line in _lines("frames.jsonl"):
        if not any(line["seq"] in part for part in PARTS_OF_FRAMES) or line["dir"] == "srv-req":
            continue
        command = decode_frame(bytes.fromhex(line["hex"]))
        place = line["part"], line["scenario"], line["t"]
        if line["dir"] == "req":
            ask = Ask(*place, number=line["seq"], request=command, is_repeated="note" in line)
            pending[command.opaque] = ask
            yield ask
        else:
            ask = pending.pop(command.opaque)
            yield Answer(*place, number=ask.number, answer=command, request=ask.request)


def _looks(frames: Iterable[Ask | Answer]) -> Iterator[LookAtOffsets]:
    """A look without a time of its own came after the answers of the scenario before it."""
    answered = {(one.part, one.scenario): one.at_ms for one in frames if isinstance(one, Answer)}
    before = ""
    for line in _lines("outcomes.jsonl"):
        part, scenario = line["part"], line["scenario"]
        if scenario in OFFSETS:
            group, topic, queues = OFFSETS[scenario]
            is_timed = "t" in line
            at_ms = line["t"] if is_timed else answered[part, before.removesuffix("-until-visible")]
            seen = line.get("off", line.get(topic))
            offsets = tuple(map(int, seen if isinstance(seen, list) else [seen]))
            assert len(offsets) == queues
            yield LookAtOffsets(part, scenario, at_ms, 0 if is_timed else 2, 0, group, topic, offsets)
        before = scenario


@cache
def script() -> tuple[Step, ...]:
    """All steps in the order of their times."""
    frames = list(_frames())
    steps: list[Step] = sorted([*frames, *_looks(frames)], key=lambda step: (step.at_ms, step.turn))
    before: dict[int, int] = {}
    for number, step in enumerate(steps):
        if not isinstance(step, Answer) and not (isinstance(step, Ask) and step.is_repeated):
            steps[number] = replace(step, pause_ms=step.at_ms - before.get(step.part, step.at_ms))
        before[step.part] = step.at_ms
    return tuple(steps)


@cache
def _recorded_properties() -> Mapping[tuple[int, str, str], Mapping[str, str]]:
    found: dict[tuple[int, str, str], Mapping[str, str]] = {}
    for step in script():
        if isinstance(step, Answer) and step.request.code == RequestCode.POP_MESSAGE:
            for message in decode_messages(step.answer.body):
                if message.reconsume_times == 0:
                    found.setdefault((step.part, message.topic, message.body.decode()), message.properties)
    return found


def properties_of(part: int, sends: Sends, number: int) -> dict[str, str]:
    """The properties with which message `number` of `sends` was sent: the recorded ones if it was ever popped."""
    body = sends.bodies[number]
    recorded = _recorded_properties().get((part, sends.topic, body))
    if recorded is not None:
        return {name: value for name, value in recorded.items() if name not in ADDED_BY_THE_BROKER}
    tags = {"TAGS": sends.tags[number % len(sends.tags)]} if sends.tags else {}
    return {"UNIQ_KEY": f"7F00000100001234{part:08X}{number:08X}", "WAIT": "true", **tags}
