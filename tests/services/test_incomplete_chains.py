"""Chains that a power cut has parted are completed: each record is in the log exactly once, however often it is cut."""

import random
from dataclasses import dataclass, field

import pytest

from ringmq.ipc.ports import mark_of, parts_of_mark
from ringmq.services.chains import (
    CHAIN_MAX,
    CHAIN_PAIR,
    PAIR_BYTES_MAX,
    ChainScan,
    IncompleteChain,
    Link,
    link_of,
    links,
)

ROLE = 24


@dataclass(frozen=True, slots=True)
class Stored:
    """A record: of a chain (mark and link), or a client's (no mark), which may have forged the pair."""

    mark: int
    index: int
    value: str | None
    size: int = 100


@dataclass(slots=True)
class Log:
    """Records at their places; what is flushed outlives a power cut."""

    records: list[Stored] = field(default_factory=list)
    flushed: int = 0
    """Number of records."""

    def append_chain(self, mark: int, length: int, first: int = 0) -> None:
        for index, link in enumerate(links(mark, length, first), first):
            self.records.append(Stored(mark, index, link.value if link else None))

    def append_client(self, value: str | None = None) -> None:
        self.records.append(Stored(0, 0, value))

    def cut(self, at: int) -> None:
        del self.records[max(at, self.flushed) :]


@dataclass(slots=True)
class Service:
    """What a starting service does. Its checkpoint: (record to scan from, next source)."""

    log: Log
    lengths: list[int]
    checkpoint: tuple[int, int] = (0, 0)
    scan: ChainScan = field(default_factory=lambda: ChainScan(ROLE))
    following: int = 0
    fed: int = 0

    def start(self) -> None:
        """Read the log behind the checkpoint, and complete what lacks its end."""
        self.fed, self.following = self.checkpoint
        self.scan = ChainScan(ROLE)
        self.read()

    def read(self) -> None:
        for number in range(self.fed, len(self.log.records)):
            stored = self.log.records[number]
            self.scan.feed(number * 100, number * 100 + 100, stored.mark, stored.value)
            if stored.mark:
                self.following = max(self.following, parts_of_mark(stored.mark)[2] + 1)
        self.fed = len(self.log.records)

    def complete(self) -> None:
        for chain in self.scan.missing:
            self.log.append_chain(chain.mark, chain.length, chain.following)
        self.read()

    def publish(self) -> None:
        if self.following < len(self.lengths):
            self.log.append_chain(mark_of(ROLE, 0, self.following), self.lengths[self.following])
        self.read()

    def write_down(self) -> None:
        """A checkpoint, behind a flush of what it speaks of."""
        self.log.flushed = max(self.log.flushed, self.fed)
        self.checkpoint = self.scan.scan_from // 100, self.following


def assert_each_once(log: Log, lengths: list[int]) -> None:
    found = [(stored.mark, stored.index) for stored in log.records if stored.mark]
    expected = [(mark_of(ROLE, 0, source), index) for source, length in enumerate(lengths) for index in range(length)]
    assert sorted(found) == expected


def test_a_log_cut_at_every_record_is_completed_though_it_is_cut_again() -> None:
    lengths = [2, 1, 5, 3]
    for cut in range(sum(lengths) + 1):
        for again in range(sum(lengths) + 1):
            service = Service(Log(), lengths)
            for _ in lengths:
                service.publish()
            service.log.cut(cut)
            service.start()
            service.complete()
            service.log.cut(max(again, cut))
            service.start()
            service.complete()
            for _ in lengths:
                service.publish()
            service.start()
            assert service.scan.missing == [] and service.scan.unsound == 0
            assert_each_once(service.log, lengths)


