"""The one table of read options: name, default, accepted form, meaning. Errors and docs/spark.md quote it.

Names and meanings are those of Spark's Kafka source wherever it has the option.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class OptionError(ValueError):
    """An option is missing, unknown or impossible; the message names it and its accepted form."""


class Reads(Enum):
    """Which reads an option is for."""

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
        """The error for a value: what was given, why not, and what the option accepts."""
        return OptionError(f"option {self.name}={given!r} {reason or 'is not accepted'}; accepted: {self.form}")


_OFFSETS = 'JSON {"topic": {"broker:queue": offset}}'
_TIMES = 'JSON {"topic": {"broker:queue": milliseconds since 1970}}'
_SWITCH = "true or false"
_COUNT = "a whole number from 1 on"
_TIME = "milliseconds since 1970, a whole number"

OPTIONS: tuple[Option, ...] = (
    Option("store", "-", "a folder that holds commitlog", "the store to read on this host; `path` means the same"),
    Option(
        "bootstrap",
        "-",
        "host:port of name servers, separated by ; or ,",
        "where brokers are asked for; with `store` it is the way for tasks that cannot see the store's files",
    ),
    Option("subscribe", "all user topics", "topic names separated by ,", "the topics to read"),
    Option("subscribePattern", "-", "a regular expression for whole topic names", "the topics to read"),
    Option("assign", "-", 'JSON {"topic": ["broker:queue", queue]}', "the queues to read, and no others"),
    Option(
        "startingOffsets",
        "earliest; streams: latest",
        f"earliest, latest (streams only) or {_OFFSETS}, every queue named; -2 is earliest, -1 latest (streams only)",
        "first offset of each queue; a stream that has a checkpoint goes on from there",
    ),
    Option(
        "endingOffsets",
        "latest",
        f"latest or {_OFFSETS}, every queue named; -1 is latest",
        "offset behind the last one of each queue",
        Reads.BATCH,
    ),
    Option("startingTimestamp", "-", _TIME, "read each queue from its first message stored then or later"),
    Option("endingTimestamp", "-", _TIME, "read each queue up to its first message stored then or later", Reads.BATCH),
    Option(
        "startingOffsetsByTimestamp",
        "-",
        f"{_TIMES}, every queue named",
        "as startingTimestamp, by queue; goes before startingOffsets, and startingTimestamp before it",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "-",
        f"{_TIMES}, every queue named",
        "as endingTimestamp, by queue; goes before endingOffsets, and endingTimestamp before it",
        Reads.BATCH,
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "error or latest",
        "what a queue without a message that late does: fail the read, or start at its end",
    ),
    Option(
        "failOnDataLoss",
        "true",
        _SWITCH,
        "whether offsets that are gone or not there yet fail the read; otherwise it is narrowed, with a warning",
    ),
    Option("minPartitions", "-", _COUNT, "at least so many tasks, as far as there are rows to share"),
    Option("maxRecordsPerPartition", "-", _COUNT, "at most so many offsets in one task"),
    Option("includeHeaders", "false", _SWITCH, "adds the column headers"),
    Option(
        "groupIdPrefix",
        "spark-ringmq",
        "up to 200 letters, digits, - _ % |",
        "the consumer group, as given, in whose name all tasks pull over tcp",
    ),
    Option("columns", "the default columns", "column names separated by ,", "read these columns only"),
    Option("verifyCrc", "false", _SWITCH, "check each body's CRC; a wrong one fails the read"),
    Option("includeSystemTopics", "false", _SWITCH, "also the system's own topics, %RETRY% and %DLQ%"),
    Option(
        "transport",
        "auto",
        "auto, shm or tcp",
        "read mapped files (shm), pull from brokers (tcp), or let each task take what it can see (auto)",
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
        "wait until so many offsets are there, but no longer than maxTriggerDelay",
        Reads.STREAM,
    ),
    Option(
        "maxTriggerDelay",
        "15m",
        "a number with ms, s, m, h or d (no unit: ms)",
        "how long minOffsetsPerTrigger may hold a micro-batch back",
        Reads.STREAM,
    ),
    Option(
        "commitGroup",
        "-",
        "the name of a consumer group",
        "the group that the stream's progress is committed to, for monitoring; never read back",
        Reads.STREAM,
    ),
)

OPTION: dict[str, Option] = {option.name: option for option in OPTIONS}
BY_LOWER_NAME: dict[str, Option] = {option.name.lower(): option for option in OPTIONS}


def markdown_rows(options: Sequence[Option] = OPTIONS) -> list[str]:
    """The table as docs/spark.md shows it, a line per option."""
    scope = {Reads.BOTH: "", Reads.BATCH: " (batch)", Reads.STREAM: " (stream)"}
    return [
        f"| `{o.name}`{scope[o.reads]} | {o.default} | {o.form.replace('|', chr(92) + '|')} | {o.meaning} |"
        for o in options
    ]
