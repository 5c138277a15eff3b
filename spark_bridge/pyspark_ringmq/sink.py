"""Spark's side of writes: Spark's classes around `plan` and `task` of `ringmq.spark_bridge.sink`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ringmq.client.producing.staged_writes import CommitRequest, StagedChunk, commit_staged
from ringmq.spark_bridge.sink.errors import WriteError
from ringmq.spark_bridge.sink.options import parse_write_options
from ringmq.spark_bridge.sink.plan import WritePlan, plan_batch_write, plan_stream_write
from ringmq.spark_bridge.sink.task import Attempt, stage, write_directly

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["batch_writer", "stream_writer"]

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Return the writer of a batch: at least once."""
    return BatchWriter(plan_batch_write(parse_write_options(options), _fields(schema), overwrite))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Return the writer of a stream. `overwrite` is output mode complete, which here sends all rows again."""
    if overwrite:
        raise WriteError("output mode complete would send the whole result again: use append or update")
    return StreamWriter(plan_stream_write(parse_write_options(options), _fields(schema)))


def _fields(schema: StructType) -> list[tuple[str, str]]:
    return [(column.name, column.dataType.simpleString()) for column in schema.fields]


@dataclass
class TaskWrites(WriterCommitMessage):
    """A task's message to the driver: the writer and positions of its staged chunks."""

    query_id: str = ""
    batch_id: int = -1
    rows: int = 0
    chunks: list[StagedChunk] = field(default_factory=list)


class BatchWriter(DataSourceArrowWriter):
    """Tasks send. Commit and abort have nothing left to do."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """Runs in a task."""
        return TaskWrites(rows=write_directly(self._plan, iterator).rows)


class StreamWriter(DataSourceStreamArrowWriter):
    """Tasks stage, and the driver's commit publishes. Without a staging area tasks send straight to the topics."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """Runs in a task."""
        place = self._plan.staging
        if place is None:
            return TaskWrites(rows=write_directly(self._plan, iterator).rows)
        attempt = _current_attempt()
        written = stage(self._plan, place, attempt, iterator)
        return TaskWrites(attempt.query_id, attempt.batch_id, written.rows, written.chunks)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit on the driver after all tasks. Spark may repeat it for a committed batch."""
        place = self._plan.staging
        tasks = [message for message in messages if isinstance(message, TaskWrites)]
        if place is None or not tasks:
            return
        strangers = {task.batch_id for task in tasks if task.batch_id != batchId}
        if strangers:
            raise WriteError(f"tasks wrote for micro-batches {sorted(strangers)}, Spark commits {batchId}")
        chunks = tuple(chunk for task in tasks for chunk in task.chunks)
        if len(chunks) > place.chunks_max:
            raise WriteError(
                f"micro-batch {batchId} has {len(chunks)} chunks, a commit takes {place.chunks_max}: "
                "read less per trigger"
            )
        request = CommitRequest(tasks[0].query_id, batchId, chunks)
        commit_staged(self._plan.options.bootstrap, place.broker_name, request, self._plan.options.commit_timeout_ms)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: staged chunks without a commit are never visible, and are deleted with the log."""


def _current_attempt() -> Attempt:
    context = TaskContext.get()
    if context is None:
        raise WriteError("a streaming write runs in Spark's tasks only")
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if not query_id or not batch_id:
        raise WriteError(
            f"the task has no id of its micro-batch (local properties {QUERY_ID}, {BATCH_ID}): "
            "write with delivery=at-least-once"
        )
    return Attempt(query_id, int(batch_id), context.partitionId(), context.taskAttemptId())
