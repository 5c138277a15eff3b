"""Released clients with failed, delayed, transactional and filtered messages, the same programs on both brokers."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.released_clients import CLIENTS, go_tool
from tests.conformance.servers import Server
from tests.conformance.stock_client import StockClient

COUNT = 10
RETRIES = 2
LEVEL_MS = 1000
TOPICS = ("Retries", "Delays", "Transactions", "Filters")
TIMEOUT_S = 200


def prefix_of(client: str) -> str:
    """The prefix of a client's topics and groups."""
    return "Released_" + client.replace(".", "_") + "_"


@pytest.fixture(scope="module")
def running(
    one_second_levels: Server, stock_client: StockClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The clients by name. They run side by side against one server."""
    processes: dict[str, subprocess.Popen[bytes]] = {}
    home = tmp_path_factory.mktemp("released")
    for name, command in CLIENTS.items():
        if name.startswith("go") and go_tool() is None:
            continue
        for topic in TOPICS:
            stock_client.call("createTopic", one_second_levels.namesrv, topic=prefix_of(name) + topic, queues=2)
        arguments = [*command(home / name), one_second_levels.namesrv, prefix_of(name), str(COUNT)]
        with (home / f"{name}.txt").open("wb") as errors:
            processes[name] = subprocess.Popen(arguments, cwd=home / name, stdout=subprocess.PIPE, stderr=errors)
    yield processes
    for process in processes.values():
        process.kill()
        process.communicate()


def bodies(outcomes: list[str]) -> list[str]:
    """The bodies of messages with these outcomes."""
    return [f"{outcome} {number}" for outcome in outcomes for number in range(COUNT)]


def without_repeats(seen: dict[str, list[int]], again: dict[str, list[int]]) -> dict[str, list[int]]:
    """Equal values of a body once, if its client consumed a record of it again. Such a client missed the answer to what
    it sent back and sends it back once more, so that its copies are stored twice, also by RocketMQ."""
    return {body: sorted(set(values)) if body in again else values for body, values in seen.items()}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_released_client(client: str, one_second_levels: Server, running: dict[str, Any], tmp_path: Path) -> None:
    if client not in running:
        pytest.skip("not installed: go (`make test` installs)")
    printed, _ = running[client].communicate(timeout=TIMEOUT_S)
    assert running[client].returncode == 0, f"the client's status is {running[client].returncode}; see {client}.txt"
    seen = json.loads(printed)
    retries, transactions = seen["retries"], seen["transactions"]
    counts = {
        "attempts": sum(map(len, retries["attempts"].values())),
        "dead letters": len(retries["dead"]),
        "delivered again": len(retries["again"]),
        "delayed": len(seen["delays"]),
        "committed": len(transactions["received"]),
        "checks": len(transactions["checks"]),
        "filtered": len(seen["filters"]),
    }
    print(f"{one_second_levels.kind}, {client}: {counts}")
    wanted = {"fails": list(range(RETRIES + 1)), "once": [0, 1], "good": [0]}
    attempts, dead = (without_repeats(retries[name], retries["again"]) for name in ("attempts", "dead"))
    assert attempts == {body: wanted[body.split()[0]] for body in bodies(list(wanted))}
    assert dead == {body: [RETRIES + 1] for body in bodies(["fails"])}
    assert sorted(seen["delays"]) == sorted(map(str, range(COUNT)))
    assert all(len(waits) == 1 and waits[0] >= LEVEL_MS for waits in seen["delays"].values()), seen["delays"]
    assert transactions["received"] == {body: [1] for body in bodies(["commit", "unknown-commit"])}
    assert set(transactions["checks"]) >= set(bodies(["unknown-commit", "unknown-rollback"]))
    assert seen["filters"] == {str(number): [1] for number in range(COUNT)}
