"""A plane with topics, groups and offsets in it, and what its exporter shows; a small parser of the text format."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.exporter.collect import Collector
from ringmq.broker.exporter.http_counts import HttpPort
from ringmq.broker.health import Heartbeats
from ringmq.ipc.plane import Capacity, Plane, topic_config_word
from ringmq.ipc.segment import remove_segments
from ringmq.ipc.worker_blocks import publish_workers
from ringmq.ipc.workers import WORKERS, port_plans
from ringmq.native import lib

LIVE = lib.RMQ_TOPIC_LIVE
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SUFFIXES = ("_count", "_sum", "_bucket")


@dataclass(frozen=True)
class Sample:
    """One line of the text format."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(text: str) -> list[Sample]:
    """Every series; AssertionError for a line that is none."""
    found = []
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, f"no sample: {line}"
        found.append(Sample(match[1], dict(_LABEL.findall(match[2] or "")), float(match[3])))
    return found


def families(text: str) -> dict[str, set[frozenset[str]]]:
    """Family -> the sets of label names that its series have, `le` left out; a histogram is one family."""
    histograms = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE") and "histogram" in line}
    result: dict[str, set[frozenset[str]]] = {}
    for sample in samples(text):
        base = next((sample.name.removesuffix(s) for s in _SUFFIXES if sample.name.endswith(s)), sample.name)
        stripped = base.removesuffix("_milliseconds")
        name = base if base in histograms or stripped in histograms else sample.name
        result.setdefault(name, set()).add(frozenset(sample.labels) - {"le"})
    return result


def value(text: str, name: str, **labels: str) -> float:
    """The one series of that name that has these labels."""
    found = [s.value for s in samples(text) if s.name == name and labels.items() <= s.labels.items()]
    assert len(found) == 1, f"{name}{labels}: {found}"
    return found[0]


class Kit:
    """A plane, and the collector over it."""

    def __init__(self, plane: Plane, store: Path, settings: Mapping[str, str]) -> None:
        self.plane = plane
        store.mkdir(exist_ok=True)
        given = {"storePathRootDir": str(store), "brokerName": "b", "namesrvAddr": "", **settings}
        self.config = changed(BrokerConfig(), given)
        self.collector = Collector(plane, self.config, Heartbeats(), HttpPort())

    def text(self) -> str:
        """One scrape."""
        return b"".join(self.collector.scrape().text.pieces()).decode()

    def topic(self, name: str, ends: list[int]) -> list[int]:
        """A topic with queues that reach to `ends`; their slots."""
        topic_id = self.plane.topic_add(name, topic_config_word(6, len(ends), len(ends), LIVE))
        slots = []
        for number, end in enumerate(ends):
            slot = self.plane.queue_add(topic_id, number)
            self.plane.queue(slot).max_offset = end
            self.plane.queue(slot).put_bytes = end * 100
            self.plane.queue(slot).sizes[0] = end
            slots.append(slot)
        return slots

    def group(self, name: str, *, members: bool = False) -> int:
        """A group."""
        flags = lib.RMQ_GROUP_LIVE | (lib.RMQ_GROUP_HAS_MEMBERS if members else 0)
        return self.plane.group_add(name, flags)


@contextmanager
def kit(tmp_path: Path, capacity: Capacity | None = None, readers: int = 1, **settings: str) -> Iterator[Kit]:
    """A Kit whose shared memory goes away."""
    name = f"ringmq-test-{uuid4().hex}"
    small = Capacity(1024, 4096, 1024, 1024, 4096, ports=port_plans(WORKERS.rows(readers)))
    plane = Plane.create(name, capacity or small, tmp_path.stat(), 1)
    publish_workers(plane, WORKERS.rows(1), {"ha", "metrics", "services", "delay"})
    try:
        yield Kit(plane, tmp_path / "store", settings)
    finally:
        remove_segments(name)
