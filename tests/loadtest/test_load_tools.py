"""The native load generator: its frames, its percentiles, its behaviour towards the ceiling and towards bad servers."""

import json
import math
import random
import re
import socket
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ringmq.loadtest.ceiling.server import CeilingServer, fdatasync_rate
from ringmq.loadtest.load.tools import (
    SOURCES,
    Loader,
    ToolError,
    Tools,
    arguments_of,
    build_tools,
)
from ringmq.remoting.batch import decode_batch
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, SerializeType, decode_frame, encode_frame
from ringmq.remoting.properties import decode_properties
from tests.speed import WALL, allowed
from tests.store.copy_kit import stored

pytestmark = pytest.mark.io_uring
"""The load generator and the ceiling are programs on io_uring."""
SEQUENCE = "000000000ABC"  # the number that `ringmq-load frame` gives its first message
PROPERTIES = re.compile(
    r"KEYS\x01K0000BEEF-(?P<key>[0-9A-F]{12})\x02UNIQ_KEY\x017F000001[0-9A-F]{4}0000BEEF(?P<uniq>[0-9A-F]{12})\x02"
    r"WAIT\x01true\x02TAGS\x01TagA\x02"
)


@pytest.fixture(scope="module")
def tools() -> Tools:
    return build_tools()


def frame(tools: Tools, *options: str) -> tuple[RemotingCommand, int]:
    words = [str(tools.load), "frame", "--run-id", "BEEF", "--topic", "T", "--queues", "4", *options]
    report = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)
    return decode_frame(bytes.fromhex(report["hex"])), int(report["crc_sum"])


def test_a_json_header_begins_with_the_code_as_javas_does(tools: Tools) -> None:
    words = [str(tools.load), "frame", "--json", "--batch", "1"]
    report = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)
    assert bytes.fromhex(report["hex"])[8:].startswith(b'{"code":310,"opaque":         7,')


@pytest.mark.parametrize("json_header", [False, True])
def test_send_frame_says_what_java_says(tools: Tools, json_header: bool) -> None:
    command, crc = frame(tools, "--size", "200", "--batch", "1", *(["--json"] if json_header else []))
    assert command.code == RequestCode.SEND_MESSAGE_V2
    assert (command.opaque, command.flag, command.language) == (7, 0, "JAVA")
    assert command.serialize_type == (SerializeType.JSON if json_header else SerializeType.ROCKETMQ)
    fields = dict(command.ext_fields)
    found = PROPERTIES.fullmatch(fields.pop("i"))
    assert found is not None
    assert (found["key"], found["uniq"]) == (SEQUENCE, SEQUENCE)
    assert fields == {
        "a": "load_group",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000123",
        "h": "0",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker",
    }
    assert len(command.body) == 200
    assert command.body.startswith(SEQUENCE.encode())
    assert crc == zlib.crc32(command.body)


@pytest.mark.parametrize("size", [16, 17, 200, 4096])
def test_batch_frame_numbers_its_messages(tools: Tools, size: int) -> None:
    command, crc_sum = frame(tools, "--size", str(size), "--batch", "32")
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    assert command.ext_fields["m"] == "true"
    assert re.fullmatch(r"UNIQ_KEY\x01[0-9A-F]{32}\x02WAIT\x01true\x02", command.ext_fields["i"])
    elements = decode_batch(command.body)
    assert len(elements) == 32
    for number, element in enumerate(elements):
        sequence = f"{0xABC + number:012X}"
        found = PROPERTIES.fullmatch(element.properties.decode())
        assert found is not None
        assert found["key"] == found["uniq"] == sequence
        assert len(element.body) == size
        assert element.body.startswith(sequence.encode())
    assert crc_sum == sum(zlib.crc32(element.body) for element in elements)


def test_messages_of_a_batch_have_tags_by_turns(tools: Tools) -> None:
    command, _ = frame(tools, "--batch", "20", "--tags", "10")
    tags = [decode_properties(element.properties.decode())["TAGS"] for element in decode_batch(command.body)]
    assert tags == [f"Tag{number % 10}" for number in range(20)]


