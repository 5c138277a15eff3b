"""A stock broker accepts the frames of the load generator."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.bench.rows import JAVA_SOURCE
from ringmq.loadtest.load.tools import Loader, Tools, build_tools, run_json
from ringmq.loadtest.stock import (
    StockError,
    StockServer,
    compile_java,
    free_broker_port,
    java_command,
    mqadmin_command,
    start_broker,
    start_namesrv,
)

pytestmark = [pytest.mark.stock, pytest.mark.io_uring]
SMALL = {
    "waitTimeMillsInSendQueue": 20_000,  # a JVM that has just started answers "busy" to what waited 200 ms
    "mappedFileSizeCommitLog": 16 << 20,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
    "brokerName": "stock",
}


@pytest.fixture(scope="module")
def tools() -> Tools:
    return build_tools()


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StockServer, StockServer]]:
    home = tmp_path_factory.mktemp("stock")
    namesrv = start_namesrv(home=home / "namesrv")
    try:
        broker = start_broker(SMALL, home=home / "broker", namesrv=namesrv.address)
        yield namesrv, broker
        broker.kill()
    finally:
        namesrv.kill()


@pytest.mark.parametrize("json_header", [False, True], ids=["binary", "json"])
@pytest.mark.parametrize("command", ["send", "batch"])
def test_everything_sent_is_stored_indexed_and_read_back(
    tools: Tools, stock: tuple[StockServer, StockServer], command: str, json_header: bool
) -> None:
    options = {"connections": 4, "depth": 2, "messages": 320, "settle_ms": 20_000, "check_keys": 16}
    topic = f"load_{command}_{int(json_header)}"
    report = Loader(tools, stock[1].port).run(
        command, topic=topic, create=True, check=True, read_back=True, json=json_header, **options
    )
    assert report["ok"], (report["errors"], report["remark"], report["trouble"], report["check"])
    assert report["check"]["read"] == 320
    assert report["check"]["keys_found"] == (24 if command == "send" else 8 + 10)  # the last ones, and one per frame
    pulled = Loader(tools, stock[1].port).run("pull", topic=topic, connections=2, count=8, seconds=1, json=json_header)
    assert pulled["ok"], pulled
    assert pulled["messages"] > 0
    keys = Loader(tools, stock[1].port).run(
        "keys", topic=topic, messages=320, run_id=report["run_id"], check_keys=8, json=json_header
    )
    assert keys["ok"], keys


def test_verify_sees_another_sender(tools: Tools, stock: tuple[StockServer, StockServer], tmp_path: Path) -> None:
    Loader(tools, stock[1].port).run("create", topic="java_topic")
    classes = compile_java([JAVA_SOURCE], "producer")
    words = java_command(
        "ProducerBench", stock[0].address, "java_topic", "4", "100", "0.1", "0.3", home=tmp_path, classpath=[classes]
    )
    report = run_json(words, 180)
    assert report["failed"] == 0
    back = Loader(tools, stock[1].port).run("verify", topic="java_topic")
    assert back["ok"], back
    assert back["read"] == report["all_messages"] > 0


def test_mqadmin_lists_the_broker(stock: tuple[StockServer, StockServer], tmp_path: Path) -> None:
    words = mqadmin_command("clusterList", "-n", stock[0].address, home=tmp_path)
    done = subprocess.run(words, capture_output=True, text=True, timeout=180)
    assert stock[1].address in done.stdout
    assert not list(tmp_path.parent.glob("logs"))


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(StockError, match=r"ended with status|Slave's brokerId"):
        start_broker({"brokerRole": "SLAVE"}, home=tmp_path, port=free_broker_port())
    with pytest.raises(StockError, match="home"):
        start_broker()


@pytest.mark.parametrize("single_acks", [False, True], ids=["batch", "single"])
def test_pops_and_their_acknowledgements(
    tools: Tools, stock: tuple[StockServer, StockServer], single_acks: bool
) -> None:
    loader, topic = Loader(tools, stock[1].port), f"load_pop_{int(single_acks)}"
    filled = loader.run("batch", topic=topic, create=True, messages=320, check=True, read_back=True, settle_ms=20_000)
    assert filled["ok"], filled["check"]
    report = loader.run(
        "pop", topic=topic, group=topic, broker_name="stock", connections=2, depth=2, seconds=60,
        invisible_ms=300_000, single_acks=single_acks,
    )  # fmt: skip
    assert report["ok"], report
    assert report["popped"] == report["acked"] == 320
    assert report["popped_crc_sum"] == filled["acked_crc_sum"]
