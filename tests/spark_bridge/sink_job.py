"""A streaming query of its own process, for tests that kill it or its tasks: text files into a topic.

`python sink_job.py driver|cluster NAMESRV TOPIC FOLDER`: reads FOLDER/in, keeps its checkpoint in FOLDER/checkpoint.
"""

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql.functions import udf
from pyspark_ringmq.session import session

CLUSTER = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.task.maxFailures": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
}
SLOW_S = 8
TROUBLE_AT = 250
KILLED, SLOW = 0, 1
"""Partitions whose first attempt dies in the middle of its rows, and hangs there."""


_rows_of: Counter[int] = Counter()


def troubled(line: str) -> str:
    """The line as it is; the first attempts of two partitions get into trouble in the middle of their rows."""
    context = TaskContext.get()
    assert context is not None
    _rows_of[context.taskAttemptId()] += 1
    if context.attemptNumber() == 0 and _rows_of[context.taskAttemptId()] == TROUBLE_AT:
        if context.partitionId() == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)
        if context.partitionId() == SLOW:
            time.sleep(SLOW_S)  # a span in which speculation starts a second attempt
    return line


def main(mode: str, namesrv: str, topic: str, folder: str) -> None:
    """Write everything that is in the folder, a file per micro-batch; all at once on a cluster."""
    place = Path(folder)
    scratch = place / "scratch"
    scratch.mkdir(exist_ok=True)
    config = {"spark.python.authenticate.socketTimeout": "120s", **(CLUSTER if mode == "cluster" else {})}
    spark = session("sink job", cores=2, scratch=scratch, config=config)
    files = "100" if mode == "cluster" else "1"
    rows = spark.readStream.option("maxFilesPerTrigger", files).text(str(place / "in"))
    if mode == "cluster":
        rows = rows.repartition(4).select(udf(troubled, "string")("value").alias("value"))
    query = (
        rows.writeStream.format("ringmq")
        .options(bootstrap=namesrv, topic=topic, delivery="exactly-once", chunkBytes="4096")
        .options(sendTimeoutMs="200000", commitTimeoutMs="200000")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
