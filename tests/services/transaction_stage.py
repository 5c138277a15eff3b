"""Transactions for scenario files: the service of the simulation over a log in memory, and `write` when a story has it.

A story names each half. Its copies have the same name.
"""

from __future__ import annotations

from ringmq.services.transactions import core, records
from ringmq.services.transactions.core import CheckPolicy, Work
from ringmq.store.layout import HALF_TOPIC, OP_HALF_TOPIC
from ringmq.store.record import Record
from tests.scenario import Phrases, Scenario
from tests.services.transaction_world import EXPIRED, USER, Log, Service

HOUR_MS = 3_600_000
ROOM = 64
"""Pieces of work that a look may submit."""
WORK = {
    Work.COMMIT: "submit the commit of {}", Work.ROLLBACK: "submit the rollback of {}",
    Work.CHECK: "submit a copy of {} for a check", Work.RENEW: "submit a copy of {} to the end of the half queue",
    Work.EXPIRE: "submit the end of {}, which has expired",
}  # fmt: skip
phrase = Phrases()


class TransactionStage:
    """A log, the service over it, and the producers' requests."""

    def __init__(self, scenario: Scenario) -> None:
        found = {"transactionTimeOut": 6000, "transactionCheckMax": 15, "fileReservedTime": 72}
        found |= {name: int(value) for name, value in scenario.properties.items()}
        self.policy = CheckPolicy(
            found["transactionTimeOut"], found["transactionCheckMax"], found["fileReservedTime"] * HOUR_MS
        )
        self.log = Log()
        self.firsts: dict[str, int] = {}
        """Name of a half -> its half-queue offset."""
        self.requests: list[str] = []
        self.service = Service(self.log, 0, self.policy)
        self.behind_ms = 0
        """The broker's clock is set back by this time."""

    def play(self, event: str, now_ms: int) -> list[str]:
        service = self.service
        service.now_ms = now_ms - self.behind_ms
        service.answers.clear()
        service.asked.clear()
        known, stored = {id(submit) for submit in service.pending}, len(self.log.all)
        told = phrase.perform(self, event, service.now_ms)
        service = self.service
        told += [line for record in self.log.all[stored:] for line in self.said_of(record)]
        told += [f"{self.requests[request]} is answered {code}" for request, code in service.answers]
        told += [f"ask the producer of {self.name(half.first)}, check {half.checks}" for half in service.asked]
        new = [submit for submit in service.pending if id(submit) not in known]
        return told + [WORK[submit.work].format(self.name(submit.half.first)) for submit in new]

    def said_of(self, record: Record) -> list[str]:
        halves = self.halves()
        if record.topic == USER:
            (source,) = [half for half in halves if half.physical_offset == record.prepared_transaction_offset]
            return [f"log: {self.name(records.first_of(source))} for its consumers"]
        if record.topic == EXPIRED:
            first = records.parts_of_mark(record.prepared_transaction_offset)[2]
            return [f"log: {self.name(first)} in TRANS_CHECK_MAX_TIME_TOPIC"]
        if record.topic == OP_HALF_TOPIC:
            ended = [records.first_of(halves[offset]) for offset in records.offsets_of_op(record.body)]
            return [f"log: op record of {', '.join(self.name(first) for first in ended)}"]
        is_copy = record.prepared_transaction_offset != 0
        return [f"log: a copy of {self.name(records.first_of(record))}"] if is_copy else []

    def name(self, first: int) -> str:
        return next(name for name, offset in self.firsts.items() if offset == first)

    def halves(self) -> list[Record]:
        return self.log.queue(HALF_TOPIC)

    def end(self, name: str, decision: str, copy: str) -> None:
        """A request of the producer. `copy`: of the half that it names, the first or the newest one."""
        self.service.arrive()
        own = [half for half in self.halves() if records.first_of(half) == self.firsts[name]]
        named = own[-1] if copy else own[0]
        self.requests.append(f"the {decision} of {name}")
        request = len(self.requests) - 1
        is_commit = decision == "commit"
        self.service.step(core.Ended(records.first_of(named), is_commit, named.physical_offset, request))

    def look(self, room: int, end: int | None = None) -> None:
        self.service.arrive()
        self.service.step(core.Look(room, self.service.next_offset if end is None else end))


