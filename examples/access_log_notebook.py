"""An access log explored cell by cell: a notebook in editors that know `# %%`, a script everywhere else.

The script writes plots as SVG to the folder that PLOTS names (default: `plots`).
"""

# %% [markdown]
# ## A broker with data
# A broker of one's own, and the 10,000 lines of `data/access.log` in the topic `AccessLog`.

# %%
import asyncio
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from access_log_pipeline import DATA, read_lines, send_lines
from matplotlib import pyplot
from pyspark.sql import functions as sql
from serving import store_and_broker

from ringmq.spark_bridge import session

plots = Path(os.environ.get("PLOTS", "plots"))
plots.mkdir(parents=True, exist_ok=True)
cleanup = ExitStack()
store, namesrv = cleanup.enter_context(store_and_broker(None, None))
rate = asyncio.run(send_lines(namesrv, "AccessLog", read_lines(DATA, None)))
print(f"{rate:,.0f} messages/s into {store}")

# %% [markdown]
# ## The log as a table
# Spark maps the broker's files; nothing is asked of the broker.

# %%
spark = session("notebook", scratch=Path(cleanup.enter_context(tempfile.TemporaryDirectory())))
cleanup.callback(spark.stop)
messages = (
    spark.read.format("ringmq")
    .option("store", str(store))
    .option("subscribe", "AccessLog")
    .option("columns", "key,value,tags,partition,offset")
    .load()
    .where("tags != 'warm-up'")
)
line = sql.col("value").cast("string")
requests = messages.select(
    sql.col("key").cast("string").alias("client"),
    sql.col("tags").alias("status"),
    sql.to_timestamp(sql.regexp_extract(line, r"\[([^ ]+)", 1), "dd/MMM/yyyy:HH:mm:ss").alias("time"),
    sql.regexp_extract(line, r'" \d{3} (\d+)', 1).try_cast("long").alias("bytes"),
).cache()
requests.show(5)

# %% [markdown]
# ## Requests per hour, by status class

# %%
hours = requests.groupBy(sql.date_trunc("hour", "time").alias("hour")).pivot("status").count().orderBy("hour").collect()
figure, axes = pyplot.subplots(figsize=(9, 3))
below = [0] * len(hours)
for status in ("2xx", "3xx", "4xx", "5xx"):
    counts = [(row.asDict().get(status) or 0) for row in hours]
    axes.bar([row["hour"] for row in hours], counts, bottom=below, width=0.04, label=status)
    below = [low + count for low, count in zip(below, counts, strict=True)]
axes.set_ylabel("requests per hour")
axes.legend(ncols=4, fontsize=8)
figure.autofmt_xdate()
figure.savefig(plots / "requests_per_hour.svg")

# %% [markdown]
# ## How large answers are

# %%
sizes = [row["power"] for row in requests.where("bytes > 0").selectExpr("log10(bytes) AS power").collect()]
figure, axes = pyplot.subplots(figsize=(9, 3))
axes.hist(sizes, bins=60)
axes.set_xticks(range(1, 9), [f"$10^{power}$" for power in range(1, 9)])
axes.set_xlabel("bytes of an answer")
axes.set_ylabel("requests")
figure.savefig(plots / "answer_sizes.svg")

# %% [markdown]
# ## Who asks most

# %%
clients = requests.groupBy("client").agg(sql.count("*").alias("requests"), sql.sum("bytes").alias("bytes"))
busiest = clients.orderBy(sql.desc("requests")).limit(15).collect()[::-1]
figure, axes = pyplot.subplots(figsize=(9, 4))
axes.barh([row["client"] for row in busiest], [row["requests"] for row in busiest])
axes.set_xlabel("requests")
figure.tight_layout()
figure.savefig(plots / "busiest_clients.svg")

# %%
print(f"{requests.count():,} requests of {clients.count():,} clients; plots in {plots.absolute()}")
cleanup.close()
