"""Rows as messages: what a write asks for, its plan, and its tasks, which turn rows into chunks and send them.

Spark's side of it is `pyspark_ringmq.sink`. May import: ringmq.native, ringmq.client, ringmq.spark_bridge's options.
"""
