"""Runs requests of clients in control. An answer waits for the save of its tables and for the name servers if it
must.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from ringmq.broker.core import Broker
from ringmq.broker.handlers.table import CHANGES_TABLES, TOLD_FIRST, HandlerTable
from ringmq.broker.registrar import Registrar
from ringmq.broker.requests.request import Answer, Connection, Drop, Effect, Reply, Request, Run, Slices
from ringmq.broker.requests.runner import AnswerTimes, Runner
from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.broker.table_saves import TableSaves


class RequestRunner(Runner):
    """Runs requests on the core. `effects`: those of answered requests, in order, for the shell."""

    def __init__(
        self,
        broker: Broker,
        handlers: HandlerTable,
        registrar: Registrar,
        times: AnswerTimes,
        tell_failure: Callable[[str], None],
        clock: TurnClock,
        saves: TableSaves,
        backlog_bytes: Callable[[], int],
    ) -> None:
        super().__init__(clock, backlog_bytes, tell_failure)
        self.broker = broker
        self.handlers = handlers
        self._registrar = registrar
        self._times = times
        self._saves = saves
        self._unsent_bytes = 0
        """Bytes of bodies in `effects`."""

    def end(self, connection: Connection) -> None:
        """The connection is closed: its client leaves all groups."""
        super().end(connection)
        self.broker.routes.drop(connection)
        self._works.add(_EndWork(self, connection))

    def take_effects(self) -> list[Effect]:
        """The effects so far."""
        self._unsent_bytes = 0
        return super().take_effects()

    def backlog_bytes(self) -> int:
        """The bytes of answers that are not sent yet, including those in `effects`."""
        return super().backlog_bytes() + self._unsent_bytes

    def mark(self) -> int:
        """The number of changes of topics, groups and request modes since the start."""
        return self.broker.topics.changes + self.broker.groups.changes + self.broker.modes.changes

    def begin(self, request: Request) -> Answer | Slices:
        """Have the handler of the request's code answer it."""
        return self.handlers.begin(request)

    def complete(self, request: Request, answer: Answer, mark: int) -> None:
        """Accept the answer to a request. Changes of tables since `mark` are saved before it is sent."""
        code = request.command.code
        effects = self.handlers.effects_of(request, answer)
        verdict = effects[-1] if effects else None
        if isinstance(verdict, Reply):
            self._unsent_bytes += len(verdict.command.body)
        release = self.effects_out
        if code in TOLD_FIRST and isinstance(verdict, Reply):
            change = self._registrar.record_changes()
            if change is not None:
                release = partial(self._hold_last, change, request.now_ms)
        if code in CHANGES_TABLES or self.mark() != mark:
            self._saves.hold(effects, release, is_change=code in CHANGES_TABLES)
        else:
            release(effects)
        self._times.measure(request, may_be_slow=not isinstance(verdict, Run))  # read workers log those

    def effects_out(self, effects: list[Effect]) -> None:
        """Release effects."""
        self.effects += effects

    def _hold_last(self, change: int, now_ms: int, effects: list[Effect]) -> None:
        """Release all effects but the answer, which waits until the name servers know `change`."""
        self.effects += effects[:-1]
        self._registrar.hold(effects[-1], change, now_ms)

    def fail(self, request: Request, error: Exception) -> None:
        """Answer a request with a defect: it costs one answer, not the broker. Pushed effects of the handler are
        sent."""
        self.effects += self.broker.outbox.take()
        super().fail(request, error)


class _EndWork(Struct, frozen=True):
    """The end of a connection: its client leaves all groups."""

    runner: RequestRunner
    connection: Connection
    size_bytes: int = 0

    def begin(self) -> Slices:
        return Slices(self._steps())

    def _steps(self) -> Steps[Answer]:
        yield from self.runner.broker.membership.closing(self.connection)
        return Drop()

    def complete(self, answer: Answer) -> None:
        self.runner.effects += self.runner.broker.outbox.take()

    def fail(self, error: Exception) -> None:
        self.runner.report_failure(f"the end of connection {self.connection.address} failed", error)
