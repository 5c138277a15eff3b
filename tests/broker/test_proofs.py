"""The records that a slave has to hand over before a master believes that its log is longer."""

import struct
import time

import pytest

from ringmq.broker.replication import proofs
from ringmq.broker.replication.proof_reader import CpuThrottle
from ringmq.broker.replication.proofs import LogTail, Proofs, why_not_proven
from ringmq.ha.handshake import HOLD, PeerClaim, Verdict
from tests.spark_bridge.made_store import MadeStore
from tests.speed import allowed

FILE_BYTES = 1 << 14
AT = "10.0.0.9:10911"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    store = MadeStore(tmp_path_factory.mktemp("made") / "store", file_bytes=FILE_BYTES)
    for number in range(120):
        store.append(topic="Proof", queue_id=0, body=b"%d " % number + b"b" * 500)
    return store


@pytest.fixture(scope="module")
def log(made: MadeStore) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((made.root / "commitlog").glob("0*")))


def proved(data: bytes, offset: int, end: int, *, at_border: bool = True, step: int = 1 << 20) -> str:
    """Read at most `step` bytes at once."""

    def read(at: int, length: int) -> bytes:
        return data[at : min(end, at + min(step, length))]

    return why_not_proven(LogTail(AT, offset, end, FILE_BYTES, at_border), read, lambda: True)


@pytest.mark.parametrize("step", [7, 1000, 1 << 20])
@pytest.mark.parametrize("number", [0, 1, 60, 119])
def test_records_behind_the_common_offset_are_a_proof(made: MadeStore, log: bytes, number: int, step: int) -> None:
    offset = made.places[number][0]
    assert proved(log, offset, made.end, step=step) == ""
    for inside in (offset + 1, offset + 100):
        if number < 119:
            assert proved(log, inside, made.end, at_border=False, step=step) == "", "the next record counts"
        assert proved(log, inside, made.end) != "", "no record begins there"


def test_a_window_is_enough(log: bytes, made: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "WINDOW_BYTES", 2000)
    asked: list[int] = []

    def read(at: int, length: int) -> bytes:
        asked.append(length)
        return log[at : at + length]

    assert why_not_proven(LogTail(AT, 0, made.end, FILE_BYTES, True), read, lambda: True) == ""
    assert sum(asked) <= 4000


def test_what_is_no_record_is_no_proof(made: MadeStore, log: bytes) -> None:
    offset, size = made.places[60][:2]
    for at, what in ((4, "neither a record"), (28, "another physical offset"), (120, "CRC")):
        bent = bytearray(log)
        bent[offset + at] ^= 0x40
        assert what in proved(bytes(bent), offset, made.end)
    assert "fewer bytes" in proved(log, offset, offset + size - 1), "the end that was said is inside of a record"
    assert "ends at" in proved(log[: offset + 50], offset, made.end)
    for at_border in (True, False):
        assert proved(bytes(1 << 16), 0, 1 << 16, at_border=at_border) != ""
        assert proved(b"\xda\xa3\x20\xa7" * 40_000, 0, 160_000, at_border=at_border) != ""


def test_a_source_that_breaks_or_takes_too_long_is_told(made: MadeStore) -> None:
    def broken(at: int, length: int) -> bytes:
        raise ConnectionRefusedError("refused")

    tail = LogTail(AT, 0, made.end, FILE_BYTES, True)
    assert why_not_proven(tail, broken, lambda: True) == "refused"
    assert why_not_proven(tail, broken, lambda: False) == "the read takes too long"


