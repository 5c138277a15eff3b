"""`ringmq top`: numbers out of two scrapes, the screen as a terminal shows it, a running broker."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from fcntl import ioctl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from struct import pack

import pyte
import pytest
from click.testing import CliRunner
from rich.console import Console

from ringmq.cli.main import main
from ringmq.cli.metrics_text import parse, quantile
from ringmq.cli.top_view import PopRow, duration, screen, short, size, view_of
from ringmq.loadtest.load.program import Program
from ringmq.loadtest.load.running import RunningBroker
from tests.commands import RINGMQ, run_ringmq
from tests.raw_client import RawClient

BEFORE = """
# TYPE rocketmq_messages_in_total counter
rocketmq_messages_in_total{topic="orders",node_id="b"} 100
rocketmq_throughput_in_total{topic="orders",node_id="b"} 1000
ringmq_worker_cpu_seconds_total{worker="write"} 1.5
ringmq_request_seconds_bucket{stage="answered",le="0.001"} 10
ringmq_request_seconds_bucket{stage="answered",le="+Inf"} 10
ringmq_request_seconds_count{stage="answered"} 10
ringmq_request_seconds_sum{stage="answered"} 0.01
"""
NOW = """
ringmq_ready{node_id="b",cluster="c"} 1
ringmq_writable{node_id="b"} 0
rocketmq_messages_in_total{topic="orders",node_id="b"} 300
rocketmq_throughput_in_total{topic="orders",node_id="b"} 5096
rocketmq_messages_in_total{topic="a\\"quote",node_id="b"} 5 1795306953468
rocketmq_consumer_lag_messages{consumer_group="g",topic="orders"} 7
rocketmq_consumer_lag_latency_milliseconds{consumer_group="g",topic="orders"} 90000
ringmq_worker_up{worker="write"} 0
ringmq_worker_cpu_seconds_total{worker="write"} 2.5
ringmq_request_seconds_bucket{stage="answered",le="0.001"} 90
ringmq_request_seconds_bucket{stage="answered",le="+Inf"} 110
ringmq_request_seconds_count{stage="answered"} 110
ringmq_request_seconds_sum{stage="answered"} 0.51
"""


def test_rates_are_those_between_two_looks() -> None:
    view = view_of(parse(BEFORE, 10.0), parse(NOW, 12.0))
    assert (view.broker, view.ready, view.writable) == ("b", True, False)
    assert [(row.topic, row.in_per_second) for row in view.topics] == [("orders", 100.0), ('a"quote', 2.5)]
    assert view.topics[0].bytes_per_second == 2048
    assert [(row.group, row.lag, row.age_ms) for row in view.groups] == [("g", 7, 90_000)]
    assert view.workers[0].cpu_percent == 50 and not view.workers[0].up
    (stage,) = view.stages
    assert (stage.per_second, stage.mean_ms, stage.p50_ms, stage.p99_ms) == (50, 5.0, 1.0, float("inf"))


POP_BEFORE = """
ringmq_pop_messages_total 100
ringmq_pop_acks_total{result="done"} 50
ringmq_pop_acks_total{result="late"} 7
ringmq_pop_revived_total{result="copied"} 1
"""
POP_NOW = """
ringmq_ready{node_id="b",cluster="c"} 1
ringmq_pop_windows 4
ringmq_pop_messages_total 300
ringmq_pop_acks_total{result="done"} 150
ringmq_pop_acks_total{result="late"} 9
ringmq_pop_revived_total{result="copied"} 5
ringmq_pop_open_messages 12345
ringmq_pop_oldest_open_seconds 7.25
rocketmq_pop_revive_lag_milliseconds{queue_id="0"} 3
ringmq_pop_polls 17
ringmq_pop_entries 25
ringmq_pop_entries_max 100
rocketmq_consumer_lag_messages{consumer_group="g",topic="t",is_retry="false"} 7
rocketmq_consumer_lag_messages{consumer_group="g",topic="t",is_retry="true"} 2
rocketmq_consumer_lag_latency_milliseconds{consumer_group="g",topic="t",is_retry="false"} 900
rocketmq_consumer_lag_latency_milliseconds{consumer_group="g",topic="t",is_retry="true"} 500
"""


def test_pops_have_a_row_once_a_group_pops() -> None:
    view = view_of(parse(POP_BEFORE, 10.0), parse(POP_NOW, 12.0))
    assert view.pops == (PopRow(100.0, 50.0, 2.0, 12_345, 7.25, 3, 17, 0.25),)
    assert [(row.lag, row.age_ms) for row in view.groups] == [(9, 900)], "both series of the group"
    assert view_of(parse(BEFORE, 10.0), parse(NOW, 12.0)).pops == ()
    console = Console(width=100, record=True, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(screen(view))
    (line,) = [line.split() for line in console.export_text(styles=False).splitlines() if "12.3k" in line]
    assert line == ["all", "100", "50", "2", "12.3k", "7.2", "s", "3", "17", "25%"]


def test_counters_that_fell_back_are_no_negative_rates() -> None:
    view = view_of(parse(NOW, 10.0), parse(BEFORE, 12.0))
    assert view.in_per_second == 0 and view.stages == ()
    assert quantile(parse(NOW, 0), parse(NOW, 1), "ringmq_request_seconds", 0.5, stage="answered") is None


def test_what_is_no_metric_is_refused() -> None:
    with pytest.raises(ValueError, match="no metric: <html>"):
        parse("<html>", 0.0)


def test_numbers_as_people_read_them() -> None:
    assert [short(n) for n in (0, 2.5, 42, 9999, 12_345, 1_234_567, 5e9)] == [
        "0", "2.5", "42", "9999", "12.3k", "1.23M", "5G",
    ]  # fmt: skip
    assert [size(n) for n in (0, 2048, 3 << 30)] == ["0 B", "2.0 KiB", "3.0 GiB"]
    assert [duration(ms) for ms in (0, 0.004, 1.5, 90_000, 600_000, 36_000_000)] == [
        "-", "4 us", "1.5 ms", "90.0 s", "10 min", "10.0 h",
    ]  # fmt: skip


def test_long_tables_are_cut_and_what_is_wrong_stands_out() -> None:
    many = "\n".join(f'rocketmq_messages_in_total{{topic="t{number}"}} {number}' for number in range(1, 31))
    console = Console(width=100, record=True, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(screen(view_of(parse("", 0.0), parse(NOW + many, 1.0))))
    text = console.export_text(styles=False)
    assert "Topics (22 more)" in text and "takes no sends" in text and "write DOWN" in text
    assert max(len(line) for line in text.splitlines()) <= 100


def terminal(
    arguments: list[str],
    is_done: Callable[[list[str]], bool],
    seconds: float = 60.0,
    keys: Callable[[list[str]], str] = lambda _: "",
    end_key: str = "",
) -> list[str]:
    """What a terminal of 100x40 shows as soon as `is_done`; then `end_key`, or ^C. `keys` says what is typed meanwhile,
    after each change of the screen."""
    child, descriptor = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in jobs that a script has put in the background
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "ringmq.cli.main", *arguments])
    ioctl(descriptor, termios.TIOCSWINSZ, pack("HHHH", 40, 100, 0, 0))
    shown = pyte.Screen(100, 40)
    stream = pyte.ByteStream(shown)
    deadline = time.monotonic() + seconds
    while not is_done(shown.display) and time.monotonic() < deadline:
        if select.select([descriptor], [], [], 0.2)[0]:
            stream.feed(os.read(descriptor, 65_536))
            if typed := keys(shown.display):
                os.write(descriptor, typed.encode())
    lines = [line.rstrip() for line in shown.display]
    if end_key:
        os.write(descriptor, end_key.encode())
    else:
        os.kill(child, signal.SIGINT)
    _, status = os.waitpid(child, 0)
    os.close(descriptor)
    assert os.waitstatus_to_exitcode(status) == 0
    return lines


class Answering(BaseHTTPRequestHandler):
    """A broker's metrics, as long as it is there; else one of the answers that are none."""

    is_there = True
    instead = b""

    def do_GET(self) -> None:
        if self.is_there:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(NOW.encode())
        else:
            self.wfile.write(self.instead)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


CUT = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx"


@pytest.fixture(params=["HTTP/1.0 503 Gone\r\n\r\n", CUT, "junk\r\n"], ids=["unavailable", "cut", "junk"])
def answering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address."""
    monkeypatch.setattr(Answering, "is_there", True)
    monkeypatch.setattr(Answering, "instead", request.param.encode())
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_broker_that_ends_is_waited_for(answering: str) -> None:
    seen: list[str] = []

    def is_done(display: list[str]) -> bool:
        """Shown, gone, back."""
        text = "\n".join(display)
        stage = "gone" if "no answer: http://" in text else "shown" if "b of c" in text else ""
        if stage and seen[-1:] != [stage]:
            seen.append(stage)
            Answering.is_there = stage == "gone"
        return seen == ["shown", "gone", "shown"]

    terminal(["top", "--url", answering, "--interval", "0.2"], is_done)
    assert seen == ["shown", "gone", "shown"]


@pytest.mark.parametrize("answering", ["junk\r\n"], indirect=True)
def test_a_question_mark_explains_the_screen_and_q_ends_it(answering: str) -> None:
    seen: list[str] = []

    def keys(display: list[str]) -> str:
        """Shown, explained, shown again."""
        text = "\n".join(display)
        stage = "help" if "age of the oldest message" in text else "shown" if "q ends, ? explains" in text else ""
        if not stage or seen[-1:] == [stage]:
            return ""
        seen.append(stage)
        return "" if len(seen) == 3 else "?" if stage == "shown" else "x"

    arguments = ["top", "--url", answering, "--interval", "0.2"]
    lines = terminal(arguments, lambda _: len(seen) == 3, keys=keys, end_key="q")
    assert seen == ["shown", "help", "shown"]
    assert lines[0].startswith("b of c")


def test_lines_of_json_go_on_when_it_is_back(answering: str) -> None:
    command = [*RINGMQ, "top", "--url", answering, "--interval", "0.2", "-o", "json"]
    with Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            assert json.loads(process.stdout.readline())["broker"] == "b"
            Answering.is_there = False
            assert process.stderr.readline().startswith(f"no answer: {answering}/metrics: ")
            assert process.poll() is None
            Answering.is_there = True
            for _ in range(10):  # more than were said before it was gone
                assert json.loads(process.stdout.readline())["broker"] == "b"
        finally:
            process.kill()


def test_an_address_that_is_none_is_told() -> None:
    told = CliRunner().invoke(main, ["top", "--url", "http://127.0.0.1:abc"])
    assert told.exit_code == 1 and "http://127.0.0.1:abc/metrics: nonnumeric port" in told.output


def test_a_broker_on_a_terminal_and_as_json(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 100, "maxIndexNum": 400}
    with RunningBroker(tmp_path / "store", {**settings, "brokerName": "orders-a"}) as broker:
        with RawClient(broker.address) as client:
            client.send("Orders", b"x" * 100)
        title = "orders-a of DefaultCluster  ready  takes sends"

        def is_done(shown: list[str]) -> bool:
            return shown[0].startswith(title) and all(any(word in row for row in shown) for word in ("write", "Orders"))

        arguments = ["top", "--url", broker.metrics_url, "--interval", "0.3"]
        lines = terminal(arguments, is_done)
        text = "\n".join(lines)
        assert lines[0].startswith(title), text
        assert "Orders" in text and "Workers" in text and "Slaves" not in text
        words = ["top", "--url", broker.metrics_url + "/metrics", "--once"]
        once = run_ringmq(*words, "--interval", "0.2", "-o", "json")
        assert json.loads(once.stdout)["topics"][0]["topic"] == "Orders"
        assert broker.stop() == 0
        gone = run_ringmq(*words)
        assert gone.returncode == 1 and "ready line" in gone.stderr and "Traceback" not in gone.stderr
