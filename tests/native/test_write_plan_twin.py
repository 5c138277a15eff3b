"""The rule by which write plans a batch, and its twin: the same requests in the same order, in as many batches."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from plane_kit import SLICE_NS, Kit
from test_chains import TIED, batches, requests
from test_port import ROLE, SERVICE, PlaneOfKit

from ringmq.ipc.ports import Port, PortPlan
from ringmq.ipc.write_plan_twin import Asked, Outcome, PortTwin, WriteTwin
from ringmq.native import lib


class Bench:
    """The same requests for write and for its twin."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.chance = chance
        plans = [
            PortPlan(
                ROLE + number,
                flags=chance.choice((0, lib.RMQ_PORT_ORDERED)),
                weight=chance.choice((1, 1, 4, 64)),
                parked_max=chance.choice((20, 64, 1000)),
            )
            for number in range(chance.randrange(1, 4))
        ]
        slots = chance.choice((64, 256, 1024))
        sync = chance.random() < 0.5
        self.kit = Kit(root, ports=tuple(plans), request_slots=slots, segment_bytes=1 << 26, sync=sync)
        self.kit.header.settings.message_bytes_max = 100_000
        self.topic = self.kit.topic(b"T")
        self.overhead = self._measure()
        self.ports = [Port(PlaneOfKit(self.kit), SERVICE + number) for number in range(len(plans))]
        for number, port in enumerate(self.ports):
            self.kit.header.roles[ROLE + number].generation = 1
            port.claim()
        self.twin = WriteTwin(
            [PortTwin(plan.weight, bool(plan.flags), slots, plan.parked_max) for plan in plans],
            100_000 + 65536 + lib.RMQ_BATCH_BYTES,
            4 * slots,
            sync,
        )
        self.tokens = 0

    def _measure(self) -> int:
        """Bytes of a record beside its body."""
        self.kit.request(self.topic)
        with self.kit.writer() as write:
            write()
        self.kit.header.ports.parked.tail = self.kit.header.ports.parked.head
        self.at = int(self.kit.marks.append_offset)
        return self.at

    def submit(self, number: int) -> None:
        """Chains and single requests, some with a fault, some broken, as many as the ring takes."""
        port, twin = self.ports[number], self.twin.ports[number]
        large = self.chance.random() < 0.2
        for _ in range(self.chance.randrange(6)):
            length = self.chance.choice((1, 1, 2, 3, 10, 64, 65, 90))
            if port.room < length:
                return
            made = requests(self.kit, self.topic, [length])
            is_broken = self.chance.random() < 0.05
            for request in made:
                self.tokens += 1
                request.token = request.flag = self.tokens
                request.body_at, request.body_length = 0, self.chance.randrange(100_000 if large else 200)
                cause = 0
                if self.chance.random() < 0.01:
                    request.queue_slot, cause = 4000, lib.RMQ_CAUSE_QUEUE_SLOT
                tied = bool(request.flags & TIED)
                twin.ring.append(Asked(self.tokens, self.overhead + request.body_length, cause, tied, twin.generation))
            if is_broken:
                made[length - 1].flags = TIED
                twin.ring[-1] = replace(twin.ring[-1], tied=True)
            self._publish(number, made)

    def _publish(self, number: int, made: Any) -> None:
        """Past rmq_port_submit, which takes no broken chain."""
        ring = self.ports[number].row.request
        for request in made:
            slot = self.kit.slot("struct rmq_request *", ring, ring.head)
            slot[0] = request
            slot.generation = self.ports[number].row.generation
            ring.head += 1

    def replace_owner(self, number: int) -> None:
        """What the dead owner has left is dropped."""
        self.kit.header.roles[ROLE + number].generation += 1
        self.ports[number].claim()
        self.twin.ports[number].generation += 1

    def acknowledge(self, number: int) -> None:
        self.ports[number].acknowledge()
        self.twin.ports[number].acknowledged = len(self.twin.ports[number].ring)

    def write(self) -> tuple[list[list[Outcome]], int]:
        """Until write takes nothing more: the twin's batches, and the number of those of the C core."""
        self.twin.first_port = self.twin.kept = 0
        taken, idle = [], 0
        # ports of the kit itself stand before the twin's in the order of turns
        twin_ports = self.twin.ports
        self.twin.ports = [PortTwin() for _ in range(SERVICE)] + twin_ports
        for port in twin_ports:
            port.overdrawn = 0
        while idle < 70:
            batch = self.twin.batch()
            idle = 0 if batch else idle + 1
            taken += [list(batch)] * bool(batch)
        self.twin.ports = twin_ports
        before = batches(self.kit)
        with self.kit.writer() as write:
            quiet, last = 0, before
            while quiet < 2:
                write(SLICE_NS)
                quiet = quiet + 1 if batches(self.kit) == last else 0
                last = batches(self.kit)
        return taken, batches(self.kit) - before

    def collect(self, number: int) -> list[tuple[int, int]]:
        """(token, cause) of all completions; each ring is emptied."""
        twin = self.twin.ports[number]
        twin.appended = twin.completed = 0
        rings = ("appended", "completed")
        return [(one.token, one.cause) for ring in rings for one in self.kit.completions(SERVICE + number, ring)]

    def flush(self) -> None:
        """All that is parked is answered, as the completer does it."""
        parked = self.kit.header.ports.parked
        while parked.tail < parked.head:
            entry = self.kit.slot("struct rmq_parked *", parked, parked.tail)
            ring = self.kit.header.ports.port[entry.port].completed
            self.kit.slot("struct rmq_completion *", ring, entry.completed_position)[0] = entry.completion
            ring.head, parked.tail = ring.head + 1, parked.tail + 1
        for port in self.twin.ports:
            port.completed, port.parked = port.completed + port.parked, 0

    def appended_tokens(self) -> list[int]:
        """What write has appended since the last call: the field `flag` of each record."""
        end = int(self.kit.marks.append_offset)
        data, at, tokens = self.kit.log(self.at, end), 0, []
        while at < len(data):
            size, *_, flag = struct.unpack_from(">iIIii", data, at)
            tokens.append(flag)
            at += size
        self.at = end
        return tokens


