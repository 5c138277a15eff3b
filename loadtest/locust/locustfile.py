"""For locust: `locust -f locustfile.py [ProduceUser ConsumeUser MixedUser SlowConsumeUser]`; options and thresholds.

The exit status is 3 if a threshold was broken or a user's task raised, and the log names them. Otherwise it is 0.
"""

import logging
import time
from typing import Any

from locust import events
from locust.runners import WorkerRunner

from ringmq.loadtest.locust.thresholds import EventStats, Thresholds, broken, parse_bounds
from ringmq.loadtest.locust.users import ConsumeUser, MixedUser, ProduceUser, SlowConsumeUser

__all__ = ["ConsumeUser", "MixedUser", "ProduceUser", "SlowConsumeUser"]

log = logging.getLogger("ringmq.loadtest")

THRESHOLD_STATUS = 3
STOP_TIMEOUT_S = 10.0
CLOCK_PAUSE_S = 0.01  # gevent's loop reads its clock again: the run time would count from before the imports


def add_options(parser: Any) -> None:
    """Add the options. Each is an environment variable, too."""
    group = parser.add_argument_group("RingMQ")

    def option(name: str, kind: type, default: object, text: str, **more: object) -> None:
        variable = "LOCUST_RINGMQ" + name.upper().replace("-", "_")[1:]
        group.add_argument(name, type=kind, default=default, env_var=variable, help=text, **more)

    option("--namesrv", str, "127.0.0.1:9876", "name server, host:port")
    option("--topic", str, "locust", "topic; made by the first send where the broker allows it")
    option("--group", str, "locust", "consumer group, and the begin of the others' names")
    option("--body-bytes", int, 1024, "of a message")
    option("--batch", int, 16, "messages of a batch; below 2: no batches")
    option("--rate", float, 10.0, "requests a second of a user that sends; 0: as fast as it goes")
    option("--slow-ms", float, 200.0, "what a slow consumer needs for a message")
    option("--p99-ms-max", str, "", "EVENT=MS,...: send, send_batch, pull, end_to_end")
    option("--per-second-min", str, "", "EVENT=NUMBER,...: requests a second over the whole run")
    option("--error-rate-max", float, 0.0, "share of failed requests, 0 to 1")


def thresholds_of(options: Any) -> Thresholds:
    """Return the thresholds of the options. Raises ValueError naming the option."""
    if not 0 <= options.error_rate_max <= 1:
        raise ValueError(f"--error-rate-max: {options.error_rate_max:g} is outside 0..1")
    return Thresholds(
        parse_bounds([options.p99_ms_max], "--p99-ms-max"),
        parse_bounds([options.per_second_min], "--per-second-min"),
        options.error_rate_max,
    )


def prepare(environment: Any, **ignored: object) -> None:
    """Reject impossible options before any user starts, and let users finish their tasks at the end of the run.

    A greenlet that is killed while it waits would leave the SDK's locks held.
    """
    options = environment.parsed_options
    time.sleep(CLOCK_PAUSE_S)
    environment.stop_timeout = max(environment.stop_timeout or 0.0, STOP_TIMEOUT_S)
    try:
        thresholds_of(options)
        for name, low in (("body_bytes", 1), ("rate", 0), ("slow_ms", 0)):
            if getattr(options, name) < low:
                raise ValueError(f"--{name.replace('_', '-')}: {getattr(options, name):g} is below {low}")
    except ValueError as error:
        raise SystemExit(f"locust: {error}") from error


def event_stats(stats: Any) -> list[EventStats]:
    """Return locust's entries."""
    return [
        EventStats(
            entry.method,
            entry.name,
            entry.num_requests,
            entry.num_failures,
            entry.total_rps,
            entry.get_response_time_percentile(0.99),
        )
        for entry in stats.entries.values()
    ]


def set_exit_code(environment: Any, **ignored: object) -> None:
    """Set the exit status. Of several processes only the one with all numbers does so."""
    if isinstance(environment.runner, WorkerRunner):
        return
    found = broken(thresholds_of(environment.parsed_options), event_stats(environment.stats))
    for text in found:
        log.error("threshold broken: %s", text)
    raised = list(environment.runner.exceptions.values())
    for row in raised:
        log.error("%d times a user's task raised: %s", row["count"], row["msg"])
    environment.process_exit_code = THRESHOLD_STATUS if found or raised else 0


hooks: Any = events  # untyped
hooks.init_command_line_parser.add_listener(add_options)
hooks.init.add_listener(prepare)
hooks.quitting.add_listener(set_exit_code)
