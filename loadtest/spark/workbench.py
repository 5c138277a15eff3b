"""The shared parts of the Spark bench's rows: one session, the stores, the same rows as Parquet, brokers, the clock."""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringmq.loadtest.load.process_stats import family
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.targets import COMMON_SETTINGS
from ringmq.loadtest.load.tools import Loader, Tools
from ringmq.loadtest.load.warm_memory import touch_free_memory
from ringmq.loadtest.measuring.documents import Document
from ringmq.loadtest.measuring.measurement import RINGMQ, Measurement
from ringmq.loadtest.measuring.rounds import Row, Turn, attempt, progress, rotated
from ringmq.loadtest.spark.log_fill import Filled, make_store
from ringmq.loadtest.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZES = {"1k": 1024, "200b": 200}  # mean bytes of a body
LIVE = "1k-live"  # the store whose broker runs, and that grows
COPY_BYTES = 8 << 20


@dataclass(frozen=True)
class SparkRow(Row):
    """One line of the table. `ours` and `other` of a run are in the row's unit."""

    run: "Callable[[Workbench], Measurement]"


@dataclass
class Workbench:
    """Made once per run. Slow parts are made at their first use."""

    folder: Path
    tools: Tools
    log_bytes: int = 2 << 30
    cores: int = 2
    seconds: float = 10.0  # of rows that run for a time
    sink_messages: int = 300_000
    warm_memory: bool = False
    say: Callable[[str], None] = print
    round: int = 0
    filled: dict[str, Filled] = field(default_factory=dict)
    rows: Sequence[SparkRow] = ()

    def warm_up(self) -> None:
        """Run the rows once without record, for compilers and caches."""
        self.say("warm-up")
        for row in self.rows:
            self.say(progress(row, RINGMQ, attempt(partial(row.run, self))))

    def turns(self, number: int) -> Generator[Turn, None, None]:
        """All rows, each with both of its sides."""
        self.round = number + 1
        yield from (Turn(row, RINGMQ, partial(row.run, self)) for row in self.rows)

    def circumstances(self) -> Document:
        """Return the conditions of a run."""
        return {
            "log_bytes": self.log_bytes,
            "filled": {size: vars(filled) for size, filled in self.filled.items()},
        }

    @cached_property
    def session(self) -> "SparkSession":
        """The one Spark session, within which all ratios are measured."""
        self.say("starting Spark")
        scratch = self.folder / "spark"
        scratch.mkdir(parents=True, exist_ok=True)
        return open_session(scratch, self.cores)

    def spark_pids(self) -> list[int]:
        """Return the JVM and its Python workers."""
        jvm: Any = self.session.sparkContext._jvm
        return family(int(jvm.java.lang.ProcessHandle.current().pid()))

    def store(self, size: str) -> Path:
        """Return the store with bodies of this size, made by a private broker or left by an earlier run."""
        path = self.folder / f"store-{size}"
        if size not in self.filled:
            note = path.with_suffix(".json")
            wanted = {"log_bytes": self.log_bytes, "body_bytes": SIZES[size.removesuffix("-live")]}
            known = json.loads(note.read_text()) if note.exists() and path.exists() else {}
            if known.get("wanted") == wanted:
                self.filled[size] = Filled(**known["filled"])
            else:
                self.say(f"filling {path} with {self.log_bytes / (1 << 30):.3g} GiB of log")
                self._forget(size)
                self.filled[size] = make_store(path, wanted["log_bytes"], wanted["body_bytes"])
                note.write_text(json.dumps({"wanted": wanted, "filled": vars(self.filled[size])}))
            _into_page_cache(path / "commitlog", path / "consumequeue")
        return path

    def messages(self, size: str) -> int:
        """Return the number of messages in the store of this size."""
        self.store(size)
        return self.filled[size].messages

    def frame(self, size: str, *columns: str, source: str = "ringmq", **options: str) -> "DataFrame":
        """Return the store as a table, with the default columns or these."""
        chosen = {"store": str(self.store(size)), **options}
        if columns:
            chosen["columns"] = ",".join(columns)
        return self.session.read.format(source).options(**chosen).load()

    def parquet(self, size: str, *columns: str) -> "DataFrame":
        """Return the same rows and columns as Parquet files (snappy), written once in the log's order."""
        path = self.folder / f"parquet-{size}"
        self.store(size)
        if not (path / "_SUCCESS").exists():
            self.say(f"writing {path}")
            self.frame(size).write.mode("overwrite").option("compression", "snappy").parquet(str(path))
            _into_page_cache(path)
        frame = self.session.read.parquet(str(path))
        return frame.select(*columns) if columns else frame

    @contextlib.contextmanager
    def broker_on(self, size: str) -> Iterator[RunningBroker]:
        """Yield a broker on the store of this size, and stop it cleanly."""
        with RunningBroker(self.store(size), dict(COMMON_SETTINGS)) as broker:
            yield broker
            _stop(broker)

    @contextlib.contextmanager
    def fresh_broker(self) -> Iterator[RunningBroker]:
        """Yield a broker on an empty store, which is removed."""
        path = self.folder / "fresh"
        shutil.rmtree(path, ignore_errors=True)
        if self.warm_memory:
            touch_free_memory()
        try:
            with RunningBroker(path / "store", dict(COMMON_SETTINGS)) as broker:
                yield broker
                _stop(broker)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def loader(self, broker: RunningBroker) -> Loader:
        """Return the load generator for this broker, on CPUs of the kernel's choice."""
        return Loader(self.tools, broker.port)

    def _forget(self, size: str) -> None:
        for path in (self.folder / f"store-{size}", self.folder / f"parquet-{size}"):
            shutil.rmtree(path, ignore_errors=True)

    def close(self, *, keep: bool) -> None:
        """End the session. Stores and Parquet files stay with `keep`."""
        if "session" in self.__dict__:
            self.session.stop()
        shutil.rmtree(self.folder / "spark", ignore_errors=True)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def _stop(broker: RunningBroker) -> None:
    status = broker.stop()
    if status != 0:
        raise RuntimeError(f"the broker of {broker.store} ended with status {status}:\n{broker.log_tail()}")


def _into_page_cache(*folders: Path) -> None:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                with path.open("rb", buffering=0) as file:
                    while file.read(COPY_BYTES):
                        pass


def to_noop(frame: "DataFrame") -> None:
    """Run every row and column through Spark to the noop sink."""
    frame.write.format("noop").mode("overwrite").save()


def seconds_of(action: Callable[[], object]) -> float:
    """Return the duration, by the wall clock."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def side_by_side(bench: Workbench, ours: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of both, one after the other. The order changes from round to round."""
    times = {side: seconds_of(side) for side in rotated((ours, other), bench.round)}
    return times[ours], times[other]
