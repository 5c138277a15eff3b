"""The commands against a broker and name server of ours."""

import asyncio
import itertools
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ringmq.cli.admin import Admin, open_admin
from ringmq.cli.main import main
from ringmq.cli.produce import produce
from ringmq.loadtest.load.program import Program
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.json_body import write_body
from ringmq.remoting.recall_handle import decode_handle
from tests.commands import RINGMQ, run_ringmq
from tests.raw_client import RawClient
from tests.waiting import wait_until

SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
NAMES = itertools.count()
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server's address."""
    with RunningBroker(tmp_path_factory.mktemp("cli") / "store", SMALL) as broker:
        yield f"127.0.0.1:{broker.namesrv_port}"


@pytest.fixture
def ringmq(cluster: str) -> Run:
    """Run a command; RINGMQ_NAMESRV names the cluster."""

    def run(*arguments: str, lines: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_ringmq(*arguments, lines=lines, RINGMQ_NAMESRV=cluster)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def topic(ringmq: Run) -> str:
    """A topic of its own, 2 queues."""
    name = f"Cli{next(NAMES)}"
    ringmq("topic", "create", name, "-q", "2")
    return name


def test_topics_are_created_listed_changed_and_deleted(ringmq: Run, topic: str) -> None:
    listed = {row["topic"]: row for row in json.loads(ringmq("topic", "list", "-o", "json").stdout)}
    assert (listed[topic]["readQueues"], listed[topic]["writeQueues"], listed[topic]["perm"]) == (2, 2, ["RW"])
    assert "TBW102" not in listed
    assert "TBW102" in ringmq("topic", "list", "--all").stdout
    changed = json.loads(ringmq("topic", "create", topic, "-q", "4", "--perm", "4", "-o", "json").stdout)
    assert (changed["topic"], changed["writeQueues"], changed["perm"]) == (topic, 4, 4)
    (route,) = json.loads(ringmq("topic", "route", topic, "-o", "json").stdout)
    assert (route["readQueues"], route["perm"]) == (4, "R-")
    assert topic in ringmq("topic", "delete", topic).stdout
    assert "no route" in ringmq("topic", "route", topic, status=1).stderr


def topic_on(cluster: str, topic: str) -> dict[str, Any]:
    """The configuration that the broker has."""
    return asked(cluster, lambda admin, address: admin.topic_on(address, topic))


def group_on(cluster: str, group: str) -> dict[str, Any]:
    return asked(cluster, lambda admin, address: admin.group_on(address, group))


def asked(cluster: str, question: Callable[[Admin, str], Any]) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        async with open_admin(cluster) as admin:
            (address,) = await admin.masters()
            return asdict(await question(admin, address))

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ("--perm 4", {"perm": 4}),
        ("-q 5", {"read_queue_nums": 5, "write_queue_nums": 5}),
        ("--read-queues 6", {"read_queue_nums": 6}),
        ("--write-queues 1", {"write_queue_nums": 1}),
        ("--no-order", {"order": False}),
        ("--attribute message.type=NORMAL", {"attributes": {"reserve.time": "9", "message.type": "NORMAL"}}),
        ("", {}),
    ],
)
def test_a_change_of_a_topic_keeps_what_it_does_not_name(
    ringmq: Run, cluster: str, options: str, changed: dict[str, Any]
) -> None:
    name = f"Kept{next(NAMES)}"
    made = "--read-queues 4 --write-queues 3 --perm 2 --order --attribute reserve.time=9"
    ringmq("topic", "create", name, *made.split())
    before = topic_on(cluster, name)
    assert (before["read_queue_nums"], before["write_queue_nums"], before["perm"], before["order"]) == (4, 3, 2, True)
    said = json.loads(ringmq("topic", "create", name, *options.split(), "-o", "json").stdout)
    after = topic_on(cluster, name)
    assert after == before | changed
    assert (said["readQueues"], said["writeQueues"], said["perm"]) == (
        after["read_queue_nums"], after["write_queue_nums"], after["perm"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ("--no-orderly", {"consume_message_orderly": False}),
        ("--retry-max-times 5", {"retry_max_times": 5}),
        ("--retry-queues 1", {"retry_queue_nums": 1}),
        ("--broadcast", {"consume_broadcast_enable": True}),
        ("--enabled", {"consume_enable": True}),
        ("", {}),
    ],
)
def test_a_change_of_a_group_keeps_what_it_does_not_name(
    ringmq: Run, cluster: str, options: str, changed: dict[str, Any]
) -> None:
    name, kept = f"Kept{next(NAMES)}", {"consume_timeout_minute": 7, "which_broker_when_consume_slowly": 2}
    made = "--orderly --retry-max-times 3 --retry-queues 2 --no-broadcast --disabled"
    ringmq("group", "create", name, *made.split())
    with RawClient(json.loads(ringmq("group", "create", name, "-o", "json").stdout)["brokers"][0]) as client:
        config = SubscriptionGroupConfig(**(group_on(cluster, name) | kept))  # by another tool
        body = write_body(config.to_json())
        assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0
    before = group_on(cluster, name)
    assert (before["consume_enable"], before["retry_max_times"], before["consume_timeout_minute"]) == (False, 3, 7)
    ringmq("group", "create", name, *options.split())
    assert group_on(cluster, name) == before | changed


