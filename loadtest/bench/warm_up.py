"""Load of all kinds before a measurement, until a JIT compiler has seen it."""

from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.load.targets import Target


def warm_up(context: Context, target: Target, seconds: float) -> None:
    """Run single sends, pipelined ones, batches and pulls for `seconds` in all."""
    loader = context.loader(target.port)
    topic = context.topic("warm_up")
    loader.run("send", topic=topic, create=True, connections=64, depth=1, seconds=seconds / 4)
    loader.run("send", topic=topic, connections=64, depth=16, seconds=seconds / 4)
    loader.run("batch", topic=topic, connections=16, depth=4, seconds=seconds / 4)
    loader.run("pull", topic=topic, connections=16, depth=4, seconds=seconds / 4)
