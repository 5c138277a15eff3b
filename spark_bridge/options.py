"""The options of a read (`ringmq.spark_bridge.option_table`), checked and typed. Names in any case."""

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ringmq.spark_bridge.offsets_option import (
    AT_EARLIEST,
    AT_LATEST,
    EARLIEST,
    LATEST,
    Limit,
    QueueName,
    SinceTime,
    parse_assignment,
    parse_offsets,
    parse_times,
)
from ringmq.spark_bridge.option_table import (
    BY_LOWER_NAME,
    KAFKA_ADDRESS,
    OPTION,
    OPTIONS,
    OptionError,
    Reads,
    is_of_kafka_client,
)
from ringmq.spark_bridge.schema import COLUMNS, OPEN_COLUMNS

__all__ = ["OptionError", "ReadOptions", "TopicChoice", "parse_columns", "parse_options"]

Transport = Literal["auto", "shm", "tcp"]
LateStart = Literal["error", "latest"]

_log = logging.getLogger("ringmq.spark_bridge")
_warned: set[str] = set()
_ALIASES = {"path": "store", KAFKA_ADDRESS: "bootstrap"}
_UNIT_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME_MS_MAX = 1 << 53  # far beyond any clock, and safe in every number type on the way


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The topics to read: by name, by pattern, by assigned queues, or by default all of them."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    queues: tuple[QueueName, ...] = ()

    @property
    def is_open(self) -> bool:
        """True if all topics are read."""
        return not self.names and self.pattern is None and not self.queues

    def wants(self, topic: str) -> bool:
        """True if queues of the topic are read, all of them or some."""
        if self.names:
            return topic in self.names
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return not self.queues or any(queue.topic == topic for queue in self.queues)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of one read. Empty `columns` means the default columns. Absent counts are None."""

    store: Path | None = None
    bootstrap: str | None = None
    topics: TopicChoice = TopicChoice()
    starting: Limit = AT_EARLIEST
    ending: Limit = AT_LATEST
    late_start: LateStart = "error"
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    group_id_prefix: str = OPTION["groupIdPrefix"].default
    columns: tuple[str, ...] = ()
    verify_crc: bool = False
    open_messages: tuple[str, ...] = ()
    """Groups whose open messages are the rows."""
    include_system_topics: bool = False
    transport: Transport = "auto"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    commit_group: str | None = None


def parse_options(options: Mapping[str, str], *, streaming: bool | None = False) -> ReadOptions:
    """Check the options of a batch read or of a stream. None means either, without a check of its begin and end.

    Raises `OptionError`. Logs options of streams that a batch read ignores. Options of Kafka's client are ignored.
    """
    given = _Given(options, streaming)
    if groups := given.words("openMessages"):
        given.allow("openMessages", "store", "columns")
        columns = parse_columns(given.words("columns"), OPEN_COLUMNS.keys())
        return ReadOptions(store=given.store(), open_messages=groups, columns=columns)
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name) is not None]
    if len(chosen) > 1:
        raise OptionError(
            f"options {' and '.join(chosen)} exclude each other; give one of them, or none for all topics"
        )
    store, bootstrap = given.store(), given.text("bootstrap")
    if store is None and bootstrap is None:
        raise OptionError(
            f"neither option store ({OPTION['store'].form}) nor option bootstrap ({OPTION['bootstrap'].form}) is given"
        )
    starts = (EARLIEST, LATEST) if streaming else (EARLIEST,)
    transport = given.word("transport", ("auto", "shm", "tcp"))
    if transport == "tcp" and bootstrap is None:
        raise OptionError(f"option transport='tcp' needs option bootstrap: {OPTION['bootstrap'].form}")
    if given.text("commitGroup") is not None and bootstrap is None:
        raise OptionError(f"option commitGroup needs option bootstrap: {OPTION['bootstrap'].form}")
    return ReadOptions(
        store=store,
        bootstrap=None if bootstrap is None else given.addresses("bootstrap"),
        topics=given.topics(),
        starting=(given.limit("starting", starts) if streaming is not None else None)
        or (AT_LATEST if streaming else AT_EARLIEST),
        ending=(given.limit("ending", (LATEST,)) if streaming is False else None) or AT_LATEST,
        late_start=given.word("startingOffsetsByTimestampStrategy", ("error", "latest")),  # type: ignore[arg-type]
        fail_on_data_loss=given.switch("failOnDataLoss"),
        min_partitions=given.number("minPartitions"),
        max_records_per_partition=given.number("maxRecordsPerPartition"),
        include_headers=given.switch("includeHeaders"),
        group_id_prefix=given.group("groupIdPrefix") or OPTION["groupIdPrefix"].default,
        columns=given.columns(),
        verify_crc=given.switch("verifyCrc"),
        include_system_topics=given.switch("includeSystemTopics"),
        transport=transport,  # type: ignore[arg-type]
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=given.number("minOffsetsPerTrigger"),
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay"),
        commit_group=given.group("commitGroup"),
    )


def parse_columns(names: tuple[str, ...], known: Collection[str] = COLUMNS.keys()) -> tuple[str, ...]:
    """Check names of columns. Raises `OptionError`."""
    for name in names:
        if name not in known:
            raise OptionError(f"column {name!r} is not one of {', '.join(known)}")
    if len(set(names)) != len(names):
        raise OptionError(f"a column is named twice in {', '.join(names)}")
    return names


class _Given:
    """The given options, by lower-case name, with the accepted form of each kind of value."""

    def __init__(self, options: Mapping[str, str], streaming: bool | None) -> None:
        self._texts: dict[str, str] = {}
        for name, text in options.items():
            lower = _ALIASES.get(name.lower(), name).lower()
            if lower not in BY_LOWER_NAME:
                if is_of_kafka_client(name):
                    continue
                raise OptionError(f"unknown option {name!r}; known are {', '.join(known.name for known in OPTIONS)}")
            option = BY_LOWER_NAME[lower]
            if self._texts.setdefault(lower, text) != text:
                raise OptionError(f"option {option.name} is given twice, as {self._texts[lower]!r} and as {text!r}")
            if streaming and option.reads is Reads.BATCH:
                raise OptionError(f"option {option.name} is for batch reads; a stream has no end")
            if streaming is False and option.reads is Reads.STREAM:
                _warn_once(option.name, f"option {option.name} is for streams and means nothing to a batch read")

    def text(self, name: str) -> str | None:
        return self._texts.get(name.lower())

    def word(self, name: str, words: tuple[str, ...]) -> str:
        text = self.text(name) or OPTION[name].default
        if text.lower() not in words:
            raise OPTION[name].refusal(text)
        return text.lower()

    def switch(self, name: str) -> bool:
        return self.word(name, ("true", "false")) == "true"

    def number(self, name: str, lowest: int = 1, highest: int = (1 << 63) - 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()) or not lowest <= int(text) <= highest:
            raise OPTION[name].refusal(text)
        return int(text)

    def duration_ms(self, name: str) -> int:
        text = self.text(name) or OPTION[name].default
        match = re.fullmatch(r"\s*([0-9]{1,15})\s*([a-z]*)\s*", text.lower())
        if match is None or match[2] not in _UNIT_MS:
            raise OPTION[name].refusal(text)
        return int(match[1]) * _UNIT_MS[match[2]]

    def group(self, name: str) -> str | None:
        text = self.text(name)
        if text is not None and not re.fullmatch(r"[A-Za-z0-9_%|-]{1,200}", text):
            raise OPTION[name].refusal(text)
        return text

    def words(self, name: str) -> tuple[str, ...]:
        text = self.text(name)
        if text is None:
            return ()
        words = tuple(word.strip() for word in text.split(",") if word.strip())
        if not words:
            raise OPTION[name].refusal(text)
        return words

    def store(self) -> Path | None:
        text = self.text("store")
        return None if text is None else Path(text.removeprefix("file:")).absolute()

    def allow(self, chosen: str, *names: str) -> None:
        """Refuse options that mean nothing beside a chosen one, and a read without the first of those it needs."""
        others = self._texts.keys() - {name.lower() for name in (chosen, *names)}
        if others:
            first = BY_LOWER_NAME[min(others)].name
            raise OptionError(f"option {first} means nothing beside {chosen}; accepted are {', '.join(names)}")
        if self.text(names[0]) is None:
            raise OptionError(f"option {chosen} needs option {names[0]}: {OPTION[names[0]].form}")

    def columns(self) -> tuple[str, ...]:
        return parse_columns(self.words("columns"))

    def addresses(self, name: str) -> str:
        text = self.text(name) or ""
        addresses = [address.strip() for address in re.split("[;,]", text) if address.strip()]
        if not addresses or not all(re.fullmatch(r"\S+:[0-9]{1,5}", address) for address in addresses):
            raise OPTION[name].refusal(text)
        return ";".join(addresses)

    def topics(self) -> TopicChoice:
        assigned, pattern = self.text("assign"), self.text("subscribePattern")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise OPTION["subscribePattern"].refusal(pattern, f"is no regular expression ({error})") from None
        queues = () if assigned is None else parse_assignment(OPTION["assign"], assigned)
        return TopicChoice(self.words("subscribe"), pattern, queues)

    def limit(self, side: str, ends: tuple[int, ...]) -> Limit | None:
        """Return the limit at one side.

        A time for all takes precedence over times by queue, and these over offsets, as in Kafka.
        """
        time_ms = self.number(f"{side}Timestamp", 0, _TIME_MS_MAX)
        by_queue, offsets = self.text(f"{side}OffsetsByTimestamp"), self.text(f"{side}Offsets")
        limits: list[Limit] = [] if time_ms is None else [SinceTime(time_ms)]
        if by_queue is not None:
            limits.append(parse_times(OPTION[f"{side}OffsetsByTimestamp"], by_queue))
        if offsets is not None:
            limits.append(parse_offsets(OPTION[f"{side}Offsets"], offsets, ends))
        return limits[0] if limits else None


def _warn_once(name: str, text: str) -> None:
    if name not in _warned:
        _warned.add(name)
        _log.warning(text)
