"""One client with all of its settings: credentials, TLS, a namespace, message trace, metrics, interceptors.

    RINGMQ_NAMESRV=127.0.0.1:9876 python examples/client_settings.py

Credentials come from the environment (RINGMQ_ACCESS_KEY, ...) and TLS from the file that CA_FILE names. Without them
the client suits a broker without either, such as `ringmq serve`.
"""

import logging
import os
import time
from collections.abc import Sequence

from ringmq.client import (
    ClientMetrics,
    ConnectionSettings,
    ConsumeFrom,
    Credentials,
    Interceptor,
    Message,
    SendResult,
    TlsSettings,
    TraceSettings,
    compose_message,
)
from ringmq.client.blocking import Consumer, Producer

TOPIC, GROUP, COUNT = f"SettingsExample_{time.time_ns() // 1_000_000}", "settings_example", 10


class SlowSends(Interceptor):
    """Logs every send that takes longer than `limit_s`."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s

    def before_send(self, group: str, messages: Sequence[Message]) -> object:
        """Return the start time as the scope that `after_send` gets."""
        return time.monotonic()

    def after_send(
        self, scope: object, messages: Sequence[Message], result: SendResult | None, error: BaseException | None
    ) -> None:
        """Log a slow send. Failed sends count as well."""
        assert isinstance(scope, float)
        spent_s = time.monotonic() - scope
        if spent_s > self.limit_s:
            logging.warning("a send to %s took %.3f s: %s", messages[0].topic, spent_s, error or "stored")


def make_settings(metrics: ClientMetrics, ca_file: str | None) -> ConnectionSettings:
    """Return the settings of all clients of the program."""
    return ConnectionSettings(
        connect_timeout_ms=2000,
        tls=None if ca_file is None else TlsSettings(ca_file=ca_file, server_name=os.environ.get("TLS_SERVER_NAME")),
        credentials=Credentials.from_environment(),
        namespace="EXAMPLES",
        trace=TraceSettings(topic="SettingsExampleTrace"),
        metrics=metrics,
        interceptors=(SlowSends(limit_s=0.5),),
    )


def main() -> None:
    """Send some messages, read them back, show the metrics."""
    logging.basicConfig(level=logging.WARNING)
    namesrv = os.environ.get("RINGMQ_NAMESRV", "127.0.0.1:9876")
    metrics = ClientMetrics()
    settings = make_settings(metrics, os.environ.get("CA_FILE"))
    with Producer(namesrv, GROUP, settings=settings) as producer:
        producer.send_all(compose_message(TOPIC, b"%d" % number, keys=f"key-{number}") for number in range(COUNT))
    with Consumer(TOPIC, namesrv, GROUP, consume_from=ConsumeFrom.FIRST, settings=settings) as consumer:
        seen = 0
        while seen < COUNT:
            seen += len(consumer.poll(timeout_ms=10_000))
        consumer.poll(timeout_ms=1)  # asking for more acknowledges the last ones
    now = metrics.snapshot()
    print(f"sent {now.counter('ringmq_client_sends_total', TOPIC, 'ok')}")
    print(f"consumed {now.counter('ringmq_client_consumed_messages_total', TOPIC, GROUP, 'ok')}")
    print(f"traced {now.counter('ringmq_client_trace_records_total', 'recorded')}")


if __name__ == "__main__":
    main()
