"""The options of `write` and `writeStream`, checked and typed. Names in any case."""

from collections.abc import Mapping
from dataclasses import dataclass

from ringmq.spark_bridge.option_table import KAFKA_ADDRESS, Option, OptionError, is_of_kafka_client

__all__ = ["WRITE_OPTIONS", "OptionError", "WriteOptions", "parse_write_options"]

AUTO, EXACTLY_ONCE, AT_LEAST_ONCE = "auto", "exactly-once", "at-least-once"
CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 4096, 4 << 20

WRITE_OPTIONS: tuple[Option, ...] = (
    Option(
        "bootstrap",
        "-",
        "host:port of name servers, separated by ; or ,",
        "name servers, host:port, separated by ; or ,",
    ),
    Option("topic", "-", "a topic's name", "topic of every row; overrides the column topic"),
    Option(
        "broker",
        "-",
        "a broker's name",
        "only this broker's queues; a stream needs it where a topic has several brokers",
    ),
    Option(
        "delivery",
        AUTO,
        f"{AUTO}, {EXACTLY_ONCE} or {AT_LEAST_ONCE}",
        f"streams: {EXACTLY_ONCE}, {AT_LEAST_ONCE}, or {AUTO}: the first where the broker can do it",
    ),
    Option(
        "chunkBytes",
        str(1 << 20),
        f"{CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX}",
        f"bytes of rows in one request, {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX}",
    ),
    Option("producerGroup", "spark-ringmq-sink", "a group's name", "producer group that brokers see"),
    Option("sendTimeoutMs", "30000", "a whole number from 1 on", "longest time for one chunk, retries included"),
    Option(
        "commitTimeoutMs",
        "120000",
        "a whole number from 1 on",
        "longest time for the commit of a micro-batch, retries included",
    ),
)

_OPTION = {option.name: option for option in WRITE_OPTIONS}
_BY_LOWER_NAME = {option.name.lower(): option for option in WRITE_OPTIONS}
_ALIASES = {KAFKA_ADDRESS: "bootstrap"}
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "path"})


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Checked options. `topic` and `broker` are None if absent."""

    bootstrap: str
    topic: str | None = None
    broker: str | None = None
    delivery: str = AUTO
    chunk_bytes: int = 1 << 20
    producer_group: str = "spark-ringmq-sink"
    send_timeout_ms: int = 30_000
    commit_timeout_ms: int = 120_000


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write. Raises OptionError naming option and accepted form."""
    given = _known(options)
    bootstrap = given.get("bootstrap", "").replace(",", ";")
    if not bootstrap.strip(" ;"):
        raise OptionError(f"option bootstrap is missing; accepted: {_OPTION['bootstrap'].form}")
    delivery = given.get("delivery", AUTO).lower()
    if delivery not in (AUTO, EXACTLY_ONCE, AT_LEAST_ONCE):
        raise _OPTION["delivery"].refusal(given["delivery"])
    return WriteOptions(
        bootstrap,
        given.get("topic") or None,
        given.get("broker") or None,
        delivery,
        _number(given, "chunkBytes", CHUNK_BYTES_MIN, CHUNK_BYTES_MAX),
        given.get("producerGroup") or _OPTION["producerGroup"].default,
        _number(given, "sendTimeoutMs", 1, 1 << 31),
        _number(given, "commitTimeoutMs", 1, 1 << 31),
    )


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by the table's names, with aliases resolved, without those of Spark and of Kafka's client."""
    given: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        option = _BY_LOWER_NAME.get(_ALIASES.get(lower, lower))
        if option is not None:
            given[option.name] = value
        elif lower not in _SPARKS_OWN and not is_of_kafka_client(name):
            raise OptionError(f"unknown option {name!r} for a write; known are {', '.join(_OPTION)}")
    return given


def _number(given: Mapping[str, str], name: str, lowest: int, highest: int) -> int:
    text = given.get(name, _OPTION[name].default)
    if not text.isascii() or not text.isdigit() or not lowest <= int(text) <= highest:
        raise _OPTION[name].refusal(text)
    return int(text)
