"""The table of attacks, and the pairs that run at once."""

from ringmq.loadtest.siege import attacks_clients as clients
from ringmq.loadtest.siege import attacks_messages as messages
from ringmq.loadtest.siege import attacks_other_endpoints as other_endpoints
from ringmq.loadtest.siege import attacks_shares as shares
from ringmq.loadtest.siege import attacks_wire as wire
from ringmq.loadtest.siege.attack import Attack
from ringmq.loadtest.siege.figures import Limits

_ANSWERED = Limits(needs_answers=True)

ATTACKS = (
    Attack("half-frames", "receive buffers", wire.half_frames),
    Attack("announced-sizes", "blocks for large frames", wire.announced_sizes),
    Attack("byte-wise", "deadlines of half frames", wire.byte_wise),
    Attack("churn", "accepting connections", wire.churn),
    Attack("idle-connections", "places of connections", wire.idle_connections),
    Attack("aborted-connections", "clearing up after connections", wire.aborted_connections),
    Attack("unknown-codes", "control's time", wire.unknown_codes),
    Attack("oneway-flood", "requests without back pressure", wire.oneway_flood),
    Attack("huge-headers", "parsers of headers", wire.huge_headers),
    Attack("foreign-protocols", "log lines", wire.foreign_protocols),
    Attack("damaged-frames", "parsers", wire.damaged_frames),
    Attack("never-reading", "memory for answers", wire.never_reading),
    Attack("slow-readers", "memory for answers", wire.slow_readers),
    Attack("parked-pulls", "places of held pulls", wire.parked_pulls),
    Attack("impossible-fields", "checks of values", wire.impossible_fields),
    Attack("group-heartbeats", "control's time, places of groups", clients.group_heartbeats),
    Attack("dialect-heartbeats", "the reader of fastjson's dialect", clients.dialect_heartbeats),
    Attack("producer-groups", "memory of control", clients.producer_groups),
    Attack("queue-locks", "places of queue locks", shares.queue_locks, beside=("lock",), limits=_ANSWERED),
    Attack("deep-json", "the stack of control", clients.deep_json),
    Attack("offset-commits", "places of groups and offsets", clients.offset_commits),
    Attack("new-topics", "places of topics", clients.new_topics),
    Attack("leaving-clients", "notices to groups", clients.leaving_clients),
    Attack("index-queries", "control's time", clients.index_queries),
    Attack("settings-from-outside", "the broker's settings", clients.settings_from_outside),
    Attack("whole-tables", "control's time, memory for answers", clients.whole_tables),
    Attack("largest-messages", "the log's bandwidth", messages.largest_messages),
    Attack("bombs", "write's time for one request", messages.bombs),
    Attack("small-messages", "dispatch and index", messages.small_messages),
    Attack("longer-log", "holding of writes", other_endpoints.longer_log),
    Attack("false-claims", "holding of writes", other_endpoints.false_claims),
    Attack("adoption", "the log itself", other_endpoints.adoption),
    Attack("ha-connections", "places of slaves", other_endpoints.ha_connections),
    Attack("anonymous-slaves", "the log's bandwidth, trust in reports", other_endpoints.anonymous_slaves),
    Attack("false-master", "a slave's start", other_endpoints.false_master, needs_slave=True),
    Attack("slow-http", "places of HTTP", other_endpoints.slow_http),
    Attack("large-http", "memory of HTTP", other_endpoints.large_http),
    Attack("second-masters", "routes", other_endpoints.second_masters),
    Attack("name-server-floods", "memory and time of the name server", other_endpoints.name_server_floods),
    Attack("name-server-frames", "buffers of the name server", other_endpoints.name_server_frames),
    Attack(
        "refused-topics",
        "places of administrators' topics",
        shares.refused_topics,
        beside=("admin-topic",),
        limits=_ANSWERED,
        settings=shares.FEW_TOPICS,
    ),
    Attack(
        "open-halves",
        "places and memory of open transactions",
        shares.open_halves,
        beside=("transaction",),
        limits=_ANSWERED,
        settings=shares.FEW_HALVES,
    ),
    Attack(
        "unpacked-bodies",
        "memory of a consumer",
        shares.unpacked_bodies,
        limits=Limits(consumer_bytes=shares.CONSUMER_BYTES_MAX, needs_answers=True),
        settings={},
    ),
    Attack(
        "strange-commits",
        "staged writes of others",
        shares.strange_commits,
        beside=("staged-writer",),
        limits=_ANSWERED,
        settings={},
    ),
    Attack(
        "colliding-names",
        "look-ups of names",
        shares.colliding_topics,
        limits=Limits(reader_us=shares.READER_US_MAX, needs_answers=True),
        settings={},
    ),
    Attack(
        "large-commits",
        "time of the worker `services`",
        shares.large_commits,
        beside=("send-back", "recall"),
        limits=_ANSWERED,
        settings=shares.WITH_RECALLS,
    ),
    Attack(
        "sql-expressions",
        "places of compiled expressions",
        shares.sql_expressions,
        beside=("sql-consumer",),
        limits=_ANSWERED,
        settings=shares.WITH_FILTERS,
    ),
)
"""All attacks, in the order of the run."""

COMBINATIONS = (
    ("half-frames", "never-reading"),
    ("idle-connections", "group-heartbeats"),
    ("announced-sizes", "parked-pulls"),
    ("producer-groups", "queue-locks"),
    ("new-topics", "offset-commits"),
    ("largest-messages", "slow-readers"),
    ("churn", "slow-http"),
    ("damaged-frames", "bombs"),
    ("longer-log", "adoption"),
    ("dialect-heartbeats", "whole-tables"),
    ("ha-connections", "small-messages"),
    ("name-server-frames", "foreign-protocols"),
)
"""Pairs of attacks that run at once."""


def attack_named(name: str) -> Attack:
    """Return the attack of that name. Raises KeyError for an unknown one."""
    return {attack.name: attack for attack in ATTACKS}[name]
