"""The metrics worker of a running broker: asleep until somebody connects, bounded, gone and back without harm."""

import contextlib
import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.exporter import http_connections, server, worker
from ringmq.broker.exporter.http_connections import CONNECTIONS_MAX
from ringmq.broker.exporter.server import ExporterServer, Pages
from ringmq.broker.exporter.text import PageText
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.networks import Networks
from tests.broker.exporter_kit import samples, value
from tests.raw_client import RawClient
from tests.waiting import TIMEOUT_S, wait_until

SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    store = tmp_path_factory.mktemp("metrics") / "store"
    settings = {**SMALL, "flushDiskType": "SYNC_FLUSH", "ringmqSlowRequestMs": 200}
    with RunningBroker(store, settings) as running:
        yield running


def get(broker: RunningBroker, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(broker.metrics_url + path, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_worker_starts_at_the_first_connection(broker: RunningBroker) -> None:
    assert "metrics" not in broker.worker_pids()
    with RawClient(broker.address) as client:
        assert client.send("Hello", b"x" * 100).code == 0
        wait_until(lambda: client.pull("Hello", consumerGroup="early").body, "it can be read")
    status, text = get(broker, "/metrics")
    assert status == 200
    assert "metrics" in broker.worker_pids()
    assert value(text, "rocketmq_messages_in_total", topic="Hello") == 1
    for stage in ("queued", "appended", "flushed", "answered"):
        assert value(text, "ringmq_request_seconds_count", stage=stage) == 1, stage
    sums = [value(text, "ringmq_request_seconds_sum", stage=stage) for stage in ("queued", "appended", "answered")]
    assert 0 < sums[0] <= sums[1] <= sums[2], "each stage's time begins when the request was received"
    assert value(text, "ringmq_request_seconds_sum", stage="flushed") >= sums[1]
    assert value(text, "ringmq_request_seconds_count", stage="replicated") == 0
    assert value(text, "ringmq_request_seconds_count", stage="control") >= 1, "the topic was made"


def test_health_and_readiness(broker: RunningBroker) -> None:
    wait_until(lambda: get(broker, "/ready")[0] == 200, "it is ready")
    status, text = get(broker, "/ready")
    assert (status, json.loads(text)["reasons"]) == (200, [])
    status, text = get(broker, "/health")
    workers = json.loads(text)["workers"]
    assert status == 200 and workers["write"]["state"] == "running" and workers["ha"]["state"] == "dormant"


def test_a_broker_that_may_not_be_written_says_so(broker: RunningBroker) -> None:
    with RawClient(broker.address) as client:
        assert client.ask(25, {}, b"brokerPermission=4").code == 0
        wait_until(lambda: "brokerPermission = 4" in get(broker, "/ready")[1], "the permission shows")
        wait_until(lambda: json.loads(get(broker, "/ready")[1])["serving"], "all workers turn their loops")
        status, text = get(broker, "/ready")
        assert (status, json.loads(text)["writable"]) == (503, False)
        assert client.ask(25, {}, b"brokerPermission=6").code == 0
        wait_until(lambda: get(broker, "/ready")[0] == 200, "it is ready again")


def test_a_slow_send_gets_one_line(broker: RunningBroker) -> None:
    def slow_sends() -> list[str]:
        return [line for line in broker.log_tail(20_000).splitlines() if "slow send" in line]

    def waiting() -> float:
        return value(get(broker, "/metrics")[1], "ringmq_requests_waiting", ring="write")

    before = len(slow_sends())  # on a busy machine others may have been slow, too
    with RawClient(broker.address) as client:
        broker.signal_worker("write", signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(client.send, "Hello", b"y" * 500)
            wait_until(lambda: waiting() == 1, "the send waits for the stopped worker")
            time.sleep(0.3)  # span: longer than ringmqSlowRequestMs
            broker.signal_worker("write", signal.SIGCONT)
            assert sending.result(TIMEOUT_S).code == 0
    wait_until(lambda: len(slow_sends()) > before, "the line is written")
    (line,) = slow_sends()[before:]
    assert "topic Hello" in line and "appended" in line and "kept" in line


def test_other_paths_and_other_methods(broker: RunningBroker) -> None:
    assert get(broker, "/")[0] == 200
    assert get(broker, "/metrics/x")[0] == 404
    request = urllib.request.Request(broker.metrics_url + "/metrics", data=b"x" * 10, method="POST")
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(request, timeout=TIMEOUT_S)
    head = urllib.request.Request(broker.metrics_url + "/metrics", method="HEAD")
    with urllib.request.urlopen(head, timeout=TIMEOUT_S) as answer:
        assert answer.read() == b"" and answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize(
    "junk", [b"\0" * 100, b"GET " + b"x" * 70_000, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"GET\r\n\r\n"]
)
def test_junk_costs_its_own_connection_alone(broker: RunningBroker, junk: bytes) -> None:
    host, port = broker.metrics_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        answer = b""
        with contextlib.suppress(OSError):  # the server may have closed before all of it was sent
            connection.sendall(junk)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65_536):
                answer += chunk
        assert not answer or b"200 OK" not in answer
    assert get(broker, "/metrics")[0] == 200


def test_a_killed_worker_comes_back_and_the_broker_stays(broker: RunningBroker) -> None:
    old = broker.signal_worker("metrics", signal.SIGKILL)
    wait_until(lambda: broker.worker_pids().get("metrics", old) != old, "it is started again")
    status, text = get(broker, "/metrics")
    assert status == 200
    assert value(text, "ringmq_worker_starts_total", worker="metrics") == 2
    assert len(samples(text)) == value(text, "ringmq_series")


def test_a_broker_without_metrics_has_no_listener(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {**SMALL, "metricsExporterType": "DISABLE"}) as silent:
        assert silent.metrics_url == ""
        assert silent.stop() == 0


@pytest.fixture
def bare() -> Iterator[tuple[ExporterServer, int]]:
    """The HTTP part alone, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    made: list[int] = []

    def metrics() -> PageText:
        made.append(1)
        return PageText([b"scrape ", b"", b"%d\n" % len(made)])

    serving = ExporterServer(listener, Pages(metrics, lambda: (True, {}), lambda: (False, {"reasons": ["no"]})))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(serving.serve_forever, 0.01)
        yield serving, int(listener.getsockname()[1])
        serving.shutdown()
        done.result(TIMEOUT_S)
    listener.close()


def ask(port: int, path: str = "/health") -> bytes:
    """The answer over a new connection."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path.encode())
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_health_answers_behind_slow_connections(
    bare: tuple[ExporterServer, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent ones, half heads, and readers that never read: many times as many as there are places."""
    _, port = bare
    for limit in ("IDLE_TIMEOUT_S", "HEAD_TIMEOUT_S", "ANSWER_TIMEOUT_S", "STALL_TIMEOUT_S"):
        monkeypatch.setattr(http_connections, limit, 10 * TIMEOUT_S)
    held = []
    for sent in (
        b"",
        b"GET /hea",
        b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    ):
        for _ in range(300):
            connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
            connection.sendall(sent)
            held.append(connection)
        assert ask(port).startswith(b"HTTP/1.1 200 OK\r\n"), "long before any of them is over its time"
    for connection in held:
        connection.close()


def test_a_connection_that_was_answered_stays_while_silent_ones_come(bare: tuple[ExporterServer, int]) -> None:
    serving, port = bare
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as old, contextlib.ExitStack() as held:
        for _ in range(3):
            old.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert old.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
            for _ in range(200):
                held.enter_context(socket.create_connection(("127.0.0.1", port), TIMEOUT_S))
        wait_until(lambda: serving.counts.closed["room"] >= 600 - CONNECTIONS_MAX // 2, "silent ones are closed")


def test_a_half_request_is_closed_in_time(bare: tuple[ExporterServer, int], monkeypatch: pytest.MonkeyPatch) -> None:
    serving, port = bare
    monkeypatch.setattr(http_connections, "HEAD_TIMEOUT_S", 0.1)
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(b"GET /slow")  # and never more
        assert connection.recv(10) == b""
    wait_until(lambda: serving.counts.closed["time"] == 1, "it is counted")


def test_only_named_networks_may_connect(log_text: Callable[[], str]) -> None:
    pages = Pages(PageText, lambda: (True, {}), lambda: (True, {}))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = ExporterServer(listener, pages, Networks.parse("10.0.0.0/8"))
        port = serving.server_port
        with ThreadPoolExecutor(1) as pool:
            pool.submit(serving.serve_forever, 0.01)
            for _ in range(3):
                connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
                with connection, contextlib.suppress(ConnectionResetError):
                    assert connection.recv(10) == b""
            wait_until(lambda: serving.counts.closed["network"] == 3, "they are counted")
            serving.shutdown()
    lines = log_text().splitlines()
    assert len(lines) == 1 and "127.0.0.1" in lines[0] and "httpAllowedNetworks" in lines[0]


def test_pages_wait_for_their_turn(bare: tuple[ExporterServer, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that take nothing hold PAGES_MAX pages; a scraper gets its own when their share of time is over."""
    serving, port = bare
    monkeypatch.setattr(server, "PAGES_MAX", 3)
    monkeypatch.setattr(server, "PAGE_SHARE_S", 0.2)
    made: list[int] = []

    def large() -> PageText:
        made.append(len(made))
        return PageText([bytes(1 << 20)] * 16)

    monkeypatch.setattr(serving, "pages", Pages(large, serving.pages.health, serving.pages.ready))
    with contextlib.ExitStack() as held:
        for _ in range(3):
            slow = held.enter_context(socket.create_connection(("127.0.0.1", port), TIMEOUT_S))
            slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_until(lambda: len(serving._paging) == 3, "their pages are under way")
        assert len(ask(port, "/metrics")) > 16 << 20
    assert serving.counts.closed["room"] > 0, "one place is enough: how many shares are over is a matter of the machine"


@pytest.mark.parametrize(
    ("rest", "status"),
    [(b"HTTP/9.9\r\n\r\n", b"505"), (b"HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n", b"400")],
)
def test_a_refused_head_is_answered_without_a_body(
    bare: tuple[ExporterServer, int], log_text: Callable[[], str], rest: bytes, status: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", bare[1]), TIMEOUT_S) as connection:
        connection.sendall(b"HEAD /health " + rest)
        found = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert found.startswith(b"HTTP/1.1 " + status) and found.endswith(b"\r\n\r\n") and log_text() == ""


def test_requests_that_come_together_are_answered_in_order(bare: tuple[ExporterServer, int]) -> None:
    with socket.create_connection(("127.0.0.1", bare[1]), TIMEOUT_S) as connection:
        last = b"GET /ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        connection.sendall(
            b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 20 + b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" + last
        )
        found = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert found.count(b"HTTP/1.1 200 OK") == 21 and b"scrape " in found.partition(b"503")[0]


def test_the_end_of_a_page_waits_for_nothing(bare: tuple[ExporterServer, int], monkeypatch: pytest.MonkeyPatch) -> None:
    serving, port = bare
    flags_of: dict[bytes, int] = {}
    sendmsg = socket.socket.sendmsg

    def kept_sendmsg(self: socket.socket, buffers: Sequence[bytes], more: Sequence[Any] = (), flags: int = 0) -> int:
        flags_of[b"".join(map(bytes, buffers))] = flags
        return sendmsg(self, buffers, more, flags)

    monkeypatch.setattr(socket.socket, "sendmsg", kept_sendmsg)
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        found = b""
        while not found.endswith(b"0\r\n\r\n"):
            found += connection.recv(4096)
        (served,) = serving._open.values()
        assert served.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert served.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
    (first,) = (sent for sent in flags_of if sent.endswith(b"7\r\nscrape \r\n"))
    assert flags_of[first] == socket.MSG_MORE, "the next one comes"
    assert flags_of[b"0\r\n\r\n"] == 0


def test_others_may_run_after_each_piece(bare: tuple[ExporterServer, int], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(os, "sched_yield", lambda: given.append(threading.get_ident()))
    with urllib.request.urlopen(f"http://127.0.0.1:{bare[1]}/metrics", timeout=TIMEOUT_S) as answer:
        assert answer.read() == b"scrape 1\n"
    assert len(given) >= 2, "a page of two pieces"


@pytest.mark.parametrize("room", [1, 2, 5, 1_000_000])
def test_a_page_that_the_socket_takes_in_bits_comes_whole(
    bare: tuple[ExporterServer, int], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    sendmsg = socket.socket.sendmsg

    def bit(self: socket.socket, buffers: Sequence[bytes], more: Sequence[Any] = (), flags: int = 0) -> int:
        return sendmsg(self, [b"".join(buffers)[:room]], more, flags)

    monkeypatch.setattr(socket.socket, "sendmsg", bit)
    with urllib.request.urlopen(f"http://127.0.0.1:{bare[1]}/metrics", timeout=TIMEOUT_S) as answer:
        assert answer.read() == b"scrape 1\n"


def test_a_page_comes_in_chunks_or_ends_the_connection(bare: tuple[ExporterServer, int]) -> None:
    def answer(request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", bare[1]), TIMEOUT_S) as connection:
            connection.sendall(request)
            found = b""
            while piece := connection.recv(4096):
                found += piece
        return found.partition(b"\r\n\r\n")[2] if found.startswith(b"HTTP/") else found

    assert (
        answer(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        == b"7\r\nscrape \r\n2\r\n1\n\r\n0\r\n\r\n"
    )
    assert answer(b"GET /metrics HTTP/1.0\r\n\r\n") == b"scrape 2\n"
    assert answer(b"GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n") == b"scrape 3\n"
    assert answer(b"HEAD /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") == b""


def test_a_scrape_that_fails_is_logged_once_a_minute(
    bare: tuple[ExporterServer, int], monkeypatch: pytest.MonkeyPatch, log_text: Callable[[], str]
) -> None:
    serving, port = bare
    causes: list[Exception] = [BrokenPipeError("gone"), TimeoutError("slow"), KeyError("same"), KeyError("same")]

    def metrics() -> PageText:
        raise causes.pop(0)

    def asked() -> str:
        """The log, when a scrape was answered with nothing."""
        assert ask(port, "/metrics") == b""
        return log_text()

    monkeypatch.setattr(serving, "pages", Pages(metrics, serving.pages.health, serving.pages.ready))
    assert asked() + asked() == "", "clients that are gone"
    text = asked()
    assert text.startswith("a request failed") and "KeyError: 'same'" in text
    assert asked() == ""
    assert serving.counts.closed["fault"] == 2


def test_a_stop_is_heard_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "LOOK_S", 60.0)
    monkeypatch.setattr(worker.os, "nice", lambda by: by)
    monkeypatch.setattr(worker, "read_run_config", lambda path: BrokerConfig())
    monkeypatch.setattr(worker, "Heartbeats", lambda: SimpleNamespace(observe=lambda plane, now_ms: None))
    monkeypatch.setattr(worker, "pages_of", lambda plane, config, beats, port: None)
    role = SimpleNamespace(state=0, progress=0)
    stop = SimpleNamespace(is_set=False, on_set=None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        spec = SimpleNamespace(role=0, config_path="", extra={}, listen_fds=(listener.fileno(),))
        plane = SimpleNamespace(role=lambda number: role)
        serving = threading.Thread(target=worker.serve, args=(spec, plane, stop), daemon=True)
        serving.start()
        wait_until(lambda: role.state == worker.STATE_SERVING, "the worker serves")
        stop.is_set = True
        stop.on_set()
        serving.join(TIMEOUT_S)
    assert role.state == worker.STATE_STOPPING
