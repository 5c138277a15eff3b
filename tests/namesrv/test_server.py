"""The process: ready line, clean stop, bounds. Everything waits for what happens, with a deadline."""

import asyncio
import contextlib
import gc
import itertools
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path

import pytest

from ringmq.ipc.exit_status import EXIT_BAD_CONFIG
from ringmq.loadtest.load.program import Program
from ringmq.namesrv.config import ConfigError, NamesrvConfig
from ringmq.namesrv.connection import READ_BYTES
from ringmq.namesrv.handlers import NamesrvHandlers
from ringmq.namesrv.server import COLLECT_AFTER_CLOSED, NamesrvServer
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.config_beans import DataVersion, TopicConfig, TopicConfigTable
from ringmq.remoting.frame import FrameDecoder
from ringmq.remoting.register_body import encode_register_body
from tests.speed import WALL, allowed
from tests.waiting import until

DEADLINE_S = 60


class Client:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = FrameDecoder()
        self._answers: list[RemotingCommand] = []

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        self.writer.write(encode_frame(request))
        return await self.next_answer()

    async def next_answer(self) -> RemotingCommand:
        async with asyncio.timeout(DEADLINE_S):
            while not self._answers:
                data = await self.reader.read(65536)
                assert data, "closed by the server"
                self._answers += self._decoder.feed(data)
        return self._answers.pop(0)

    async def closed(self) -> bool:
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass
        return True


class Harness:
    """A server on a free port and clients to it."""

    def __init__(self, server: NamesrvServer, port: int) -> None:
        self.server, self.port = server, port
        self.clients: list[Client] = []

    async def connect(self, local: str = "127.0.0.1") -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, local_addr=(local, 0)))
        self.clients.append(client)
        return client


class Counting(NamesrvHandlers):
    """Counts the requests for all topics."""

    handled: int = 0

    def handle_slices(
        self, request: RemotingCommand, connection: int, now_ms: int, host: str
    ) -> Generator[None, None, RemotingCommand | None]:
        self.handled += request.code == 206
        return super().handle_slices(request, connection, now_ms, host)


Start = Callable[..., Awaitable[Harness]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    running: list[Harness] = []

    async def begin(**settings: object) -> Harness:
        config = NamesrvConfig(listen_port=0)
        for name, value in settings.items():
            setattr(config, name, value)
        server = NamesrvServer(config)
        running.append(Harness(server, await server.start()))
        return running[-1]

    yield begin
    for harness in running:
        for client in harness.clients:
            client.writer.close()
        await harness.server.close()


def registration(name: str = "b") -> RemotingCommand:
    table = TopicConfigTable({t: TopicConfig(t, 4, 4) for t in ("T", "U")}, DataVersion(1))
    fields = {
        "brokerName": name,
        "brokerAddr": "127.0.0.1:1",
        "clusterName": "C",
        "haServerAddr": "x",
        "brokerId": "0",
    }
    return RemotingCommand(103, 1, ext_fields=fields, body=encode_register_body(table))


async def test_a_broker_lives_as_long_as_its_connection(start: Start) -> None:
    harness = await start()
    broker, client = await harness.connect(), await harness.connect()
    assert (await broker.ask(registration())).code == 0
    route = RemotingCommand(105, 2, ext_fields={"topic": "T"})
    assert (await client.ask(route)).code == 0
    broker.writer.close()
    await until(lambda: harness.server.connection_count == 1, "the broker is gone")
    assert (await client.ask(route)).code == 17


async def test_pipelined_requests_split_anywhere(start: Start) -> None:
    harness = await start()
    client = await harness.connect()
    stream = b"".join(encode_frame(RemotingCommand(106, n)) for n in range(50))
    for at in range(0, len(stream), 7):
        client.writer.write(stream[at : at + 7])
        await client.writer.drain()
    assert [(await client.next_answer()).opaque for _ in range(50)] == list(range(50))


def json_frame(header: bytes) -> bytes:
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


@pytest.mark.parametrize(
    ("header", "code", "remark"),
    [
        (b'{"code":106,"opaque":79,"remark":"\\ud83d"}', 0, ""),
        (b'\xef\xbb\xbf{"code":106,"opaque":79.0,"extFields":{"x":NaN}}\0', 0, ""),
        (b'{"code":106,"opaque":79,"extFields":{"x":Infinity}}', 1, "found 'Infinity}}'"),
        (b'{"code":"x","opaque":79}', 1, "header field code = 'x' is not an integer"),
    ],
)
async def test_an_odd_header_costs_no_other_request(start: Start, header: bytes, code: int, remark: str) -> None:
    harness = await start()
    client = await harness.connect()
    dropped = [json_frame(b'{"code":106,"opaque":80,"flag":%d,}x' % flag) for flag in (1, 2)]
    frames = [
        encode_frame(RemotingCommand(106, 1)),
        json_frame(header),
        *dropped,
        encode_frame(RemotingCommand(106, 2)),
    ]
    client.writer.write(b"".join(frames))
    answers = [await client.next_answer() for _ in range(3)]
    assert [(answer.opaque, answer.code) for answer in answers] == [(1, 0), (79, code), (2, 0)]
    assert remark in (answers[1].remark or "")


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 8,
        b"\0" * 8,
        b"\0\0\0\x0a\x07\0\0\x01ab",
        encode_frame(RemotingCommand(1))[:8] + b"x" * 200,
    ],
)
async def test_junk_closes_its_connection_and_no_other(start: Start, junk: bytes) -> None:
    harness = await start()
    bystander, client = await harness.connect(), await harness.connect()
    assert (await client.ask(RemotingCommand(106, 1))).code == 0
    client.writer.write(encode_frame(RemotingCommand(106, 2)) + junk)
    assert (await client.next_answer()).opaque == 2, "what came before the junk is answered"
    assert await client.closed()
    assert (await bystander.ask(RemotingCommand(106, 3))).code == 0


