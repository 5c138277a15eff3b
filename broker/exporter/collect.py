"""One scrape: every family from one read of the plane, as text."""

from __future__ import annotations

import time

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import store_config
from ringmq.broker.control_report import read_report
from ringmq.broker.exporter import engine
from ringmq.broker.exporter.groups import GroupFamilies
from ringmq.broker.exporter.http_counts import HttpPort
from ringmq.broker.exporter.sources import Sources
from ringmq.broker.exporter.tables import Tables
from ringmq.broker.exporter.text import Page, PageText, parse_labels
from ringmq.broker.exporter.topics import TopicFamilies
from ringmq.broker.health import Heartbeats, readiness
from ringmq.ipc.guests import parts
from ringmq.ipc.plane import Plane
from ringmq.ipc.tenure import follows_master
from ringmq.ipc.worker_blocks import workers
from ringmq.store.message_store import MessageStore
from ringmq.store.retention import used_ratio


class Scrape(Struct, frozen=True):
    """The result of a scrape."""

    text: PageText
    series: int
    seconds: float


class Collector:
    """Collects the metrics of one broker. It is not thread-safe."""

    def __init__(self, plane: Plane, config: BrokerConfig, beats: Heartbeats, http: HttpPort) -> None:
        self._plane = plane
        self._config = config
        self._beats = beats
        self._http = http
        self._tables = Tables(plane)
        store = store_config(config)
        self._store = MessageStore(store)
        self._disks = (*store.commit_log_directories, store.root)
        self._topics = TopicFamilies(self._tables)
        sources = Sources(plane, config, self._store)
        self._guests = [of_guest(sources) for of_guest in parts("metrics")]
        self._groups = GroupFamilies(self._tables, sources.store_time)
        labels = {"cluster": config.broker_cluster_name, "node_id": config.broker_name, "node_type": "broker"}
        self._labels = {**parse_labels(config.metrics_label), **labels}
        self._replicas_wanted = engine.replicas_wanted(config)
        self._last = Scrape(PageText(), 0, 0.0)

    def scrape(self) -> Scrape:
        """Read all values and format them. The duration is part of the next scrape."""
        began = time.perf_counter()
        self._store.refresh()
        plane, config = self._plane, self._config
        now_ms = time.time_ns() // 1_000_000
        page = Page(self._labels, config.metrics_otel_cardinality_limit)
        report = read_report(plane.name)
        engine.add_clients(page, self._tables, report, config)
        if not follows_master(plane.watermarks):  # a sum over master and slave would count messages twice
            self._topics.add_to(page)
        for add in self._guests:
            add(page, now_ms)
        self._groups.add_to(page, now_ms)
        engine.add_requests(page, plane, self._tables)
        earliest_ms = self._store.earliest_store_time(plane.confirm_offset())
        engine.add_log(page, plane, max(self._disks, key=used_ratio), earliest_ms, now_ms)
        engine.add_tables(page, plane)
        engine.add_replication(page, plane, config, self._replicas_wanted)
        ages_ms = self._beats.ages_ms(time.monotonic_ns() // 1_000_000)
        engine.add_name_server(page, plane)
        engine.add_workers(page, list(workers(plane)), ages_ms, readiness(plane, config))
        engine.add_engine(page, plane)
        engine.add_memory(page, plane)
        engine.add_listeners(page, self._http)
        page.add("ringmq_series_left_out", [({"metric": name}, count) for name, count in page.left_out.items()])
        page.add("ringmq_scrape_seconds", self._last.seconds)
        page.add("ringmq_series", page.series + 1)
        self._last = Scrape(page.text(), page.series, time.perf_counter() - began)
        return self._last