def test_what_a_new_topic_and_a_new_group_have(ringmq: Run, cluster: str) -> None:
    name = f"New{next(NAMES)}"
    ringmq("topic", "create", name)
    ringmq("group", "create", name)
    assert topic_on(cluster, name) == asdict(TopicConfig(name, 8, 8, 6))
    assert group_on(cluster, name) == asdict(SubscriptionGroupConfig(name))


def test_messages_go_in_and_come_out(ringmq: Run, topic: str) -> None:
    sent = ringmq("produce", topic, "-m", "hello", "-m", "wörld", "-t", "TagA", "-k", "k1", "-p", "color=blue")
    assert len(sent.stdout.splitlines()) == 2
    assert "OK" in sent.stdout
    (first, second) = map(
        json.loads, ringmq("consume", topic, "-c", "2", "-o", "json", "-g", topic).stdout.splitlines()
    )
    assert {first["body"], second["body"]} == {"hello", "wörld"}
    assert (first["tags"], first["keys"], first["properties"]["color"]) == ("TagA", ["k1"], "blue")
    status = json.loads(ringmq("topic", "status", topic, "-o", "json").stdout)
    assert sum(row["messages"] for row in status) == 2


def test_a_namespace_has_names_of_its_own(ringmq: Run, topic: str) -> None:
    ns, group = ("--namespace", f"ns{topic}"), f"g_{topic}"
    ringmq("topic", "create", topic, "-q", "1", *ns)
    ringmq("group", "create", group, "--retry-max-times", "3", *ns)
    ringmq("produce", topic, "-m", "inside", *ns)
    assert ringmq("consume", topic, "-c", "1", "-g", group, *ns).stdout == "inside\n"
    listed = json.loads(ringmq("topic", "list", "-o", "json", *ns).stdout)
    assert [(row["topic"], row["writeQueues"]) for row in listed] == [(topic, 1)]
    assert f"ns{topic}%{topic}" in ringmq("topic", "list").stdout
    groups = json.loads(ringmq("group", "list", "-o", "json", *ns).stdout)
    assert [(row["group"], row["retryMaxTimes"]) for row in groups] == [(group, 3)]
    rows = json.loads(ringmq("group", "progress", group, "-o", "json", *ns).stdout)
    assert [row["consumerOffset"] for row in rows if row["topic"] == topic] == [1]
    ringmq("group", "delete", group, *ns)
    ringmq("topic", "delete", topic, *ns)
    assert json.loads(ringmq("topic", "list", "-o", "json", *ns).stdout) == []
    assert topic in ringmq("topic", "list").stdout.split(), "the topic of that name outside stays"


@pytest.mark.parametrize("batch", ["1", "32"])
def test_lines_are_messages(ringmq: Run, topic: str, batch: str) -> None:
    lines = [f"line {n}" for n in range(500)]
    done = ringmq("produce", topic, "-b", batch, "--number-keys", lines="\n".join(lines))
    assert done.stdout.startswith("500 messages sent")
    got = ringmq("consume", topic, "-c", "500", "-g", topic).stdout.splitlines()
    assert sorted(got) == sorted(lines)