async def test_a_frame_over_the_limit_closes(start: Start) -> None:
    harness = await start(max_frame_bytes=4096)
    client = await harness.connect()
    client.writer.write(encode_frame(RemotingCommand(100, body=b"x" * 5000))[:100])
    assert await client.closed()


async def test_incomplete_frames_share_one_budget(start: Start) -> None:
    harness = await start(max_buffered_bytes=100_000)
    half = encode_frame(RemotingCommand(100, body=b"x" * 90_000))[:60_000]
    first, second = await harness.connect(), await harness.connect()
    first.writer.write(half)
    await until(lambda: 60_000 <= harness.server.buffered_bytes < 85_000, "the half frame is counted")
    second.writer.write(half)
    assert await first.closed()
    await until(lambda: 60_000 <= harness.server.buffered_bytes < 85_000, "one half frame is left")
    second.writer.close()
    await until(lambda: harness.server.buffered_bytes == 0, "nothing is left")


async def test_connections_are_counted(start: Start) -> None:
    harness = await start(max_connections=2)
    clients = [await harness.connect(local) for local in ("127.0.0.1", "127.0.0.2")]
    for client in clients:
        assert (await client.ask(RemotingCommand(106, 1))).code == 0
    assert await (await harness.connect("127.0.0.3")).closed()
    assert (await clients[0].ask(RemotingCommand(106, 1))).code == 0


async def test_idle_connections_are_closed(start: Start) -> None:
    harness = await start(server_channel_max_idle_time_seconds=600)
    client = await harness.connect()
    assert (await client.ask(RemotingCommand(106, 1))).code == 0
    harness.server.scan(0, time.monotonic() + 590)
    assert (await client.ask(RemotingCommand(106, 2))).code == 0
    harness.server.scan(0, time.monotonic() + 601)
    assert await client.closed()


async def test_a_silent_broker_is_dropped_and_closed(start: Start) -> None:
    harness = await start(scan_not_active_broker_interval_ms=20)
    broker = await harness.connect()
    request = registration()
    request.ext_fields["heartbeatTimeoutMillis"] = "50"
    assert (await broker.ask(request)).code == 0
    assert await broker.closed()
    assert harness.server.handlers.registry.topics == {}


async def test_a_client_that_never_reads_is_not_read_from(start: Start) -> None:
    harness = await start()
    client = await harness.connect()
    assert (await client.ask(registration())).code == 0
    big = {f"topic-{n:05d}": TopicConfig(f"topic-{n:05d}") for n in range(5000)}
    body = encode_register_body(TopicConfigTable(big, DataVersion(2)))
    assert (await client.ask(RemotingCommand(103, 2, ext_fields=registration().ext_fields, body=body))).code == 0

    deaf = await harness.connect()
    deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
    counting = Counting(harness.server.config, harness.server.handlers.registry)
    harness.server.handlers = counting
    flood = encode_frame(RemotingCommand(206, 9)) * 3000
    deaf.writer.write(flood)
    await until(lambda: counting.handled > 0, "the flood is read")
    for n in range(20):
        assert (await client.ask(RemotingCommand(106, n))).code == 0
    assert counting.handled < 300, "answers of about 60 kB each: 3000 of them would be 180 MB"


