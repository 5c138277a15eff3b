"""Operators set offsets, and delete topics and groups, while consumers pop: mqadmin of stock against both servers."""

import time
from collections.abc import Callable, Iterator

import pytest

from ringmq.remoting.codes import RequestCode
from tests.conformance.servers import BROKER_NAME, Server
from tests.conformance.stock_client import StockClient
from tests.pop.pop_client import PopClient, Taken, pop_fields
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("pops")
COUNT = 10
HOLD_MS = 60_000


class Scene:
    """A topic of one queue, its group, and mqadmin."""

    def __init__(self, name: str, server: Server, stock_client: StockClient) -> None:
        self.name, self.group, self.server, self._client = name, f"group_{name}", server, stock_client
        self.open: list[PopClient] = []
        make_topic(server.broker, name, 1)
        self.send(COUNT)
        self.client = self.member()

    def send(self, count: int) -> None:
        with RawClient(self.server.broker) as raw:
            for number in range(count):
                assert raw.send(self.name, b"m%d" % number, 0).code == 0

    def member(self, group: str = "") -> PopClient:
        """A consumer, of this group or another one."""
        self.open.append(PopClient(self.server.broker, group or self.group, self.name, BROKER_NAME))
        return self.open[-1]

    def mqadmin(self, command: str) -> str:
        """The lines that a command prints."""
        words = [*command.split(), "-n", self.server.namesrv]
        return str(self._client.call("mqadmin", self.server.namesrv, command=words))

    def committed(self, group: str = "") -> int:
        """The consumer offset, -1 without one."""
        fields = {
            "consumerGroup": group or self.group, "topic": self.name, "queueId": 0, "setZeroIfNotFound": "false",
        }  # fmt: skip
        with RawClient(self.server.broker) as raw:
            answer = raw.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        return int(answer.ext_fields["offset"]) if answer.code == 0 else -1

    def taken(self, count: int, client: PopClient | None = None) -> list[Taken]:
        """So many messages of the topic itself, by pops of one each."""
        found: list[Taken] = []

        def has_all() -> bool:
            found.extend((client or self.client).pop(count=1, invisible_ms=HOLD_MS))
            return len(found) == count

        wait_until(has_all, f"{count} messages are popped", state=lambda: [one.offset for one in found])
        return found


@pytest.fixture
def scene(server: Server, stock_client: StockClient) -> Iterator[Callable[[str], Scene]]:
    made: list[Scene] = []

    def make(name: str) -> Scene:
        made.append(Scene(name, server, stock_client))
        return made[-1]

    yield make
    for each in made:
        for client in each.open:
            client.close()


def offsets(taken: list[Taken]) -> list[int]:
    return [one.offset for one in taken]


def test_a_reset_to_a_time_gives_all_messages_again(scene: Callable[[str], Scene]) -> None:
    it = scene("PopResetTime")
    held = it.taken(COUNT)
    for one in held[:4]:
        assert it.client.ack(one).code == 0
    it.mqadmin(f"resetOffsetByTime -g {it.group} -t {it.name} -s 1000000000000")
    again = it.taken(COUNT)
    assert offsets(again) == list(range(COUNT))
    assert [it.client.ack(one).code for one in held[4:]] == [0] * 6, "receipts of before are accepted"
    assert [it.client.ack(one).code for one in again] == [0] * COUNT
    wait_until(lambda: it.committed() == COUNT, "all messages are done")


def test_a_reset_of_a_queue_to_an_offset(scene: Callable[[str], Scene]) -> None:
    it = scene("PopResetQueue")
    it.taken(8)
    printed = it.mqadmin(f"resetOffsetByTime -g {it.group} -t {it.name} -s -1 -b {it.server.broker} -q 0 -o 5")
    assert "5" in printed
    assert it.committed() == 5
    assert offsets(it.taken(5)) == [5, 6, 7, 8, 9]


def test_a_group_skips_its_backlog(scene: Callable[[str], Scene]) -> None:
    """Nobody takes the messages that consumers hold away from them."""
    it = scene("PopSkip")
    (held,) = it.taken(1)
    it.mqadmin(f"skipAccumulatedMessage -g {it.group} -t {it.name} -f true")
    assert it.committed() == COUNT
    assert it.client.pop() == []
    assert it.client.ack(held).code == 0
    it.send(1)
    assert offsets(it.taken(1)) == [COUNT]


def test_a_group_goes_on_where_another_one_is(scene: Callable[[str], Scene]) -> None:
    it = scene("PopClone")
    source, other = "group_PopCloneSource", it.member()
    for one in it.taken(COUNT):
        assert other.ack(one).code == 0
    with RawClient(it.server.broker) as raw:
        ahead = {"consumerGroup": source, "topic": it.name, "queueId": 0, "commitOffset": 6}
        assert raw.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": source}).code == 0
        assert raw.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ahead).code == 0
        wait_until(lambda: it.committed() == COUNT, "all messages are done")
        clone = {"srcGroup": source, "destGroup": it.group, "topic": it.name, "offline": "true"}
        assert raw.ask(RequestCode.CLONE_GROUP_OFFSET, clone).code == 0
    assert it.committed() == 6
    assert offsets(it.taken(4)) == [6, 7, 8, 9]


@pytest.mark.parametrize("what", ["topic", "group"])
def test_names_that_are_deleted_while_a_poll_waits(scene: Callable[[str], Scene], what: str, kind: str) -> None:
    """Stock lets the poll wait for its time."""
    it = scene(f"PopGone{what.capitalize()}")
    held = it.taken(COUNT)
    polling = RawClient(it.server.broker)
    fields = pop_fields(it.group, it.name, 1, HOLD_MS, -1, pollTime=5000)
    polling.send_request(RequestCode.POP_MESSAGE, fields)
    since = time.monotonic()
    if what == "topic":
        it.mqadmin(f"deleteTopic -c DefaultCluster -t {it.name}")
    else:
        it.mqadmin(f"deleteSubGroup -c DefaultCluster -g {it.group} -r true")
    answer = polling.receive()
    polling.close()
    assert answer is not None
    print(f"{kind}: the poll of a deleted {what} is answered {answer.code} ({answer.remark}) "
          f"after {time.monotonic() - since:.1f} s")  # fmt: skip
    if what == "topic":
        assert answer.code in (17, 210)
        assert it.client.ask_pop().code == 17
        assert it.client.ack(held[0]).code == 17
    else:
        assert it.committed() <= 1, "a pop of stock commits what it gives"
        if answer.code == 0:  # clients may make groups: the poll has begun anew
            assert [one.offset for one in it.client.taken(answer)] == [0]
        assert it.client.ack(held[0]).code == 0