@phrase(r"send half (?P<name>\w+)(, immune for (?P<seconds>\d+) s)?")
def _send(stage: TransactionStage, now_ms: int, name: str, seconds: int | None = None) -> None:
    immunity = "" if seconds is None else f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{seconds}\x02"
    stage.firsts[name] = len(stage.halves())
    stage.log.append(HALF_TOPIC, f"UNIQ_KEY\x01{name}\x02{immunity}", now_ms)


@phrase(r"commit (?P<name>\w+)(?P<copy> by its copy)?")
def _commit(stage: TransactionStage, now_ms: int, name: str, copy: str = "") -> None:
    stage.end(name, "commit", copy)


@phrase(r"roll (?P<name>\w+) back(?P<copy> by its copy)?")
def _roll_back(stage: TransactionStage, now_ms: int, name: str, copy: str = "") -> None:
    stage.end(name, "rollback", copy)


@phrase(r"a round of checks( with room for (?P<room>\d+))?( while the half queue ends at (?P<end>\d+))?")
def _round(stage: TransactionStage, now_ms: int, room: int = ROOM, end: int | None = None) -> None:
    stage.service.step(core.BeginRound())
    stage.look(room, end)


@phrase(r"the round goes on with room for (?P<room>\d+)")
def _go_on(stage: TransactionStage, now_ms: int, room: int) -> None:
    stage.look(room)


@phrase(r"a chain is sent")
def _send_chain(stage: TransactionStage, now_ms: int) -> None:
    stage.service.submit()


@phrase(r"write stores")
def _store(stage: TransactionStage, now_ms: int) -> None:
    stage.service.submit()
    stage.service.write()


@phrase(r"write refuses")
def _refuse(stage: TransactionStage, now_ms: int) -> None:
    stage.service.submit()
    stage.service.refuse()


@phrase(r"retention has taken (?P<name>\w+)")
def _lose(stage: TransactionStage, now_ms: int, name: str) -> None:
    """The service finds it when it makes the record."""
    (submit,) = [submit for submit in stage.service.pending if submit.half.first == stage.firsts[name]]
    stage.service.pending.remove(submit)
    stage.service.step(core.Lost(submit.half.first))


@phrase(r"the service dies(?P<takes>, and write stores what it has)?")
def _die(stage: TransactionStage, now_ms: int, takes: str = "") -> None:
    """A replacement reads the log."""
    if takes:
        stage.service.write()
    stage.service = Service(stage.log, now_ms, stage.policy)


@phrase(r"power cut: the last record is lost")
def _power_cut(stage: TransactionStage, now_ms: int) -> None:
    del stage.log.all[-1]
    stage.service = Service(stage.log, now_ms, stage.policy)


@phrase(r"a stock broker has the store, commits (?P<name>\w+), and dies")
def _stock(stage: TransactionStage, now_ms: int, name: str) -> None:
    """It has not written the op record."""
    half = stage.halves()[stage.firsts[name]]
    stage.log.append(USER, half.properties_raw.decode(), now_ms, prepared=half.physical_offset, flags=8)
    stage.service = Service(stage.log, now_ms, stage.policy)


@phrase(r"the clock is set back by (?P<back_ms>\d+) ms")
def _set_back(stage: TransactionStage, now_ms: int, back_ms: int) -> None:
    stage.behind_ms += back_ms


@phrase(r"open: (?P<names>.*)")
def _open(stage: TransactionStage, now_ms: int, names: str) -> list[str] | None:
    """A question: the halves that are open, with those that have work in flight."""
    stage.service.arrive()
    found = [stage.name(half.first) for half in stage.service.core.table.following(0, 1 << 30)]
    said = ", ".join(found) or "none"
    return None if said == names else [f"open: {said}"]
