"""Messages that consumers hold while a store changes hands: the next broker takes their receipts, and gives again what
is due."""

from collections.abc import Collection

from tests.conformance.servers import BROKER_NAME
from tests.pop.pop_client import PopClient, Taken
from tests.staging import make_topic
from tests.waiting import wait_until

SOON_MS, SHORT_MS, LONG_MS = 1000, 8000, 600_000
"""Invisible times. The short one ends about when the next broker serves, the long one never."""
ACKED, OTHER, CHANGED, HELD, DUE = "acked", "acked by the next broker", "changed", "held", "due"


class HandedPops:
    """The messages of a topic of one queue. `taken` has the newest receipt of each open one."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.taken: dict[str, Taken] = {}

    def begin(self, address: str, due_ms: int = SHORT_MS) -> None:
        """Send and pop at the first broker. One message is acknowledged, DUE gets an invisible time of its own. What
        came again before a kill may come once more behind it, so `due_ms` is long there."""
        make_topic(address, self.topic, 1)
        client = self._client(address)
        for name in (ACKED, OTHER, CHANGED, HELD, DUE):
            assert client.raw.send(self.topic, name.encode(), 0).code == 0
            self._pop(client, {name}, due_ms if name == DUE else LONG_MS)
        assert client.ack(self.taken.pop(ACKED)).code == 0
        client.close()

    def check(self, address: str, acked: str = OTHER, changed: str = CHANGED, due: Collection[str] = (DUE,)) -> None:
        """The next broker takes receipts of those before. It gives what is due, and what gets a short time now, once
        more each, and nothing else."""
        client = self._client(address)
        assert client.ack(self.taken.pop(acked)).code == 0
        assert client.change(self.taken[changed], SOON_MS).code == 0
        attempts = {name: self.taken[name].message.reconsume_times for name in (changed, *due)}
        self._pop(client, attempts, LONG_MS)
        assert {name: self.taken[name].message.reconsume_times - 1 for name in attempts} == attempts
        assert client.pop() == [], f"consumers have {sorted(self.taken)}"
        client.close()

    def shorten(self, address: str, name: str) -> None:
        """An open message is due about when the next broker serves."""
        client = self._client(address)
        assert client.change(self.taken[name], SHORT_MS).code == 0
        client.close()

    def _client(self, address: str) -> PopClient:
        return PopClient(address, "popping", self.topic, BROKER_NAME)

    def _pop(self, client: PopClient, names: Collection[str], invisible_ms: int) -> None:
        """Pop messages until each of these has come once. AssertionError if another one comes."""
        left = set(names)

        def has_all() -> bool:
            for one in client.pop(invisible_ms=invisible_ms):
                name = one.body.decode()
                assert name in left, f"{name} came"
                left.remove(name)
                self.taken[name] = one
            return not left

        wait_until(has_all, "the messages are popped", state=lambda: sorted(left))