async def test_kv_configuration_survives_a_restart(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    harness = await start(kv_config_path=str(path))
    client = await harness.connect()
    put = RemotingCommand(100, 1, ext_fields={"namespace": "n", "key": "k", "value": "ü"})
    assert (await client.ask(put)).code == 0
    assert path.read_text() == '{"configTable":{"n":{"k":"ü"}}}'
    again = await start(kv_config_path=str(path))
    answer = await (await again.connect()).ask(RemotingCommand(101, 1, ext_fields={"namespace": "n", "key": "k"}))
    assert answer.ext_fields == {"value": "ü"}


async def test_a_kv_file_that_cannot_be_written_is_an_error_answer(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    harness = await start(kv_config_path=str(folder / "kvConfig.json"))
    folder.rmdir()
    folder.write_text("")
    put = RemotingCommand(100, 1, ext_fields={"namespace": "n", "key": "k", "value": "v"})
    answer = await (await harness.connect()).ask(put)
    assert answer.code == 1
    assert "Error" in (answer.remark or "")


def test_the_process_prints_ready_and_stops_cleanly(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ringmq.namesrv.server",
        "--port",
        "0",
        "--kv-config",
        str(tmp_path / "kv.json"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "ready" in line
        host, port = line.rsplit(" ", 1)[1].strip().split(":")
        with socket.create_connection((host, int(port)), DEADLINE_S) as connection:
            connection.sendall(encode_frame(RemotingCommand(106, 3)))
            assert FrameDecoder().feed(connection.recv(4096))[0].opaque == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0


def test_each_open_door_gets_one_line_at_the_start() -> None:
    """127.1 is a name as far as a door can tell, and loopback for the kernel."""
    command = [sys.executable, "-m", "ringmq.namesrv.server", "--port", "0", "--host", "127.1"]
    with Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "ready" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        lines = process.stderr.read().splitlines()
        assert process.wait(DEADLINE_S) == 0
    endpoints = [line.rpartition(": set ")[2] for line in lines if "listener 127.1:" in line]
    assert endpoints == ["adminAddresses", "brokerAddresses"]


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (["--set", "listenPrt=1"], "listenPort", EXIT_BAD_CONFIG),
        (["--set", "orderMessageEnable"], "--set 'orderMessageEnable' is not NAME=VALUE", EXIT_BAD_CONFIG),
        (["--port", "70000"], "0..65535", EXIT_BAD_CONFIG),
        (["-c", "/nonexistent/namesrv.conf"], "/nonexistent/namesrv.conf", EXIT_BAD_CONFIG),
        (["--host", "192.0.2.1", "--port", "0"], "192.0.2.1", 1),
    ],
)
def test_a_start_that_cannot_be_says_why(arguments: list[str], words: str, status: int) -> None:
    command = [sys.executable, "-m", "ringmq.namesrv.server", *arguments]
    with Program(command, stderr=subprocess.PIPE, text=True) as process:
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == status
    assert words in errors
    assert "Traceback" not in errors


def test_a_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("# ours\nlistenPort = 1234\n\norderMessageEnable=true\n")
    config = NamesrvConfig.from_file(path)
    assert (config.listen_port, config.order_message_enable) == (1234, True)
    path.write_text("listenPort:12\\\n  34\norderMessageEnable true\n")
    assert NamesrvConfig.from_file(path) == config, "by Java's rules, as broker.conf"
    path.write_text("listenPort = 1\nnonsense\n")
    with pytest.raises(ConfigError, match="line 2"):
        NamesrvConfig.from_file(path)


async def test_hosts_are_judged_by_their_connection(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    harness = await start(admin_addresses="127.0.0.2")
    refused = await harness.connect()
    put = RemotingCommand(100, 1, ext_fields={"namespace": "n", "key": "k", "value": "v"})
    for _ in range(20):
        answer = await refused.ask(put)
        assert answer.code == 16
    assert answer.remark is not None and "host 127.0.0.1" in answer.remark and "adminAddresses" in answer.remark
    assert [record.message for record in caplog.records].count(answer.remark) == 1
    named = await harness.connect(local="127.0.0.2")
    assert (await named.ask(put)).code == 0


@pytest.mark.parametrize(
    ("junk", "spoken"),
    [(b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS hello")],
)
async def test_junk_gets_one_line(start: Start, caplog: pytest.LogCaptureFixture, junk: bytes, spoken: str) -> None:
    harness = await start()
    for _ in range(20):
        client = await harness.connect()
        client.writer.write(junk)
        assert await client.closed()
    said = [record.message for record in caplog.records if record.levelno > logging.DEBUG]
    assert said == [f"junk from 127.0.0.1: {spoken}"]


async def test_one_host_has_at_most_half_of_the_connections(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    harness = await start(max_connections=4)
    clients = [await harness.connect() for _ in range(2)]
    for client in clients:
        assert (await client.ask(RemotingCommand(106, 1))).code == 0
    assert await (await harness.connect()).closed()
    other = await harness.connect("127.0.0.2")
    assert (await other.ask(RemotingCommand(106, 1))).code == 0
    assert "host 127.0.0.1 has 2 connections, half of ringmqMaxConnections" in caplog.text


async def test_a_header_over_the_limit_closes(start: Start) -> None:
    harness = await start()
    client = await harness.connect()
    client.writer.write(encode_frame(RemotingCommand(105, ext_fields={"topic": "x" * 300_000}))[:8])
    assert await client.closed()


async def test_the_host_that_keeps_most_loses_connections_not_a_neighbour(start: Start) -> None:
    harness = await start(max_buffered_bytes=240_000)
    half = encode_frame(RemotingCommand(100, body=b"x" * 90_000))[:60_000]
    hoarders = [await harness.connect() for _ in range(3)]
    for count, hoarder in enumerate(hoarders, 1):
        hoarder.writer.write(half)
        await until(lambda count=count: 60_000 <= harness.server.buffered_bytes / count < 70_000, "it is counted")
    other = await harness.connect("127.0.0.2")
    other.writer.write(half)
    await until(lambda: harness.server.connection_count == 3, "one connection of the host is closed")
    other.writer.write(encode_frame(RemotingCommand(100, 5, body=b"x" * 90_000))[60_000:])
    assert (await other.next_answer()).code == 1  # a whole frame now; 100 lacks its fields


async def test_answers_that_nobody_reads_are_bounded_over_all_connections(start: Start) -> None:
    harness = await start(max_buffered_bytes=6_000_000)
    feeder = await harness.connect("127.0.0.2")
    big = {f"topic-{n:05d}": TopicConfig(f"topic-{n:05d}") for n in range(20_000)}
    body = encode_register_body(TopicConfigTable(big, DataVersion(2)))
    assert (await feeder.ask(RemotingCommand(103, 2, ext_fields=registration().ext_fields, body=body))).code == 0
    deaf = [await harness.connect() for _ in range(40)]
    for client in deaf:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(encode_frame(RemotingCommand(206, 9)) * 400)
    await until(lambda: harness.server.connection_count < 41, "connections are closed")
    for n in range(20):
        assert (await feeder.ask(RemotingCommand(106, n))).code == 0
        assert harness.server.buffered_bytes <= 6_000_000


async def test_a_disk_that_is_slow_holds_only_those_who_change_kv(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    writes: list[bytes] = []

    def slow(content: bytes, path: Path) -> None:
        writes.append(content)
        assert released.wait(DEADLINE_S)

    monkeypatch.setattr("ringmq.namesrv.kv.save_kv", slow)
    harness = await start(kv_config_path=str(tmp_path / "kvConfig.json"))
    writers = [await harness.connect() for _ in range(10)]
    for number, client in enumerate(writers):
        fields = {"namespace": "n", "key": f"k{number}", "value": "v"}
        client.writer.write(encode_frame(RemotingCommand(100, 1, ext_fields=fields)))
    await until(lambda: len(harness.server.handlers.kv.table.get("n", {})) == 10, "all ten have changed it")
    bystander = await harness.connect()
    for n in range(20):
        assert (await bystander.ask(RemotingCommand(106, n))).code == 0
    released.set()
    for client in writers:
        assert (await client.next_answer()).code == 0
    assert len(writes) <= 3, "many changes share one write"
    assert b"k9" in writes[-1]


@pytest.mark.timed(cpus=1)
async def test_large_registrations_leave_the_others_their_turns(start: Start) -> None:
    harness = await start()
    topics = {f"topic-{n:06d}": TopicConfig(f"topic-{n:06d}") for n in range(22_000)}
    body = encode_register_body(TopicConfigTable(topics, DataVersion(2)))
    assert len(body) > 3_600_000
    frames = []
    for number in range(4):
        fields = registration(f"b{number}").ext_fields | {"brokerAddr": f"127.0.0.1:{number}"}
        frames.append(encode_frame(RemotingCommand(103, 2, ext_fields=fields, body=body)))

    def send() -> None:
        for frame in frames:
            with socket.create_connection(("127.0.0.1", harness.port)) as connection:
                connection.sendall(frame)
                connection.recv(4096)

    canary = await harness.connect()
    senders = [asyncio.create_task(asyncio.to_thread(send)) for _ in range(2)]
    longest_s = 0.0
    while not all(sender.done() for sender in senders):
        began_s = time.monotonic()
        await canary.ask(RemotingCommand(105, 1, ext_fields={"topic": "none"}))
        longest_s = max(longest_s, time.monotonic() - began_s)
    await asyncio.gather(*senders)
    assert longest_s < allowed(1, WALL)


async def test_a_turn_of_the_loop_reads_little_of_each_socket(start: Start) -> None:
    harness = await start()
    half = encode_frame(RemotingCommand(100, body=bytes(4_000_000)))[:200_000]
    counts = [0]
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", harness.port)))
            client.sendall(half)
        async with asyncio.timeout(DEADLINE_S):
            while harness.server.buffered_bytes < 20 * len(half):
                await asyncio.sleep(0)  # a count for each turn of the loop
                counts.append(harness.server.buffered_bytes)
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert max(steps) <= 20 * READ_BYTES * 9 / 8 * 2  # a bytearray allocates an eighth of all its bytes in advance


class Hoarder:
    """A connection as `shed_memory` sees it."""

    def __init__(self, server: NamesrvServer, number: int, host: str) -> None:
        self.server, self.host, self.last_active_s = server, host, float(number)
        self.counted_bytes = self.recounts = 0
        server._connections[number] = self  # type: ignore[assignment]

    def grow(self, count: int) -> None:
        self.counted_bytes += count
        self.server.buffered_bytes += count
        self.server.shed_memory()

    def count_bytes(self) -> None:
        self.recounts += 1

    def abort(self, why: str) -> None:
        self.grow(-self.counted_bytes)


def test_shedding_memory_walks_over_the_connections_seldom() -> None:
    server = NamesrvServer(NamesrvConfig(max_buffered_bytes=16 << 20))
    hoarders = [Hoarder(server, number, "flood") for number in range(400)]
    quiet = Hoarder(server, 400, "quiet")
    quiet.grow(1 << 20)
    for step in range(8000):
        hoarders[step % 400].grow(READ_BYTES)
        assert server.buffered_bytes <= 16 << 20
    walks_max = 8000 * READ_BYTES // (2 << 20) + 1
    assert 0 < quiet.recounts <= walks_max
    assert quiet.counted_bytes == 1 << 20


def test_the_process_collects_no_old_objects_by_itself() -> None:
    code = """
import atexit, gc, sys
from ringmq.namesrv.server import main
atexit.register(lambda: print(gc.get_freeze_count() > 0, gc.get_threshold()[2]))
sys.exit(main(["--port", "0"]))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        frozen, old_collections = process.stdout.readline().split()
    assert frozen == "True"
    assert int(old_collections) > 1_000_000


async def test_what_asyncio_leaves_of_closed_connections_is_collected(start: Start) -> None:
    harness = await start()
    client = await harness.connect()
    await client.ask(RemotingCommand(106, 1))
    closed = next(iter(harness.server._connections.values()))
    client.writer.close()
    await until(lambda: not closed.is_open, "the connection is closed")
    gc.disable()
    try:
        old_collections = gc.get_stats()[2]["collections"]
        harness.server.scan(0, 0.0)
        assert gc.get_stats()[2]["collections"] == old_collections
        for _ in range(COLLECT_AFTER_CLOSED):
            harness.server.remove(closed)
        harness.server.scan(0, 0.0)
        harness.server.scan(0, 0.0)
        assert gc.get_stats()[2]["collections"] == old_collections + 1
    finally:
        gc.enable()
