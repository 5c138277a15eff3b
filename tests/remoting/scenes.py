"""The recorded scenes of stock RocketMQ 5.3.3 (tests/golden/wire): which exist, which must be answered like
stock today, and how to read them.

A scene is a list of events in the order of the recording. `exchanges` pairs every request in it with stock's
answer.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from ringmq.remoting.command import RemotingCommand, decode_frame

WIRE = Path(__file__).resolve().parent.parent / "golden" / "wire"

JSON, ROCKETMQ, MIXED = "json", "rocketmq", "mixed"
BOTH = (JSON, ROCKETMQ)


@dataclass(frozen=True)
class Scene:
    """One scene. `waits_for` names the work that must land before our servers answer it as stock does (None:
    now).

    `skipped_marks` are prefixes of marks whose requests wait although the scene as a whole does not.
    """

    name: str
    kinds: tuple[str, ...] = BOTH
    waits_for: str | None = None
    skipped_marks: tuple[str, ...] = ()


SCENES = (
    Scene("00a-broker-register"),
    Scene("00b-broker-unregister"),
    Scene("01-route", (JSON, ROCKETMQ, MIXED)),
    Scene("02-producer-send", (JSON, ROCKETMQ, MIXED)),
    Scene("03-errors"),
    Scene("04-push-consumer"),
    Scene("05-orderly-lock"),
    Scene("06-query-by-key"),
    Scene("07-view-by-id"),
    Scene("08-send-back"),
    Scene("09-transaction"),
    Scene("10-lite-pull"),
    Scene("11-offsets"),
    Scene("12-request-reply"),
    Scene("13-pop-push-consumer", (JSON,), waits_for="pop"),
    Scene("20-admin-brokerStatus"),
    Scene("20-admin-clusterList"),
    Scene("20-admin-consumerProgress"),
    Scene("20-admin-consumerProgressAll"),
    Scene("20-admin-deleteKvConfig"),
    Scene("20-admin-deleteSubGroup", waits_for="full admin"),
    Scene("20-admin-deleteTopic"),
    Scene("20-admin-getBrokerConfig"),
    Scene("20-admin-haStatus", waits_for="HA"),
    Scene("20-admin-queryCq", waits_for="full admin"),
    Scene("20-admin-queryMsgByKey"),
    Scene("20-admin-resetOffsetByTime", waits_for="full admin"),
    Scene("20-admin-topicList"),
    Scene("20-admin-topicRoute"),
    Scene("20-admin-topicStatus"),
    Scene("20-admin-updateBrokerConfig"),
    Scene("20-admin-updateKvConfig"),
    Scene("20-admin-updateSubGroup"),
    Scene("20-admin-updateTopic"),
    Scene("20-admin-updateTopicCluster"),
)

BROKER_NAME, CLUSTER_NAME = "wire-a", "GoldCluster"

TOPIC_QUEUES = {
    "WireA": 4,
    "WireB": 2,
    "WireBack": 2,
    "WireLite": 2,
    "WireOrd": 2,
    "WirePop": 2,
    "WireRpc": 2,
    "WireTx": 2,
}
"""Topics (queues, perm 6) that stood before the scenes began."""


@dataclass(frozen=True)
class Event:
    """`kind`: mark, open, close-from-client, close-from-server or frame. `text` is the mark's."""

    kind: str
    t_ms: float
    conn: str = ""
    direction: str = ""
    frame: bytes = b""
    text: str = ""


@dataclass(frozen=True)
class Exchange:
    """A request and stock's answer, None where none came. `mark` is the last one before the request."""

    mark: str
    t_ms: float
    conn: str
    direction: str
    request: RemotingCommand
    answer: RemotingCommand | None

    @property
    def target(self) -> str:
        """Who was asked: ns, nsb (name server, by clients or by the broker), b (broker) or vip (its fast
        port).
        """
        return self.conn.split("-")[0]

    @property
    def label(self) -> str:
        """For test ids."""
        return f"{self.mark or 'start'} / {self.conn} #{self.request.opaque} code {self.request.code}"


def load_events(kind: str, name: str) -> list[Event]:
    """All events of a recorded scene."""
    events = []
    with gzip.open(WIRE / kind / f"{name}.jsonl.gz", "rt") as lines:
        for line in lines:
            row = json.loads(line)
            t_ms, conn = float(row["t_ms"]), row.get("conn", "")
            if "mark" in row:
                events.append(Event("mark", t_ms, text=row["mark"]))
            elif "event" in row:
                events.append(Event(row["event"], t_ms, conn))
            else:
                events.append(Event("frame", t_ms, conn, row["dir"], bytes.fromhex(row["hex"])))
    return events


def exchanges(kind: str, name: str) -> list[Exchange]:
    """Every request of a scene with its answer, in the order of the requests. Both directions: a broker's
    requests to its clients have direction s2c."""
    answers: dict[tuple[str, str, int], RemotingCommand] = {}
    requests: list[tuple[str, float, str, str, RemotingCommand]] = []
    mark = ""
    for event in load_events(kind, name):
        if event.kind == "mark":
            mark = event.text
        if event.kind != "frame":
            continue
        command = decode_frame(event.frame)
        if command.is_response:
            answers[event.conn, event.direction, command.opaque] = command
        else:
            requests.append((mark, event.t_ms, event.conn, event.direction, command))
    back = {"c2s": "s2c", "s2c": "c2s"}
    return [
        Exchange(mark, t_ms, conn, direction, request, answers.get((conn, back[direction], request.opaque)))
        for mark, t_ms, conn, direction, request in requests
    ]


def due_exchanges(scene: Scene, kind: str, *targets: str) -> list[Exchange]:
    """The requests of a scene to `targets` that must be answered like stock's today."""
    return [
        exchange
        for exchange in exchanges(kind, scene.name)
        if exchange.direction == "c2s"
        and exchange.target in targets
        and not exchange.mark.startswith(scene.skipped_marks or ("\0",))
    ]
