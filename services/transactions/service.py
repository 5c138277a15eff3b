"""The service of transactions: takes ends, submits what the core decides, and checks producers.

Ends go to write in C (`end_chains`). The service answers those that C leaves, and its core decides about some of them.
A turn: results of write -> recovery, or halves that have arrived -> a part of the round of checks -> chains.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.records import plain_request
from ringmq.broker.requests.request import Answer, Drop, Outbox, Request, Wait
from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.ipc.half_shares import HalfShares
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.remoting import names
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.services.arrivals import Arrivals
from ringmq.services.control_asks import ControlAsks
from ringmq.services.kit.flight import AGAIN
from ringmq.services.kit.log_lines import LogLines
from ringmq.services.kit.loop import sleep
from ringmq.services.log_view import LogView
from ringmq.services.topics import Topics
from ringmq.services.transactions import core, ends, finish_times, records
from ringmq.services.transactions.chain_port import COPIES_MAX, ChainPort, Item, Result
from ringmq.services.transactions.core import CheckPolicy, Work
from ringmq.services.transactions.end_chains import EndChains
from ringmq.services.transactions.ends import End
from ringmq.services.transactions.half_table import Half, HalfTable
from ringmq.services.transactions.halves import HalfReader
from ringmq.services.transactions.producer_checks import ProducerChecks
from ringmq.services.transactions.recovery import Recovered, Recovery, stock_offset
from ringmq.services.transactions.repairs import Repairs
from ringmq.services.transactions.stock_copies import StockCopies
from ringmq.services.transactions.transaction_log import StoredTransactionLog
from ringmq.services.transactions.work_items import Lost, Refusal, WorkItems
from ringmq.store.queue_reader import QueueReader, QueueReadError

WAITING_MAX: int = lib.RMQ_END_WAITING_MAX
"""Ends that may wait for an answer, beside those that are on their way to write."""
CHECKS_MAX = 64
"""Copies of a round of checks that may be in flight."""
LOW_MS = 1000
"""Time between two searches for the lowest open half."""
RECOVER_MS = 20
PROGRESS_MS = 3000
PROGRESS_MIN = 100_000
"""Half messages from which on a start tells its progress."""
RETRY_MS = 100
CLOSE_MS = 2000
"""Time for the results of what was submitted before the worker ends."""
FILES = 4
HOUR_MS = 3_600_000
BUSY = "[OVERLOAD]too many transactions are being ended, try again later"
FULL = "[OVERLOAD]{0} transactions are open, and this one is behind them: try again later"


class TransactionService:
    """Implements HostedService."""

    name = "transactions"
    codes = frozenset({int(RequestCode.END_TRANSACTION)})

    def __init__(
        self, *, plane: Plane, role: int, log: LogView, config: Callable[[], BrokerConfig], asks: ControlAsks,
        outbox: Outbox, log_line: Callable[[str], None],
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:  # fmt: skip
        self._plane, self._role, self._log, self._config, self._asks = plane, role, log, config, asks
        self._outbox, self._wall_ms = outbox, wall_ms
        self._log_progress, self._log_line = log_line, LogLines(log_line)
        topics = Topics(plane)
        half, op = topics.queue(names.HALF_TOPIC, 0), topics.queue(names.OP_HALF_TOPIC, 0)
        if half is None or op is None:
            raise LookupError(f"the plane has no topic {names.HALF_TOPIC} or {names.OP_HALF_TOPIC}")
        self._half_queue, self._op_queue = half, op
        self._reader = QueueReader(plane.struct, FILES, FILES)
        self._halves = HalfReader(plane, self._reader, log, topics, half[1])
        self._work = WorkItems(self._halves, log, topics, half, asks, self._log_line)
        self._arrivals = Arrivals(plane, plane.port_of(role))
        self._port = ChainPort(plane, role, half, op)
        self._words = plane.role(role).counters
        self._checks = ProducerChecks(self._halves, asks, self._words, lambda: config().broker_name, self._log_line)
        self._core: core.Transactions[Request] = core.Transactions(self._policy, HalfTable(plane.header.name_secret))
        self._shares = HalfShares(plane)
        self._ends = EndChains(plane, role, self._port, self._reader, self._core.table)
        self._clock = TurnClock(time.monotonic_ns)
        self._recovery: Recovery | None = None
        self._recovering: Steps[Recovered] | None = None
        self._progress_at_ms = 0
        self._is_recovered = False
        self._recover_at_ms = 0
        self._stock_copies = StockCopies({}, {})
        self._unread: int | None = None
        """The first half-queue offset whose unit was damaged when the worker started."""
        self._has_sent = False
        """True if C has looked at all waiting ends in this turn."""
        self._pending: deque[core.Submit] = deque()
        self._submits: dict[int, core.Submit] = {}
        """By first offset, those in flight."""
        self._repairs = Repairs()
        self._low = 0
        self._low_at_ms = 0
        self._round_at_ms = 0
        self._settings = config()
        """Those of this turn: a look at the file takes a system call."""
        self._wall_now_ms = wall_ms()
        """The wall clock of this turn."""
        self._is_saving, self._saved_low, self._save_at_ms = False, -1, 0

    # ---- HostedService ----

    def on_request(self, request: Request) -> Answer:
        """Take an end of a transaction. Its answer follows when it is stored. Raises RequestError."""
        record = ends.TABLE.decode(request.command.ext_fields, request.command.version)
        if ends.end_of(record).decision == ends.UNKNOWN:
            return Drop()  # as stock, which answers nothing: the check asks again
        if self.room <= 0:
            raise RequestError(BUSY, field="", code=ResponseCode.SYSTEM_BUSY)
        self._ends.add(request, record)
        return Wait()

    @property
    def room(self) -> int:
        """Ends that may begin to wait for an answer."""
        return WAITING_MAX - self._ends.waiting - self._core.waiting

    def take_plain(self, room: int) -> int:
        """Take plain ends from the front of the inbox. Returns their number."""
        count = self._ends.take(min(room, self.room))
        self._has_sent &= not count
        return count

    def send_ends(self) -> Iterator[Any]:
        """Send the ends whose halves have arrived. Yields those for `take_left` (struct rmq_plain_end), and slow ones
        for the log alone."""
        if not self._is_recovered or self._has_sent:
            return
        self._has_sent = True
        now_ns, limit_ms = time.monotonic_ns(), self._settings.slow_request_ms
        slow_ns = now_ns - limit_ms * 1_000_000 if limit_ms else 0
        low = self._low if self._repairs.is_last(0) else None
        op_bytes_max = self._settings.transaction_op_msg_max_size
        yield from self._ends.send(self._arrival(), low, op_bytes_max, now_ns, self._wall_ms(), slow_ns)

    def take_left(self, request: Request, row: Any) -> None:
        """Answer an end that C has left, or have the core decide. Its answer follows."""
        end = ends.end_of_row(row)
        match row.why:
            case lib.RMQ_END_MISSING:
                self._reply(request, ResponseCode.SYSTEM_ERROR, ends.NOT_FOUND)
            case lib.RMQ_END_FULL:
                self._reply(request, ResponseCode.SYSTEM_BUSY, FULL.format(len(self._core.table)))
            case lib.RMQ_END_UNSOUND:
                self._take_unsound_end(request, end, row)
            case _:
                self._take_end(request, end, row.first, row)

    def turn(self, now_ms: int) -> bool:
        """Do one round. True if more may follow at once."""
        self._has_sent = False
        self._settings, self._wall_now_ms = self._config(), self._wall_ms()
        self._core.allow(self._settings.open_halves_max)
        worked = self._take_results(now_ms) or self._ends.has_more
        if not self._is_recovered:
            return self._recover(now_ms) or worked
        worked |= self._take_arrivals()
        worked |= self._checks.turn()
        worked |= self._check(now_ms)
        worked |= self._submit(now_ms)
        self._words[lib.RMQ_TRANSACTIONS_OPEN] = len(self._core.table)
        self._shares.publish(len(self._core.table), self._halves.next_offset)
        return worked

    @property
    def has_news(self) -> bool:
        """True if a result or a half waits."""
        return self._port.has_results or self._arrivals.is_waiting or self._asks.has_news

    @property
    def is_polling(self) -> bool:
        """True while ends wait for dispatch, or the worker for write."""
        waits = self._checks.is_waiting or self._pending or self._ends.is_waiting
        return bool(waits) or not self._is_recovered

    @property
    def is_idle(self) -> bool:
        """True if no half is open and nothing is in flight."""
        return (
            self._is_recovered
            and not (self._checks.is_waiting or self._pending or self._repairs.is_waiting)
            and not len(self._core.table)
            and self._port.is_idle
            and self._ends.is_idle
            and not self._halves.has_more
            and self._saved_low == self._low
        )

    def save_if_due(self, now_ms: int) -> None:
        """Tell control the offsets for consumerOffset.json, by which a stock broker goes on with this store."""
        self._reader.tick()
        if not self._is_recovered or self._is_saving or now_ms < self._save_at_ms:
            return
        self._look_for_low(now_ms)
        if self._low == self._saved_low or int(self._plane.watermarks.flushed_offset) < self._log_end:
            return
        low, self._is_saving, self._save_at_ms = self._low, True, now_ms + LOW_MS

        def then(refusal: RequestError | None) -> None:
            self._is_saving = False
            if refusal is None:
                self._saved_low = low

        position = self._halves.position(low)
        op_offset = self._halves.first_behind(self._op_queue[1], self._log_end if position is None else position)
        offsets = {names.HALF_TOPIC: low, names.OP_HALF_TOPIC: op_offset}
        self._asks.commit_offsets(records.GROUP, offsets, time.monotonic_ns() // 1_000_000, then)

    @property
    def _log_end(self) -> int:
        return max(self._port.log_end, self._ends.log_end)

    def close(self) -> None:
        """Answer the ends in flight, and those that wait: nothing of these is stored."""
        end_ns = time.monotonic_ns() + CLOSE_MS * 1_000_000
        readers = {reader.role: reader.port for reader in self._plane.readers}
        requests, rows = list[Request](), self._ends.drop_waiting()
        while True:
            requests += [plain_request(row.record, row.asked, readers[row.record.role], 0) for row in rows]
            if (self._port.is_idle and self._ends.is_idle) or time.monotonic_ns() >= end_ns:
                break
            sleep(self._plane, self._role, lambda: 0 if self._port.has_results else RETRY_MS)
            self._take_results(0)
            self._has_sent = False
            rows = self.send_ends()
        remark = "[OVERLOAD]the broker stops, try again later"
        for request in requests:
            self._outbox.reply(request, request.reply(ResponseCode.SYSTEM_BUSY, remark))
        self._reader.close()

    def rest(self) -> None:
        """Return the arena's memory to the system."""
        self._port.free()

    # ---- recovery ----

    def _recover(self, now_ms: int) -> bool:
        if now_ms < self._recover_at_ms:
            return False
        if self._recovering is None:
            end = self._port.settled_end()
            readable = min(int(self._plane.watermarks.dispatched_offset), self._plane.confirm_offset())
            if end is None or readable < end:
                return False
            self._arrivals.want(self._half_queue[1])
            expired = self._work.expired_topic()
            slots = self._half_queue[1], self._op_queue[1], None if expired is None else expired[1]
            log = StoredTransactionLog(self._plane, self._reader, self._log, slots, end)
            root = Path(self._config().store_path_root_dir)
            stock_low = stock_offset(root, self._halves.end, self._log_line)
            self._recovery = Recovery(log, self._core.table, self._log_line)
            self._recovering = self._recovery.run(stock_low)
            self._progress_at_ms = now_ms
        try:
            found = self._clock.advance(self._recovering, RECOVER_MS)
        except QueueReadError as error:
            self._recovering, self._recover_at_ms = None, now_ms + RETRY_MS
            self._log_line(f"waits: {error}")
            return False
        self._tell_progress(now_ms, is_at_end=found is not None)
        if found is not None:
            self._recovered(found, now_ms)
        return True

    def _tell_progress(self, now_ms: int, *, is_at_end: bool) -> None:
        halves = 0 if self._recovery is None else self._recovery.halves
        if self._recovery is None or halves < PROGRESS_MIN or (now_ms < self._progress_at_ms and not is_at_end):
            return
        self._progress_at_ms = now_ms + PROGRESS_MS
        self._log_progress(
            f"the start has read {self._recovery.read} of {halves} half messages that may be open, "
            f"{len(self._core.table)} are so far; ends wait until all are read"
        )

    def _recovered(self, found: Recovered, now_ms: int) -> None:
        self._core.table.share(self._shares.struct)
        self._halves.next_offset, self._low = found.next_offset, found.low
        self._repairs = Repairs(found.missing)
        self._core.restore_expired(found.expired)
        self._stock_copies = StockCopies(found.renamed, found.stock_origins)
        for offset in found.damaged:
            self._count_lost(offset, Lost.DAMAGED)
        if found.unread is not None:
            self._unread, last = found.unread
            self._log_line(
                f"half messages {self._unread} to {last} cannot be read, as units of their queue are damaged: they are "
                f"left out until the queue is rebuilt"
            )
        self._recovery = self._recovering = None
        self._is_recovered = True
        self._round_at_ms = now_ms + self._config().transaction_check_interval

    # ---- halves and ends ----

    def _take_arrivals(self) -> bool:
        self._arrivals.take()
        if self._core.is_full or not self._halves.has_more:
            return False
        before = self._halves.next_offset
        self._halves.arrive(self._core.table, self._log_line)
        self._arrivals.want(self._half_queue[1])
        return self._halves.next_offset > before

    def _arrival(self) -> ends.Arrival:
        marks, halves = self._plane.watermarks, self._halves
        append_end, dispatched = int(marks.append_offset), int(marks.dispatched_offset)
        return ends.Arrival(append_end, dispatched, halves.end, halves.next_offset, self._core.is_full)

    def _take_unsound_end(self, request: Request, end: End, row: Any) -> None:
        half = self._halves.named(end.position) if end.position >= 0 else None
        refused = ends.refusal(end, half, self._settings.transaction_time_out, self._wall_ms())
        if refused is not None or half is None:
            self._reply(request, *(refused or (ResponseCode.SYSTEM_ERROR, ends.NOT_FOUND)))
            return
        self._take_end(request, end, records.first_of(half), row)

    def _take_end(self, request: Request, end: End, first: int, row: Any) -> None:
        first = self._stock_copies.open_half(first, self._core.table, lambda: self._halves.at(end.position))
        if self._core.table.is_sent(first):
            self._ends.add_again(row)
            return
        self._step(core.Ended(first, end.decision == ends.COMMIT, end.position, request))

    # ---- checks ----

    def _policy(self) -> CheckPolicy:
        config = self._settings
        return CheckPolicy(
            config.transaction_time_out, config.transaction_check_max, config.file_reserved_time * HOUR_MS
        )

    def _check(self, now_ms: int) -> bool:
        if not self._core.is_in_round:
            if now_ms < self._round_at_ms or not len(self._core.table):
                return False
            self._round_at_ms = now_ms + self._config().transaction_check_interval
            self._step(core.BeginRound())
            self._work.expired_queue()
        room = CHECKS_MAX - self._checks.in_flight - len(self._submits)
        if room <= 0:
            return False
        return self._step(core.Look(room, self._halves.end)) or self._core.is_in_round

    # ---- work ----

    def _step(self, event: core.Event[Request]) -> bool:
        effects: Sequence[core.Effect[Request]] = self._core.step(event, self._wall_now_ms)
        for effect in effects:
            match effect:
                case core.Answer(request, code, remark):
                    self._reply(request, code, remark)
                case core.Submit():
                    self._submits[effect.half.first] = effect
                    self._pending.append(effect)
                case core.AskProducer():
                    self._checks.add(effect.half)
        return bool(effects)

    def _reply(self, request: Request, code: int, remark: str) -> None:
        self._outbox.reply(request, request.reply(code, remark or None))

    def _submit(self, now_ms: int) -> bool:
        worked = False
        while (self._pending or self._repairs.is_waiting) and self._port.has_room:
            self._look_for_low(now_ms)
            items = self._items(now_ms)
            if not items:
                return worked
            self._port.op_bytes_max = self._settings.transaction_op_msg_max_size
            repairs = sum(item.key < 0 for item in self._port.fitting(items))
            low = self._low if self._repairs.is_last(repairs) else None
            taken = self._port.submit(items, low, self._wall_ms())
            for item in reversed(items[taken:]):
                if item.key < 0:
                    self._repairs.give_back(item.offset)
                else:
                    self._pending.appendleft(self._submits[item.key])
            worked = True
        return worked

    def _items(self, now_ms: int) -> list[Item]:
        items = [Item(_repair_key(offset), offset) for offset in self._repairs.take(COPIES_MAX, now_ms)]
        while self._pending and len(items) < COPIES_MAX:
            submit = self._pending.popleft()
            item = self._item(submit)
            if item is not None:
                items.append(item)
        return items

    def _item(self, submit: core.Submit) -> Item | None:
        """None if the work was given up."""
        made = self._work.of(submit)
        if isinstance(made, Item):
            return made
        if isinstance(made, Refusal):
            del self._submits[submit.half.first]
            self._step(core.Refused(submit.half.first, made.code, made.remark))
        else:
            self._give_up(submit.half, made)
        return None

    def _give_up(self, half: Half, cause: Lost) -> None:
        self._count_lost(half.newest, cause)
        del self._submits[half.first]
        self._step(core.Lost(half.first))

    def _count_lost(self, offset: int, cause: Lost) -> None:
        self._words[lib.RMQ_TRANSACTIONS_LOST] += 1
        self._log_line(f"half message {offset} {cause.value}")

    def _look_for_low(self, now_ms: int) -> None:
        """Find the offset that op records carry as their mark. It may be too small, never too large."""
        if now_ms < self._low_at_ms:
            return
        self._low_at_ms = now_ms + LOW_MS
        bounds = (self._core.table.low(self._halves.next_offset), self._unread, self._halves.damaged)
        self._low = max(self._low, min(bound for bound in bounds if bound is not None))

    def _take_results(self, now_ms: int) -> bool:
        ended = self._ends.ended
        results = list(self._port.results(self._ends.collect()))
        for result in results:
            self._on_result(result, now_ms)
        return bool(results) or self._ends.ended > ended

    def _on_result(self, result: Result, now_ms: int) -> None:
        if result.key < 0:
            self._repairs.ended(_repair_key(result.key), now_ms, is_stored=result.is_stored)
            return
        submit = self._submits[result.key]
        if not result.is_stored and result.code == AGAIN:
            self._pending.append(submit)
            return
        del self._submits[result.key]
        if result.has_no_room and submit.work is Work.CHECK:
            self._log_line("half messages have no room for the count of their checks, so a restart counts from 0 again")
            self._step(core.Stored(result.key, submit.half.newest))
            return
        if not result.is_stored:
            self._step(core.Refused(result.key, result.code, result.remark))
            return
        counted = {
            Work.COMMIT: lib.RMQ_TRANSACTIONS_COMMITTED,
            Work.ROLLBACK: lib.RMQ_TRANSACTIONS_ROLLED_BACK,
            Work.EXPIRE: lib.RMQ_TRANSACTIONS_EXPIRED,
        }.get(submit.work)
        if counted is not None:
            self._words[counted] += 1
            if submit.work is Work.COMMIT:
                finish_times.count_commit(self._words, self._wall_now_ms - submit.half.born_ms)
        self._step(core.Stored(result.key, result.queue_offset))


def _repair_key(offset: int) -> int:
    """The key of an item that makes the op record of this offset again, and the offset of such a key."""
    return -1 - offset
