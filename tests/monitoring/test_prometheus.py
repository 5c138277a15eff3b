"""Debian's Prometheus scrapes a master with its slave; the alert rules and every query of the dashboard against it."""

import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.exporter.table import METRICS
from ringmq.loadtest.growth import grafana_panels
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.stock import free_port
from tests.broker.transaction_kit import COMMIT, Transaction
from tests.pop.pop_client import PopClient
from tests.raw_client import RawClient
from tests.waiting import wait_until

MONITORING = Path(__file__).parents[2] / "monitoring"
SMALL = {"mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 100, "maxIndexNum": 400, "flushDiskType": "SYNC_FLUSH"}
LITTLE_GO = {"GOMAXPROCS": "1", "GOGC": "off", "GOMEMLIMIT": "400MiB"}
"""Half of the time of short runs of these programs of Go goes to collections of garbage."""
CONFIG = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["RULES"]
scrape_configs:
  - job_name: ringmq
    static_configs: [{targets: ["MASTER", "SLAVE"]}]
"""


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def promtool(*arguments: str) -> str:
    program = shutil.which("promtool")
    assert program, "not installed: the Debian package prometheus (.ci/bootstrap test installs it)"
    environment = {**os.environ, **LITTLE_GO}
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def traffic(client: RawClient, popper: PopClient, stop: threading.Event) -> None:
    """Sends, pulls, pops, transactions, and one group that does not keep up and gives a message up again and again."""
    offset = 0
    while not stop.is_set():
        for _ in range(5):
            client.send("Hello", b"x" * 300)
        client.send("Hello", b"later", pairs={"TIMER_DELAY_MS": "300"})
        Transaction(client, b"half", topic="Hello").end(client, COMMIT)
        pulled = client.pull("Hello", offset=offset, consumerGroup="watched")
        offset = int(pulled.ext_fields.get("nextBeginOffset", offset))
        commit = {"consumerGroup": "watched", "topic": "Hello", "queueId": "0", "commitOffset": str(offset // 2)}
        client.ask(15, commit)
        client.ask(36, {"offset": 0, "group": "watched", "delayLevel": -1})  # the first message is a dead letter
        for one in popper.pop(5)[:4]:
            popper.ack(one)
        time.sleep(0.05)  # span: the pace of the load


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("prometheus")
    program = shutil.which("prometheus")
    assert program, "not installed: the Debian package prometheus (.ci/bootstrap test installs it)"
    slave_settings = {**SMALL, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": True}
    with (
        RunningBroker(home / "master", {**SMALL, "brokerName": "watched"}) as master,
        RunningBroker(
            home / "slave",
            {**slave_settings, "brokerName": "watched", "ringmqSlaveSyncPeriod": 500},
            namesrv=master.namesrv,
        ) as slave,
    ):
        addresses = {"MASTER": master.metrics_url, "SLAVE": slave.metrics_url, "RULES": str(MONITORING / "alerts.yml")}
        config = CONFIG
        for word, address in addresses.items():
            config = config.replace(word, address.removeprefix("http://"))
        (home / "prometheus.yml").write_text(config)
        promtool("check", "config", str(home / "prometheus.yml"))
        stop, url = threading.Event(), f"http://127.0.0.1:{free_port()}"
        popper = PopClient(master.address, "poppers", "Hello", "watched")
        with RawClient(master.address) as client, (home / "log").open("wb") as log, contextlib.closing(popper):
            command = [program, f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data"]
            command += [f"--web.listen-address={url.removeprefix('http://')}", "--log.level=warn"]
            process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **LITTLE_GO})
            sender = threading.Thread(target=traffic, args=(client, popper, stop))
            sender.start()
            try:
                wait_until(lambda: answers(url), "Prometheus serves")
                yield url
            finally:
                stop.set()
                sender.join()
                process.kill()
                process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=60):
            return True
    except OSError:
        return False


def queries() -> list[grafana_panels.Target]:
    return list(grafana_panels.targets(dashboard(), "10s"))


def test_both_brokers_are_scraped(prometheus: str) -> None:
    def are_up() -> bool:
        return [one["value"][1] for one in grafana_panels.ask(prometheus, "query", query='up{job="ringmq"}')] == [
            "1",
            "1",
        ]

    wait_until(are_up, "both are scraped in one second")  # a scrape that is late on a busy machine counts as down


@pytest.mark.parametrize("target", queries(), ids=lambda target: f"{target.panel}-{target.legend}")
def test_every_panel_has_data(prometheus: str, target: grafana_panels.Target) -> None:
    """A rate needs two scrapes with traffic between them, so a busy machine shows one later."""
    found: list[dict[str, Any]] = []

    def has_data() -> bool:
        found[:] = grafana_panels.ask(prometheus, "query", query=target.expression)
        return bool(found) and all(one["value"][1] != "NaN" for one in found)

    wait_until(has_data, target.expression)
    assert "{{" not in grafana_panels.name_of(target, found[0]["metric"])


def test_the_rules_are_loaded_and_nothing_fires(prometheus: str) -> None:
    with urllib.request.urlopen(f"{prometheus}/api/v1/rules", timeout=60) as answer:
        (group,) = json.load(answer)["data"]["groups"]
    assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
    critical = [rule["name"] for rule in group["rules"] if rule["labels"]["severity"] == "critical"]
    assert not [rule["name"] for rule in group["rules"] if rule["state"] == "firing" and rule["name"] in critical]


def test_the_panels_are_drawn(prometheus: str, tmp_path: Path) -> None:
    """A quarter of them: drawing takes much longer than asking."""
    out, path = tmp_path / "panels.png", tmp_path / "dashboard.json"
    path.write_text(json.dumps(dashboard() | {"panels": dashboard()["panels"][::4]}))
    arguments = ["--prometheus", prometheus, "--dashboard", str(path), "--out", str(out), "--seconds", "20"]
    assert grafana_panels.main([*arguments, "--rate-interval", "10s"]) == 0
    assert out.read_bytes().startswith(b"\x89PNG") and out.stat().st_size > 20_000


def test_each_alert_fires_and_stays_quiet_as_its_cases_say() -> None:
    promtool("check", "config", str(MONITORING / "prometheus.yml"))
    promtool("check", "rules", str(MONITORING / "alerts.yml"))
    promtool("test", "rules", str(MONITORING / "alerts_test.yml"))
    cases = (MONITORING / "alerts_test.yml").read_text()
    alerts = [line.split()[-1] for line in (MONITORING / "alerts.yml").read_text().splitlines() if "- alert:" in line]
    assert len(alerts) > 10
    for alert in alerts:
        assert f"name: {alert} fires\n" in cases and f"name: {alert} stays quiet\n" in cases


def test_alerts_and_panels_use_metrics_that_there_are() -> None:
    known = set(METRICS)
    known |= {f"{name}{suffix}" for name in METRICS for suffix in ("_bucket", "_sum", "_count")}
    texts = [(MONITORING / "alerts.yml").read_text(), *(target.expression for target in queries())]
    import re

    used = {name for text in texts for name in re.findall(r"\b(?:rocketmq|ringmq)_\w+", text)}
    assert used and used <= known
