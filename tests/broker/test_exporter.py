"""What /metrics says of a plane whose contents are known."""

import os
import random
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringmq.broker.control_report import ClientKind, ControlReport, ReportWriter
from ringmq.broker.exporter.groups import GroupFamilies, StoreTimes
from ringmq.broker.exporter.pull_stats import PullStatsIndex, index_of
from ringmq.broker.exporter.retry_topics import RetryTopics
from ringmq.broker.exporter.table import METRICS
from ringmq.broker.exporter.tables import Tables
from ringmq.broker.exporter.text import Page, parse_labels
from ringmq.broker.requests.slow_requests import DROPPED_COUNTER
from ringmq.ipc.plane import Capacity
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import ffi, lib
from ringmq.store.retention import used_ratio
from tests.broker.exporter_kit import families, kit, samples, value
from tests.speed import allowed

SERIES = 100_000
DEPRECATED = re.compile(r"Deprecated, use (\w+)")
SCRAPE_SECONDS_MAX = 0.2


def pulled(made: object, group: int, slot: int, messages: int, size: int, following: int, at_ms: int = 1) -> None:
    lib.rmq_pull_stats_add(made.plane.struct, 0, group, slot, messages, size, following, at_ms)  # type: ignore[attr-defined]


def popped(
    made: Any, group: int, slot: int, *, given: int, following: int, still_open: int, at_ms: int = 1
) -> None:  # fmt: skip
    port = made.plane.port_of(lib.RMQ_ROLE_POP)
    if given:
        lib.rmq_pull_stats_add(made.plane.struct, port, group, slot, given, 100 * given, following, at_ms)
    lib.rmq_pull_stats_set_open(made.plane.struct, port, group, slot, still_open, following)


def shown(text: str, family: str) -> dict[tuple[str, str], float]:
    """(topic, is_retry) -> the value of a family by consumer group."""
    name = f"rocketmq_consumer_{family}"
    return {(one.labels["topic"], one.labels["is_retry"]): one.value for one in samples(text) if one.name == name}


