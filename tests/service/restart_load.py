"""Clients that send one message after another and try once more when one fails: `python -m ... ADDRESS CLIENTS FILE`.

Runs until FILE is there, then prints one JSON object: what was acknowledged, refused, failed, and the longest time
between two answers to anybody.
"""

import itertools
import json
import sys
import threading
import time
from pathlib import Path

from tests.conformance.wire import send_fields, shortened
from tests.raw_client import SEND_V2, RawClient

TOPIC = "RestartLoad"
TIMEOUT_S = 20.0


def code_of(client: RawClient, body: str) -> int | None:
    """The answer's code, None when the connection was closed instead."""
    client.send_request(SEND_V2, shortened(send_fields(TOPIC, 0, {"KEYS": body})), body.encode())
    answer = client.receive()
    return None if answer is None else answer.code


class Load:
    """What all clients have seen."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.acknowledged: list[str] = []
        self.answered_at: list[float] = []
        self.refused = self.failed = self.retried = 0
        self.errors: set[str] = set()
        self.lock = threading.Lock()
        self.over = threading.Event()

    def run_client(self, number: int) -> None:
        client: RawClient | None = None
        count = 0
        while not self.over.is_set():
            body = f"{number}-{count}"
            count += 1
            for attempt in (1, 2):
                try:
                    client = client or RawClient(self.address, TIMEOUT_S)
                    answer = code_of(client, body)
                except ConnectionRefusedError:
                    self.refused += 1
                    answer = None
                except OSError as error:
                    answer = None
                    self.errors.add(str(error) or type(error).__name__)
                if answer == 0:
                    with self.lock:
                        self.acknowledged.append(body)
                        self.answered_at.append(time.monotonic())
                    break
                if client is not None:
                    client.close()
                    client = None
                if attempt == 1:
                    self.retried += 1
                else:
                    self.failed += 1
            time.sleep(0.002)  # span: load, but not the whole CPU of a small machine


def main(address: str, clients: int, over: Path) -> None:
    """Run the clients."""
    load = Load(address)
    threads = [threading.Thread(target=load.run_client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    print("started", flush=True)
    while not over.exists():
        time.sleep(0.05)  # poll
    load.over.set()
    for thread in threads:
        thread.join()
    times = sorted(load.answered_at)
    gap = max((after - before for before, after in itertools.pairwise(times)), default=0.0)
    result = {
        "acknowledged": len(load.acknowledged), "refused": load.refused, "failed": load.failed,
        "retried": load.retried, "errors": sorted(load.errors), "longest_gap_s": round(gap, 3),
        "bodies": load.acknowledged,
    }  # fmt: skip
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
