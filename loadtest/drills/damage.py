"""Seeded damage of copies of a broker's store: `make damage`, or `python -m ringmq.loadtest.drills.damage --seed 1`.

Each round copies the store of a running broker, or that of a stopped one, damages some random files, and starts a
broker on it. The broker must serve each message that the damaged log still has. A start that refuses must name a
damaged file. The round restores this file, as the message says, and starts again. A traceback is a failure.

Damage may take the evidence that a record was whole once (`EVIDENCE`). A start then cuts the log at a damaged record,
as after a power failure. The round counts the messages behind as cut.
"""

import argparse
import asyncio
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from ringmq.client import Message, MessageQueue
from ringmq.client.blocking import Producer
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.settings import ConnectionSettings
from ringmq.loadtest.drills.damage_kinds import KINDS
from ringmq.loadtest.drills.reads import PATIENT_MS, max_offset, pull
from ringmq.loadtest.load.beforehand import prepare_results
from ringmq.loadtest.load.running import RunningBroker

FILE_BYTES = 1 << 18
SETTINGS: Mapping[str, object] = {
    "mappedFileSizeCommitLog": FILE_BYTES, "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 100,
    "maxIndexNum": 400, "defaultTopicQueueNums": 2, "flushDiskType": "SYNC_FLUSH",
}  # fmt: skip
TOPICS = ("DamageA", "DamageB", "DamageC")
QUEUES = 2
MESSAGES = 1500
BODY_BYTES_MAX = 900
DAMAGES_MAX = 4
STARTS_MAX = DAMAGES_MAX + 2
SETTLE_MAX_S = 60
RUNNING, STOPPED = "running", "stopped"
EVIDENCE = ("checkpoint", "ringmq.queues")
PARTS = ("commitlog", "consumequeue", "index", "config", "")
"""Folders with the same chance of damage each. The last one stands for the files in the store's root."""

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(slots=True)
class Outcome:
    """The result of one round."""

    damages: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    served: int = 0
    lost: list[Place] = field(default_factory=list)
    cut: int = 0
    faults: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The outcome as a line of progress."""
        refused = f", refused {len(self.refusals)} times" if self.refusals else ""
        cut = f", {self.cut} cut without evidence" if self.cut else ""
        faults = f"; FAULT: {'; '.join(self.faults)}" if self.faults else ""
        return f"{'; '.join(self.damages)}: {self.served} served, {len(self.lost)} lost{cut}{refused}{faults}"


def log_messages(root: Path) -> dict[Place, tuple[int, bytes]]:
    """Return (commit log offset, body) of each record of the drill's topics whose frame is whole, by place."""
    from ringmq.native import ffi, lib

    found: dict[Place, tuple[int, bytes]] = {}
    view = ffi.new("struct rmq_record_view *")
    for path in sorted((root / "commitlog").iterdir()):
        if not path.is_file() or path.stat().st_size != FILE_BYTES or not path.name.isdigit():
            continue
        start, data, at = int(path.name), path.read_bytes(), 0
        native = ffi.from_buffer(data)
        while at >= 0:
            result = lib.rmq_record_parse(native + at, FILE_BYTES - at, 0, view)
            if result == lib.RMQ_RECORD_OK and view.physical_offset == start + at:
                topic = data[at + view.topic_at :][: view.topic_length].decode(errors="replace")
                if topic in TOPICS:
                    body = data[at + view.body_at :][: view.body_length]
                    found[topic, view.queue_id, view.queue_offset] = start + at, body
                at += view.total_size
            else:
                at = int(lib.rmq_log_next_record(native, at, FILE_BYTES, start))
    return found