MAGIC = b"\xda\xa3\x20\xa7"
SIZE = proofs.READ_BYTES_MAX
HOSTILE = {
    "magic codes": MAGIC * (SIZE // 4),
    "large sizes": (struct.pack(">I", SIZE - 4096) + MAGIC) * (SIZE // 8),
    "wrong checksums": ((struct.pack(">I", SIZE - 40_000) + MAGIC).ljust(84, b"\0")
        + struct.pack(">I", SIZE - 40_091)).ljust(200, b"\0") * 100 + bytes(SIZE - 20_000),
    "zeros": bytes(SIZE),
}  # fmt: skip


@pytest.mark.parametrize("at_border", [True, False])
@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_a_proof_rests_whatever_the_slave_hands_over(kind: str, at_border: bool) -> None:
    """Control shares the interpreter's lock with it: it rests within 40 ms of CPU time, also with cold caches."""
    data, last_ns, longest_ns = HOSTILE[kind], time.thread_time_ns(), 0

    def rest() -> None:
        nonlocal last_ns, longest_ns
        longest_ns = max(longest_ns, time.thread_time_ns() - last_ns)
        last_ns = time.thread_time_ns()

    tail = LogTail(AT, 0, SIZE, 1 << 30, at_border)
    assert why_not_proven(tail, lambda at, length: data[at : at + min(length, 1 << 20)], lambda: True, rest)
    rest()
    assert longest_ns < allowed(40_000_000)


def test_a_rest_is_four_times_as_long_as_the_work() -> None:
    cpu, slept = [0], []
    throttle = CpuThrottle(lambda: cpu[0], slept.append)
    for ms in (1, 1, 3, 1):
        cpu[0] += ms * 1_000_000
        throttle()
    assert slept == [0.008, 0.012]


def test_a_proof_ends_within_its_time_whatever_it_holds() -> None:
    """The time is over at the tenth candidate."""
    left = iter(range(10, -1, -1))
    tail = LogTail(AT, 0, SIZE, 1 << 30, at_border=False)
    data = HOSTILE["magic codes"]
    assert (
        why_not_proven(tail, lambda at, length: data[at : at + length], lambda: next(left) > 0)
        == "the read takes too long"
    )


# ---- turns ----


def ask(turns: Proofs, host: str, now_ms: int = 0, port: int = 10911, end: int = 2000) -> str:
    """A slave of this host says that its log ends at `end`; what it is told."""
    claim = PeerClaim("c", "b", 1, "1f", 0, end, FILE_BYTES, f"{host}:{port}")
    return turns.begin(claim, Verdict(HOLD, 1000), 1000, now_ms)


def proven(turns: Proofs, now_ms: int = 0) -> str:
    """The host of the proof that ends now."""
    return turns.ended(now_ms)[0].broker_addr.rpartition(":")[0]


def test_a_host_that_asks_all_the_time_leaves_a_turn_to_the_others() -> None:
    turns = Proofs()
    seen = []
    for _ in range(4):
        for port in (1, 2, 3):
            ask(turns, "10.0.0.66", port=port)
        ask(turns, "10.0.0.9")
        ask(turns, "10.0.0.66", port=4)
        seen.append(proven(turns))
    assert seen == ["10.0.0.66", "10.0.0.9", "10.0.0.66", "10.0.0.9"]


def test_a_full_row_takes_a_host_that_has_had_no_turn_yet() -> None:
    turns = Proofs()
    hostile = [f"10.0.1.{number}" for number in range(proofs.HOSTS_MAX + 1)]
    for _ in range(2 * len(hostile)):
        for host in hostile:
            ask(turns, host)
        proven(turns)
    for host in hostile:
        ask(turns, host)
    assert "is being checked first" in ask(turns, "10.0.0.9")
    for host in hostile:
        ask(turns, host)
    proven(turns)
    assert proven(turns) == "10.0.0.9", "next, and nobody takes its place"


def test_a_full_row_refuses_hosts_that_have_had_their_turn() -> None:
    turns = Proofs()
    ask(turns, "10.0.0.9")
    proven(turns)
    for number in range(proofs.HOSTS_MAX + 1):
        ask(turns, f"10.0.1.{number}")
    assert f"{proofs.HOSTS_MAX} hosts wait" in ask(turns, "10.0.0.9")


def test_a_claim_that_waits_is_the_newest_of_its_host() -> None:
    turns = Proofs()
    ask(turns, "10.0.0.8")
    ask(turns, "10.0.0.9")
    ask(turns, "10.0.0.9", end=3000)
    assert "10.0.0.9:10911 waits" in ask(turns, "10.0.0.9", port=7)
    proven(turns)
    assert turns.wanted == LogTail("10.0.0.9:10911", 1000, 3000, FILE_BYTES, True)


def test_a_claim_is_dropped_when_its_slave_does_not_repeat_it() -> None:
    turns = Proofs()
    ask(turns, "10.0.0.8")
    ask(turns, "10.0.0.9")
    ask(turns, "10.0.0.10")
    ask(turns, "10.0.0.10", now_ms=1)
    proven(turns, proofs.WAIT_MS + 1)
    assert turns.wanted is not None
    assert turns.wanted.address == "10.0.0.10:10911"
    proven(turns, proofs.WAIT_MS + 1)
    assert turns.wanted is None
