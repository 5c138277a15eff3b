"""Stock Java consumers with SQL92 conditions, the same program against both brokers: push, lite pull, plain pulls."""

from contextlib import ExitStack

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.heartbeat import ConsumerData, HeartbeatData
from ringmq.remoting.message import decode_messages
from ringmq.remoting.subscription import EXPRESSION_SQL92, SubscriptionData, build_subscription
from tests.conformance.servers import Server
from tests.conformance.stock_client import StockClient
from tests.raw_client import RawClient
from tests.waiting import wait_until

COUNT = 200
TIMEOUT_S = 90
EXPRESSIONS = {
    "(amount BETWEEN 30 AND 39 OR region = 'eu') AND TAGS <> 'Tag1'": lambda n: (
        (30 <= n <= 39 or n % 10 == 0) and n % 3 != 1
    ),
    "amount > 190 AND region IS NULL AND amount NOT IN ('193', '199')": lambda n: (
        n > 190 and n % 10 and n not in (193, 199)
    ),
}


def test_java_consumers_filter_by_sql92(server: Server, stock_client: StockClient) -> None:
    wanted_of = {text: sorted(str(n) for n in range(COUNT) if wants(n)) for text, wants in EXPRESSIONS.items()}
    running = [
        stock_client.submit(
            "filters", server.namesrv, topic=f"Sql{number}", expression=expression, count=COUNT, wanted=len(wanted)
        )
        for number, (expression, wanted) in enumerate(wanted_of.items())
    ]
    for (expression, wanted), client in zip(wanted_of.items(), running, strict=True):
        seen = client.result(TIMEOUT_S)
        counts = {kind: len(seen[kind]) for kind in ("push", "litePull", "pull")}
        print(f"{server.kind}: {expression}: {counts} of {len(wanted)}, wrong expression {seen['wrong']}")
        assert wanted
        for kind in counts:
            assert sorted(seen[kind]) == wanted, kind
        assert seen["wrong"] == {"code": 23}


def register(server: Server, group: str, subscriptions: list[SubscriptionData]) -> RawClient:
    """A connected member of the group."""
    member = RawClient(server.broker)
    heartbeat = HeartbeatData(f"retried@{group}", consumers=[ConsumerData(group, subscriptions=subscriptions)])
    member.send_request(RequestCode.HEART_BEAT, {}, heartbeat.encode())
    answer = member.receive()
    while answer and answer.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
        answer = member.receive()
    assert answer and answer.code == 0
    return member


def pulled_numbers(client: RawClient, topic: str, group: str) -> list[int]:
    """The bodies that a pull of queue 0 gives the group by its registered subscription."""
    answer = client.pull(topic, consumerGroup=group, sysFlag=0, subscription="")
    assert answer.code in (0, 19, 20), answer.remark  # 19: the queue is still empty
    return [int(bytes(message.body)) for message in decode_messages(answer.body)]


def test_failed_messages_pass_the_condition_of_their_retry_topic_or_of_their_own(
    server: Server, stock_client: StockClient
) -> None:
    """Clients subscribe to a retry topic by "*", and filterSupportRetry changes nothing for them. A condition for the
    retry topic gives way to that for the original topic."""
    topic = "SqlRetried"
    subscribed = {
        "SqlRetriedByTag": build_subscription("%RETRY%SqlRetriedByTag", "*", sub_version=1),
        "SqlRetriedBySql": build_subscription("%RETRY%SqlRetriedBySql", "amount > 6", EXPRESSION_SQL92, sub_version=1),
    }
    names = {group: retried.topic for group, retried in subscribed.items()}
    for name in (topic, *names.values()):
        stock_client.call("createTopic", server.namesrv, topic=name, queues=1)
    own = build_subscription(topic, "amount < 5", EXPRESSION_SQL92, sub_version=1)
    found: dict[tuple[str, str], list[int]] = {}
    with ExitStack() as members, RawClient(server.broker) as client:
        for group, retried in subscribed.items():
            members.enter_context(register(server, group, [own, retried]))
            for number in range(10):
                pairs = {"amount": str(number), "RETRY_TOPIC": topic}
                assert client.send(names[group], b"%d" % number, pairs=pairs).code == 0
        by_tag, by_sql = subscribed
        for switch in ("false", "true", "false"):
            change = f"filterSupportRetry={switch}".encode()
            assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, change).code == 0
            wanted = [7, 8, 9] if switch == "false" else [0, 1, 2, 3, 4]
            wait_until(lambda wanted=wanted: pulled_numbers(client, names[by_sql], by_sql) == wanted, f"{wanted}")
            wait_until(lambda: len(pulled_numbers(client, names[by_tag], by_tag)) == 10, "all ten")
            found |= {(switch, group): pulled_numbers(client, names[group], group) for group in subscribed}
    print(f"{server.kind}: failed messages by filterSupportRetry {found}")
    assert found == {
        ("false", by_tag): list(range(10)), ("false", by_sql): [7, 8, 9],
        ("true", by_tag): list(range(10)), ("true", by_sql): [0, 1, 2, 3, 4],
    }  # fmt: skip
