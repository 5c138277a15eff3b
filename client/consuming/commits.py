"""Commits of a consumer: at intervals, on request, and the last ones of queues that it gives up."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from ringmq.client.consuming.local_offsets import LocalOffsetFile, OffsetFileError
from ringmq.client.consuming.queue_reader import QueueReader
from ringmq.client.errors import ConnectError, RequestTimeoutError, RingmqError, RouteError
from ringmq.client.runtimes.runtime import Task, call_outside, create_task, gather, sleep, wait
from ringmq.remoting.message_queue import MessageQueue

log = logging.getLogger("ringmq.client")


class Commits:
    """Commits of one consumer. `offset_file` is a broadcasting member's. `last_timeout_s` bounds the last commits."""

    def __init__(self, group: str, offset_file: LocalOffsetFile | None, last_timeout_s: float) -> None:
        self._group = group
        self._offset_file = offset_file
        self._last_timeout_s = last_timeout_s
        self._rounds: dict[str, Task[None]] = {}  # broker name -> the last one

    async def keep(self, readers: Mapping[MessageQueue, QueueReader], interval_s: float) -> None:
        """Commit every `interval_s` until the owner cancels the task.

        A slow broker delays only its own next commit.
        """
        try:
            while True:
                await sleep(interval_s)
                brokers: dict[str, list[QueueReader]] = defaultdict(list)
                for queue, reader in readers.items():
                    brokers[queue.broker_name].append(reader)
                for name, found in brokers.items():
                    if name not in self._rounds or self._rounds[name].done():
                        self._rounds[name] = create_task(self._round(found), name="ringmq commits")
        finally:
            for task in self._rounds.values():
                task.cancel()  # not waited for: what comes next has its own limit

    async def now(self, readers: Iterable[QueueReader]) -> None:
        """Commit the current acknowledgements. Raises the first error, after all commits were tried."""
        errors = await commit_all(readers)
        await self._save()
        if errors:
            raise errors[0]

    async def last(self, readers: Collection[QueueReader]) -> None:
        """Commit queues that are given up. A commit over the time-out continues in the background."""
        committing = create_task(self._round(readers), name="ringmq commits")
        await wait([committing], self._last_timeout_s)
        if not committing.done():
            log.warning(
                "group %s: not committed within %g s, what was handled there may come again: %s",
                self._group,
                self._last_timeout_s,
                ", ".join(f"{queue} up to {offset}" for queue, offset in sorted(_uncommitted(readers))),
            )

    async def _round(self, readers: Iterable[QueueReader]) -> None:
        try:
            for error in await commit_all(readers):
                trace = None if isinstance(error, RingmqError) else error  # a hook's fault, or ours
                log.warning("group %s: an offset could not be committed: %s", self._group, error, exc_info=trace)
            await self._save()
        except OffsetFileError as error:
            log.error("group %s: %s", self._group, error)
        except Exception:  # a fault of ours must not end the commits silently
            log.exception("committing for group %s failed; trying again", self._group)

    async def _save(self) -> None:
        if self._offset_file is not None:
            await call_outside(self._offset_file.save)


def _uncommitted(readers: Iterable[QueueReader]) -> Iterable[tuple[MessageQueue, int]]:
    for reader in readers:
        if (offset := reader.uncommitted_offset) is not None:
            yield reader.queue, offset


async def commit_all(readers: Iterable[QueueReader]) -> list[Exception]:
    """Commit every reader. Return the errors, including those of hooks.

    Brokers are served at the same time. Of each broker's topic one queue goes alone before the others. Two threads of
    stock 5.3 would each create the group's table if its very first offsets came in parallel, and one table would be
    lost.
    """
    tables: dict[tuple[str, str], list[QueueReader]] = defaultdict(list)
    for reader in readers:
        tables[reader.queue.topic, reader.queue.broker_name].append(reader)
    errors = await gather(*(_commit_table(table) for table in tables.values()))
    return [error for some in errors for error in some]


async def _commit_table(readers: list[QueueReader]) -> list[Exception]:
    errors: list[Exception] = []
    rest = list(readers)
    told = False
    while rest and not told:
        try:
            told = await rest.pop().commit()
        except (ConnectError, RequestTimeoutError, RouteError) as error:
            errors.append(error)
            break  # each of the others may take as long: together
        except Exception as error:
            errors.append(error)
    for result in await gather(*(reader.commit() for reader in rest), return_exceptions=True):
        if isinstance(result, Exception):
            errors.append(result)
        elif isinstance(result, BaseException):
            raise result
    return errors