def test_delayed_messages_come_later(ringmq: Run, topic: str) -> None:
    begun = time.monotonic()
    sent = json.loads(ringmq("produce", topic, "-m", "later", "--delay-level", "1", "-o", "json").stdout)
    assert (sent["status"], sent["delayLevel"], "queueOffset" in sent) == ("OK", 1, False)
    assert "waits at level 1  OK" in ringmq("produce", topic, "-m", "later", "--delay-level", "1").stdout
    got = [
        json.loads(line) for line in ringmq("consume", topic, "-c", "2", "-g", topic, "-o", "json").stdout.splitlines()
    ]
    assert time.monotonic() - begun >= 1
    assert [(message["body"], message["properties"]["DELAY"]) for message in got] == [("later", "1")] * 2
    assert "1<=x<=1000" in ringmq("produce", topic, "-m", "x", "--delay-level", "0", status=2).stderr
    assert (
        "batch cannot be delayed"
        in ringmq("produce", topic, "-m", "x", "--delay-level", "1", "-b", "2", status=2).stderr
    )


def due_ms(ringmq: Run, topic: str, *options: str) -> int:
    """The second in which the broker delivers a message, from its recall handle."""
    sent = json.loads(ringmq("produce", topic, "-m", "later", "-o", "json", *options).stdout)
    assert (sent["status"], "queueOffset" in sent) == ("OK", False)
    return int(decode_handle(sent["recallHandle"]).time_text) - 1


def test_messages_for_a_time(ringmq: Run, topic: str) -> None:
    before_ms = time.time_ns() // 1_000_000
    due = due_ms(ringmq, topic, "--delay", "90s")
    assert before_ms + 89_000 <= due <= time.time_ns() // 1_000_000 + 90_000
    at = datetime.now().astimezone().replace(microsecond=456_000) + timedelta(hours=5)
    second_ms = int(at.timestamp()) * 1000
    assert due_ms(ringmq, topic, "--at", at.isoformat()) == second_ms
    assert due_ms(ringmq, topic, "--at", at.replace(tzinfo=None).isoformat()) == second_ms, "local time"
    assert "waits, recall handle " in ringmq("produce", topic, "-m", "x", "--delay", "5m").stdout
    assert " offset 0  OK" in ringmq("produce", topic, "-m", "now", "--at", "2020-01-01T09:00Z").stdout
    refused = ringmq("produce", topic, "-m", "x", "--delay", "4d", status=1).stderr
    assert "max delay 259200000ms" in refused and "TIMER_DELAY_MS = 345600000 is too far" in refused


