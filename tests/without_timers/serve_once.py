"""Serves, sends, pulls and stops in a tree without timers: `python serve_once.py FOLDER`."""

import importlib.util
import sys
import time
import urllib.request
from pathlib import Path

from click.testing import CliRunner

from ringmq.cli.main import commands, main
from ringmq.client import ConsumeFrom, Message, SendError, compose_message
from ringmq.client.blocking import Consumer, Producer
from ringmq.ipc.guests import guests
from ringmq.ipc.workers import WORKERS
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.testing.local_broker import SETTINGS

BODIES = [b"%d" % number for number in range(20)]


def check_parts() -> None:
    """No part of timers is there, and each other guest is."""
    assert importlib.util.find_spec("ringmq.timer") is None
    assert not [name for name in dir(lib) if name.startswith("rmq_timer")]
    assert [guest.name for guest in guests()] == ["delay", "send-back", "transactions", "staged", "replies", "pop"]
    assert "timer" not in {row.name for row in WORKERS} and "timer" not in commands()


def serve(store: Path) -> None:
    """Messages come, one with a time is refused, the page of metrics and a command of guests' files work."""
    with RunningBroker(store, {**SETTINGS, "metricsPromExporterPort": 0}) as broker:
        with Producer(broker.namesrv) as producer:
            for body in BODIES:
                producer.send(Message("Plain", body))
            try:
                producer.send(compose_message("Plain", b"late", deliver_at_ms=time.time_ns() // 1_000_000 + 60_000))
                raise AssertionError("a message with a time was taken, and would be delivered at once")
            except SendError as error:
                assert "no part that delivers a message at a time" in str(error), error
        with Consumer("Plain", broker.namesrv, "readers", consume_from=ConsumeFrom.FIRST) as consumer:
            found: list[bytes] = []
            while len(found) < len(BODIES) and (messages := consumer.poll(timeout_ms=20_000)):
                found += [message.body for message in messages]
        assert sorted(found) == sorted(BODIES), found
        with urllib.request.urlopen(broker.metrics_url + "/metrics", timeout=20) as page:
            text = page.read().decode()
        assert "ringmq_" in text and "timer" not in text
        assert broker.stop() == 0
    done = CliRunner().invoke(main, ["store", "verify", str(store), "-q"])
    assert done.exit_code == 0, done.output


if __name__ == "__main__":
    check_parts()
    serve(Path(sys.argv[1]) / "store")
    print("served")
