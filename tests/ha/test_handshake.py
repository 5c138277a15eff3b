"""Two logs are compared by their windows: what a slave is told."""

import json
import random
import zlib

import pytest
from msgspec.structs import replace

from ringmq.ha.control_messages import LinkNews, MessageError, news_bytes
from ringmq.ha.handshake import (
    ACCEPT,
    ADOPT,
    COMPARE,
    CUT,
    HOLD,
    REFUSE,
    REFUSE_WRITES,
    SALVAGE,
    START_AT,
    UNKNOWN_EPOCH,
    UNNAMED,
    HandshakeAnswer,
    MasterView,
    PeerClaim,
    Verdict,
    answer_of,
    body,
    claim_of,
    decide,
)
from ringmq.store.tail_checksums import WINDOW_BYTES, Window, window_places

FILE_BYTES = 1 << 30
LOG = random.Random(5).randbytes(1_000_000)


def windows(log: bytes, low: int, end: int) -> tuple[Window, ...]:
    """As a slave makes them."""
    places = window_places(low, end)
    return tuple((offset, length, zlib.crc32(log[offset : offset + length])) for offset, length in places)


def claim(log: bytes, low: int = 0, windows_end: int | None = None) -> PeerClaim:
    """A slave with this log."""
    tail = windows(log, low, len(log) if windows_end is None else windows_end)
    return PeerClaim("DefaultCluster", "broker-a", 1, "5a", low, len(log), FILE_BYTES, "10.0.0.2:10911", tail=tail)


def view(log: bytes, low: int = 0, rule: str = "refuse", **decided: str) -> MasterView:
    """A master with this log."""
    chosen = {int(name.removeprefix("slave")): choice for name, choice in decided.items()}
    return MasterView(
        "DefaultCluster", "broker-a", "3a", low, len(log), FILE_BYTES, rule, peer_host="10.0.0.2", is_named=True,
        decided=chosen,
    )  # fmt: skip


def verdict_of(slave: bytes, master: bytes, slave_low: int = 0, master_low: int = 0, **view_fields: str) -> Verdict:
    """The verdict at the end of the conversation."""
    own = view(master, master_low, **view_fields)

    def crc(offset: int, length: int) -> int | None:
        return zlib.crc32(master[offset : offset + length]) if offset >= master_low else None

    verdict = decide(claim(slave, slave_low), own, crc)
    for _ in range(3):
        if verdict.kind == COMPARE:
            verdict = decide(claim(slave, slave_low, verdict.offset), own, crc)
    return verdict


def changed(log: bytes, at: int) -> bytes:
    """Another log from `at` on, of the same length."""
    return log[:at] + bytes(byte ^ 0xFF for byte in log[at:])


@pytest.mark.parametrize("length", [0, 1, WINDOW_BYTES - 1, WINDOW_BYTES, 300_000, 1_000_000])
def test_a_beginning_of_the_masters_log_goes_on(length: int) -> None:
    assert verdict_of(LOG[:length], LOG) == Verdict(ACCEPT, length, "the slave's log is empty" if not length else "")


def test_an_empty_slave_starts_at_the_masters_minimum() -> None:
    assert verdict_of(b"", LOG, master_low=500_000).offset == 500_000
    assert verdict_of(b"", LOG, master_low=500_000).kind == START_AT


def test_an_empty_slave_of_a_master_that_gives_the_newest_file() -> None:
    own = replace(view(LOG), file_bytes=65_536, from_newest_file=True)
    verdict = decide(replace(claim(b""), file_bytes=65_536), own, lambda offset, length: 0)
    assert (verdict.kind, verdict.offset) == (START_AT, 983_040)


def test_a_slave_that_began_afresh_goes_on_there() -> None:
    own = view(LOG, 500_000)
    begun = replace(claim(b""), min_offset=500_000, max_offset=500_000)
    assert decide(begun, own, lambda offset, length: None).kind == ACCEPT
    beyond = replace(begun, min_offset=1_000_001, max_offset=1_000_001)
    assert decide(beyond, own, lambda offset, length: None) == Verdict(START_AT, 500_000, "the slave's log is empty")


def test_deleted_log_is_said_to_be_lacking() -> None:
    verdict = verdict_of(LOG[:400_000], LOG, master_low=500_000)
    assert (verdict.kind, verdict.offset) == (START_AT, 500_000)
    assert "400000..500000" in verdict.reason


@pytest.mark.parametrize("parted_at", [0, 1, 123_456, 700_000, 899_999])
def test_logs_that_differ_are_held_and_salvaged_below_where_they_part(parted_at: int) -> None:
    slave = changed(LOG[:900_000], parted_at)
    held = verdict_of(slave, LOG)
    assert held.kind == HOLD
    assert held.offset <= parted_at
    assert not held.adopt
    assert not verdict_of(slave, LOG, rule=ADOPT).adopt, "a rule never drops what the master has written"
    assert verdict_of(slave, LOG, slave1=ADOPT) == replace(held, adopt=True)
    salvaged = verdict_of(slave, LOG, rule=SALVAGE)
    if held.offset:
        assert (salvaged.kind, salvaged.offset) == (CUT, held.offset)
    else:
        assert (salvaged.kind, salvaged.offset) == (START_AT, 0)