@pytest.mark.parametrize("seed", range(60))
def test_each_record_is_there_once_over_random_cuts(seed: int) -> None:
    """Cuts while chains are published and while they are completed; clients write in between, some forge the pair."""
    chance = random.Random(seed)
    lengths = [chance.choice((1, 2, 3, 7, CHAIN_MAX)) for _ in range(30)]
    service, cuts = Service(Log(), lengths), 0
    service.start()
    while service.following < len(lengths) or service.scan.missing:
        match chance.randrange(7):
            case 0 | 1:
                service.publish() if not service.scan.missing else service.complete()
            case 2:
                service.complete()
            case 3:
                forged = Link(0, 2, mark_of(ROLE, 0, chance.randrange(60))).value
                service.log.append_client(chance.choice((None, forged, "no link")))
                service.read()
            case 4:
                service.write_down()
            case _ if cuts < 60:
                cuts += 1
                floor = service.log.flushed
                service.log.cut(chance.randrange(floor, len(service.log.records) + 1))
                for _ in range(chance.randrange(3)):
                    service.log.append_client()
                service.start()
    assert cuts and service.scan.unsound == 0
    assert_each_once(service.log, lengths)


def test_the_check_sees_a_record_that_is_there_twice() -> None:
    log = Log()
    log.append_chain(mark_of(ROLE, 0, 0), 3)
    log.append_chain(mark_of(ROLE, 0, 0), 3, 2)
    with pytest.raises(AssertionError):
        assert_each_once(log, [3])


def test_a_parted_chain_says_what_is_missing_and_from_where_to_scan() -> None:
    scan, mark = ChainScan(ROLE), mark_of(ROLE, 3, 77)
    scan.feed(100, 200, 0, None)
    assert (scan.missing, scan.scan_from) == ([], 200)
    for index, link in enumerate(links(mark, 4)[:2]):
        assert link is not None
        scan.feed(200 + index * 100, 300 + index * 100, 12345, link.value)
    assert (scan.missing, scan.scan_from) == ([IncompleteChain(mark, 2, 4)], 200)
    scan.feed(900, 1000, mark, None)
    assert (scan.missing, scan.scan_from) == ([], 1000)


def test_records_lost_in_the_middle_of_the_log_are_counted() -> None:
    scan, mark = ChainScan(ROLE), mark_of(ROLE, 0, 1)
    scan.feed(0, 100, mark, Link(2, 5, mark).value)
    scan.feed(100, 200, mark, Link(1, 5, mark).value)
    assert scan.unsound == 2 and scan.missing == [IncompleteChain(mark, 3, 5)]


def test_a_link_is_bounded_and_comes_back() -> None:
    largest = Link(CHAIN_MAX - 2, CHAIN_MAX, (1 << 63) - 1)
    for link in (largest, Link(0, 2, 1)):
        assert link_of(link.value) == link
        assert len(f"{CHAIN_PAIR}\x01{link.value}\x02") <= PAIR_BYTES_MAX
    assert [link_of(link.value) if link else None for link in links(9, 3)] == [Link(0, 3, 9), Link(1, 3, 9), None]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "0/2",
        "1/2/0000000000000001",
        "0/65/0000000000000001",
        "0/2/0000000000000000",
        "0/2/8000000000000000",
        "0/2/000000000000001",
        "0/2/0000000000000001 ",
        "\u0660/2/0000000000000001",
        "-1/2/0000000000000001",
    ],
)
def test_other_bytes_are_no_link(value: str | None) -> None:
    assert link_of(value) is None


@pytest.mark.parametrize(("mark", "length", "first"), [(0, 2, 0), (1 << 63, 2, 0), (1, 65, 0), (1, 2, 2), (1, 0, 0)])
def test_impossible_chains_are_refused(mark: int, length: int, first: int) -> None:
    with pytest.raises(ValueError, match="no chain has"):
        links(mark, length, first)


def test_the_scan_of_a_service_passes_over_the_marks_of_others() -> None:
    scan, mark = ChainScan(ROLE), mark_of(ROLE, 0, 7)
    scan.feed(0, 100, mark_of(ROLE + 1, 0, 9), Link(0, 64, mark).value)
    scan.feed(100, 200, mark_of(ROLE, 0, 9), Link(0, 64, mark_of(ROLE + 1, 0, 7)).value)
    assert scan.missing == [] and scan.scan_from == 200 and scan.unsound == 0