def test_lag_is_what_is_not_consumed_in_flight_what_is_pulled(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        first, second = made.topic("orders", [100, 50])
        group = made.group("payers")
        made.plane.offset_put(group, first, 70)
        made.plane.offset_put(group, second, 50)
        pulled(made, group, first, 20, 2000, 90)
        text = made.text()
        of = {"consumer_group": "payers", "topic": "orders"}
        assert value(text, "rocketmq_consumer_lag_messages", **of) == 30
        assert value(text, "rocketmq_consumer_inflight_messages", **of) == 20
        assert value(text, "rocketmq_consumer_ready_messages", **of) == 10
        assert value(text, "rocketmq_messages_out_total", **of) == 20
        assert value(text, "rocketmq_throughput_out_total", **of) == 2000
        assert value(text, "rocketmq_messages_in_total", topic="orders") == 150
        assert value(text, "rocketmq_throughput_in_total", topic="orders") == 15_000
        assert value(text, "rocketmq_message_size_bucket", topic="orders", le="1024.0") == 150
        assert value(text, "rocketmq_message_size_sum", topic="orders") == 15_000


def test_dead_letters_count_for_their_group(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        made.topic("%DLQ%payers", [7])
        made.topic("%RETRY%payers", [9])
        made.topic("orders", [100])
        of = {"consumer_group": "payers", "topic": "%DLQ%payers", "is_system": "false"}
        text = made.text()
        assert value(text, "rocketmq_send_to_dlq_messages_total", **of) == 7
        assert text.count("rocketmq_send_to_dlq_messages_total{") == 1


def test_the_latest_pull_of_any_reader_counts(tmp_path: Path) -> None:
    with kit(tmp_path, readers=2) as made:
        (slot,) = made.topic("orders", [100])
        group = made.group("payers")
        made.plane.offset_put(group, slot, 10)
        collector = type(made)(made.plane, tmp_path / "store", {})
        lib.rmq_pull_stats_add(made.plane.struct, 0, group, slot, 50, 1, 60, 1000)
        lib.rmq_pull_stats_add(made.plane.struct, 1, group, slot, 5, 1, 25, 2000)  # it went back, to another reader
        text = collector.text()
        assert value(text, "rocketmq_consumer_inflight_messages", topic="orders") == 15
        assert value(text, "rocketmq_messages_out_total", topic="orders") == 55


def test_open_messages_of_a_group_that_takes_single_ones_are_in_flight(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        first, second = made.topic("orders", [100, 50])
        (again,) = made.topic("%RETRY%my_payers+orders", [9])
        (again_v1,) = made.topic("%RETRY%my_payers_orders", [4])
        made.topic("%RETRY%my_payers", [7])
        (untouched,) = made.topic("letters", [5])
        group = made.group("my_payers")
        for slot, offset in ((first, 10), (second, 50), (again, 6), (again_v1, 4), (untouched, 0)):
            made.plane.offset_put(group, slot, offset)
        popped(made, group, first, given=60, following=80, still_open=20)  # 50 of those behind offset 10 are done
        popped(made, group, second, given=0, following=50, still_open=0)
        popped(made, group, again, given=3, following=8, still_open=2)
        popped(made, group, again_v1, given=1, following=4, still_open=0)
        text = made.text()
        assert shown(text, "lag_messages") == {("orders", "false"): 40, ("orders", "true"): 3, ("letters", "false"): 5}
        assert shown(text, "ready_messages") == {
            ("orders", "false"): 20,
            ("orders", "true"): 1,
            ("letters", "false"): 5,
        }
        assert shown(text, "inflight_messages") == {
            ("orders", "false"): 20, ("orders", "true"): 2, ("letters", "false"): 0
        }  # fmt: skip
        out = {(one.labels["topic"], one.labels.get("is_retry")): one.value for one in samples(text)
               if one.name == "rocketmq_messages_out_total"}  # fmt: skip
        assert out == {("orders", "false"): 60, ("orders", "true"): 4}


def test_pulls_and_single_messages_of_one_group_have_series_of_their_own(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        (slot,) = made.topic("orders", [100])
        group = made.group("payers")
        made.plane.offset_put(group, slot, 10)
        pulled(made, group, slot, 20, 2000, 30)
        popped(made, group, slot, given=5, following=60, still_open=5, at_ms=2)
        out = [(one.labels.get("is_retry"), one.value) for one in samples(made.text())
               if one.name == "rocketmq_messages_out_total"]  # fmt: skip
        assert sorted(out, key=str) == [("false", 5), (None, 20)]
        assert value(made.text(), "rocketmq_consumer_ready_messages", topic="orders", is_retry="false") == 40


def test_ages_of_messages_that_come_again_are_those_of_their_topics(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        (slot,) = made.topic("orders", [10])
        slots = [made.topic(name, [10])[0] for name in ("%RETRY%payers+orders", "%RETRY%payers_orders")]
        group = made.group("payers")
        for number in (slot, *slots):
            made.plane.offset_put(group, number, 1)
            popped(made, group, number, given=1, following=2, still_open=1)
        stored = {
            "orders": {1: 500, 2: 800},
            "%RETRY%payers+orders": {1: 700, 2: 900},
            "%RETRY%payers_orders": {1: 300},
        }
        families = GroupFamilies(Tables(made.plane), lambda topic, queue, offset: stored[topic].get(offset, 0))
        page = Page({}, 100)
        families.add_to(page, 1000)
        text = b"".join(page.text().pieces()).decode()
        assert shown(text, "lag_latency_milliseconds") == {("orders", "false"): 500, ("orders", "true"): 700}
        assert shown(text, "queueing_latency_milliseconds") == {("orders", "false"): 200, ("orders", "true"): 100}


@pytest.mark.parametrize(
    ("name", "groups", "origin"),
    [
        ("%RETRY%a_b+t", ["a", "a_b"], ("a_b", "t")),
        ("%RETRY%a_b_t", ["a_b"], ("a_b", "t")),
        ("%RETRY%a_b_t", ["a_b", "a_b_t"], None),
        ("%RETRY%a_t", [], None),
        ("%RETRY%a+gone", ["a"], None),
    ],
)
def test_the_origin_of_a_retry_topic_is_what_its_name_says(
    tmp_path: Path, name: str, groups: list[str], origin: tuple[str, str] | None
) -> None:
    with kit(tmp_path) as made:
        retries = RetryTopics(Tables(made.plane))
        made.topic(name, [1])
        topic_id = made.plane.topic_find(name)
        assert topic_id is not None
        assert retries.origins()[topic_id] == -1
        made.topic("t", [1])
        ids = {group: made.group(group) for group in groups}
        expected = -1
        if origin is not None:
            expected = ids[origin[0]] << 32 | (made.plane.topic_find(origin[1]) or 0)
        assert retries.origins()[topic_id] == expected
        keys = np.array([number << 32 | topic_id for number in ids.values()], np.int64)
        assert retries.of_pairs(keys).tolist() == [
            expected if origin is not None and group == origin[0] else -1 for group in ids
        ]


@pytest.mark.parametrize("seed", range(5))
def test_where_a_group_goes_on_is_the_same_for_metrics_and_for_control(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with kit(tmp_path, readers=3) as made:
        slots = made.topic("orders", [1000] * 8)
        groups = [made.group(f"group{number}") for number in range(4)]
        pairs = [(group, slot) for group in groups for slot in slots]
        for group, slot in pairs:
            made.plane.offset_put(group, slot, 0)
        for time_ms in range(200):
            group, slot = chance.choice(pairs[: len(pairs) - 3])  # the last are never pulled
            reader, messages, following = chance.randrange(3), chance.randrange(3), chance.randrange(1000)
            lib.rmq_pull_stats_add(made.plane.struct, reader, group, slot, messages, 1, following, time_ms)
        tables = Tables(made.plane)
        pulled_entries, _ = tables.pull_stats()
        index = index_of(PullStatsIndex(), pulled_entries, tables.offsets, tables.groups, tables.queues)
        known = index.next_offsets(pulled_entries, len(pairs)).tolist()
        assert known == [made.plane.pull_stats_next(group, slot) for group, slot in pairs]
        assert known[-3:] == [-1] * 3 and max(known) > 0


def test_control_tells_pops_from_pulls(tmp_path: Path) -> None:
    """Either ends a reset."""
    with kit(tmp_path) as made:
        first, second = made.topic("orders", [100, 50])
        group = made.group("payers")
        pulled(made, group, first, 20, 2000, 90)
        popped(made, group, second, given=3, following=20, still_open=3)
        popped(made, group, second, given=4, following=24, still_open=7)
        assert [made.plane.popped(group, slot) for slot in (first, second)] == [0, 7]


def test_pulls_that_find_nothing_leave_half_of_the_table_to_others(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        table, half = made.plane.header.ports.port[0].pull_stats, lib.RMQ_PULL_STATS_CAPACITY // 2
        for slot in range(half + 10):
            lib.rmq_pull_stats_add(made.plane.struct, 0, 1, slot, 0, 0, 5, 1)
        assert (table.count, table.overflow) == (half, 0)
        lib.rmq_pull_stats_add(made.plane.struct, 0, 1, half + 1, 1, 100, 7, 1)
        assert (table.count, table.overflow) == (half + 1, 0)
        found = [made.plane.pull_stats_next(1, slot) for slot in (half - 1, half, half + 1)]
        assert found == [5, -1, 7]


def test_a_group_that_has_pulled_nothing_has_no_counters(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        (slot,) = made.topic("orders", [100])
        pulled(made, made.group("idle"), slot, 0, 0, 100)
        pulled(made, made.group("busy"), slot, 1, 10, 1)
        lines = [line for line in made.text().splitlines() if line.startswith("rocketmq_messages_out_total{")]
        assert len(lines) == 1 and 'consumer_group="busy"' in lines[0]


def test_pulls_offsets_and_groups_that_come_between_scrapes_show(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        first, second = made.topic("orders", [100, 50])
        (other,) = made.topic("parcels", [30])
        group = made.group("payers")
        made.plane.offset_put(group, first, 0)
        pulled(made, group, first, 20, 2000, 20)
        of = {"consumer_group": "payers", "topic": "orders"}
        assert value(made.text(), "rocketmq_consumer_inflight_messages", **of) == 20
        pulled(made, group, first, 5, 500, 25)  # of an entry that is known
        pulled(made, group, second, 7, 700, 7)  # of a new one, whose queue has no offset yet
        text = made.text()
        assert value(text, "rocketmq_consumer_inflight_messages", **of) == 25
        assert value(text, "rocketmq_messages_out_total", **of) == 32
        made.plane.offset_put(group, second, 0)  # a new offset for an entry that is known
        assert value(made.text(), "rocketmq_consumer_inflight_messages", **of) == 32
        late = made.group("late")
        pulled(made, late, other, 3, 300, 3)
        assert value(made.text(), "rocketmq_messages_out_total", consumer_group="late", topic="parcels") == 3


def test_what_comes_while_a_scrape_is_made_does_not_break_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kit(tmp_path) as made:
        group = made.group("payers")
        offsets: Any = vars(Tables)["offsets"]

        def looked_at(tables: Tables) -> object:
            if made.plane.topic_find("fresh") is None:
                made.plane.offset_put(group, made.topic("fresh", [5])[0], 2)
            return offsets.fget(tables)

        monkeypatch.setattr(Tables, "offsets", property(looked_at))
        assert value(made.text(), "rocketmq_consumer_lag_messages", topic="fresh") == 3


def test_the_disk_is_as_full_as_retention_takes_it_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = os.statvfs_result((4096, 4096, 1000, 900, 300, 0, 0, 0, 0, 255))  # blocks: 100 used, 300 for users
    monkeypatch.setattr(os, "statvfs", lambda path: reserved)
    with kit(tmp_path) as made:
        text = made.text()
    total, left = (value(text, "ringmq_disk_bytes", state=state) for state in ("total", "available"))
    assert (total, left) == (400 * 4096, 300 * 4096)
    assert 1 - left / total == used_ratio(tmp_path) == 0.25


def test_a_group_that_retention_has_overtaken_waits_at_what_is_left(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        (slot,) = made.topic("orders", [100])
        made.plane.queue(slot).min_offset = 60
        made.plane.offset_put(made.group("payers"), slot, 40)
        stored_ms = time.time_ns() // 1_000_000 - 5_000
        times = dict.fromkeys(range(60, 100), stored_ms)
        tables = made.collector._tables
        made.collector._groups = GroupFamilies(tables, lambda topic, queue_id, offset: times.get(offset, -1))
        text = made.text()
        of = {"consumer_group": "payers", "topic": "orders"}
        assert value(text, "rocketmq_consumer_lag_messages", **of) == 60
        assert value(text, "rocketmq_consumer_lag_latency_milliseconds", **of) >= 5_000
        assert value(text, "rocketmq_consumer_queueing_latency_milliseconds", **of) >= 5_000


def test_a_scrape_lets_go_of_what_retention_took(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        files = made.collector._store.commit_log.files
        path = tmp_path / "store" / "commitlog" / f"{0:020d}"
        path.parent.mkdir()
        path.touch()
        os.truncate(path, files.file_bytes)
        assert files.find(0) is not None
        path.unlink()
        made.text()
        assert f"{path} (deleted)" not in Path("/proc/self/maps").read_text()


def test_members_without_offsets_and_groups_that_are_down_show(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        (slot,) = made.topic("orders", [9])
        topic_id = made.plane.topic_find("orders")
        assert topic_id is not None
        up, down, gone = made.group("up", members=True), made.group("down"), made.group("gone")
        made.plane.subscription_set(up, topic_id, lib.RMQ_SUBSCRIPTION_ALL, 1, [])
        made.plane.offset_put(down, slot, 4)
        made.plane.offset_put(gone, slot, 4)
        made.plane.group_set(gone, 0)
        text = made.text()
        assert value(text, "rocketmq_consumer_lag_messages", consumer_group="up") == 0
        assert value(text, "rocketmq_consumer_lag_messages", consumer_group="down") == 5
        assert 'consumer_group="gone"' not in text
        made.plane.offset_put(up, slot, 1)  # the table has grown: pairs are grouped again
        assert value(made.text(), "rocketmq_consumer_lag_messages", consumer_group="up") == 8


def test_a_deleted_topic_and_retry_topics_have_no_lag(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        group = made.group("payers")
        for name in ("deleted", "%RETRY%payers"):
            (slot,) = made.topic(name, [5])
            made.plane.offset_put(group, slot, 0)
        topic_id = made.plane.topic_find("deleted")
        assert topic_id is not None
        made.plane.topic_set(topic_id, 0)
        text = made.text()
        assert "rocketmq_consumer_lag_messages" not in text
        assert value(text, "rocketmq_messages_in_total", topic="%RETRY%payers") == 5
        assert 'topic="deleted"' not in text


def test_series_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    with kit(tmp_path, metricsOtelCardinalityLimit="3") as made:
        for number in range(8):
            made.topic(f"t{number}", [1])
        text = made.text()
        assert sum(sample.name == "rocketmq_messages_in_total" for sample in samples(text)) == 3
        assert value(text, "ringmq_series_left_out", metric="rocketmq_messages_in_total") == 5
        assert value(text, "ringmq_series_left_out", metric="rocketmq_message_size") == 5


def test_clients_are_shown_as_stock_shows_them(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        kinds = (ClientKind("", "JAVA", 477, "", 3), ClientKind("payers", "PYTHON", 477, "CONSUME_PASSIVELY", 2))
        ReportWriter(made.plane.name).publish(ControlReport(6, (), kinds), 0)
        text = made.text()
        assert value(text, "rocketmq_producer_connections", language="java", protocol_type="remoting") == 3
        assert value(text, "rocketmq_consumer_connections", consume_mode="push", consumer_group="payers") == 2


def test_names_with_quotes_and_labels_of_the_configuration(tmp_path: Path) -> None:
    assert parse_labels("zone:a,rack:7,bad") == {"zone": "a", "rack": "7"}
    page = Page({"zone": 'a"b\\c\nd'}, 10)
    page.add("ringmq_ready", 1)
    assert b"".join(page.text().pieces()).endswith(b'ringmq_ready{zone="a\\"b\\\\c\\nd"} 1\n')


def test_stages_are_summed_over_readers_into_cumulative_buckets(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        place = made.plane.header.latency[lib.RMQ_ROLE_READ][lib.RMQ_READ_LATENCY_ANSWERED]
        lib.rmq_latency_count(ffi.addressof(place), 1_500, 4)  # 1.5 us
        lib.rmq_latency_count(ffi.addressof(place), 3_000_000_000, 1)
        lib.rmq_latency_count(ffi.addressof(place), -5, 1)
        text = made.text()
        name = "ringmq_request_seconds"
        assert value(text, f"{name}_bucket", stage="answered", le="1e-06") == 1
        assert value(text, f"{name}_bucket", stage="answered", le="2e-06") == 5
        assert value(text, f"{name}_bucket", stage="answered", le="4.1943") == 6
        assert value(text, f"{name}_count", stage="answered") == 6
        assert value(text, f"{name}_sum", stage="answered") == pytest.approx(3.000006)


def test_a_bucket_holds_what_its_bound_says() -> None:
    for us in (0, 1, 2, 3, 4, 1000, 1 << 20, (1 << 24) - 1, 1 << 24, 1 << 40):
        bucket = lib.rmq_latency_bucket(us * 1000)
        assert us < 1 << bucket or bucket == lib.RMQ_LATENCY_BUCKETS - 1
        assert bucket == 0 or us >= 1 << (bucket - 1)
    assert lib.rmq_latency_bucket(-1) == 0


def test_every_family_is_in_the_table_with_its_labels(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        (slot,) = made.topic("orders", [9])
        made.plane.offset_put(made.group("payers"), slot, 3)
        common = {"cluster", "node_id", "node_type"}
        for name, shapes in families(made.text()).items():
            expected = common | set(METRICS[name].labels)
            expected |= {"otel_scope_name"} if name.startswith("rocketmq_") else set()
            assert shapes == {frozenset(expected)}, name


@pytest.mark.parametrize("state", TenureState)
def test_a_page_shows_the_side_of_its_moment(tmp_path: Path, state: TenureState) -> None:
    """Messages that came in are counted by the master alone. A collector lives longer than a side."""
    with kit(tmp_path) as made:
        made.topic("orders", [9])
        assert value(made.text(), "ringmq_replication_policy_info", role="async_master") == 1
        made.plane.watermarks.tenure = Tenure(state, epoch=1).word
        page = {sample.name: sample.labels for sample in samples(made.text())}
        follows = state in (TenureState.SLAVE, TenureState.TAKING)
        assert page["ringmq_replication_policy_info"]["role"] == ("slave" if follows else "async_master")
        assert ("ringmq_master_connected" in page) == follows
        assert ("rocketmq_messages_in_total" in page) == (not follows)
        assert ("ringmq_delay_delivered_total" in page) == (not follows)


def test_a_group_that_pulls_too_much_is_counted_as_overflow(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        for slot in range(lib.RMQ_PULL_STATS_CAPACITY + 3):
            pulled(made, 1, slot, 1, 1, 1)
        pulled(made, 1, 7, 1, 1, 1)
        table = made.plane.header.ports.port[0].pull_stats
        assert (table.count, table.overflow) == (lib.RMQ_PULL_STATS_CAPACITY, 3)
        assert value(made.text(), "ringmq_pulls_uncounted_total") == 3


def test_what_is_not_logged_and_not_counted_shows(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        made.plane.header.ports.port[0].slow_dropped = 4
        made.plane.header.ports.port[0].junk_dropped = 5
        made.plane.role(lib.RMQ_ROLE_CONTROL).counters[DROPPED_COUNTER] = 3
        kinds = (ClientKind("payers", "PYTHON", 477, "CONSUME_PASSIVELY", 2),)
        ReportWriter(made.plane.name).publish(ControlReport(6, (), kinds, left_out=7), 0)
        text = made.text()
        assert value(text, "ringmq_slow_requests_unlogged_total") == 7
        assert value(text, "ringmq_junk_unlogged_total") == 5
        assert value(text, "ringmq_series_left_out", metric="rocketmq_consumer_connections") == 7


def test_a_deprecated_metric_has_the_value_of_the_one_to_be_used(tmp_path: Path) -> None:
    renamed = {name: found[1] for name, metric in METRICS.items() if (found := DEPRECATED.fullmatch(metric.help))}
    assert renamed == {
        "ringmq_slow_requests_untold_total": "ringmq_slow_requests_unlogged_total",
        "ringmq_junk_untold_total": "ringmq_junk_unlogged_total",
    }
    with kit(tmp_path) as made:
        made.plane.header.ports.port[0].slow_dropped = 4
        made.plane.header.ports.port[0].junk_dropped = 5
        text = made.text()
        for old, new in renamed.items():
            assert (METRICS[old].kind, METRICS[old].labels) == (METRICS[new].kind, METRICS[new].labels)
            assert value(text, old) == value(text, new) > 0


def test_refused_requests_are_counted_by_class(tmp_path: Path) -> None:
    with kit(tmp_path) as made:
        ReportWriter(made.plane.name).publish(ControlReport(refused=(("change admin", 3), ("replication", 0))), 0)
        text = made.text()
        assert value(text, "ringmq_requests_refused_total", **{"class": "change admin"}) == 3
        assert value(text, "ringmq_requests_refused_total", **{"class": "replication"}) == 0


def test_a_deleted_topic_keeps_its_place_in_the_tables(tmp_path: Path) -> None:
    capacities = {"topics": 1024, "queues": 4096, "groups": 2048, "subscriptions": 512, "offsets": 8192}
    with kit(tmp_path, Capacity(**capacities)) as made:
        made.topic("kept", [1, 1, 1])
        slot = made.topic("gone", [1, 1])[0]
        topic_id, group_id = made.plane.topic_find("gone"), made.group("readers")
        assert topic_id is not None
        made.plane.subscription_set(group_id, topic_id, lib.RMQ_SUBSCRIPTION_ALL, 1, [])
        made.plane.offset_put(group_id, slot, 1)
        made.plane.topic_set(topic_id, 0)
        text = made.text()
        entries = {"topics": 2, "queues": 5, "groups": 1, "subscriptions": 1, "offsets": 1}
        for name, wanted in (("ringmq_table_entries", entries), ("ringmq_table_capacity", capacities)):
            assert {table: value(text, name, table=table) for table in wanted} == wanted


def test_store_times_are_read_once_and_in_turn_within_a_budget() -> None:
    asked: list[tuple[int, int]] = []

    def read(entry: int, offset: int) -> int:
        asked.append((entry, offset))
        return 1000 + offset

    times = StoreTimes(read, budget=2)
    waiting, at = np.array([True, True, False, True]), np.array([5, 6, 7, 8])
    assert times.look(waiting, at).tolist() == [1005, 1006, 0, 0]
    assert times.look(waiting, at).tolist() == [1005, 1006, 0, 1008]
    assert times.look(waiting, at).tolist() == [1005, 1006, 0, 1008]
    assert asked == [(0, 5), (1, 6), (3, 8)]
    waiting, at = np.array([True] * 5), np.array([9, 9, 9, 9, 9])  # the table has grown
    assert times.look(waiting, at).tolist() == [1009, 1006, 0, 1008, 1009], "from the one behind the last on"
    assert asked[3:] == [(4, 9), (0, 9)]


@pytest.mark.timed(cpus=1, memory_mb=1000)
def test_a_hundred_thousand_series_are_made_in_time(tmp_path: Path) -> None:
    """Processor time of this process: the machine of a test has other work, too. The first scrape names the series."""
    capacity = Capacity(4096, 8192, 1024, 1024, 65_536)
    with kit(tmp_path, capacity) as made:
        slots = [made.topic(f"topic-{number}", [1000])[0] for number in range(1000)]
        groups = [made.group(f"group-{number}") for number in range(16)]
        for group in groups:
            for slot in slots:
                made.plane.offset_put(group, slot, 1000)
                pulled(made, group, slot, 10, 1000, 1000)
        first = made.collector.scrape()
        assert first.series >= SERIES
        took = []
        for turn in range(5):
            for group in groups:
                made.plane.offset_put(group, slots[turn], 900 + turn)
            began = time.process_time()
            assert sum(len(piece) for piece in made.collector.scrape().text.pieces()) > 100 * SERIES
            took.append(time.process_time() - began)
        assert min(took) <= allowed(SCRAPE_SECONDS_MAX), took
