"""`ringmq consume --pop`: a member that takes single messages."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest
from click.testing import CliRunner

from ringmq.cli import consume
from ringmq.cli.main import main
from ringmq.client import BrokerError, ConnectError, PoppedMessage, RingmqError
from ringmq.loadtest.load.running import RunningBroker
from tests.broker.test_processes import SMALL
from tests.commands import run_ringmq
from tests.staging import make_topic

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("consume") / "store", SMALL) as running:
        yield running


@pytest.fixture
def ringmq(broker: RunningBroker) -> Run:
    def run(*words: str) -> CompletedProcess[str]:
        done = run_ringmq(*words, "--namesrv", broker.namesrv)
        assert done.returncode == 0, done.stderr
        return done

    return run


def topic_with(broker: RunningBroker, ringmq: Run, name: str, *bodies: str, tag: str = "TagA") -> str:
    make_topic(broker.address, name, 2)
    for body in bodies:
        ringmq("produce", name, "-m", body, "-t", tag)
    return name


def test_messages_are_acknowledged_one_by_one(broker: RunningBroker, ringmq: Run) -> None:
    topic = topic_with(broker, ringmq, "Popped", "a", "b", "c")
    words = ("consume", topic, "-g", "poppers", "--pop")
    before_ms = time.time_ns() // 1_000_000
    first = json.loads(ringmq(*words, "-c", "1", "-o", "json", "--invisible", "10m").stdout)
    assert before_ms + 600_000 <= first["invisibleUntilMs"] <= time.time_ns() // 1_000_000 + 600_000
    rest = ringmq(*words, "-c", "2").stdout.split()
    assert sorted([first["body"], *rest]) == ["a", "b", "c"]
    (entry,) = json.loads(ringmq("group", "inflight", "poppers", "-o", "json").stdout)
    assert entry["messages"] == 0
    assert ringmq(*words, "--timeout", "1").stdout == "", "nothing comes again"


def test_without_acknowledgements_all_messages_come_again(broker: RunningBroker, ringmq: Run) -> None:
    topic = topic_with(broker, ringmq, "Looked", "a", "b")
    words = ("consume", topic, "-g", "lookers", "--pop", "-c", "2", "-v")
    looked = ringmq(*words, "--no-ack", "--invisible", "1s").stdout
    assert sorted(line[-1] for line in looked.splitlines()) == ["a", "b"]
    again = [json.loads(line) for line in ringmq(*words, "-o", "json").stdout.splitlines()]
    assert sorted((row["body"], row["reconsumeTimes"], row["topic"]) for row in again) == [
        ("a", 1, topic), ("b", 1, topic),
    ]  # fmt: skip


def test_tags_select(broker: RunningBroker, ringmq: Run) -> None:
    topic = topic_with(broker, ringmq, "Tagged", "a")
    ringmq("produce", topic, "-m", "b", "-t", "TagB")
    assert ringmq("consume", topic, "-g", "taggers", "--pop", "-t", "TagB", "-c", "1").stdout == "b\n"


def test_a_late_acknowledgement_is_told(broker: RunningBroker, ringmq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topic_with(broker, ringmq, "Late", "a")
    show = consume._show

    def slow(*arguments: object) -> None:
        show(*arguments)  # type: ignore[arg-type]
        time.sleep(0.2)  # span: the message's time is over

    monkeypatch.setattr(consume, "_show", slow)
    words = ["consume", topic, "-g", "late", "--pop", "-c", "1", "--invisible", "50ms", "-n", broker.namesrv]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stdout) == (0, "a\n")
    assert "give --invisible a longer time" in done.stderr


class Broken:
    """A consumer whose broker cannot be reached at first."""

    def __init__(self, *outcomes: RingmqError | list[Any], refusal: RingmqError | None = None) -> None:
        self._outcomes, self._refusal = list(outcomes), refusal

    async def __aenter__(self) -> "Broken":
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def receive(self, count: int, *, wait_ms: int, invisible_ms: int) -> list[Any]:
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, RingmqError):
            raise outcome
        return outcome

    async def ack(self, messages: list[Any]) -> None:
        if self._refusal is not None:
            raise self._refusal


def popped(
    *outcomes: RingmqError | list[Any], count: int = 1, timeout_s: float | None = None,
    refusal: RingmqError | None = None,
) -> None:  # fmt: skip
    consumer: Any = Broken(*outcomes, refusal=refusal)
    asyncio.run(consume._pop(consumer, count, timeout_s, 1000, acks=True, output="table", verbose=False))


def test_a_broker_that_is_away_is_asked_again_until_the_command_is_stopped(capfd: pytest.CaptureFixture[str]) -> None:
    away, message = ConnectError("a:1", "refused"), PoppedMessage("T", b"m")
    popped(away, [], away, [message])
    shown = capfd.readouterr()
    assert (shown.out, shown.err.count("no connection to a:1: refused; trying again")) == ("m\n", 2)
    with pytest.raises(ConnectError):
        popped(away, [message], timeout_s=5.0)
    with pytest.raises(BrokerError):
        popped(BrokerError("a:1", 16, "no permission"), [message])


def test_a_broker_that_is_away_at_an_acknowledgement_ends_no_endless_command(capfd: pytest.CaptureFixture[str]) -> None:
    away, message = ConnectError("a:1", "refused"), PoppedMessage("T", b"m")
    popped([message], [message], count=2, refusal=away)
    shown = capfd.readouterr()
    assert (shown.out, shown.err.count("messages without an acknowledgement come again")) == ("m\nm\n", 2)
    with pytest.raises(ConnectError):
        popped([message], timeout_s=5.0, refusal=away)
    with pytest.raises(BrokerError):
        popped([message], refusal=BrokerError("a:1", 16, "no permission"))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--invisible", "5s"), "--invisible belongs to --pop"),
        (("--no-ack",), "--no-ack belongs to --pop"),
        (("--pop", "--from", "17"), "begins at first or last"),
        (("--pop", "--invisible", "31d"), "not between 1ms and 30d"),
        (("--pop", "--invisible", "0s"), "not between 1ms and 30d"),
        (("--pop", "--invisible", "soon"), "such as 90s"),
        (("--pop", "--timeout", "nan"), "'nan' is no number of seconds"),
        (("--timeout", "inf"), "'inf' is no number of seconds"),
    ],
)
def test_options_that_do_not_fit_are_named(words: tuple[str, ...], error: str) -> None:
    done = CliRunner().invoke(main, ["consume", "T", *words])
    assert done.exit_code == 2 and error in done.output