class Stores:
    """The store of a running broker and that of a stopped one (`names`), with an older copy of the files."""

    def __init__(self, folder: Path, random: Random, messages: int, names: Sequence[str]) -> None:
        self.folder = folder
        self.names = names
        store = folder / STOPPED
        with RunningBroker(store, SETTINGS) as broker:
            with Producer(broker.namesrv) as producer:
                self._send(producer, random, messages // 2)
                shutil.copytree(store, folder / "older")
                self._send(producer, random, messages - messages // 2)
                if RUNNING in names:
                    self._settle(store, producer, random)
            if RUNNING in names:
                shutil.copytree(store, folder / RUNNING)
            if broker.stop():
                raise RuntimeError(f"the broker did not stop cleanly:\n{broker.log_tail()}")
        self.truth = {name: log_messages(folder / name) for name in names}

    def _settle(self, store: Path, producer: Producer, random: Random) -> None:
        """Let the checkpoint cover all messages."""
        from ringmq.store.checkpoint import SAFETY_MS, read_checkpoint

        sent_ms = time.time_ns() // 1_000_000
        give_up_at = time.monotonic() + SETTLE_MAX_S
        while read_checkpoint(store).physic_time_ms - SAFETY_MS <= sent_ms:
            if time.monotonic() > give_up_at:
                raise RuntimeError(f"the checkpoint does not move on within {SETTLE_MAX_S} s")
            time.sleep(0.5)  # poll
            self._send(producer, random, 1)

    @staticmethod
    def _send(producer: Producer, random: Random, count: int) -> None:
        for number in range(count):
            topic = random.choice(TOPICS)
            body = random.randbytes(random.randrange(1, BODY_BYTES_MAX))
            queues = producer.queues(topic)
            queue = MessageQueue(topic, queues[0].broker_name, random.randrange(QUEUES))
            producer.send(Message(topic, body, {"KEYS": f"k{number % 50}"}), queue=queue)


def damage_some(root: Path, older: Path, random: Random) -> dict[str, str]:
    """Damage some random files of a store. Return the kind of damage by file."""
    done: dict[str, str] = {}
    for _ in range(random.randint(1, DAMAGES_MAX)):
        part = root / random.choice(PARTS)
        inside = part.rglob("*") if part != root else root.glob("*")
        paths = sorted(path for path in inside if path.is_file() and str(path.relative_to(root)) not in done)
        if paths:
            path, kind = random.choice(paths), random.choice(KINDS)
            kind(path, older / path.relative_to(root), random)
            done[str(path.relative_to(root))] = kind.__name__
    return done


def wait_dispatched(store: Path) -> None:
    """Wait until a live broker has made all entries of queues."""
    from ringmq.ipc.watermark import read_watermarks

    give_up_at = time.monotonic() + SETTLE_MAX_S
    while (marks := read_watermarks(store)).dispatched_offset < marks.append_offset:
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"dispatch ends at {marks.dispatched_offset} of {marks.append_offset}")
        time.sleep(0.02)  # poll


async def _served(address: str) -> dict[Place, bytes]:
    found: dict[Place, bytes] = {}
    client = RemotingClient(ConnectionSettings())
    try:
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                end = await max_offset(client, address, queue_id, topic, PATIENT_MS)
                offset = 0
                while offset < end:
                    # one by one: stock's decoder gives up the rest of an answer behind a damaged record
                    messages, following = await pull(
                        client, address, queue_id, offset, topic, count=1, timeout_ms=PATIENT_MS
                    )
                    for message in messages:
                        if message.queue_offset == offset:  # another one is of a damaged record
                            found[topic, queue_id, offset] = bytes(message.body)
                    if following <= offset:
                        raise RuntimeError(f"{topic}/{queue_id}: reads end at {offset} of {end}")
                    offset = following
    finally:
        await client.close()
    return found


class _Round:
    """One damaged copy."""

    def __init__(self, stores: Stores, root: Path, random: Random) -> None:
        self._stores = stores
        self._root = root
        self._name = random.choice(stores.names)
        shutil.copytree(stores.folder / self._name, root)
        self._damages = damage_some(root, stores.folder / "older", random)
        self.outcome = Outcome(
            [f"{self._name}: " + ", ".join(f"{file} {kind}" for file, kind in self._damages.items())]
        )

    def run(self) -> Outcome:
        """Start, restore what a refusal names, read, stop."""
        outcome = self.outcome
        for _ in range(STARTS_MAX):
            has = log_messages(self._root)
            try:
                with RunningBroker(self._root, SETTINGS) as broker:
                    wait_dispatched(self._root)
                    self._compare(has, asyncio.run(_served(broker.address)), broker.log_tail(200_000))
                    if status := broker.stop():
                        outcome.faults.append(f"the stop has status {status}")
                break
            except RuntimeError as error:
                text = str(error)
                outcome.refusals.append(text.splitlines()[-1])
                if not self._restore_named(text):
                    outcome.faults.append(f"a refusal names no damaged file: {text[-600:]}")
                    break
        else:
            outcome.faults.append("the store is refused again and again")
        said = self._root.with_name(f"{self._root.name}.log").read_text(errors="replace")
        if "Traceback" in said:
            outcome.faults.append(f"a traceback: {said[said.index('Traceback') :][:1500]}")
        return outcome

    def _restore_named(self, text: str) -> bool:
        last = text.rstrip().splitlines()[-1] if text.strip() else ""
        for file in list(self._damages):
            if Path(file).name in last:
                path = self._root / file
                if path.is_dir():
                    path.rmdir()
                path.unlink(missing_ok=True)
                shutil.copyfile(self._stores.folder / self._name / file, path)
                del self._damages[file]
                return True
        return False

    def _compare(self, has: dict[Place, tuple[int, bytes]], served: dict[Place, bytes], said: str) -> None:
        truth, outcome = self._stores.truth[self._name], self.outcome
        wanted = {place: entry for place, entry in has.items() if truth.get(place, (-1,))[0] == entry[0]}
        missing = {place: at for place, (at, body) in wanted.items() if served.get(place) != body}
        cuts = [int(number) for number in re.findall(r"the log ends at (\d+):", said)]
        is_evidence_gone = any(file in EVIDENCE for file in self._damages)
        if cuts and is_evidence_gone:
            behind = {place for place, at in missing.items() if at >= min(cuts)}
            outcome.cut = len(behind)
            missing = {place: at for place, at in missing.items() if place not in behind}
        outcome.served = len(served)
        outcome.lost = sorted(missing)
        if missing:
            outcome.faults.append(f"lost, the first at log offset {min(missing.values())}")


def main(arguments: list[str] | None = None) -> int:
    """Run the drill. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ringmq.loadtest.drills.damage", description="Damage of stores.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=100, help="each is a seed of its own: SEED, SEED + 1, ...")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--stopped", action="store_true", help="only stores of a stopped broker")
    parser.add_argument("--minutes", type=float, default=30.0, help="no round begins later (default %(default)s)")
    parser.add_argument("--folder", type=Path, help="for the stores; the default is a temporary one")
    given = parser.parse_args(arguments)
    if given.folder is not None:
        prepare_results(given.folder)
    began = time.monotonic()
    done: list[Outcome] = []
    names = [STOPPED] if given.stopped else [RUNNING, STOPPED]
    with tempfile.TemporaryDirectory(prefix="ringmq-damage-", dir=given.folder) as folder:
        stores = Stores(Path(folder), Random(given.seed), given.messages, names)
        for seed in range(given.seed, given.seed + given.rounds):
            if time.monotonic() - began > 60 * given.minutes:
                print(f"time is over after {len(done)} rounds", flush=True)
                break
            root = Path(folder) / f"round-{seed}"
            outcome = _Round(stores, root, Random(seed)).run()
            done.append(outcome)
            print(f"seed {seed}: {outcome.line()}", flush=True)
            shutil.rmtree(root)
            root.with_name(f"{root.name}.log").unlink()
    faulty = sum(bool(outcome.faults) for outcome in done)
    print(
        f"{len(done)} rounds in {time.monotonic() - began:.0f} s: "
        f"{sum(len(outcome.refusals) for outcome in done)} refusals, {sum(outcome.served for outcome in done)} served, "
        f"{sum(outcome.cut for outcome in done)} cut without evidence, "
        f"{sum(len(outcome.lost) for outcome in done)} lost, {faulty} rounds with faults"
    )
    return int(faulty > 0)


if __name__ == "__main__":
    sys.exit(main())
