"""Twin of the rule by which write plans a batch: shares, free slots, order, chains, bytes.

The rule is in native/src/write/write_plan.c. The twin is pure: tests compare each batch with that of the C core. It
ignores the files of the log, because write waits for them as a whole (plan_chain and place in C).
"""

from collections.abc import Iterator

from msgspec import Struct, field

from ringmq.ipc.ports import refusal_at
from ringmq.native import lib

CHAIN_MAX: int = lib.RMQ_CHAIN_MAX


class Asked(Struct, frozen=True):
    """A request. `fault`: the cause that write finds in the request itself. `size`: the bytes of its records."""

    token: int
    size: int
    fault: int = 0
    tied: bool = False
    generation: int = 1


class PortTwin(Struct):
    """A port, and the state that write keeps for it. `ring` holds all requests ever submitted."""

    weight: int = 1
    ordered: bool = False
    slots: int = 64
    parked_max: int = 64
    generation: int = 1
    acknowledged: int = 0
    ring: list[Asked] = field(default_factory=list)
    tail: int = 0
    refused_at: int = 0
    overdrawn: int = 0
    appended: int = 0
    """Completions that its owner has not returned yet. `completed` counts those of the other ring."""
    completed: int = 0
    parked: int = 0

    def room(self, parked_room: int) -> int:
        """Requests that write may answer now."""
        places = self.slots - self.completed - self.parked
        return min(self.slots - self.appended, places, parked_room, max(self.parked_max - self.parked, 0))


class Outcome(Struct, frozen=True):
    """The result of a request: stored (cause 0), refused, or dropped (None)."""

    port: int
    token: int
    cause: int | None


class WriteTwin(Struct):
    """Write and its ports. `batch` takes one batch; all its requests are of one journal generation."""

    ports: list[PortTwin]
    chain_bytes: int
    parked_slots: int
    waits_for_disk: bool = False
    first_port: int = 0
    kept: int = 0
    kept_for: int = 0
    _batch: list[Outcome] = field(default_factory=list)
    _bytes: int = 0

    def batch(self) -> list[Outcome]:
        """The next batch. Empty if write can take no request."""
        self._batch, self._bytes = [], 0
        asking = [port for port in self.ports if port.tail < len(port.ring)]
        if not asking:
            return []
        weights = sum(port.weight for port in asking)
        parked_room = self._parked_free()
        heads = [len(port.ring) for port in self.ports]
        for turn in range(len(self.ports)):
            number = (self.first_port + turn) % len(self.ports)
            port = self.ports[number]
            if port.tail == heads[number]:
                continue
            share = max(lib.RMQ_BATCH_REQUESTS * port.weight // weights, 1)
            paid = min(port.overdrawn, share)
            port.overdrawn -= paid
            kept = min(self.kept, parked_room) if number != self.kept_for else 0
            self.kept = self.kept if number != self.kept_for else 0
            before = len(self._batch)
            room = port.room(parked_room - kept)
            goes_on = self._plan(number, min(share - paid, heads[number] - port.tail), room)
            taken = len(self._batch) - before
            parked_room -= min(taken, parked_room)
            port.overdrawn += max(taken - (share - paid), 0)
            if not goes_on:
                break
        self.first_port = (self.first_port + 1) % len(self.ports)
        self._answer()
        return self._batch

    def _parked_free(self) -> int:
        return self.parked_slots - sum(port.parked for port in self.ports)

    def _plan(self, number: int, limit: int, room: int) -> bool:
        """False if the batch ends here."""
        port = self.ports[number]
        end = port.tail + limit
        while port.tail < end and len(self._batch) < lib.RMQ_BATCH_REQUESTS:
            asked = port.ring[port.tail]
            if asked.generation != port.generation:
                self._take(number, [None])
                continue
            if not room:
                self._wait(port, number, self._length(port))
                return True
            causes = self._causes(port, asked)
            if len(causes) > room:
                self._wait(port, number, len(causes))
                return True
            if len(self._batch) + len(causes) > lib.RMQ_BATCH_REQUESTS:
                return True
            room -= len(causes)
            self._take(number, causes)
            if self._bytes >= lib.RMQ_BATCH_BYTES:
                return False
        return True

    def _length(self, port: PortTwin) -> int:
        """Requests at the tail that must fit together."""
        chain = chain_at(port.ring, port.tail)
        return 1 if chain[-1].tied or len(chain) > self._chain_max(port) else len(chain)

    def _wait(self, port: PortTwin, number: int, length: int) -> None:
        """Reserve slots for a chain if only `parked` is short."""
        has_places = min(port.slots - port.appended, port.slots - port.completed - port.parked) >= length
        if length == 1 or not has_places or port.parked + length > port.parked_max:
            return
        if self._parked_free() < len(self._batch) + length:
            self.kept, self.kept_for = length, number

    def _chain_max(self, port: PortTwin) -> int:
        return min(CHAIN_MAX, port.parked_max, self.parked_slots)

    def _causes(self, port: PortTwin, asked: Asked) -> list[int | None]:
        """The causes of the request at the tail, or of the chain that it begins."""
        acknowledged = port.acknowledged if port.ordered else port.refused_at
        port.refused_at = refusal_at(port.refused_at, acknowledged, port.tail)
        if port.refused_at:
            return [lib.RMQ_CAUSE_BEHIND_REFUSED if port.ordered else lib.RMQ_CAUSE_CHAIN_REFUSED]
        chain = chain_at(port.ring, port.tail)
        if chain[-1].tied or len(chain) > self._chain_max(port):
            port.refused_at = port.tail + len(chain)
            return [lib.RMQ_CAUSE_CHAIN_BROKEN]
        causes: list[int | None] = [*causes_of_chain(chain, self.chain_bytes if asked.tied else asked.size)]
        if causes[0] and port.ordered:
            port.refused_at = port.tail + len(chain)
        return causes

    def _take(self, number: int, causes: list[int | None]) -> None:
        port = self.ports[number]
        for cause in causes:
            asked = port.ring[port.tail]
            self._batch.append(Outcome(number, asked.token, cause))
            self._bytes += asked.size if cause == 0 else 0
            port.tail += 1

    def _answer(self) -> None:
        for outcome in self._batch:
            port = self.ports[outcome.port]
            port.parked += outcome.cause == 0 and self.waits_for_disk
            port.appended += outcome.cause is not None and (outcome.cause != 0 or not self.waits_for_disk)


def chain_at(ring: list[Asked], at: int) -> list[Asked]:
    """The requests that are tied to one another from `at` on. If the end is missing, the last one is tied, too."""
    chain = [ring[at]]
    for asked in ring[at + 1 :]:
        if not chain[-1].tied:
            break
        chain.append(asked)
    return chain


def causes_of_chain(chain: list[Asked], bytes_max: int) -> Iterator[int]:
    """0 for all, or the cause of the request at fault and CHAIN_REFUSED for the others."""
    total, causes = 0, []
    for asked in chain:
        total += asked.size
        causes.append(asked.fault or (lib.RMQ_CAUSE_CHAIN_BYTES if total > bytes_max else 0))
    fault = next((at for at, cause in enumerate(causes) if cause), -1)
    for at, cause in enumerate(causes):
        yield 0 if fault < 0 else cause if at == fault else lib.RMQ_CAUSE_CHAIN_REFUSED