@pytest.mark.parametrize("seed", range(6))
def test_a_batch_is_planned_as_its_twin_says(tmp_path: Path, seed: int) -> None:
    """Random ports, chains, faults, owners and room: the same requests in the same order, in as many batches."""
    chance = random.Random(seed)
    bench = Bench(tmp_path, chance)
    stored_ever = 0
    for _ in range(8):
        for number in range(len(bench.ports)):
            bench.submit(number)
            if chance.random() < 0.1:
                bench.replace_owner(number)
        taken, count = bench.write()
        assert count == len(taken)
        outcomes = [outcome for batch in taken for outcome in batch]
        log = [outcome.token for outcome in outcomes if outcome.cause == 0]
        assert bench.appended_tokens() == log
        stored_ever += len(log)
        bench.flush()
        for number in range(len(bench.ports)):
            of_port = [one for one in outcomes if one.port == SERVICE + number and one.cause is not None]
            assert sorted(bench.collect(number)) == sorted((one.token, one.cause) for one in of_port)
            if bench.twin.ports[number].refused_at and chance.random() < 0.7:
                bench.acknowledge(number)
    assert stored_ever


@pytest.mark.parametrize("seed", range(15))
def test_the_twin_never_parts_a_chain(seed: int) -> None:
    """Of each whole chain all requests have one fate, in one batch."""
    chance = random.Random(seed)
    ports = [
        PortTwin(
            chance.choice((1, 4, 64)),
            chance.random() < 0.5,
            parked_max=chance.choice((20, 64)),
        )
        for _ in range(3)
    ]
    twin = WriteTwin(ports, 20_000, 64, chance.random() < 0.5)
    chains, token = {}, 0
    for _ in range(300):
        for port in ports:
            length = chance.choice((1, 2, 5, 20))
            if len(port.ring) - port.tail + length <= port.slots:
                for number in range(length):
                    token += 1
                    chains[token] = token - number
                    fault = 9 if chance.random() < 0.02 else 0
                    port.ring.append(Asked(token, chance.randrange(2000), fault, number + 1 < length, port.generation))
            if chance.random() < 0.3:
                port.completed, port.parked, port.appended = 0, 0, 0
            if chance.random() < 0.3:
                port.acknowledged = len(port.ring)
            port.generation += chance.random() < 0.02
        fates: dict[int, set[bool | None]] = {}
        for outcome in twin.batch():
            fate = None if outcome.cause is None else outcome.cause == 0
            fates.setdefault(chains[outcome.token], set()).add(fate)
        assert all(len(fate) == 1 for fate in fates.values())
        stored_now = [chain for chain, fate in fates.items() if True in fate]
        done = {token for port in ports for token in [one.token for one in port.ring[: port.tail]]}
        assert all(token in done for token, chain in chains.items() if chain in stored_now)
