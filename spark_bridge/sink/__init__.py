"""Rows as messages: the options of a write, its plan, and its tasks, which turn rows into chunks and send them.

`pyspark_ringmq.sink` is Spark's side. May import: ringmq.native, ringmq.client, ringmq.spark_bridge's options.
"""
