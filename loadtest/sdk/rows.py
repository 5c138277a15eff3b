"""The rows of the SDK bench: a mode of both clients each, and how it is measured."""

import sys
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ringmq.loadtest.bench.sdk import BATCH
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.tools import Loader, Report, run_json
from ringmq.loadtest.measuring.measurement import PEER, RATE, RINGMQ, Measurement, goals
from ringmq.loadtest.measuring.rounds import Row, Turn, rotated

PEER_REQUIREMENT = "rocketmq==0.4.4"
PROGRAM = Path(__file__).with_name("rocketmq_client_bench.py")
CONSUME = "consume"


def _row(name: str, title: str, times_the_peer: float) -> Row:
    """A mode of `bench/sdk.py` and of `rocketmq_client_bench.py`."""
    return Row(name, title, RATE, "msg/s", goals(f"{RATE} >={times_the_peer:g}x peer"))


ROWS = (
    _row("batch", "batches of 20, 16 in flight", 3),
    _row("pipelined", "256 in flight", 3),
    _row("one", "one at a time, blocking", 1),
    _row(CONSUME, "consume from the first message on", 3),
)


@dataclass
class Clients:
    """One broker, and both clients against it in turn."""

    folder: Path
    broker: RunningBroker
    loader: Loader
    peer_python: Path
    seconds: float
    consumed_max: int
    rows: list[Row]
    topics: int = 0

    def turns(self, number: int) -> Generator[Turn, None, None]:
        """All rows. The order of the clients changes from round to round."""
        for row in self.rows:
            topic, filled = self._topic(row), 0
            if row.name == CONSUME:  # both read the same topic, which is in the page cache
                shape = {"size": 1024, "connections": 8, "depth": 2, "messages": self.consumed_max}
                report = self.loader.run("batch", topic=topic, create=True, check=True, read_back=True, **shape)
                filled = int(report["check"]["acked"])
            for system in rotated((RINGMQ, PEER), number):
                measure = partial(self._consume, topic, filled) if filled else partial(self._send, row)
                yield Turn(row, system, partial(measure, system))

    def _send(self, row: Row, system: str) -> Measurement:
        topic = self._topic(row)
        self.loader.run("create", topic=topic)
        report = self._client(system, row.name, topic, 0)
        back = self.loader.run("verify", topic=topic)
        sent = int(report["all_messages"])
        # RocketMQ 5.3.3, too, takes this client's batch for one message whose body is the batch
        stored = sent // BATCH if system == PEER and row.name == "batch" else sent
        same = back["read"] == stored and back["read_crc_sum"] == report.get("crc_sum", back["read_crc_sum"])
        note = "" if same else f"{stored} acknowledged, {back['read']} read back"
        if same and stored != sent:
            note = "each batch is stored as one message, as by stock"
        if report.get("failed"):
            note = f"{report['failed']} failed; {note}"
        return Measurement({RATE: float(report[RATE])}, ok=bool(back["ok"]) and same, note=note, raw=report)

    def _consume(self, topic: str, filled: int, system: str) -> Measurement:
        report = self._client(system, CONSUME, topic, filled)
        whole = report["bytes"] == 1024 * report["messages"] > 0
        note = "" if whole else f"{report['messages']} messages of {filled} with {report['bytes']} bytes"
        return Measurement({RATE: float(report[RATE])}, ok=whole, note=note, raw=report)

    def _client(self, system: str, mode: str, topic: str, messages: int) -> Report:
        words = [sys.executable, "-m", "ringmq.loadtest.bench.sdk"]
        if system == PEER:
            # its library writes logs under $HOME
            words = ["env", f"HOME={self.folder}", str(self.peer_python), str(PROGRAM)]
        words += ["--namesrv", self.broker.namesrv, "--topic", topic, "--mode", mode]
        words += ["--seconds", str(self.seconds), "--messages", str(messages)]
        return run_json(words, timeout_s=60 + 4 * self.seconds)

    def _topic(self, row: Row) -> str:
        self.topics += 1
        return f"sdk_{row.name}_{self.topics}"