def test_timer_messages_are_shown_and_recalled(ringmq: Run, cluster: str, topic: str) -> None:
    def timer(*arguments: str, status: int = 0) -> str:
        done = CliRunner().invoke(main, ["timer", *arguments, "--namesrv", cluster])
        assert done.exit_code == status, done.output
        return done.output

    def shown(key: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(timer("show", key, "-o", "json"))
        return found

    for key in ("a", "b"):
        ringmq("produce", topic, "-m", "x", "--delay", "2h", "-k", f"{topic}-{key}", "-k", topic)
    wait_until(lambda: len(shown(topic)) == 2, "both are indexed")
    (one,) = shown(f"{topic}-a")
    assert (one["state"], one["topic"], one["rolls"]) == ("waiting", topic, 0)
    refused = timer("recall", f"{topic}-a", status=1)
    assert "recallMessageEnable is false: set recallMessageEnable=true" in refused
    address = json.loads(ringmq("topic", "route", topic, "-o", "json").stdout)[0]["addresses"][0].partition("=")[2]
    with RawClient(address) as client:
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"recallMessageEnable=true").code == 0
    assert "or --all" in timer("recall", topic, status=1)
    assert "recalled" in timer("recall", str(one["uniqueKey"]))
    wait_until(lambda: {row["state"] for row in shown(topic)} == {"recalled", "waiting"}, "the recall is indexed")
    (row,) = json.loads(timer("recall", topic, "-o", "json"))
    assert row["key"] == f"{topic}-b {topic}"
    assert "no timer message with key no-such-key waits" in timer("recall", "no-such-key", status=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--delay", "90"), "such as 90s"), (("--delay", "-1s"), "such as 90s"),
        (("--at", "tomorrow"), "such as 2026-12-01T09:00"), (("--delay", "1s", "--at", "2030-01-01"), "leave out --at"),
        (("--delay", "1s", "-b", "2"), "leave out --batch"), (("--at", "2030-01-01", "-b", "2"), "leave out --batch"),
        (("--delay-level", "1", "--delay", "1s"), "leave out --delay"),
    ],
)  # fmt: skip
def test_wrong_times_are_named(options: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(produce, ["T", "-m", "x", *options])
    assert done.exit_code == 2 and words in done.output


def test_a_file_with_windows_lines_and_empty_ones(ringmq: Run, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"one\r\ntwo\r\n\r\nthree")
    results = [json.loads(line) for line in ringmq("produce", topic, "-f", str(path), "-o", "json").stdout.splitlines()]
    assert [result["status"] for result in results] == ["OK"] * 3
    assert sorted(ringmq("consume", topic, "-c", "3", "-g", topic).stdout.splitlines()) == ["one", "three", "two"]


def test_a_group_goes_on_where_it_stopped(ringmq: Run, topic: str) -> None:
    ringmq("produce", topic, "-b", "10", lines="\n".join(str(n) for n in range(100)))
    first = ringmq("consume", topic, "-g", topic, "-c", "30").stdout.splitlines()
    rows = json.loads(ringmq("group", "progress", topic, "-o", "json").stdout)
    assert sum(row["lag"] for row in rows if row["topic"] == topic) == 70
    rest = ringmq("consume", topic, "-g", topic, "-c", "70").stdout.splitlines()
    assert sorted(first + rest, key=int) == [str(n) for n in range(100)]
    assert "total lag 0" in ringmq("group", "progress", topic).stdout


def test_tags_select_and_silence_ends(ringmq: Run, topic: str) -> None:
    ringmq("produce", topic, "-m", "a", "-t", "TagA")
    ringmq("produce", topic, "-m", "b", "-t", "TagB")
    words = ("consume", topic, "-g", topic, "-t", "TagB || TagC", "-v")
    got = ringmq(*words, "-c", "1").stdout
    assert got.count("\n") == 1
    assert "tags TagB b" in got
    assert ringmq(*words, "--timeout", "1.5").stdout == "", "the other message is not selected"


def test_a_body_that_is_no_text_comes_whole(ringmq: Run, topic: str, cluster: str) -> None:
    from ringmq.client import blocking, compose_message

    with blocking.Producer(cluster) as producer:
        producer.send(compose_message(topic, b"\xff\x00"))
    assert json.loads(ringmq("consume", topic, "-g", topic, "-c", "1", "-o", "json").stdout)["bodyBase64"] == "/wA="


def test_groups_are_created_listed_and_deleted(ringmq: Run) -> None:
    ringmq("group", "create", "CliGroup", "--retry-max-times", "3", "--no-broadcast")
    rows = {row["group"]: row for row in json.loads(ringmq("group", "list", "-o", "json").stdout)}
    assert (rows["CliGroup"]["members"], rows["CliGroup"]["retryMaxTimes"]) == (0, 3)
    assert "TOOLS_CONSUMER" not in rows
    assert "TOOLS_CONSUMER" in ringmq("group", "list", "--all").stdout
    assert "no member online" in ringmq("group", "members", "CliGroup", status=1).stderr
    assert "nothing yet" in ringmq("group", "progress", "CliGroup", status=1).stderr
    assert json.loads(ringmq("group", "delete", "CliGroup", "-o", "json").stdout) == {
        "group": "CliGroup",
        "deleted": True,
    }
    assert "CliGroup" not in ringmq("group", "list").stdout


def test_consume_says_that_it_waits_for_a_topic_that_is_not_there(ringmq: Run, topic: str) -> None:
    assert ringmq("consume", topic, "--timeout", "0.1").stderr == ""
    assert "topic Mistyped does not exist yet" in ringmq("consume", "Mistyped", "--timeout", "0.1").stderr


def test_a_group_is_reset(ringmq: Run, topic: str) -> None:
    bodies = [str(number) for number in range(10)]
    ringmq("produce", topic, lines="\n".join(bodies))
    assert len(ringmq("consume", topic, "-g", topic, "-c", "10").stdout.splitlines()) == 10

    def reset(to: str) -> list[tuple[int, int]]:
        rows = json.loads(ringmq("group", "reset", topic, topic, "--to", to, "-o", "json").stdout)
        assert {row["topic"] for row in rows} == {topic}
        return [(row["queueId"], row["consumerOffset"]) for row in rows]

    assert reset("first") == [(0, 0), (1, 0)]
    assert sorted(ringmq("consume", topic, "-g", topic, "-c", "10").stdout.splitlines(), key=int) == bodies
    assert reset("1000") == [(0, 0), (1, 0)]
    ends = reset("last")
    assert sum(offset for _, offset in ends) == 10 and reset("99999999999999") == ends
    assert "total lag 0" in ringmq("group", "progress", topic).stdout
    assert "group Nope does not exist" in ringmq("group", "reset", "Nope", topic, "--to", "first", status=1).stderr
    assert "topic Nope has no route" in ringmq("group", "reset", topic, "Nope", "--to", "first", status=1).stderr
    assert "neither first nor last" in ringmq("group", "reset", topic, topic, "--to", "-1", status=2).stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            "topic delete Nope",
            "topic Nope has no route: no registered broker has it, so nothing is known to be deleted",
        ),
        ("group delete Nope", "group Nope does not exist"),
        ("group progress Nope", "group Nope does not exist"),
        ("group members Nope", "group Nope does not exist"),
    ],
)
def test_a_name_that_does_not_exist_is_told(ringmq: Run, command: str, says: str) -> None:
    assert says in ringmq(*command.split(), status=1).stderr
    assert says.partition(" Nope")[0] + " list" in ringmq(*command.split(), status=1).stderr


