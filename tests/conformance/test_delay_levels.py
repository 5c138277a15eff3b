"""A stock Java producer and push consumer with every delay level, the same program against both brokers."""

from collections.abc import Callable

from tests.conformance.servers import SMALL_FILES, Server
from tests.conformance.stock_client import StockClient

SECONDS = [1, 2, 3] * 6
LEVELS = len(SECONDS) + 1
"""One more than the broker has. It counts as the last one."""
EACH = 5
SETTINGS = {**SMALL_FILES, "messageDelayLevel": " ".join(f"{seconds}s" for seconds in SECONDS)}


def test_java_clients_use_all_levels(kind: str, started: Callable[..., Server], stock_client: StockClient) -> None:
    server = started(kind, "delays", settings=SETTINGS)
    seen = stock_client.call("delays", server.namesrv, topic="JavaDelays", levels=LEVELS, each=EACH)
    received = seen["received"]
    bodies = [message["body"] for message in received]
    late_ms = []
    for message in received:
        level = int(message["body"].split("-")[0])
        kept = min(level, len(SECONDS))
        late_ms.append(message["stored"] - seen["began"][message["body"]] - SECONDS[kept - 1] * 1000)
        assert message["level"] in (level, kept), "a broker may store the last level in place of a larger one"
        assert message["keys"] == f"key{message['body']}"
    print(f"{kind}: {len(bodies)} of {len(seen['began'])} delayed messages, {min(late_ms)} to {max(late_ms)} ms late")
    assert len(seen["began"]) == LEVELS * EACH > 0
    assert sorted(bodies) == sorted(seen["began"]), "each once"
    assert min(late_ms) >= 0, "none early"
    for level in range(1, LEVELS + 1):
        of_level = [body for body in bodies if body.startswith(f"{level}-")]
        assert of_level == [f"{level}-{number}" for number in range(EACH)], "in order within a level"