def test_frame_is_the_one_our_codec_writes(tools: Tools) -> None:
    command, _ = frame(tools, "--size", "64", "--batch", "1")
    words = [str(tools.load), "frame", "--run-id", "BEEF", "--topic", "T", "--queues", "4", "--size", "64"]
    text = json.loads(subprocess.run([*words, "--batch", "1"], capture_output=True, check=True, timeout=60).stdout)[
        "hex"
    ]
    ours = decode_frame(encode_frame(command))
    theirs = decode_frame(bytes.fromhex(text))
    ours.ext_fields.pop("i"), theirs.ext_fields.pop("i")  # holds the process id
    assert ours == theirs


@pytest.mark.parametrize(
    "sample",
    [
        [0],
        [5] * 10,
        list(range(1000)),
        [random.Random(1).randrange(1 << 30) for _ in range(5000)],
        [int(random.Random(n).paretovariate(1.2) * 50_000) for n in range(3000)],
        [1 << 50, 3],
    ],
    ids=["zero", "equal", "small", "uniform", "long-tail", "beyond"],
)
def test_percentiles_are_at_most_one_part_in_128_too_high(tools: Tools, sample: list[int]) -> None:
    text = "\n".join(map(str, sample))
    done = subprocess.run([str(tools.load), "hist"], input=text, capture_output=True, text=True, check=True, timeout=60)
    report = json.loads(done.stdout)["latency_us"]
    assert report["count"] == len(sample)
    assert report["max"] == pytest.approx(max(sample) / 1e3, abs=0.001)
    assert report["min"] == pytest.approx(min(sample) / 1e3, abs=0.001)
    ordered = sorted(min(value, (1 << 41) - 1) for value in sample)
    for name, percent in (("p50", 50), ("p90", 90), ("p99", 99), ("p99_9", 99.9), ("p99_99", 99.99)):
        exact = ordered[max(0, math.ceil(len(ordered) * percent / 100 - 1e-9) - 1)] / 1e3
        assert exact - 0.001 <= report[name] <= exact * (1 + 1 / 128) + 0.001, name


@pytest.fixture
def ceiling(tools: Tools, tmp_path: Path) -> Iterator[CeilingServer]:
    with CeilingServer(tools, "serve", log=tmp_path / "log", log_bytes=1 << 20) as server:
        yield server


@pytest.mark.parametrize(
    "options",
    [
        {"connections": 1, "depth": 1, "messages": 100},
        {"connections": 7, "depth": 3, "messages": 1000, "size": 1024},
        {"connections": 4, "depth": 64, "messages": 5000},
    ],
    ids=["1x1", "7x3", "4x64"],
)
def test_closed_loop_gets_an_answer_for_every_send(
    tools: Tools, ceiling: CeilingServer, options: dict[str, object]
) -> None:
    report = Loader(tools, ceiling.port).run("send", **options)
    assert report["ok"], report
    assert report["frames_sent"] == report["answers"] == report["acked"] == options["messages"]
    assert report["latency_us"]["count"] == options["messages"]
    assert 0 < report["latency_us"]["p50"] <= report["latency_us"]["p99"] <= report["latency_us"]["max"]
    assert (report["errors"], report["unanswered"], report["disconnects"]) == ({}, 0, 0)


def test_one_receive_buffer_for_many_connections(tools: Tools, ceiling: CeilingServer, tmp_path: Path) -> None:
    command = ["make", "-s", "-C", str(SOURCES), f"OUT={tmp_path}", "CFLAGS=-O1 -DRECEIVE_BUFFERS=1"]
    subprocess.run([*command, str(tmp_path / "ringmq-load")], check=True, capture_output=True)
    few = replace(tools, load=tmp_path / "ringmq-load")
    report = Loader(few, ceiling.port).run("send", connections=100, depth=2, messages=20_000)
    assert (report["ok"], report["acked"], report["unanswered"]) == (True, 20_000, 0), report


