"""What is wrong with the answers that clients had, and with what became of the worker's decisions. A core without IO.

Times are nanoseconds of the monotonic clock, which all processes of a machine share.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.polls.poll_wire import NOTHING

LATE_NS, FREE_NS = 250_000_000, 100_000_000
"""Behind a deadline an answer may come so late; messages of a dropped answer may be free so late."""
EARLY_NS = 20_000_000
"""A read worker's time of a request is that of its round, which may have begun before the request was sent."""
FAULTS_MAX = 20
Name = tuple[int, int]
"""Generation of the worker and serial of the answer."""


@dataclass(slots=True)
class Named:
    """An answer that the worker has decided on, and what became of it."""

    at_ns: int
    connection: int
    lane: int
    offsets: tuple[int, ...]
    freed_ns: int = 0
    why: str = ""
    """unsent, reader (its read worker died), expired (not acknowledged in time)."""
    received_ns: int = 0


@dataclass(slots=True)
class Closing:
    """The end of a connection. `is_exact`: the client has read everything that the broker has sent."""

    at_ns: int
    is_exact: bool
    by_broker: bool = False


@dataclass
class Findings:
    """Counts, and the first faults as text."""

    polls: int = 0
    answers: dict[int, int] = field(default_factory=dict)
    given_up: int = 0
    """Polls of connections that ended."""
    early: int = 0
    """NOTHING before the deadline: the read worker held no more, or a process had died."""
    late: int = 0
    latest_ms: float = 0.0
    late_ms: list[float] = field(default_factory=list, repr=False)
    """Of each answer NOTHING, behind its deadline."""
    named: int = 0
    received: int = 0
    freed: int = 0
    freed_late: int = 0
    freed_latest_ms: float = 0.0
    expired: int = 0
    died_with_worker: int = 0
    died_with_reader: int = 0
    cut_off: int = 0
    """Named when their client closed without reading to the end: a first byte may have left."""
    again: int = 0
    """Messages that were received more than once."""
    faults: list[str] = field(default_factory=list)
    fault_count: int = 0

    def fault(self, text: str) -> None:
        """Something that must not be."""
        self.fault_count += 1
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(text)


