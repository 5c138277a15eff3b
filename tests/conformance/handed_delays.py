"""Delayed messages that wait while a store changes hands: the next broker delivers them, in order and once."""

from collections import Counter

from ringmq.remoting.codes import ResponseCode
from tests.conformance.handed_timers import name_of, read
from tests.conformance.records import MessageShape, message_shape, pulled_records
from tests.raw_client import RawClient
from tests.waiting import wait_until

TOPIC = "HandedDelays"
BEFORE = {"messageDelayLevel": "1s 1h"}
AFTER = {"messageDelayLevel": "1s 1s"}
"""The next broker has the levels shortened, so nothing waits for an hour."""
DUE, LATER = 1, 2
COUNT = 5


class HandedDelays:
    """The messages of one store."""

    def __init__(self) -> None:
        self._sent: list[str] = []

    def _send(self, client: RawClient, name: str, level: int) -> None:
        key = f"7E{len(self._sent):030X}"
        answer = client.send(TOPIC, name.encode(), pairs={"DELAY": str(level), "KEYS": name, "UNIQ_KEY": key})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        self._sent.append(name)

    def begin(self, client: RawClient) -> None:
        """Send some that the first broker delivers, and some for the next one."""
        for number in range(COUNT):
            self._send(client, f"before {number}", DUE)
            self._send(client, f"later {number}", LATER)

    def wait_for_some(self, client: RawClient) -> None:
        """Wait until the first ones are delivered."""
        wait_until(lambda: len(read(client, TOPIC)) >= COUNT, "the first level is delivered")

    def check(self, client: RawClient, *, may_repeat: bool) -> None:
        """The other broker delivers all that waits. `may_repeat`: what the first one delivered may come again."""
        self._send(client, "after", DUE)
        wait_until(
            lambda: {name_of(message) for message in read(client, TOPIC)} >= set(self._sent), "all are delivered"
        )
        found = read(client, TOPIC)
        copies = Counter(map(name_of, found))
        again = {name for name, count in copies.items() if count > 1}
        print(f"{len(found)} copies of {len(copies)} delayed messages, {len(again)} come twice")
        assert set(copies) == set(self._sent)
        assert all(name.startswith("before") for name in again) and (may_repeat or not again)
        later = [name_of(message) for message in found if name_of(message).startswith("later")]
        assert later == [f"later {number}" for number in range(COUNT)]
        shapes: set[MessageShape] = {message_shape(data) for data in pulled_records(client, TOPIC)}
        assert len(shapes) == 1, f"both brokers deliver the same records: {shapes}"
