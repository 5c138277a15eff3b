"""A control loop over a real plane, with the reader's side of its rings."""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.identity import Identity
from ringmq.broker.config.relations import changed
from ringmq.broker.control import ControlLoop
from ringmq.broker.control_wiring import saved_by
from ringmq.broker.core import Broker
from ringmq.broker.outbound_calls import OutboundCalls, Outcome
from ringmq.broker.tables.loading import load_into, load_state
from ringmq.broker.tables.persistence import Persistence
from ringmq.ipc.answerers import AnswererPlan
from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.plane_counts import PlaneCounts
from ringmq.ipc.segment import remove_segments
from ringmq.native import ffi, lib
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame
from tests.broker.fakes import FakeStore

READER = 0
ASKERS = frozenset({lib.RMQ_ROLE_READ, lib.RMQ_ROLE_DISPATCH, lib.RMQ_ROLE_HA, lib.RMQ_ROLE_SERVICES})


@dataclass
class Nothing:
    queues: dict[tuple[str, int], Any]
    append_offset: int = 0


@dataclass
class Harness:
    """A plane, the loop over it, and the reader's side of both rings."""

    plane: Plane
    loop: ControlLoop
    root: Path
    generation: int = 1

    def put(
        self,
        command: RemotingCommand | bytes,
        pending: int = 5,
        connection: int = 3,
        kind: int = 0,
        cut: int = 0,
        age_ms: int = 0,
    ) -> None:
        frame = command if isinstance(command, bytes) else encode_frame(command)
        head = ffi.new("struct rmq_inbox_record *")
        head.type = kind or lib.RMQ_INBOX_COLD_FRAME
        head.role, head.role_generation = lib.RMQ_ROLE_READ + READER, self.generation
        head.connection, head.connection_generation, head.pending = connection, 1, pending
        head.frame_length = len(frame)
        head.received_mono_ns = time.monotonic_ns() - age_ms * 1_000_000 if age_ms else 0
        ffi.memmove(head.peer_host, bytes([127, 0, 0, 9]), 4)
        head.peer_port = 4567
        payload = frame[: len(frame) - cut]
        assert lib.rmq_inbox_put(self.plane.struct, 0, head, payload, len(payload), ffi.NULL) == 0

    def verdicts(self) -> list[tuple[int, int, int, bytes, bool]]:
        """(type, connection, pending, payload, last) of what the reader finds; the room is given back."""
        ring = self.plane.header.asks.answerer[0].answers[lib.RMQ_ROLE_READ + READER]
        found = []
        size = ffi.sizeof("struct rmq_verdict")
        base = ffi.cast("char *", self.plane.struct.base) + ring.slots_at
        while ring.tail < ring.head:
            verdict = ffi.cast("struct rmq_verdict *", base + (ring.tail & (ring.capacity - 1)))
            if verdict.type != 0:
                payload = bytes(ffi.buffer(ffi.cast("char *", verdict) + size, verdict.length - size))
                found.append((verdict.type, verdict.connection, verdict.pending, payload, bool(verdict.last)))
            ring.tail += (verdict.length + 7) & ~7
        return found

    def answers(self) -> list[RemotingCommand]:
        self.loop.turn(now())
        return [decode_frame(payload) for kind, _, _, payload, _ in self.verdicts() if kind == lib.RMQ_VERDICT_SEND]


def now() -> int:
    return time.time_ns() // 1_000_000


SMALL = Capacity(
    topics=1024, queues=8192, groups=256, subscriptions=256, offsets=1024, parked_slots=64,
    commit_slots=64, arrived_slots=64, answerers=(AnswererPlan(lib.RMQ_ROLE_CONTROL, ASKERS, 1 << 20, 1 << 16),),
)  # fmt: skip


@contextmanager
def made_harness(root: Path, capacity: Capacity) -> Iterator[Harness]:
    """A loop that has not turned yet, over a plane of its own."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    plane = Plane.create(name, capacity, root.stat(), 1)
    plane.role(lib.RMQ_ROLE_READ).generation = 1
    names = {"storePathRootDir": str(root), "brokerName": "wire-a"}
    config = changed(BrokerConfig(), names)
    load_into(plane, config, Nothing({}))
    broker = Broker(config, Identity("127.0.0.1", 1, "127.0.0.1", now()), plane, FakeStore(), PlaneCounts(plane))
    broker.prepare(now())
    load_state(root, config, broker.topics, broker.groups, broker.offsets, now(), fresh=False)
    loop = ControlLoop(plane, broker, Persistence(root, saved_by(broker)), OutboundCalls(lambda: None))
    yield Harness(plane, loop, root)
    remove_segments(name)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with made_harness(tmp_path, SMALL) as made:
        yield made


class ScriptedRegistrar:
    """Takes calls; the test says how they end."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, RemotingCommand, bool]] = []
        self.looks: list[tuple[str, RemotingCommand, bool]] = []
        self.ended: list[Outcome] = []

    def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        self.calls.append((address, command, False))

    def call_if_connected(self, address: str, commands: Sequence[RemotingCommand], timeout_ms: int) -> None:
        for command in commands:
            kept = self.looks if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC else self.calls
            kept.append((address, command, True))

    def outcomes(self) -> list[Outcome]:
        ended, self.ended = self.ended, []
        return ended

    def lost(self) -> list[str]:
        return []

    def close(self, timeout_s: float) -> None:
        pass


def with_name_server(harness: Harness) -> ScriptedRegistrar:
    registrar = ScriptedRegistrar()
    harness.loop.broker.config = changed(harness.loop.broker.config, {"namesrvAddr": "ns:1"})
    persistence = Persistence(harness.root, saved_by(harness.loop.broker))
    harness.loop = ControlLoop(harness.plane, harness.loop.broker, persistence, registrar)  # type: ignore[arg-type]
    harness.loop.turn(now())
    return registrar