def test_cuts_come_to_an_end() -> None:
    """A slave that is told to cut and asks again ends up accepted, with nothing of its own left."""
    for seed in range(30):
        chance = random.Random(seed)
        slave = changed(LOG[: chance.randint(1, 1_000_000)], chance.randint(0, 999_999))
        master = LOG[: chance.randint(1, 1_000_000)]
        while (verdict := verdict_of(slave, master, rule=SALVAGE)).kind == CUT:
            assert verdict.offset < len(slave)
            slave = slave[: verdict.offset]
        assert verdict.kind in (ACCEPT, START_AT)
        if verdict.kind == ACCEPT:
            assert slave == master[: len(slave)]


def test_a_longer_slave_is_held_or_adopted_or_cut() -> None:
    master = LOG[:600_000]
    assert verdict_of(LOG, master) == Verdict(HOLD, 600_000, "slave 1 ends at 1000000, the master at 600000")
    assert verdict_of(LOG, master, rule=ADOPT).adopt
    assert verdict_of(LOG, master, rule=SALVAGE).offset == 600_000
    assert verdict_of(LOG, master, rule=ADOPT, slave1=SALVAGE).kind == CUT, "the operator's word goes before the rule"
    assert verdict_of(LOG, master, slave2=SALVAGE).kind == HOLD, "it was said of another slave"


def test_a_slave_that_may_not_count_holds_nobody_up() -> None:
    own, crc = view(LOG[:600_000], rule=ADOPT), lambda offset, length: zlib.crc32(LOG[offset : offset + length])
    for allowed, kind in ((("2",), REFUSE), (("2", "1"), HOLD), (("10.0.0.2",), HOLD)):
        verdict = decide(claim(LOG, windows_end=600_000), replace(own, allowed=allowed), crc)
        assert verdict.kind == kind
    says_another = replace(claim(LOG, windows_end=600_000), broker_addr="10.0.0.7:10911")
    assert decide(says_another, replace(own, allowed=("10.0.0.7",)), crc).kind == REFUSE, "its connection's host counts"
    follows = decide(claim(LOG[:600_000]), replace(own, allowed=("2",)), crc)
    assert follows.kind == ACCEPT


@pytest.mark.parametrize("rule", [REFUSE_WRITES, ADOPT])
def test_a_slave_of_a_network_that_is_not_named_holds_nobody_up(rule: str) -> None:
    master = LOG[:600_000]
    own = replace(view(master, rule=rule), is_named=False)
    for log in (LOG, changed(LOG, 599_000)):
        verdict = decide(claim(log, windows_end=600_000), own, lambda at, size: zlib.crc32(master[at : at + size]))
        assert (verdict.kind, verdict.adopt) == (REFUSE, False)
        assert verdict.reason.startswith(f"{UNNAMED} 10.0.0.2, and ")


def test_a_longer_slave_is_asked_for_the_bytes_below_the_masters_end() -> None:
    master = LOG[:600_000]
    own = view(master)
    crc = lambda offset, length: zlib.crc32(master[offset : offset + length])  # noqa: E731
    assert decide(claim(LOG), own, crc) == Verdict(COMPARE, 600_000)
    differs = verdict_of(changed(LOG, 599_000), master, rule=ADOPT)
    assert (differs.kind, differs.adopt) == (HOLD, False)
    assert differs.offset <= 599_000


def test_a_master_without_a_log_is_not_what_a_slave_is_cut_to_silently() -> None:
    assert verdict_of(LOG, b"") == Verdict(HOLD, 0, "slave 1 ends at 1000000, the master at 0")
    assert verdict_of(LOG, b"", rule=ADOPT).adopt
    verdict = verdict_of(LOG, b"", slave_low=400_000, rule=ADOPT)
    assert (verdict.kind, verdict.adopt) == (HOLD, False)
    assert "begins at 400000" in verdict.reason


def test_the_masters_end_moves_while_it_is_compared() -> None:
    slave, crc = LOG[:700_000], lambda offset, length: zlib.crc32(LOG[offset : offset + length])
    below = claim(slave, windows_end=600_000)
    assert decide(below, view(LOG), crc) == Verdict(COMPARE, 700_000)
    assert decide(claim(slave, windows_end=700_000), view(LOG), crc).kind == ACCEPT


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cluster": "Other"}, "Other/broker-a"),
        ({"broker_name": "broker-b"}, "DefaultCluster/broker-b"),
        ({"start_id": "3a"}, "asks itself"),
        ({"broker_id": 0}, "brokerId 0"),
        ({"file_bytes": 65_536}, "mappedFileSizeCommitLog is 65536"),
    ],
)
def test_strangers_are_refused_before_anything_is_compared(change: dict[str, object], says: str) -> None:
    def crc(offset: int, length: int) -> int:
        raise AssertionError("the log is read for a stranger")

    verdict = decide(replace(claim(LOG), **change), view(LOG), crc)  # type: ignore[arg-type]
    assert verdict.kind == REFUSE
    assert says in verdict.reason