class PollChecker:
    """Takes what happens in order. `finish` says what is wrong."""

    def __init__(self, late_ns: int = LATE_NS, free_ns: int = FREE_NS) -> None:
        self._late_ns, self._free_ns = late_ns, free_ns
        self.findings = Findings()
        self._open: dict[int, tuple[int, int]] = {}
        """By opaque: connection, deadline."""
        self._over: set[int] = set()
        self._late: list[tuple[int, int]] = []
        self._windows: list[tuple[int, int]] = []
        self._closings: dict[int, Closing] = {}
        self._received: dict[Name, int] = {}
        self._names: dict[int, set[Name]] = {}
        self._offsets: dict[int, set[int]] = {}

    # -- what clients see ----------------------------------------------------------------------------------

    def asked(self, opaque: int, connection: int, deadline_ns: int) -> None:
        """A poll with a number of its own leaves."""
        self._open[opaque] = connection, deadline_ns
        self.findings.polls += 1

    def sent(self, opaque: int, deadline_ns: int) -> None:
        """The poll, asked before, is sent now: it is over then."""
        if opaque in self._open:
            self._open[opaque] = self._open[opaque][0], deadline_ns

    def answered(self, opaque: int, connection: int, at_ns: int, code: int) -> bool:
        """An answer. True if the poll waited for it."""
        known = self._open.pop(opaque, None)
        if known is None or known[0] != connection:
            twice = "a second answer" if opaque in self._over else "an answer that nobody waits for"
            self.findings.fault(f"{twice}: connection {connection}, opaque {opaque}, code {code}")
            return False
        self._over.add(opaque)
        codes = self.findings.answers
        codes[code] = codes.get(code, 0) + 1
        late_ns = at_ns - known[1]
        self.findings.early += code == NOTHING and late_ns < -EARLY_NS
        if late_ns > self._late_ns:
            self._late.append((known[1], at_ns))
        elif code == NOTHING:
            self.findings.latest_ms = max(self.findings.latest_ms, late_ns / 1e6)
        if code == NOTHING:
            self.findings.late_ms.append(late_ns / 1e6)
        return True

    def received(self, name: Name, at_ns: int, lane: int, offsets: Sequence[int]) -> None:
        """An answer brought these messages."""
        if name in self._received:
            self.findings.fault(f"two answers have the name {name}")
        self._received[name] = at_ns
        had = self._offsets.setdefault(lane, set())
        self.findings.again += len(had.intersection(offsets))
        had.update(offsets)

    def closed(self, connection: int, closing: Closing) -> None:
        """The connection has ended, so its polls need no answer."""
        self._closings[connection] = closing

    def disturbed(self, from_ns: int, to_ns: int) -> None:
        """Meanwhile a process that has to act stood still, or the client itself: nothing is late until its end."""
        self._windows.append((from_ns, to_ns))

    def overdue(self, now_ns: int) -> list[tuple[int, int]]:
        """Connection and opaque of polls without an answer in time, so far."""
        limit_ns = now_ns - self._late_ns
        return [
            (connection, opaque)
            for opaque, (connection, deadline_ns) in list(self._open.items())
            if deadline_ns < limit_ns and connection not in self._closings
        ]

    # -- the end -------------------------------------------------------------------------------------------

    def finish(self, now_ns: int, named: dict[Name, Named], generation: int, reader_back_ns: Sequence[int]) -> Findings:
        """Judge. `generation` is that of the worker at the end, `reader_back_ns`: when read workers came back."""
        findings = self.findings
        for opaque, (connection, deadline_ns) in self._open.items():
            if connection in self._closings:
                findings.given_up += 1
            elif now_ns > self._due(deadline_ns) + self._late_ns:
                findings.fault(
                    f"no answer: connection {connection}, opaque {opaque}, over for {_ms(now_ns, deadline_ns)}"
                )
        for deadline_ns, at_ns in self._late:
            findings.latest_ms = max(findings.latest_ms, (at_ns - self._due(deadline_ns)) / 1e6)
            if at_ns > self._due(deadline_ns) + self._late_ns:
                findings.late += 1
                findings.fault(f"an answer came {_ms(at_ns, deadline_ns)} behind its deadline")
        findings.named, findings.received = len(named), len(self._received)
        for name, decision in named.items():
            decision.received_ns = self._received.get(name, 0)
            self._judge(name, decision, generation, reader_back_ns)
        return findings

    def _judge(self, name: Name, one: Named, generation: int, reader_back_ns: Sequence[int]) -> None:
        findings, closing = self.findings, self._closings.get(one.connection)
        if one.why in ("unsent", "reader"):
            findings.freed += 1
            if one.received_ns:
                findings.fault(f"answer {name} was received, and its messages were free again: {one.why}")
                return
            begin_ns = max(one.at_ns, closing.at_ns if closing and not closing.by_broker else 0)
            if one.why == "reader" or (closing and closing.by_broker):
                begin_ns = max([begin_ns, *(back for back in reader_back_ns if back <= one.freed_ns)])
            late_ns = one.freed_ns - self._due(begin_ns)
            findings.freed_latest_ms = max(findings.freed_latest_ms, late_ns / 1e6)
            if late_ns > self._free_ns:
                findings.freed_late += 1
                findings.fault(
                    f"messages of answer {name} were free only {_ms(one.freed_ns, begin_ns)} later: {one.why}"
                )
            return
        findings.expired += one.why == "expired"
        if one.received_ns:
            return
        if closing and closing.by_broker:
            findings.died_with_reader += 1
        elif closing and not closing.is_exact and one.at_ns <= self._due(closing.at_ns) + self._free_ns:
            findings.cut_off += 1
        elif name[0] != generation:
            findings.died_with_worker += 1
        else:
            findings.fault(f"answer {name} to connection {one.connection} was neither received nor taken back")

    def _due(self, time_ns: int) -> int:
        """The time, or the end of the last disturbance that it falls into, or that begins soon behind it."""
        for from_ns, to_ns in sorted(self._windows):
            if from_ns - self._late_ns <= time_ns < to_ns:
                time_ns = to_ns
        return time_ns

    def missing(self, lane: int, first: int, end: int) -> list[int]:
        """Offsets of the lane from `first` to `end` that no client has received."""
        return sorted(set(range(first, end)) - self._offsets.get(lane, set()))


def read_notes(lines: Iterable[str]) -> tuple[dict[Name, Named], int]:
    """What the worker has noted: its answers that name messages, and how often retention was ahead of it."""
    named: dict[Name, Named] = {}
    deleted = 0
    for line in lines:
        match line.split():
            case [generation, "named", at_ns, serial, connection, lane, offsets]:
                numbers = tuple(map(int, offsets.split(",")))
                named[int(generation), int(serial)] = Named(int(at_ns), int(connection), int(lane), numbers)
            case [generation, ("unsent" | "reader" | "expired") as why, at_ns, serial, _]:
                if (one := named.get((int(generation), int(serial)))) is not None:
                    one.freed_ns, one.why = one.freed_ns or int(at_ns), why
            case [_, "deleted", *_]:
                deleted += 1
    return named, deleted


def _ms(late_ns: int, base_ns: int) -> str:
    return f"{(late_ns - base_ns) / 1e6:.0f} ms"
