"""A broker with its name server for the duration of some tests, as processes on free ports of this machine."""

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ringmq.cli.admin import Admin
from ringmq.client.connections.name_servers import parse_name_servers
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.extras import how_to_install
from ringmq.remoting.config_beans import TopicConfig

if TYPE_CHECKING:
    from ringmq.loadtest.load.running import RunningBroker

T = TypeVar("T")
TOPIC_QUEUES = 4
NEEDED = ("ringmq.native._native", "msgspec", "psutil")
SETTINGS: Mapping[str, object] = {
    "mappedFileSizeCommitLog": 16 << 20,  # small files: nothing but a few pages of them is ever written
    "mappedFileSizeConsumeQueue": 60_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "diskMaxUsedSpaceRatio": 95,
}
"""Default properties of a broker for tests. The largest allowed message fits into one file of the log."""


class BrokerMissingError(RuntimeError):
    """This machine cannot run a broker. The text names the missing part and the remedy."""


class BrokerFailedError(RuntimeError):
    """The broker did not start, or did not end, as it should. The text ends with the broker's log."""


class LocalBroker:
    """A running broker. `namesrv` and `address` are host:port of the name server and of the broker.

    Made by `start` (a new process) or `at` (a cluster that is running already), ended by `stop` or `kill`.
    """

    def __init__(self, namesrv: str, address: str, running: "RunningBroker | None" = None) -> None:
        self.namesrv = namesrv
        self.address = address
        self._running = running

    @classmethod
    def start(cls, folder: Path, settings: Mapping[str, object] | None = None) -> Self:
        """Start `ringmq serve` with its store in `folder` and wait until it is ready (a second or two).

        `settings` are broker properties. Raises `BrokerMissingError` and `BrokerFailedError`.
        """
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise BrokerMissingError(
                f"a RingMQ broker needs {', '.join(missing)}; {how_to_install('broker')} "
                "(with a C compiler, python3-dev, liburing-dev and libdeflate-dev)"
            )
        from ringmq.loadtest.load.program import fork_programs
        from ringmq.loadtest.load.running import RunningBroker

        fork_programs()
        try:
            running = RunningBroker(folder / "store", {**SETTINGS, **(settings or {})})
        except RuntimeError as error:
            raise BrokerFailedError(str(error)) from error
        return cls(running.namesrv, running.address, running)

    @classmethod
    def at(cls, namesrv: str) -> Self:
        """Return the cluster behind the name servers `namesrv`. `address` is its first master. Raises `RingmqError`."""

        async def first_master(admin: Admin) -> str:
            return (await admin.masters())[0]

        return cls(namesrv, _ask(namesrv, first_master))

    def create_topic(self, topic: str, queues: int = TOPIC_QUEUES) -> None:
        """Create a topic on every master. The topic has a route when this returns. Raises `RingmqError`."""

        async def create(admin: Admin) -> None:
            config = TopicConfig(topic, read_queue_nums=queues, write_queue_nums=queues)
            if not await admin.create_topic(config, await admin.masters()):
                raise BrokerFailedError(f"topic {topic} was created, and {self.namesrv} has no route to it")

        _ask(self.namesrv, create)

    @property
    def log_path(self) -> Path | None:
        """The file with the broker's stderr, None for a cluster that was not started here."""
        return self._running.log_path if self._running else None

    @property
    def exit_status(self) -> int | None:
        """The exit status of the broker, None while it runs or if it was not started here."""
        return self._running.process.poll() if self._running else None

    def kill(self) -> None:
        """End all processes of the broker by SIGKILL at once. `start` with the same folder recovers the store.

        Raises `BrokerFailedError` for a cluster that was not started here.
        """
        if self._running is None:
            raise BrokerFailedError(f"the cluster of {self.namesrv} was not started here, so it cannot be killed")
        self._running.close()

    def stop(self) -> None:
        """End the process by SIGTERM and remove its shared memory.

        Raises `BrokerFailedError` if the process ended badly.
        """
        if self._running is None:
            return
        try:
            status = self._running.process.poll()
            status = self._running.stop() if status is None else status
        except AssertionError as error:
            raise BrokerFailedError(str(error)) from error
        finally:
            self._running.close()
        if status != 0:
            raise BrokerFailedError(f"the broker ended with status {status}:\n{self._running.log_tail()}")


def _ask(namesrv: str, question: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """Return the answer, from a thread with its own event loop: the caller's thread may be running one already."""

    async def ask() -> T:
        client = RemotingClient()
        try:
            return await question(Admin(client, parse_name_servers(namesrv)))
        finally:
            await client.close()

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(lambda: asyncio.run(ask())).result()
