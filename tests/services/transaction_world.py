"""A broker in memory for the simulation of transactions: a log of records, a service that dies, producers, a clock."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ringmq.broker.requests.turns import finish
from ringmq.ipc.ports import mark_of, parts_of_mark
from ringmq.services.transactions import core, records
from ringmq.services.transactions.core import CheckPolicy, Work
from ringmq.services.transactions.half_table import DoneHalves, Half, HalfTable
from ringmq.services.transactions.recovery import Recovery
from ringmq.services.transactions.repairs import RETRY_MS, Repairs
from ringmq.services.transactions.transaction_log import HALVES, Damage
from ringmq.store import layout
from ringmq.store.record import Record
from tests.services.transaction_machine import TRANSACTION

RECORD_BYTES = 100
USER, EXPIRED = "T", "TRANS_CHECK_MAX_TIME_TOPIC"
CHAIN_MAX = 8
POLICY = CheckPolicy(timeout_ms=100, checks_max=3, reserved_ms=1_000_000)


class Log:
    """The records of the store, RECORD_BYTES each. It is a TransactionLog, too."""

    def __init__(self) -> None:
        self.all: list[Record] = []
        self.damage = Damage(), Damage()

    @property
    def end(self) -> int:
        return RECORD_BYTES * len(self.all)

    def queue(self, topic: str) -> list[Record]:
        return [record for record in self.all if record.topic == topic]

    def append(self, topic: str, properties: str, now_ms: int, *, prepared: int = 0, flags: int = 0,
               body: bytes = b"") -> Record:  # fmt: skip
        record = Record(
            self.end, RECORD_BYTES, layout.MAGIC_V1, 0, 0, 0, len(self.queue(topic)), self.end, flags, now_ms, "h:1",
            now_ms, "h:1", 0, prepared, body, topic.encode(), properties.encode(),
        )  # fmt: skip
        self.all.append(record)
        return record

    def _of(self, queue: int) -> list[Record]:
        return self.queue(layout.HALF_TOPIC if queue == HALVES else layout.OP_HALF_TOPIC)

    def bounds(self, queue: int) -> tuple[int, int]:
        return 0, len(self._of(queue))

    def records(self, queue: int, offset: int, end: int) -> Iterator[list[Record]]:
        found = self._of(queue)[offset:end]
        for begin in range(0, len(found), 3):
            yield found[begin : begin + 3]

    def stage(self, offset: int, end: int, table: HalfTable, done: DoneHalves) -> Iterator[int]:
        for record in self._of(HALVES)[offset:end]:
            read = records.half_record(record)
            table.stage_half(read.half, done, is_stock_copy=read.is_stock_copy)
            yield record.queue_offset + 1

    def place(self, queue: int, offset: int) -> int:
        return self._of(queue)[offset].physical_offset

    def first_behind(self, queue: int, place: int) -> int:
        return sum(record.physical_offset <= place for record in self._of(queue))

    def commits(self, since: int) -> Iterator[list[Record]]:
        committed = [record for record in self.all if record.physical_offset >= since and record.transaction_type == 8]
        yield [self.all[record.prepared_transaction_offset // RECORD_BYTES] for record in committed]

    def expired(self, since: int) -> Iterator[list[int]]:
        marks = (
            parts_of_mark(record.prepared_transaction_offset)
            for record in self.all
            if record.physical_offset >= since and not record.transaction_type
        )
        yield [first for role, lane, first in marks if (role, lane) == (records.ROLE, records.EXPIRED_LANE)]

    def last_expired(self, count: int) -> Iterator[list[int]]:
        yield [parts_of_mark(record.prepared_transaction_offset)[2] for record in self.queue(EXPIRED)[-count:]]


@dataclass(slots=True)
class Producer:
    """One transaction. Its producer is honest: each end tells the same decision."""

    is_commit: bool
    copies: list[int] = field(default_factory=list)
    """Half-queue offsets that the producer knows."""


class Service:
    """The shell of the service in memory: it dies with everything that it has not stored."""

    def __init__(self, log: Log, now_ms: int, policy: CheckPolicy = POLICY) -> None:
        self.log = log
        self.core: core.Transactions[int] = core.Transactions(lambda: policy)
        found = finish(Recovery(log, self.core.table).run(-1))
        self.core.restore_expired(found.expired)
        self.next_offset, self.low = found.next_offset, found.low
        self.repairs, self.pending = Repairs(found.missing), deque[core.Submit]()
        self.chains: deque[tuple[list[int], list[core.Submit], bool]] = deque()
        self.answers: list[tuple[int, int]] = []
        self.asked: list[Half] = []
        self.now_ms = now_ms

    def step(self, event: core.Event[int]) -> None:
        for effect in self.checked(event):
            match effect:
                case core.Submit():
                    self.pending.append(effect)
                case core.Answer(request, code, _):
                    self.answers.append((request, code))
                case core.AskProducer(half):
                    self.asked.append(half)

    def checked(self, event: core.Event[int]) -> Sequence[core.Effect[int]]:
        """Step the core, and look at the transaction's change of state."""
        if isinstance(event, core.BeginRound | core.Look):
            return self.core.step(event, self.now_ms)
        state = self.core.state(event.first)
        effects = self.core.step(event, self.now_ms)
        assert TRANSACTION.allows(state, event, self.core.state(event.first)), (state, event)
        return effects

    def arrive(self) -> None:
        for record in self.log.queue(layout.HALF_TOPIC)[self.next_offset :]:
            if not record.prepared_transaction_offset:
                self.core.table.add(records.half_record(record).half)
        self.next_offset = self.log.bounds(HALVES)[1]

    def submit(self) -> None:
        """Put a chain into the request ring."""
        repairs = self.repairs.take(CHAIN_MAX, self.now_ms)
        submits = [self.pending.popleft() for _ in range(min(CHAIN_MAX - len(repairs), len(self.pending)))]
        if repairs or submits:
            self.chains.append((repairs, submits, self.repairs.is_last(len(repairs))))

    def write(self) -> None:
        """Write stores the oldest chain as a whole."""
        if not self.chains:
            return
        repairs, submits, is_last = self.chains.popleft()
        halves = self.log.queue(layout.HALF_TOPIC)
        low = self.core.table.low(self.next_offset)
        mark = records.op_mark(low if is_last else None)
        stored = []
        for submit in submits:
            half = submit.half
            source = halves[half.newest] if submit.position < 0 else self.log.all[submit.position // RECORD_BYTES]
            copy = self._copy(submit.work, half, source)
            stored.append(core.Stored(half.first, -1 if copy is None else copy.queue_offset))
        offsets = [*repairs, *(submit.half.newest for submit in submits)]
        self.log.append(
            layout.OP_HALF_TOPIC, "TAGS\x01d\x02", self.now_ms, prepared=mark, body=records.op_body(offsets)
        )
        for offset in repairs:
            self.repairs.ended(offset, self.now_ms, is_stored=True)
        for event in stored:
            self.step(event)

    def _copy(self, work: Work, half: Half, source: Record) -> Record | None:
        pairs = source.properties_raw.decode()
        match work:
            case Work.COMMIT:
                place = source.physical_offset
                return self.log.append(USER, pairs, source.born_time_ms, prepared=place, flags=8)
            case Work.EXPIRE:
                mark = mark_of(records.ROLE, records.EXPIRED_LANE, half.first)
                return self.log.append(EXPIRED, pairs, source.born_time_ms, prepared=mark)
            case Work.CHECK | Work.RENEW:
                mark = mark_of(records.ROLE, records.HALF_LANE, half.first)
                checks = f"TRANSACTION_CHECK_TIMES\x01{half.checks + 1}\x02"
                return self.log.append(layout.HALF_TOPIC, pairs + checks, source.born_time_ms, prepared=mark)
            case _:
                return None

    def refuse(self) -> None:
        """The disk is full: write refuses the oldest chain."""
        if self.chains:
            repairs, submits, _ = self.chains.popleft()
            for offset in repairs:
                self.repairs.ended(offset, self.now_ms, is_stored=False)
            for submit in submits:
                self.step(core.Refused(submit.half.first, 14, "full"))


def open_of(log: Log) -> dict[int, Half]:
    """The open halves by all records of the log: the model. A half is done by a commit, an expired copy, or an op."""
    halves = [records.half_record(record).half for record in log.queue(layout.HALF_TOPIC)]
    newest = {half.first: half for half in halves}
    listed = {offset for op in log.queue(layout.OP_HALF_TOPIC) for offset in records.offsets_of_op(op.body)}
    done = {records.first_of(half) for found in log.commits(0) for half in found}
    done |= {first for found in log.expired(0) for first in found}
    return {first: half for first, half in newest.items() if first not in done and half.newest not in listed}


class World:
    """Runs random events, and holds what must be true at each of them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.log = Log()
        self.now_ms = 1_000
        self.producers: dict[int, Producer] = {}
        self.service = Service(self.log, self.now_ms)
        self.kept = 0
        """Records that no power cut takes."""
        self.requests: dict[int, int] = {}
        """Request -> transaction."""
        self.deaths = 0

    def send_half(self) -> None:
        offset = len(self.log.queue(layout.HALF_TOPIC))
        immunity = self.dice.choice(("", "", "CHECK_IMMUNITY_TIME_IN_SECONDS\x011\x02"))
        self.log.append(layout.HALF_TOPIC, f"UNIQ_KEY\x01{self.dice.randrange(5)}\x02{immunity}", self.now_ms)
        self.producers[offset] = Producer(self.dice.random() < 0.6, [offset])

    def end(self, first: int | None = None) -> None:
        known = [number for number in self.producers if number < len(self.log.queue(layout.HALF_TOPIC))]
        if first is None:
            first = self.dice.choice(known[-30:]) if known else None
        if first is None:
            return
        producer, halves = self.producers[first], self.log.queue(layout.HALF_TOPIC)
        self.service.arrive()
        named = halves[self.dice.choice([copy for copy in producer.copies if copy < len(halves)])]
        request = len(self.requests)
        self.requests[request] = first
        self.service.step(core.Ended(records.first_of(named), producer.is_commit, named.physical_offset, request))

    def check(self) -> None:
        self.service.arrive()
        self.service.step(core.BeginRound())
        while self.service.core.is_in_round:
            self.service.step(core.Look(3, self.service.next_offset))

    def answer_checks(self) -> None:
        asked, self.service.asked = self.service.asked, []
        for half in asked:
            if half.first in self.producers:
                self.producers[half.first].copies.append(half.newest)
                if self.dice.random() < 0.3:
                    self.end(half.first)

    def die(self, *, cut: bool) -> None:
        """The service dies, or everything with the unsynced end of the log."""
        self.deaths += 1
        if cut:
            kept = self.dice.randrange(self.kept, len(self.log.all) + 1)
            del self.log.all[kept:]
            halves = len(self.log.queue(layout.HALF_TOPIC))
            self.producers = {first: found for first, found in self.producers.items() if first < halves}
            for producer in self.producers.values():
                producer.copies = [copy for copy in producer.copies if copy < halves]
        elif self.dice.random() < 0.5:
            self.service.write()  # write had taken the chain
        self.service = Service(self.log, self.now_ms)
        self.look_at_recovery()

    def stock_dies(self) -> None:
        """A stock broker has the store, commits halves, and dies before it writes their op records."""
        for first in [first for first in open_of(self.log) if self.dice.random() < 0.7]:
            producer = self.producers[first]
            half = self.log.queue(layout.HALF_TOPIC)[self.dice.choice(producer.copies)]
            if producer.is_commit:
                place = half.physical_offset
                self.log.append(USER, half.properties_raw.decode(), half.born_time_ms, prepared=place, flags=8)
        self.deaths += 1
        self.service = Service(self.log, self.now_ms)
        self.look_at_recovery()

    def sync(self) -> None:
        self.kept = len(self.log.all)

    def pass_time(self) -> None:
        self.now_ms += self.dice.choice((1, 50, 200, -100, 3000))
        self.service.now_ms = self.now_ms

    def look_at_recovery(self) -> None:
        """The recovered halves are those of the model, and no op record hides one of them."""
        wanted = open_of(self.log)
        found = {half.first: half for half in self.service.core.table.following(0, 1 << 30)}
        assert found == wanted
        assert all(half.newest >= self.service.low for half in wanted.values())

    def look_at_log(self) -> None:
        """A commit once, a rollback never, and nothing both committed and expired."""
        committed = [records.first_of(half) for found in self.log.commits(0) for half in found]
        expired = [first for found in self.log.expired(0) for first in found]
        assert len(set(committed)) == len(committed), "committed twice"
        assert len(set(expired)) == len(expired), "expired twice"
        assert not set(committed) & set(expired)
        for first in committed:
            assert self.producers[first].is_commit, "a rollback was committed"

    def settle(self) -> None:
        """Nothing fails any more, and each producer ends its transaction: then no half is open."""
        for first in list(self.producers):
            self.end(first)
        while self.service.pending or self.service.chains or self.service.repairs.is_waiting:
            self.service.now_ms += RETRY_MS
            self.service.submit()
            self.service.write()
        self.look_at_log()
        assert not open_of(self.log), "a half stays open"
        assert not len(self.service.core.table)
        committed = {records.first_of(half) for found in self.log.commits(0) for half in found}
        expired = {first for found in self.log.expired(0) for first in found}
        for first, producer in self.producers.items():
            assert producer.is_commit == (first in committed) or first in expired, "a commit is lost"
        assert all(code in (0, 1, 14) for _, code in self.service.answers)
        self.service.answers.clear()
        late = sorted(expired & self.producers.keys())
        for first in late:
            self.end(first)
        assert [code for _, code in self.service.answers] == [1] * len(late), "a start has forgotten what expired"