def test_request_and_answer_come_back() -> None:
    request = replace(claim(LOG), room="east", report_level="flushed", ha_port=4000)
    assert claim_of(body(request)) == request
    answer = HandshakeAnswer(CUT, 5, "why", "3a", 0, 10, 9, "west")
    assert answer_of(body(answer)) == answer


@pytest.mark.parametrize(
    "tail",
    [
        5,
        [[1, 2]],
        [[0, 0, 0]],
        [[0, WINDOW_BYTES + 1, 0]],
        [[-1, 5, 0]],
        [[0, 5, 1 << 32]],
        [[0, "5", 0]],
        [[0, 5, 0]] * 17,
    ],
)
def test_impossible_windows_are_told(tail: object) -> None:
    found = json.loads(body(claim(LOG[:10])))
    with pytest.raises(MessageError, match="tail"):
        claim_of(json.dumps({**found, "tail": tail}).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"broker_id": 1 << 63},
        {"max_offset": -1},
        {"min_offset": 1 << 64},
        {"file_bytes": 0},
        {"ha_port": 65_536},
        {"room": "r" * 32},
        {"room": "\ud800"},
        {"start_id": "f" * 33},
        {"report_level": "written"},
        {"operation": "dance"},
    ],
)
def test_what_does_not_fit_into_a_word_is_told(change: dict[str, object]) -> None:
    found = json.loads(body(claim(LOG[:10])))
    with pytest.raises(MessageError):
        claim_of(json.dumps({**found, **change}).encode())


def test_a_masters_answer_is_bounded_too() -> None:
    answer = HandshakeAnswer(HOLD, 5, "\u4e2d" * 5000, "3a", 0, 10, 9)
    said = answer_of(body(answer))
    assert len(news_bytes(LinkNews("10.0.0.1:10912", "held", why=said.reason))) <= 1020
    for change in ({"offset": -1}, {"confirm_offset": 1 << 63}, {"max_offset": 1 << 70}):
        with pytest.raises(MessageError, match="no offset"):
            answer_of(body(replace(answer, **change)))


def test_junk_is_told() -> None:
    for data in (b"", b"null", b"{", b'{"cluster": 1}', b"[[]]"):
        with pytest.raises(MessageError):
            claim_of(data)


@pytest.mark.parametrize(
    ("slave", "last_epoch", "epoch_offset", "kind"),
    [
        (LOG[:900_000] + b"old" * 9, 0, 900_000, CUT),  # the old master, whose tail the promotion has left behind
        (LOG + b"old" * 9, 0, 900_000, CUT),
        (LOG + b"old" * 9, UNKNOWN_EPOCH, 900_000, HOLD),  # an older version, whose records may be of this epoch
        (LOG + b"old" * 9, 65537, 900_000, HOLD),  # records of this epoch, which the master has lost
        (LOG + b"old" * 9, 0, 1_000_001, HOLD),  # the master has lost records from before its promotion
        (LOG[:800_000] + b"old" * 9, 0, 900_000, HOLD),  # its log ends before the promotion
        (LOG[:900_000], 0, 900_000, ACCEPT),
    ],
)
def test_a_promotion_has_chosen_between_the_logs(slave: bytes, last_epoch: int, epoch_offset: int, kind: str) -> None:
    peer, own = claim(slave), replace(view(LOG), epoch=65537, epoch_offset=epoch_offset)
    peer = replace(peer, last_epoch=last_epoch)
    verdict = decide(peer, own, lambda offset, length: zlib.crc32(LOG[offset : offset + length]))
    if verdict.kind == COMPARE:
        again = replace(claim(slave, windows_end=verdict.offset), last_epoch=last_epoch)
        verdict = decide(again, own, lambda offset, length: zlib.crc32(LOG[offset : offset + length]))
    assert verdict.kind == kind
    without = decide(replace(peer, last_epoch=0), replace(own, epoch=0), lambda offset, length: None)
    assert without.kind != CUT  # brokers whose role has never changed ask a person as before


@pytest.mark.parametrize("epoch", [-2, 1 << 56])
def test_an_impossible_epoch_is_refused(epoch: int) -> None:
    with pytest.raises(MessageError, match=f"last_epoch {epoch} is no epoch"):
        claim_of(body(replace(claim(LOG), last_epoch=epoch)))