def test_progress_names_a_topic_that_does_not_exist(ringmq: Run) -> None:
    ringmq("group", "create", "CliIdle")
    assert "topic Nope has no route" in ringmq("group", "progress", "CliIdle", "--topic", "Nope", status=1).stderr
    ringmq("group", "delete", "CliIdle")


@pytest.mark.parametrize("command", ["topic list", "topic delete T", "group list", "consume T", "produce T -m x"])
def test_a_broker_s_port_given_as_name_server_is_told(ringmq: Run, command: str, cluster: str) -> None:
    brokers = json.loads(ringmq("topic", "create", "CliPorts", "-o", "json").stdout)["brokers"]
    said = ringmq(*command.split(), "-n", brokers[0], status=1).stderr
    assert f"{brokers[0]} is no name server: it answered 3" in said
    assert "by default port 9876" in said
    assert len(said.splitlines()) == 1


def test_a_running_consumer_is_a_member_and_leaves_on_sigterm(ringmq: Run, topic: str, cluster: str) -> None:
    command = [*RINGMQ, "consume", topic, "-g", topic, "-n", cluster]
    with Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        ringmq("produce", topic, "-m", "for you")
        assert process.stdout.readline() == "for you\n"
        (member,) = json.loads(ringmq("group", "members", topic, "-o", "json").stdout)
        assert member["language"] == "PYTHON"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Traceback" not in process.stderr.read()
    assert "no member online" in ringmq("group", "members", topic, status=1).stderr
    assert "total lag 0" in ringmq("group", "progress", topic).stdout


def test_the_namesrv_command_serves_and_stops() -> None:
    with Program([*RINGMQ, "namesrv", "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().rsplit(" ", 1)[1].strip()
        done = run_ringmq("topic", "list", "-o", "json", "-n", address)
        assert (done.returncode, done.stdout) == (0, "[]\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
