"""Copies of POP's memory that control of a master makes for slaves (270006)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.pop import copy_source
from ringmq.pop.image_file import PAGE
from ringmq.pop.memory import remove_lasting
from ringmq.pop.page_changes import DONE_AT, FILE
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.pop_copy_headers import PIECE_BYTES_MAX, PopProgressResponseHeader
from tests.broker.fakes import make_harness
from tests.pop.copy_pair import Master, Slave, image_of

NOTHING = {"run": "0", "snapshot": "0", "namesBytes": "0", "namesCrc": "0"}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    made = Master(tmp_path / "master")
    yield made
    remove_lasting(made.root)


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Master]:
    """A master of which a copy has several pieces."""
    made = Master(tmp_path / "large", entries=1 << 16)
    made.put(*range(0, 1 << 16, 64))
    yield made
    made.close()


@pytest.fixture
def slave(tmp_path: Path) -> Slave:
    return Slave(tmp_path / "slave")


def header_of(master: Master, fields: dict[str, str]) -> PopProgressResponseHeader:
    answer = master.ask(fields)
    assert answer.code == 0, answer.remark
    return PopProgressResponseHeader.decode(answer.ext_fields)


def test_a_slave_gets_all_and_then_what_changes(master: Master, slave: Slave) -> None:
    master.names.add("G", "T", 0, 0)
    master.put(*range(0, 2000, 64))
    slave.copy(master)
    assert image_of(slave.root) == image_of(master.root)
    assert (slave.root / "pop" / "names").read_bytes() == (master.root / "pop" / "names").read_bytes()
    whole = slave.bytes
    master.put(5)
    slave.copy(master)
    assert image_of(slave.root) == image_of(master.root)
    assert slave.bytes - whole < 3 * PAGE < whole, "the header and one page of entries"
    before = slave.bytes
    assert slave.copy(master) == 1
    assert slave.bytes == before


def test_names_come_from_where_the_slave_lacks_them(master: Master, slave: Slave) -> None:
    master.names.add("G", "T", 0, 0)
    master.put(0)
    slave.copy(master)
    known = slave.sync.known
    before = (master.root / "pop" / "names").read_bytes()
    master.names.add("G", "T", 1, 0)
    master.put(1)
    added = len((master.root / "pop" / "names").read_bytes()) - len(before)
    fields = {"run": known.run, "snapshot": known.snapshot, "namesBytes": known.names_bytes}
    more = header_of(master, {name: str(value) for name, value in fields.items()} | {"namesCrc": str(known.names_crc)})
    assert (more.names_from, more.size - more.journal_bytes) == (known.names_bytes, added)


@pytest.mark.parametrize("field", ["run", "namesCrc", "namesBytes"])
def test_a_slave_of_another_past_gets_all(master: Master, slave: Slave, field: str) -> None:
    master.names.add("G", "T", 0, 0)
    master.put(0)
    slave.copy(master)
    known = slave.sync.known
    fields = {
        "run": known.run, "snapshot": known.snapshot - 1, "namesBytes": known.names_bytes, "namesCrc": known.names_crc
    }  # fmt: skip
    same = header_of(master, {name: str(value) for name, value in fields.items()})
    assert same.names_from == known.names_bytes
    fields[field] += 1
    other = header_of(master, {name: str(value) for name, value in fields.items()})
    if field == "run":
        assert other.journal_bytes == header_of(master, NOTHING).journal_bytes
    else:
        assert other.names_from == 0


def test_a_large_copy_comes_in_pieces(tmp_path: Path, slave: Slave) -> None:
    master = Master(tmp_path / "master", entries=1 << 16)
    master.put(*range(0, 1 << 16, 64))
    assert slave.copy(master) > 3
    assert image_of(slave.root) == image_of(master.root)
    assert slave.bytes > 3 * PIECE_BYTES_MAX
    master.close()


def test_a_copy_is_of_the_moment_of_its_first_piece(tmp_path: Path, slave: Slave) -> None:
    """Snapshots go on while a slave takes the pieces."""
    master = Master(tmp_path / "master", entries=1 << 16)
    master.put(*range(0, 1 << 16, 64))
    before = image_of(master.root)
    ask = slave.sync.due(slave.now_ms)
    slave.sync.answered(ask, master.ask(dict(ask.ext_fields)), slave.now_ms)
    master.put(*range(1, 1 << 16, 64))
    while not slave.sync.is_whole:
        ask = slave.sync.due(slave.now_ms)
        slave.sync.answered(ask, master.ask(dict(ask.ext_fields)), slave.now_ms)
    slave.save()
    assert image_of(slave.root) == before != image_of(master.root)
    slave.copy(master)
    assert image_of(slave.root) == image_of(master.root)
    master.close()


def test_an_image_that_is_being_written_is_not_read(master: Master) -> None:
    master.put(0)
    path = master.memory.folder / FILE
    data = bytearray(path.read_bytes())
    data[DONE_AT] -= 1
    path.write_bytes(data)
    assert header_of(master, NOTHING).size == 0


def test_an_image_that_changes_meanwhile_is_not_given(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    master.put(0)
    names = copy_source._add_names

    def slow(*arguments: object) -> int:
        master.put(1)
        return names(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(copy_source, "_add_names", slow)
    assert header_of(master, NOTHING).size == 0


def test_a_large_copy_that_does_not_fit_between_snapshots_is_an_error(
    large: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave makes a pause, and tells its operator."""
    names = copy_source._add_names

    def slow(*arguments: object) -> int:
        large.put(1)
        return names(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(copy_source, "_add_names", slow)
    answer = large.ask(NOTHING)
    remark = "the memory of POP has changed while its copy was made, ask again"
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, remark)


