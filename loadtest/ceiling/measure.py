"""The same load against the ceiling: the limit of this machine for a server that does next to nothing."""

from ringmq.loadtest.bench.rows import Context, ceiling_measurement
from ringmq.loadtest.ceiling.server import CeilingServer, fdatasync_rate
from ringmq.loadtest.measuring.measurement import RATE, Measurement

LOG_BYTES = 1 << 28
PULL_RANGE = 1_000_000  # offsets that the pulls pretend to read


def measure_ceiling(context: Context, options: dict[str, object]) -> Measurement:
    """Run loader options (with their `command`) against a fresh ceiling server, or measure fdatasync."""
    command = str(options.pop("command"))
    log = context.folder / "ceiling.log"
    if command == "fdatasync":
        rate = fdatasync_rate(context.tools, log)
        return Measurement({RATE: rate * float(str(options["factor"])), "fdatasync_per_s": rate})
    mode = "pull" if command == "pull" else "serve"
    server_log = None if mode == "pull" else log
    with CeilingServer(context.tools, mode, log=server_log, log_bytes=LOG_BYTES, cpus=context.cpus) as server:
        if mode == "pull":
            options["assume"] = PULL_RANGE
        report = context.loader(server.port).run(
            command, warmup=context.warmup_s, seconds=context.seconds, topic="ceiling", **options
        )
    return ceiling_measurement(report)