def test_batches_count_their_messages(tools: Tools, ceiling: CeilingServer) -> None:
    report = Loader(tools, ceiling.port).run("batch", connections=2, depth=2, batch=32, messages=640)
    assert (report["frames_sent"], report["acked"]) == (20, 640)


def test_the_ceiling_keeps_the_frames(tools: Tools, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with CeilingServer(tools, "serve", log=log, log_bytes=1 << 20) as server:
        report = Loader(tools, server.port).run("send", connections=1, messages=50, topic="Kept")
        data, at, bodies = log.read_bytes(), 0, []
        for _ in range(50):
            (length,) = struct.unpack_from(">i", data, at)
            bodies.append(decode_frame(data[at : at + 4 + length]).body)
            at += 4 + length
    assert len(set(bodies)) == 50
    assert at == report["bytes_out"]


def test_pull_reads_and_counts_the_whole_body(tools: Tools) -> None:
    with CeilingServer(tools, "pull") as server:
        report = Loader(tools, server.port).run("pull", assume=1000, connections=4, depth=4, count=32, seconds=1)
        assert report["ok"], report
        assert report["messages"] == 32 * report["answers"] > 0
        assert report["bytes_in"] > report["messages"] * 1024
        short = Loader(tools, server.port).run("pull", assume=1000, count=16, seconds=1)
    assert not short["ok"]
    assert short["short_answers"] > 0


def test_open_loop_sends_no_faster_than_its_rate(tools: Tools, ceiling: CeilingServer) -> None:
    report = Loader(tools, ceiling.port).run("send", connections=4, depth=64, rate=2000, messages=1000)
    assert report["ok"], report
    assert report["acked"] == 1000
    assert report["window_s"] >= 0.49, "the last one is due then"
    assert report["lag_us"]["count"] > 0


@pytest.mark.timed(cpus=1.5)
def test_open_loop_keeps_its_rate(tools: Tools, ceiling: CeilingServer) -> None:
    report = Loader(tools, ceiling.port).run("send", connections=4, depth=64, rate=2000, seconds=3)
    assert report["ok"], report
    assert 6000 / allowed(2, WALL) <= report["acked"] <= 6001


def test_watched_processes_are_reported(tools: Tools, ceiling: CeilingServer) -> None:
    pid = ceiling.process.pid
    gone = 2**22  # above every process id of this kernel
    report = Loader(tools, ceiling.port).run("send", connections=8, depth=16, messages=200_000, watch=f"{pid},{gone}")
    whole = sum(psutil.Process(pid).cpu_times()[:2])
    assert set(report["watched"]) == {str(pid), str(gone)}
    used = report["watched"][str(pid)]
    assert 0 < used["user_s"] + used["system_s"] <= whole
    assert report["watched"][str(gone)] == {"user_s": 0, "system_s": 0}


def test_idle_connections_stay_open(tools: Tools, ceiling: CeilingServer) -> None:
    report = Loader(tools, ceiling.port).run("idle", connections=100, seconds=0.2)
    assert (report["ok"], report["connected"], report["still_open"]) == (True, 100, 100)


def answering(answer: Callable[[RemotingCommand], bytes], connections: int = 1) -> tuple[int, threading.Thread]:
    """A server for so many connections that answers each frame with `answer(request)`; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as stream:
            while head := stream.read(4):
                (length,) = struct.unpack(">i", head)
                reply = answer(decode_frame(head + stream.read(length)))
                if not reply:
                    return
                sock.sendall(reply)

    def accept() -> None:
        with listener:
            served: list[threading.Thread] = []
            for _ in range(connections):
                served.append(threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True))
                served[-1].start()
        for one in served:
            one.join()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    return int(listener.getsockname()[1]), thread


@pytest.mark.parametrize("remark_bytes", [0, 20_000], ids=["shorter than a buffer", "longer than one"])
def test_an_answer_that_comes_in_pieces_is_whole(tools: Tools, remark_bytes: int) -> None:
    held, count = b"", 0

    def in_pieces(request: RemotingCommand) -> bytes:
        """Each time with the end of the answer before, and nine times of ten without its own."""
        nonlocal held, count
        count += 1
        sent = held + encode_frame(RemotingCommand.response_to(request, 0, "r" * remark_bytes))
        whole = len(sent) if count % 10 == 0 else len(sent) - 1 - count % 7
        held = sent[whole:]
        return sent[:whole]

    port, thread = answering(in_pieces)
    report = Loader(tools, port).run("send", messages=400, depth=4)
    thread.join(60)
    assert (report["ok"], report["acked"], report["bad_answers"]) == (True, 400, 0), report


@pytest.mark.parametrize("kind", [SerializeType.JSON, SerializeType.ROCKETMQ])
def test_refusals_are_counted_by_code(tools: Tools, kind: SerializeType) -> None:
    def refuse(request: RemotingCommand) -> bytes:
        reply = RemotingCommand.response_to(request, 2 if request.opaque & 0x10000 else 0, 'say "opaque":1 {busy}')
        reply.serialize_type = kind
        return encode_frame(reply)

    port, thread = answering(refuse)
    report = Loader(tools, port).run("send", messages=10)
    thread.join(60)
    assert not report["ok"]
    assert report["errors"] == {"2": 5}
    assert report["acked"] == 5
    assert "busy" in report["remark"]


@pytest.mark.timed(cpus=1.5)
def test_requests_of_a_burst_are_due_together(tools: Tools) -> None:
    came: list[float] = []

    def note(request: RemotingCommand) -> bytes:
        came.append(time.monotonic())
        return encode_frame(RemotingCommand.response_to(request, 0, ""))

    port, thread = answering(note)
    report = Loader(tools, port).run("send", messages=250, depth=200, rate=100, burst_us=1_000_000)
    thread.join(60)
    assert report["ok"], report
    assert [at for at in range(1, 250) if came[at] - came[at - 1] > 0.5] == [100, 200]


@pytest.mark.parametrize("kind", [SerializeType.JSON, SerializeType.ROCKETMQ])
def test_each_half_is_committed_once_at_its_place(tools: Tools, kind: SerializeType) -> None:
    halves: dict[str, tuple[str, str]] = {}
    ended: list[dict[str, str]] = []

    def answer(request: RemotingCommand) -> bytes:
        fields = request.ext_fields
        ext = None
        if request.code == RequestCode.SEND_MESSAGE_V2:
            pairs = decode_properties(fields["i"])
            assert (pairs["TRAN_MSG"], pairs["PGROUP"], fields["f"]) == ("true", "load_group", "4")
            number = len(halves)
            halves[pairs["UNIQ_KEY"]] = str(number), str(1000 * number + 7)
            ext = {"msgId": f"7F00000100002A9F{1000 * number + 7:016X}", "queueId": "0", "queueOffset": str(number)}
        else:
            assert request.code == RequestCode.END_TRANSACTION
            ended.append(fields)
        reply = RemotingCommand.response_to(request, 0, None, ext)
        return encode_frame(replace(reply, serialize_type=kind))

    port, thread = answering(answer)
    report = Loader(tools, port).run("transaction", messages=400, depth=8, json=kind is SerializeType.JSON)
    thread.join(60)
    assert (report["ok"], report["bad_answers"]) == (True, 0), report
    assert report["acked"] == report["all_messages"] == len(ended) >= 190
    assert len({fields["msgId"] for fields in ended}) == len(ended)
    for fields in ended:
        assert (fields["tranStateTableOffset"], fields["commitLogOffset"]) == halves[fields["msgId"]]
        assert (fields["commitOrRollback"], fields["producerGroup"]) == ("8", "load_group")


def test_each_message_of_the_topic_is_sent_back_once(tools: Tools) -> None:
    bodies = [b"%016d" % number for number in range(100)]
    records = [
        stored(body=body, queue_offset=number, physical_offset=1000 + number, properties=b"a\x01b\x02")
        for number, body in enumerate(bodies)
    ]
    named: list[tuple[str, ...]] = []

    def answer(request: RemotingCommand) -> bytes:
        fields = request.ext_fields
        ext, body = {"offset": "100"}, b""
        if request.code == RequestCode.GET_MIN_OFFSET:
            ext = {"offset": "0"}
        elif request.code == RequestCode.PULL_MESSAGE:
            at = int(fields["queueOffset"])
            body = b"".join(records[at : at + 32])
        elif request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            named.append((fields["offset"], fields["group"], fields["delayLevel"], fields["originTopic"]))
        return encode_frame(RemotingCommand.response_to(request, 0, None, ext, body))

    port, _ = answering(answer, connections=3)
    report = Loader(tools, port).run("send-back", topic="T", queues=1, group="G", depth=8)
    assert report["ok"] and report["acked"] == 100, report
    assert report["acked_crc_sum"] == sum(map(zlib.crc32, bodies))
    assert sorted(named) == [(str(1000 + number), "G", "0", "T") for number in range(100)]


def test_a_half_without_a_place_is_a_bad_answer(tools: Tools) -> None:
    port, thread = answering(lambda request: encode_frame(RemotingCommand.response_to(request, 0)))
    report = Loader(tools, port).run("transaction", messages=10)
    thread.join(60)
    assert (report["ok"], report["acked"], report["bad_answers"]) == (False, 0, 10), report


def test_a_closed_connection_is_told(tools: Tools) -> None:
    port, _ = answering(lambda request: b"")
    report = Loader(tools, port).run("send", messages=10)
    assert not report["ok"]
    assert (report["disconnects"], report["unanswered"]) == (1, 1)
    assert "closed" in report["trouble"] or "reset" in report["trouble"]


def test_a_server_that_never_answers_ends_the_run(tools: Tools, ceiling: CeilingServer) -> None:
    # The ceiling takes the opaque from where a binary header has it, so a JSON request gets an answer nobody waits for.
    report = Loader(tools, ceiling.port).run("send", messages=10, json=True, drain=3)
    assert not report["ok"]
    assert (report["bad_answers"], report["unanswered"]) == (1, 1)
    assert "no answer" in report["trouble"]


@pytest.mark.parametrize(
    "reply",
    [struct.pack(">iI", 4, 9 << 24), struct.pack(">iI", 8, 0xFFFFFF) + b"abcd", struct.pack(">iI", 1 << 30, 0)],
    ids=["unknown type", "lying header length", "huge"],
)
def test_an_answer_that_is_no_frame_ends_the_connection(tools: Tools, reply: bytes) -> None:
    port, _ = answering(lambda request: reply)
    report = Loader(tools, port).run("send", messages=10)
    assert not report["ok"]
    assert report["disconnects"] == 1


def test_impossible_options_are_refused(tools: Tools) -> None:
    for options, word in (
        ({"size": 4}, "--size"),
        ({"depth": 0}, "--depth"),
        ({"nonsense": 1}, "--nonsense"),
        ({"burst_us": 1000}, "--burst-us 1000 needs --rate"),
    ):
        with pytest.raises(ToolError, match=word):
            Loader(tools, 1).run("send", **options)
    with pytest.raises(ToolError, match="refused"):
        Loader(tools, 1).run("send")


def test_options_become_words() -> None:
    assert arguments_of({"check_keys": 5, "check": True, "json": False, "pin": None}) == [
        "--check-keys",
        "5",
        "--check",
    ]


def test_fdatasync_rate_is_measured(tools: Tools, tmp_path: Path) -> None:
    log = tmp_path / "sync.log"
    assert fdatasync_rate(tools, log, seconds=1) > 0
    assert not log.exists()