def test_an_image_to_which_a_start_adds_a_journal_is_not_given(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so before it notes the pages."""
    master.put(0)
    path = master.memory.folder / FILE
    names, noted = copy_source._add_names, path.read_bytes()

    def slow(*arguments: object) -> int:
        master.put(1)
        path.write_bytes(noted)
        return names(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(copy_source, "_add_names", slow)
    assert header_of(master, NOTHING).size == 0


def test_a_master_without_pop_has_none(tmp_path: Path) -> None:
    control = make_harness({"storePathRootDir": str(tmp_path)})
    answer = control.ask(RequestCode.POP_PROGRESS, {**NOTHING, "run": "7", "snapshot": "3"})
    assert (answer.code, answer.ext_fields["run"], answer.ext_fields["size"]) == (0, "0", "0")
    assert not list(tmp_path.iterdir())


def test_a_piece_that_is_not_there_is_refused(master: Master) -> None:
    master.put(0)
    first = header_of(master, NOTHING)
    for copy_id, offset in ((first.copy_id, 0), (77, 0), (0, 5)):
        answer = master.ask({**NOTHING, "copyId": str(copy_id), "offset": str(offset)})
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == f"there is no copy {copy_id} with a piece at {offset}, begin anew"


def next_piece(master: Master, copy: PopProgressResponseHeader) -> int:
    """The code of the answer."""
    return master.ask({**NOTHING, "offset": str(PIECE_BYTES_MAX), "copyId": str(copy.copy_id)}).code


def test_the_oldest_copy_gives_way(large: Master) -> None:
    copies = [header_of(large, NOTHING) for _ in range(copy_source.COPIES_MAX)]
    assert next_piece(large, copies[0]) == 0
    header_of(large, NOTHING)
    codes = [next_piece(large, copy) for copy in copies]
    assert codes == [0, ResponseCode.QUERY_NOT_FOUND, *[0] * (copy_source.COPIES_MAX - 2)]


def test_a_copy_of_one_piece_takes_no_place(large: Master, slave: Slave) -> None:
    slave.copy(large)
    copies = [header_of(large, NOTHING) for _ in range(copy_source.COPIES_MAX)]
    large.put(5)
    assert slave.copy(large) == 1
    assert [next_piece(large, copy) for copy in copies] == [0] * copy_source.COPIES_MAX


def test_a_copy_that_no_slave_takes_is_dropped(large: Master) -> None:
    copy = header_of(large, NOTHING)
    large.control.now_ms += copy_source.IDLE_MS_MAX
    assert next_piece(large, copy) == 0
    large.control.now_ms += copy_source.IDLE_MS_MAX + 1
    assert next_piece(large, copy) == ResponseCode.QUERY_NOT_FOUND


def test_one_copy_is_made_at_a_time(large: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    names, meanwhile = copy_source._add_names, list[int]()

    def add(*arguments: object) -> int:
        meanwhile.append(header_of(large, NOTHING).size)
        return names(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(copy_source, "_add_names", add)
    for _ in range(2):
        assert header_of(large, NOTHING).size > PIECE_BYTES_MAX
    assert meanwhile == [0, 0]


def test_a_large_copy_leaves_the_log_its_room(large: Master, slave: Slave, monkeypatch: pytest.MonkeyPatch) -> None:
    slave.copy(large)
    monkeypatch.setattr(copy_source, "used_ratio", lambda folder: 0.91)
    answer = large.ask(NOTHING)
    remark = "no copy of POP's memory: the disk is 91% used, diskSpaceWarningLevelRatio is 90%"
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    large.put(5)
    assert slave.copy(large) == 1, "a small one stays in memory"


@pytest.mark.parametrize("field", [*NOTHING, "copyId", "offset"])
def test_numbers_below_0_are_refused(master: Master, field: str) -> None:
    master.put(0)
    answer = master.ask({**NOTHING, field: "-1"})
    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, f"{field} = -1 is below 0")


def test_those_who_may_not_replicate_are_refused(master: Master) -> None:
    master.put(0)
    control = make_harness({"storePathRootDir": str(master.root), "haAllowedNetworks": "10.9.0.0/16"})
    answer = control.ask(RequestCode.POP_PROGRESS, NOTHING)
    assert answer.code == ResponseCode.NO_PERMISSION and "haAllowedNetworks does not name this host" in answer.remark
    slave = make_harness({"storePathRootDir": str(master.root), "brokerRole": "SLAVE", "brokerId": "1"})
    assert slave.ask(RequestCode.POP_PROGRESS, NOTHING).code == ResponseCode.SLAVE_NOT_AVAILABLE
