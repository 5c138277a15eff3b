"""The one table of read options: name, default, accepted form, meaning. Errors and docs/spark.md quote it.

Names and meanings are those of Spark's Kafka source if it has the option.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

KAFKA_ADDRESS = "kafka.bootstrap.servers"
_KAFKA_PREFIX = "kafka."
_log = logging.getLogger("ringmq.spark_bridge")


class OptionError(ValueError):
    """An option is missing, unknown or impossible. The message names it and its accepted form."""


class Reads(Enum):
    """The kinds of reads that accept an option."""

    BOTH = "both"
    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table."""

    name: str
    default: str
    form: str
    meaning: str
    reads: Reads = Reads.BOTH

    def refusal(self, given: str, reason: str = "") -> OptionError:
        """Return the error for a value: the value, the reason, and the accepted form."""
        return OptionError(f"option {self.name}={given!r} {reason or 'is not accepted'}; accepted: {self.form}")


_QUEUES = 'JSON {"topic": ["broker:queue", queue]}'
_OFFSETS = 'JSON {"topic": {"broker:queue": offset}}'
_TIMES = 'JSON {"topic": {"broker:queue": milliseconds since 1970}}'
_SWITCH = "true or false"
_COUNT = "a whole number from 1 on"
_TIME = "milliseconds since 1970, a whole number"

OPTIONS: tuple[Option, ...] = (
    Option("store", "-", "a folder that holds commitlog", "folder of the store on this host; `path` means the same"),
    Option(
        "bootstrap",
        "-",
        "host:port of name servers, separated by ; or ,",
        "name servers, host:port; with `store`: for tasks that cannot see the store's files",
    ),
    Option("subscribe", "all user topics", "topic names separated by ,", "topics to read, separated by ,"),
    Option(
        "subscribePattern",
        "-",
        "a regular expression for whole topic names",
        "topics to read: a regular expression for whole names",
    ),
    Option(
        "assign",
        "-",
        _QUEUES,
        f"queues to read, and no others: {_QUEUES}",
    ),
    Option(
        "startingOffsets",
        "earliest; streams: latest",
        f"earliest, latest (streams only) or {_OFFSETS}, every queue named; -2 is earliest, -1 latest (streams only)",
        "first offset of each queue; a checkpoint of a stream overrides it",
    ),
    Option(
        "endingOffsets",
        "latest",
        f"latest or {_OFFSETS}, every queue named; -1 is latest",
        "offset behind the last one of each queue",
        Reads.BATCH,
    ),
    Option("startingTimestamp", "-", _TIME, "each queue from its first message stored at this time or later"),
    Option(
        "endingTimestamp", "-", _TIME, "each queue up to its first message stored at this time or later", Reads.BATCH
    ),
    Option(
        "startingOffsetsByTimestamp",
        "-",
        f"{_TIMES}, every queue named",
        "startingTimestamp for each queue; overrides startingOffsets",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "-",
        f"{_TIMES}, every queue named",
        "endingTimestamp for each queue; overrides endingOffsets",
        Reads.BATCH,
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "error or latest",
        "no message that late: error fails the read, latest starts at the end",
    ),
    Option(
        "failOnDataLoss",
        "true",
        _SWITCH,
        "missing offsets fail the read; false: a warning, and the rows that exist",
    ),
    Option("minPartitions", "-", _COUNT, "at least so many tasks, if there are enough rows"),
    Option("maxRecordsPerPartition", "-", _COUNT, "at most so many offsets in one task"),
    Option("includeHeaders", "false", _SWITCH, "adds the column headers"),
    Option(
        "groupIdPrefix",
        "spark-ringmq",
        "up to 200 letters, digits, - _ % |",
        "consumer group of all pulls over tcp, up to 200 letters, digits, - _ % |",
    ),
    Option("columns", "the default columns", "column names separated by ,", "columns to read, separated by ,"),
    Option("verifyCrc", "false", _SWITCH, "checks each body's CRC; a wrong one fails the read"),
    Option(
        "openMessages",
        "-",
        "names of consumer groups separated by ,",
        "in place of messages, those that these groups have popped and not acknowledged",
        Reads.BATCH,
    ),
    Option("includeSystemTopics", "false", _SWITCH, "adds the system's own topics, %RETRY% and %DLQ%"),
    Option(
        "transport",
        "auto",
        "auto, shm or tcp",
        "shm: mapped files; tcp: pulls from brokers; auto: shm where the task sees the store",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "-",
        _COUNT,
        "at most so many offsets in a micro-batch, shared out by the queues' lag",
        Reads.STREAM,
    ),
    Option(
        "minOffsetsPerTrigger",
        "-",
        _COUNT,
        "wait for so many offsets, but no longer than maxTriggerDelay",
        Reads.STREAM,
    ),
    Option(
        "maxTriggerDelay",
        "15m",
        "a number with ms, s, m, h or d (no unit: ms)",
        "longest wait of minOffsetsPerTrigger, in ms, s, m, h or d (no unit: ms)",
        Reads.STREAM,
    ),
    Option(
        "commitGroup",
        "-",
        "the name of a consumer group",
        "group to which the stream commits its progress, for monitoring; never read back",
        Reads.STREAM,
    ),
)

OPTION: dict[str, Option] = {option.name: option for option in OPTIONS}
BY_LOWER_NAME: dict[str, Option] = {option.name.lower(): option for option in OPTIONS}


def is_of_kafka_client(name: str) -> bool:
    """True for an option that Spark's Kafka source passes to Kafka's client. Reads and writes accept and ignore it."""
    return name.lower().startswith(_KAFKA_PREFIX)


def warn_of_kafka_options(names: Iterable[str]) -> None:
    """Log the options of Kafka's client that do nothing here, in one line, if there are any.

    Call it once for a read or write. Parsing logs nothing, because Spark parses in several processes.
    """
    ignored = sorted(name for name in names if is_of_kafka_client(name) and name.lower() != KAFKA_ADDRESS)
    if ignored:
        _log.warning("ignored options of Kafka's client: %s", ", ".join(ignored))


def markdown_rows(options: Sequence[Option] = OPTIONS) -> list[str]:
    """Return the table of docs/spark.md, a line per option. The page lists accepted values below the table."""
    scope = {Reads.BOTH: "", Reads.BATCH: " (batch)", Reads.STREAM: " (stream)"}
    return [f"| `{o.name}`{scope[o.reads]} | {o.default} | {o.meaning.replace('|', chr(92) + '|')} |" for o in options]
