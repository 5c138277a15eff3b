"""The driver's findings before the tasks of a write start: the form and the targets of rows. Pickled to tasks."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringmq.client.connections.routes import TopicRoute
from ringmq.client.producing.staged_writes import StagingArea, describe_staging, find_route
from ringmq.spark_bridge.sink.columns import LATER_COLUMNS, check_write_schema
from ringmq.spark_bridge.sink.errors import SchemaError, WriteError
from ringmq.spark_bridge.sink.options import AT_LEAST_ONCE, EXACTLY_ONCE, WriteOptions

MESSAGE_BYTES_MAX = 4 << 20
"""maxMessageSize of a broker by default."""
STATUS_TOPIC = "TBW102"
"""A topic of every broker: its route names them all."""

_log = logging.getLogger("ringmq.spark_bridge")
_told: set[str] = set()


@dataclass(frozen=True, slots=True)
class WritePlan:
    """With `staging` None tasks send straight to the topics, at least once."""

    options: WriteOptions
    columns: tuple[str, ...]
    staging: StagingArea | None = None

    @property
    def chunk_bytes(self) -> int:
        """The size of a full chunk."""
        limit = self.options.chunk_bytes
        return limit if self.staging is None else min(limit, self.staging.chunk_bytes_max)

    @property
    def element_bytes_max(self) -> int:
        """The size of the largest row, as an element of a batch."""
        return MESSAGE_BYTES_MAX if self.staging is None else self.staging.element_bytes_max

    @property
    def broker(self) -> str | None:
        """The only broker to write to, None if there are several."""
        return self.options.broker if self.staging is None else self.staging.broker_name


def plan_batch_write(options: WriteOptions, fields: Sequence[tuple[str, str]], overwrite: bool) -> WritePlan:
    """Return the plan of a batch write: at least once. Raises SchemaError, WriteError."""
    if overwrite:
        raise WriteError("a topic cannot be overwritten: write with .mode('append')")
    if options.delivery == EXACTLY_ONCE:
        raise WriteError(
            "option delivery=exactly-once is for streams: a batch write has no id by which a retry is recognized"
        )
    check_write_schema(fields, options.topic)
    if options.topic is not None:
        find_route(options.bootstrap, options.topic)
    return WritePlan(options, tuple(name for name, _ in fields))


def plan_stream_write(
    options: WriteOptions,
    fields: Sequence[tuple[str, str]],
    find: Callable[[str], TopicRoute] | None = None,
    describe: Callable[[str], StagingArea | None] = describe_staging,
) -> WritePlan:
    """Return the plan of a streaming write: exactly once if the broker supports it.

    Raises SchemaError, WriteError, RingmqError.
    """
    check_write_schema(fields, options.topic)
    columns = tuple(name for name, _ in fields)
    if options.delivery == AT_LEAST_ONCE:
        return WritePlan(options, columns)
    route = (find or (lambda topic: find_route(options.bootstrap, topic)))(options.topic or STATUS_TOPIC)
    name = options.broker or _only_broker(route, options.topic)
    address = None if name is None else route.master_address(name)
    if name is not None and address is None:
        raise WriteError(f"option broker={name!r}: no master of that name has topic {options.topic or STATUS_TOPIC}")
    staging = None if address is None else describe(address)
    if staging is not None:
        later = [column for column in LATER_COLUMNS if column in columns]
        if later:
            raise SchemaError(f"column {later[0]}: broker {staging.broker_name} does not serve delayed messages yet")
        return WritePlan(options, columns, staging)
    why = f"broker {name} cannot publish a micro-batch whole" if name else "several brokers cannot publish one together"
    if options.delivery == EXACTLY_ONCE:
        raise WriteError(f"option delivery=exactly-once: {why}")
    warn_once(f"rows of this stream are delivered at least once: {why}")
    return WritePlan(options, columns)


def _only_broker(route: TopicRoute, topic: str | None) -> str | None:
    """Return the one broker for the rows, None if there are several and only the topic column selects one."""
    names = sorted({queue.broker_name for queue in route.write_queues})
    if len(names) == 1:
        return names[0]
    if not names:
        raise WriteError(f"no broker takes messages of topic {topic or STATUS_TOPIC} now")
    raise WriteError(
        f"topic {topic or STATUS_TOPIC} is on brokers {', '.join(names)}, and one of them has to decide about a "
        "micro-batch: choose it by option broker, or write with delivery=at-least-once to all of them"
    )


def warn_once(text: str) -> None:
    """Print a line once for the user of the job."""
    if text not in _told:
        _told.add(text)
        _log.warning("%s", text)
