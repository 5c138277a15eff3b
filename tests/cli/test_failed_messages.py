"""`ringmq group retry` and `ringmq group dlq` at a running broker."""

import base64
import json
import subprocess
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from ringmq.cli import message_body
from ringmq.cli.stored_messages import Stored
from ringmq.client import ConsumeFrom, Message, MessageExt, PoppedMessage, blocking
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.flags import MessageSysFlag
from ringmq.services.send_back.cli import commands
from tests.broker.test_processes import SMALL
from tests.commands import run_ringmq
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """With three dead letters of the group billing."""
    with RunningBroker(tmp_path_factory.mktemp("failed") / "store", SMALL) as broker:
        make_topic(broker.address, "Orders", 1)
        with RawClient(broker.address) as client:
            for number in range(3):
                sent = client.send("Orders", b"order %d" % number, pairs={"KEYS": f"k{number}"})
                fields = {"offset": int(sent.ext_fields["msgId"][-16:], 16), "group": "billing", "delayLevel": -1}
                assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
        wait_until(lambda: run(broker, "dlq", "list", "billing", "--output", "json").stdout.count("k2"), "its route")
        yield broker
        assert broker.stop() == 0


def run(broker: RunningBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_ringmq("group", *arguments, "--namesrv", broker.namesrv)


def listed(broker: RunningBroker, kind: str) -> list[dict[str, object]]:
    done = run(broker, kind, "list", "billing", "--output", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return list(found)


def test_dead_letters_are_listed_and_shown(broker: RunningBroker) -> None:
    rows = listed(broker, "dlq")
    assert [(row["offset"], row["topic"], row["key"], row["reconsumeTimes"]) for row in rows] == [
        (0, "Orders", "k0", 1), (1, "Orders", "k1", 1), (2, "Orders", "k2", 1),
    ]  # fmt: skip
    shown = run(broker, "dlq", "show", "billing", f"{rows[1]['broker']}:0:1")
    assert "body: order 1" in shown.stdout and "RETRY_TOPIC" in shown.stdout
    assert "more messages" in run(broker, "dlq", "list", "billing", "--limit", "2").stderr


BODIES = {
    "text": ("ä" * 10_000).encode(),
    "bytes": bytes(range(256)) * 40,
    "short": b"\xff\x00",
    "words": b"plain",
}


@pytest.mark.parametrize("kind", ["dlq", "retry"])
def test_bodies_are_shown_as_they_were_sent(broker: RunningBroker, kind: str) -> None:
    """Producers compress bodies of 4 KiB and more."""
    topic = f"Bodies_{kind}"
    make_topic(broker.address, topic, 1)
    with blocking.Producer(broker.namesrv) as producer, RawClient(broker.address) as client:
        for body in BODIES.values():
            sent = producer.send(Message(topic, body))
            level = -1 if kind == "dlq" else 1
            fields = {"offset": int(sent.offset_message_ids[0][-16:], 16), "group": topic, "delayLevel": level}
            assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
    wait_until(lambda: len(rows_of(broker, kind, topic)) == len(BODIES), "they are there")
    shown = []
    for row in rows_of(broker, kind, topic):
        done = run(broker, kind, "show", topic, f"{row['broker']}:0:{row['offset']}", "-o", "json")
        shown.append(json.loads(done.stdout))
        assert (done.returncode, done.stderr, shown[-1]["bytes"]) == (0, "", row["bytes"])
    found = [base64.b64decode(one["bodyBase64"]) if "bodyBase64" in one else one["body"].encode() for one in shown]
    assert sorted(found) == sorted(BODIES.values())
    assert ["body" in one for one in shown] == [body.isascii() or b"\xc3\xa4" in body for body in found]
    texts = [
        run(broker, kind, "show", topic, f"{row['broker']}:0:{row['offset']}").stdout
        for row in rows_of(broker, kind, topic)
    ]
    assert f"body: {'ä' * 10_000}\n" in texts[found.index(BODIES["text"])]
    assert "body: \\xff\\x00\n" in texts[found.index(BODIES["short"])]


def test_a_body_that_cannot_be_decompressed_is_shown_as_stored(capsys: pytest.CaptureFixture[str]) -> None:
    message = MessageExt("T", b"\xffno zlib", sys_flag=int(MessageSysFlag.COMPRESSED))
    assert message_body.plain_body(message) == b"\xffno zlib"
    assert "shown as it is stored, it cannot be decompressed: zlib" in capsys.readouterr().err


def rows_of(broker: RunningBroker, kind: str, group: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run(broker, kind, "list", group, "-o", "json").stdout)
    return found


@pytest.mark.parametrize("arguments", [[], ["--all", "--message", "b:0:0"], ["--message", "b:0:0", "--from", "b:0:0"]])
def test_a_resend_needs_a_choice(arguments: list[str]) -> None:
    done = CliRunner().invoke(commands.dlq, ["resend", "billing", *arguments])
    assert done.exit_code == 2 and "--all" in done.output


def test_a_message_that_is_not_there_stops_a_resend(broker: RunningBroker) -> None:
    for place in ("nobody:0:7", f"{listed(broker, 'dlq')[0]['broker']}:0:3"):
        done = run(broker, "dlq", "resend", "billing", "--message", place)
        assert done.returncode == 1 and place in done.stderr
    done = run(broker, "dlq", "show", "billing", "broker:0")
    assert done.returncode == 2 and "BROKER:QUEUE:OFFSET" in done.stderr


def test_a_message_of_a_topic_is_shown(broker: RunningBroker) -> None:
    def shown(place: str, *more: str) -> subprocess.CompletedProcess[str]:
        return run_ringmq("topic", "show", "Orders", place, "--namesrv", broker.namesrv, *more)

    done = shown("broker-a:0:1")
    assert done.returncode == 0 and "topic: Orders\n" in done.stdout and "body: order 1\n" in done.stdout, done.stderr
    assert json.loads(shown("broker-a:0:2", "-o", "json").stdout)["properties"]["KEYS"] == "k2"
    assert "has no message broker-a:0:3: the queue has offsets 0 to 2" in shown("broker-a:0:3").stderr
    assert "has no message broker-a:9:0: no such queue, see ringmq topic status" in shown("broker-a:9:0").stderr


def test_an_interrupted_resend_goes_on_where_it_ended(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    name, sent, interrupted = str(listed(broker, "dlq")[0]["broker"]), list[int](), [KeyboardInterrupt()]

    async def send(_: object, found: Stored) -> None:
        if len(sent) == 1 and interrupted:
            raise interrupted.pop()
        sent.append(found.message.queue_offset)

    monkeypatch.setattr(commands.Resends, "send", send)
    command = ["resend", "billing", "--all", "--namesrv", broker.namesrv]
    ended = CliRunner().invoke(commands.dlq, command)
    assert ended.exit_code == 1 and f"1 messages were resent; go on with --all --from {name}:0:1" in ended.output
    ended = CliRunner().invoke(commands.dlq, [*command, "--from", f"{name}:0:1"])
    assert ended.exit_code == 0 and "2 messages were resent" in ended.output
    assert sent == [0, 1, 2]
    assert CliRunner().invoke(commands.dlq, [*command, "--from", "zzz:0:0"]).output == "0 messages were resent\n"


def test_some_or_all_dead_letters_come_again(broker: RunningBroker) -> None:
    dry = run(broker, "dlq", "resend", "billing", "--all", "--dry-run")
    assert "3 messages would be resent" in dry.stdout
    place = f"{listed(broker, 'dlq')[2]['broker']}:0:2"
    assert "1 messages were resent" in run(broker, "dlq", "resend", "billing", "--message", place).stdout
    retry = "%RETRY%billing"
    wait_until(lambda: len(messages_of(broker.address, retry, 1)) == 1, "it comes again")
    assert bytes(messages_of(broker.address, retry, 1)[0].body) == b"order 2"
    assert "3 messages were resent" in run(broker, "dlq", "resend", "billing", "--all").stdout
    wait_until(lambda: len(messages_of(broker.address, retry, 1)) == 4, "they come again")
    assert [row["topic"] for row in listed(broker, "retry")] == ["Orders"] * 4
    assert len(listed(broker, "dlq")) == 3


def test_dead_letters_of_a_namespace(broker: RunningBroker) -> None:
    make_topic(broker.address, "shop%Orders", 1)
    with RawClient(broker.address) as client:
        sent = client.send("shop%Orders", b"order", pairs={"KEYS": "k"})
        fields = {"offset": int(sent.ext_fields["msgId"][-16:], 16), "group": "shop%billing", "delayLevel": -1}
        assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
    of_shop = ("billing", "--namespace", "shop")
    wait_until(lambda: "Orders" in run(broker, "dlq", "list", *of_shop).stdout, "its route")
    done = run(broker, "dlq", "list", *of_shop, "--output", "json")
    assert [(row["topic"], row["key"]) for row in json.loads(done.stdout)] == [("Orders", "k")]
    assert "body: order" in run(broker, "dlq", "show", "billing", "broker-a:0:0", "--namespace", "shop").stdout
    before = len(messages_of(broker.address, "%RETRY%billing", 1))
    assert "1 messages were resent" in run(broker, "dlq", "resend", *of_shop, "--all").stdout
    retry = "%RETRY%shop%billing"
    wait_until(lambda: len(messages_of(broker.address, retry, 1)) == 1, "it comes again")
    assert messages_of(broker.address, retry, 1)[0].properties["RETRY_TOPIC"] == "shop%Orders"
    assert len(messages_of(broker.address, "%RETRY%billing", 1)) == before, "other groups get nothing"


def test_dead_letters_of_a_group_that_pops_come_to_its_pops(broker: RunningBroker) -> None:
    """Its members read no `%RETRY%group`. One dead letter has come again before, and the other one has not."""
    make_topic(broker.address, "Popped", 1)
    with blocking.Producer(broker.namesrv) as producer:
        producer.send_batch([Message("Popped", b"twice"), Message("Popped", b"once", {"KEYS": "k"})])

    def popper() -> blocking.SimpleConsumer:
        return blocking.SimpleConsumer("Popped", broker.namesrv, "poppers", consume_from=ConsumeFrom.FIRST)

    with popper() as consumer:
        twice, once = consumer.receive(wait_ms=10_000)
        consumer.reject(once)
        consumer.nack(twice)
        (twice,) = consumer.receive(wait_ms=10_000)
        consumer.reject(twice)
    wait_until(lambda: len(rows_of(broker, "dlq", "poppers")) == 2, "their route")
    assert [row["topic"] for row in rows_of(broker, "dlq", "poppers")] == ["Popped"] * 2
    for has_members in (False, True):
        if not has_members:
            assert "2 messages were resent" in run(broker, "dlq", "resend", "poppers", "--all").stdout
        with popper() as consumer:
            if has_members:
                assert "2 messages were resent" in run(broker, "dlq", "resend", "poppers", "--all").stdout
            found = list[PoppedMessage]()
            while len(found) < 2 and (popped := consumer.receive(wait_ms=10_000)):
                consumer.ack(popped)
                found += popped
        assert sorted((bytes(one.body), one.topic, one.attempt, one.properties.get("KEYS")) for one in found) == [
            (b"once", "Popped", 1, "k"), (b"twice", "Popped", 1, None),
        ]  # fmt: skip
