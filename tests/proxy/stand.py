"""RocketMQ's proxy in front of a broker, and the published 5.x clients, as child processes."""

import asyncio
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringmq.cli.admin import open_admin
from ringmq.loadtest.sdk.environments import python_with
from ringmq.loadtest.stock import StockServer, compile_java, free_port, java_command
from ringmq.loadtest.stock.java import pom_classpath
from ringmq.loadtest.stock.server import start_java_server
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from tests.conformance import servers

HERE = Path(__file__).parent
PROXY_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"
PROXY_READY = "rocketmq-proxy startup successfully"
HEAP_MB = 192
MESSAGES = 12
CLIENT_TIMEOUT_S = 600
JAVA, PYTHON = "java 5.0.8", "python 5.1.2"
PYTHON_REQUIREMENT = "rocketmq-python-client==5.1.2"
BROKER_SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 64 << 20,
    "recallMessageEnable": True,
    "enablePropertyFilter": True,
    "enableMixedMessageType": True,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
}
PROXY_SETTINGS: dict[str, Any] = {
    "proxyMode": "CLUSTER",
    "rocketMQClusterName": "DefaultCluster",
    "enablePrintJstack": False,
    "localServeAddr": "127.0.0.1",
    # Waits that tests need not sit out: routes and topics, heartbeats of producers, renewals.
    "topicRouteServiceCacheRefreshSeconds": 3,
    "topicConfigCacheRefreshSeconds": 3,
    "subscriptionGroupConfigCacheRefreshSeconds": 3,
    "transactionHeartbeatPeriodSecond": 1,
    "transactionDataExpireMillis": 300_000,  # a busy machine may take long between a half and its end
    "defaultInvisibleTimeMills": 30_000,
    "renewSchedulePeriodMillis": 1000,
}
TYPES: dict[str, str | None] = {
    **dict.fromkeys(("Normal", "Invisible", "Push", "Dead", "Polls", "Renewal", "Filters"), "NORMAL"),
    **dict.fromkeys(("Fifo", "SimpleFifo", "RenewalFifo"), "FIFO"),
    **dict.fromkeys(("Delay", "Recall"), "DELAY"),
    "Transactions": "TRANSACTION",
    "Mixed": "MIXED",
    "Untyped": None,
}
"""The types of topics. None = the topic has no attribute."""
GROUPS: dict[str, dict[str, Any]] = {
    "Dead": {"retry_max_times": 1},
    "Fifo": {"consume_message_orderly": True, "retry_max_times": 1},
    "SimpleFifo": {"consume_message_orderly": True},
    "RenewalFifo": {"consume_message_orderly": True},
}
"""Groups with settings. The other ones come into being by their consumers."""
Counts = Mapping[str, Mapping[str, int]]
"""Counts by name, by case."""


def start_proxy(namesrv: str, home: Path, heap_mb: int = HEAP_MB, **settings: object) -> StockServer:
    """Start a proxy for the cluster of `namesrv`. It serves gRPC on the port of the result."""
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    ports = {"grpcServerPort": port, "remotingListenPort": free_port()}
    file = home / "rmq-proxy.json"
    file.write_text(json.dumps({**PROXY_SETTINGS, "namesrvAddr": namesrv, **ports, **settings}))
    libraries = pom_classpath(HERE / "proxy-pom.xml", "proxy")
    # The binary header has 16 bits for a code, too few for those of POP.
    jvm = (f"-DRMQ_PROXY_HOME={home}", "-XX:MaxDirectMemorySize=128m", *servers.JSON_HEADERS)
    command = java_command(PROXY_MAIN, "-pc", str(file), home=home, heap_mb=heap_mb, jvm=jvm, libraries=libraries)
    return start_java_server(command, port, home, ready_line=PROXY_READY)


def java_client(home: Path) -> list[str]:
    """The command of java/ProxyClient.java, compiled once."""
    libraries = pom_classpath(HERE / "client-pom.xml", "grpc-client")
    classes = compile_java(sorted((HERE / "java").glob("*.java")), "proxy-client", libraries)
    return java_command("ProxyClient", home=home, heap_mb=HEAP_MB, classpath=[classes], libraries=libraries)


def python_client(home: Path) -> list[str]:
    """The command of python/proxy_client.py. The client writes its log below $HOME."""
    return ["env", f"HOME={home}", str(python_with(PYTHON_REQUIREMENT)), str(HERE / "python" / "proxy_client.py")]


CLIENTS = {JAVA: java_client, PYTHON: python_client}
BATCH_ACKS = {JAVA: False, PYTHON: True}
"""`enableBatchAck` of the proxy in front of each client."""


def counts_of(kind: str, client: str, home: Path) -> Counts:
    """What a client counts through a proxy in front of a new broker of a kind."""
    server = servers.start(kind, home, BROKER_SETTINGS)
    try:
        prefix = client.split()[0].capitalize()
        asyncio.run(make_topics(server.namesrv, prefix))
        proxy = start_proxy(server.namesrv, home / "proxy", enableBatchAck=BATCH_ACKS[client])
        try:
            return run_client(client, proxy, prefix, home / "client")
        finally:
            proxy.kill()
    finally:
        server.close()


async def make_topics(namesrv: str, prefix: str) -> None:
    """Make the topics and groups of a client."""
    async with open_admin(namesrv) as admin:
        masters = await admin.masters()
        for topic, type_of in TYPES.items():
            attributes = {} if type_of is None else {"message.type": type_of}
            made = await admin.create_topic(TopicConfig(prefix + topic, 2, 2, attributes=attributes), masters)
            assert made, f"no route to {prefix + topic}"
        for group, settings in GROUPS.items():
            await admin.create_group(SubscriptionGroupConfig(prefix + group, **settings), masters)


def run_client(client: str, proxy: StockServer, prefix: str, home: Path) -> Counts:
    """Run a client to its end."""
    home.mkdir(parents=True, exist_ok=True)
    command = [*CLIENTS[client](home), proxy.address, prefix, str(MESSAGES)]
    with (home / "errors.txt").open("wb") as errors:
        ended = subprocess.run(command, cwd=home, stdout=subprocess.PIPE, stderr=errors, timeout=CLIENT_TIMEOUT_S)
    tail = (home / "errors.txt").read_text(errors="replace")[-4000:]
    assert ended.returncode == 0, f"{client}: status {ended.returncode}\n{tail}\n{proxy.tail()}"
    counts: dict[str, dict[str, int]] = json.loads(ended.stdout.splitlines()[-1])
    failed = {case: of for case, of in counts.items() if not isinstance(of, dict)}
    assert not failed, f"{client}: {failed}\n{tail}\n{proxy.tail()}"
    return counts
