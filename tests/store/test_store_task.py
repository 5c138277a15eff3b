"""Orders for a start: cut, rebase or adopt a log, without room, with damage, and over a death at any line."""

import os
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from ringmq.store import adoption, adoption_staging, markers, salvage, store_task
from ringmq.store.config_files import ConfigFileError, load_config, persist_config
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import recover
from ringmq.store.salvage import SalvageError, truncate
from ringmq.store.store_task import StoreTask, perform, read_task, write_task
from ringmq.store.verify import verify
from ringmq.store.write_hold import HeldFor, forget_adopted, read_hold, write_hold
from tests.spark_bridge.made_store import MadeStore
from tests.store.salvage_kit import (
    FILE_BYTES,
    PROPERTIES,
    RECORDS,
    config_of,
    log_of,
    made,
    places,
    reader_of,
    salvaged,
    store,
    template,
)

__all__ = ["store", "template"]


class Source:
    """An `open_source` that serves the log of another store."""

    def __init__(self, template: MadeStore) -> None:
        self._read = reader_of(log_of(template.root))

    def __call__(self, address: str) -> "Source":
        assert address == "10.0.0.2:10911"
        return self

    def __enter__(self) -> Callable[[int, int], bytes]:
        return self._read

    def __exit__(self, *ignored: object) -> None:
        return None


def diverge(root: Path, template: MadeStore, number: int) -> None:
    """Give the store another log from its `number`-th record on."""
    shutil.rmtree(root)
    own = made(root, number)
    for _ in range(20):
        own.append(topic="Salvaged", queue_id=0, body=b"its own " * 90, properties=PROPERTIES)
    assert own.end != template.end


def orders(template: MadeStore) -> dict[str, StoreTask]:
    return {
        "cut": StoreTask("cut", places(template)[61] + 5),
        "rebase": StoreTask("rebase", 2 * FILE_BYTES),
        "adopt": StoreTask("adopt", places(template)[61] + 5, end=template.end, source="10.0.0.2:10911"),
    }


def held_for(template: MadeStore) -> HeldFor:
    """Writes are held for the source of the adoption."""
    return HeldFor(1, "10.0.0.2:10911", places(template)[61], places(template)[61], template.end)


@pytest.mark.parametrize("action", ["cut", "rebase", "adopt"])
def test_an_order_is_performed_once(store: Path, template: MadeStore, action: str) -> None:
    if action == "adopt":
        diverge(store, template, 61)
    other = HeldFor(2, "10.0.0.3:10911", 0, 0, 5)
    write_hold(store, [held_for(template), other])
    write_task(store, orders(template)[action])
    forgotten: list[int] = []
    performed = perform(config_of(store), Source(template), forget=lambda root, offset: forgotten.append(offset))
    assert forgotten == [0 if action == "rebase" else places(template)[61]]
    assert action in performed.lines[0]
    assert performed.adopted_from == (places(template)[61] if action == "adopt" else None)
    assert read_task(store) is None
    assert perform(config_of(store), Source(template)).lines == []
    assert read_hold(store) == ((other,) if action == "adopt" else (held_for(template), other))
    if action == "adopt":
        assert log_of(store) == log_of(template.root)
        assert {start for start, _ in salvaged(store)} >= {places(template)[61]}


def test_an_adoption_ends_every_hold_for_that_slave(store: Path, template: MadeStore) -> None:
    """Under the addresses that it had before, and as the slave of its host: known by the end of its log."""
    this = held_for(template)
    for_it = [
        this,
        structs.replace(this, address="10.0.0.7:1"),
        structs.replace(this, broker_id=-1, address="10.0.0.2"),
    ]
    others = (
        structs.replace(this, address="10.0.0.7:2", slave_offset=this.slave_offset - 1),
        structs.replace(this, address="10.0.0.7:3", slave_offset=this.slave_offset + 1),
        structs.replace(this, broker_id=2, address="10.0.0.7:4"),
        structs.replace(this, broker_id=-1, address="10.0.0.7"),
    )
    write_hold(store, [*for_it, *others])
    forget_adopted(store, this.address, template.end)
    assert read_hold(store) == others
    write_hold(store, for_it)
    forget_adopted(store, "10.0.0.9:1", template.end)
    assert read_hold(store) == tuple(for_it), "of a broker that nothing is held for"


def test_queues_name_the_adopted_log(store: Path, template: MadeStore) -> None:
    """Behind the cut they had records of the store's own tail."""
    diverge(store, template, 61)
    write_task(store, orders(template)["adopt"])
    perform(config_of(store), Source(template))
    markers.write_boot_marker(store)  # as in a restart in place
    result = recover(config_of(store))
    assert result.append_offset == template.end
    assert result.next_offsets == {("Salvaged", 0): 60, ("Salvaged", 1): 60}
    assert [state.max_offset for _, state in sorted(result.queues.items())] == [31, 30], "dispatch adds the rest"
    report = verify(MessageStore(config_of(store)), places(template)[61], check_index=False)
    assert (report.errors, report.records) == (0, 61)


@pytest.mark.parametrize("number", [61, RECORDS], ids=["adopted", "nothing to adopt"])
def test_what_a_failed_sync_took_out_of_a_queue_is_found_after_an_adoption(
    store: Path, template: MadeStore, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order's own recovery finds it first, and redoes nothing: it must not count as the last run's recovery."""
    if number < RECORDS:
        diverge(store, template, number)
    write_task(store, StoreTask("adopt", [*places(template), template.end][number], template.end, "10.0.0.2:10911"))
    markers.write_abort(store, os.getpid())
    markers.write_boot_marker(store)
    markers.write_failed_marker(store, "fsync of a consume queue")
    next((store / "consumequeue" / "Salvaged" / "0").iterdir()).write_bytes(bytes(20_000))
    monkeypatch.setattr(store_task, "recover", partial(recover, window_bytes=1000))
    perform(config_of(store), Source(template))
    result = recover(config_of(store), window_bytes=1000)
    assert (result.append_offset, result.redispatch_offset) == (template.end, 0)
    assert result.queues[("Salvaged", 0)].missing_from == 0


@pytest.mark.parametrize(("kept", "asked"), [(0, ["10.0.0.2:10911"]), (61, [])])
def test_tables_come_with_a_log_that_nothing_of_the_own_one_is_in(
    store: Path, template: MadeStore, kept: int, asked: list[str]
) -> None:
    """Where the logs have a past in common, the own tables are the newer ones."""
    diverge(store, template, kept)
    write_task(store, structs.replace(orders(template)["adopt"], offset=places(template)[kept]))
    sources: list[str] = []

    def take(root: Path, address: str) -> list[str]:
        assert root == store / adoption_staging.FOLDER
        sources.append(address)
        return ["tables"]

    performed = perform(config_of(store), Source(template), take)
    assert (sources, "tables" in performed.lines) == (asked, bool(asked))
    assert performed.adopted_from == places(template)[kept]
    assert log_of(store) == log_of(template.root)


@pytest.mark.parametrize(("unknown_from", "queues"), [(None, []), (61, ["Tail"]), (0, ["Old", "Tail"])])
def test_unknown_topics_get_queues_where_the_adopted_log_begins_with_them(
    tmp_path: Path, unknown_from: int | None, queues: list[str]
) -> None:
    """Below it they are deleted."""
    store = MadeStore(tmp_path / "store", file_bytes=FILE_BYTES)
    ends = [0]
    for topic in ["Old"] * 61 + ["Known"] + ["Old", "Tail"] * 10:
        store.append(topic=topic, queue_id=0, body=b"body", properties=PROPERTIES)
        ends.append(store.end)
    shutil.rmtree(store.root / "consumequeue")
    persist_config(store.root, "topics.json", {"topicConfigTable": {"Known": {}}})
    markers.write_abort(store.root, os.getpid())
    offset = None if unknown_from is None else ends[unknown_from]
    found = recover(config_of(store.root), unknown_topics_from=offset).queues
    assert sorted(topic for topic, _ in found) == sorted(["Known", *queues])


def broken_sources(template: MadeStore) -> dict[str, Any]:
    """Sources that do not hand over everything, and the error about each."""

    def refuse(address: str) -> Source:
        raise ConnectionRefusedError(f"{address}: refused")

    early, bent, other = Source(template), Source(template), Source(template)
    data = log_of(template.root)
    early._read = reader_of(data[: places(template)[80]])
    bad = bytearray(data)
    bad[places(template)[90] + 120] ^= 1
    bent._read = reader_of(bytes(bad))
    bad = bytearray(data)
    bad[places(template)[61] - 200] ^= 1
    other._read = reader_of(bytes(bad))
    return {"refused": refuse, "ends at": early, "CRC": bent, "differ": other}


@pytest.mark.parametrize("why", ["refused", "ends at", "CRC", "differ"])
def test_an_adoption_that_gets_not_everything_cuts_nothing(store: Path, template: MadeStore, why: str) -> None:
    diverge(store, template, 61)
    before = log_of(store)
    write_hold(store, [held_for(template)])
    write_task(store, orders(template)["adopt"])
    performed = perform(config_of(store), broken_sources(template)[why])
    assert "the own log was not cut" in performed.failure and why in performed.failure
    assert performed.adopted_from is None
    assert (log_of(store), salvaged(store), read_task(store)) == (before, {}, None)
    assert not (store / adoption_staging.FOLDER).exists()
    assert read_hold(store) == (held_for(template),), "the slave still has what was acknowledged"
    write_task(store, orders(template)["adopt"])  # somebody chooses once more
    perform(config_of(store), Source(template))
    assert log_of(store) == log_of(template.root)
    assert read_hold(store) == ()


def test_a_log_that_parts_where_the_own_one_begins_is_adopted(store: Path, template: MadeStore) -> None:
    """Nothing of the own log stays, and its files in front are deleted."""
    diverge(store, template, 61)
    (store / "commitlog" / f"{0:020d}").unlink()
    write_task(store, structs.replace(orders(template)["adopt"], offset=FILE_BYTES))
    assert perform(config_of(store), Source(template)).adopted_from == FILE_BYTES
    assert log_of(store) == log_of(template.root)[FILE_BYTES:]
    assert recover(config_of(store)).append_offset == template.end


def leave_copy(root: Path, template: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with another log from its 61st record on, and the complete copy of an adoption that a crash stopped."""
    diverge(root, template, 61)
    write_task(root, orders(template)["adopt"])

    def crash(*ignored: object) -> None:
        raise OSError("crashed")

    with monkeypatch.context() as patch:
        patch.setattr(store_task, "end_at", crash)
        with pytest.raises(OSError, match="crashed"):
            perform(config_of(root), Source(template))
    assert (root / adoption_staging.FOLDER / "complete.json").exists()


@pytest.mark.parametrize("action", ["cut", "rebase"])
def test_a_copy_of_an_adoption_goes_with_the_order_that_replaced_it(
    store: Path, template: MadeStore, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins behind the log's new end: a later adoption from that slave may not take it."""
    leave_copy(store, template, monkeypatch)
    write_task(store, orders(template)[action])
    perform(config_of(store), Source(template))
    assert not (store / adoption_staging.FOLDER).exists()


@pytest.mark.parametrize(("number", "left"), [(30, 61), (61, 30)], ids=["other order", "shorter log"])
def test_a_copy_that_begins_elsewhere_than_the_own_log_parts_is_made_anew(
    store: Path, template: MadeStore, number: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_copy(store, template, monkeypatch)
    order = structs.replace(orders(template)["adopt"], offset=places(template)[number])
    if left < 61:
        truncate(config_of(store), places(template)[left])
    write_task(store, order)
    source = Source(template)
    performed = perform(config_of(store), source)
    assert performed.adopted_from == places(template)[30]
    assert log_of(store) == log_of(template.root)
    assert read_task(store) is None


def test_a_copy_that_begins_elsewhere_is_no_reason_to_cut(
    store: Path, template: MadeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source is gone when the copy would have to be made again."""
    leave_copy(store, template, monkeypatch)
    before = log_of(store)
    write_task(store, structs.replace(orders(template)["adopt"], offset=places(template)[30]))
    performed = perform(config_of(store), broken_sources(template)["refused"])
    assert "the own log was not cut" in performed.failure
    assert (log_of(store), salvaged(store), read_task(store)) == (before, {}, None)


FULL = SimpleNamespace(f_bavail=5, f_frsize=4096)
EMPTY = SimpleNamespace(f_bavail=1 << 20, f_frsize=4096)


def test_an_adoption_without_room_on_the_disk_cuts_nothing(
    store: Path, template: MadeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    diverge(store, template, 61)
    before = log_of(store)
    write_task(store, orders(template)["adopt"])
    monkeypatch.setattr(os, "statvfs", lambda path: FULL)
    failure = perform(config_of(store), Source(template)).failure
    assert "20480 free" in failure
    assert (log_of(store), salvaged(store)) == (before, {})


@pytest.mark.parametrize("full", ["store", "log1", "log2"])
def test_an_adoption_asks_each_disk_that_it_writes_to(
    tmp_path: Path, template: MadeStore, full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root and two paths of the log on a disk of their own each; new log files come to the first of them."""
    store = Path(shutil.copytree(template.root, tmp_path / "store"))
    diverge(store, template, 61)
    folders = (tmp_path / "log1", tmp_path / "log2")
    for folder in folders:
        folder.mkdir()
    for path in (store / "commitlog").glob("0*"):
        path.rename(tmp_path / ("log1" if int(path.name) < 2 * FILE_BYTES else "log2") / path.name)
    config = replace(config_of(store), commit_log_directories=folders)
    write_task(store, orders(template)["adopt"])
    monkeypatch.setattr(adoption_staging, "_device", lambda path: path.name)
    monkeypatch.setattr(os, "statvfs", lambda path: FULL if path.name == full else EMPTY)
    before = [sorted(folder.iterdir()) for folder in folders]
    performed = perform(config, Source(template))
    needs_little = full == "log2"  # one file is written again there: 16384 bytes, 20480 are free
    assert (performed.adopted_from is not None) == needs_little, performed.lines
    if not needs_little:
        assert f"bytes on the disk of {tmp_path / full}, which has 20480 free" in performed.failure
        assert [sorted(folder.iterdir()) for folder in folders] == before


def test_the_progress_of_a_copy_is_told(store: Path, template: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption_staging, "PROGRESS_BYTES", 10_000)
    diverge(store, template, 61)
    write_task(store, orders(template)["adopt"])
    lines: list[str] = []
    perform(config_of(store), Source(template), tell=lines.append)
    assert lines and all(line.endswith("MiB of the log of 10.0.0.2:10911") for line in lines)


@pytest.mark.parametrize("text", ["", "{", "7", '[{"broker_id": 1}]', '[["x"]]', '{"a": 1}'])
def test_a_file_that_holds_writes_for_nobody_is_named(store: Path, text: str) -> None:
    write_hold(store, [HeldFor(1, "10.0.0.2:10911", 0, 0, 5)])
    (store / "config" / "ringmqWriteHold.json").write_text(text)
    with pytest.raises(ConfigFileError, match=r"ringmqWriteHold\.json"):
        read_hold(store)
    write_hold(store, [])
    assert read_hold(store) == ()


NO_ORDERS = ("", "{", "[]", '{"action": "cut"}', '{"action": "drop", "offset": 1}', '{"action": "cut", "offset": -1}')


@pytest.mark.parametrize("text", NO_ORDERS)
def test_a_file_that_is_no_order_stops_the_start(store: Path, text: str) -> None:
    write_task(store, StoreTask("cut", 0))
    (store / "config" / "haOrder.json").write_text(text)
    with pytest.raises(SalvageError, match="is not a task of the store"):
        read_task(store)


# ---- crashes -------------------------------------------------------------------------------------------------

TRACED = {module.__file__ for module in (salvage, adoption, adoption_staging, store_task, markers)}


def run_to_line(work: Callable[[], Any], lines: int) -> bool:
    """Do the work in a child process that dies at its `lines`-th line; says whether it got to its end before."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    left = lines

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os._exit(9)
        return trace

    try:
        sys.settrace(trace)
        work()
        os._exit(0)
    except BaseException as error:
        os.write(2, repr(error).encode())
        os._exit(1)


def next_line(lines: int, is_thorough: bool) -> int:
    """The line of the next death. Records are looked at in many equal turns, so the steps grow."""
    return lines + 1 + (lines // 20 if is_thorough else random.randrange(1 + lines // 3))


@pytest.mark.parametrize("action", ["cut", "rebase", "adopt", "adopt from the own begin", "cut after a copy"])
def test_a_death_at_any_line_is_made_good_by_doing_it_again(
    template: MadeStore, tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch, is_thorough: bool
) -> None:
    for name in ("fsync", "fdatasync"):  # a process that dies takes nothing out of the page cache
        monkeypatch.setattr(os, name, lambda descriptor: None)
    begin, root = tmp_path / "begin", tmp_path / "root"
    shutil.copytree(template.root, begin)
    order = orders(template)[action.split()[0]]
    if action == "cut after a copy":
        leave_copy(begin, template, monkeypatch)
        order = StoreTask("cut", places(template)[40])
    elif action == "adopt from the own begin":
        diverge(begin, template, 100)
        (begin / "commitlog" / f"{0:020d}").unlink()
        order = structs.replace(order, offset=FILE_BYTES)
    elif action == "adopt":
        diverge(begin, template, 100)
    write_task(begin, order)
    wanted = Path(shutil.copytree(begin, tmp_path / "wanted"))
    perform(config_of(wanted), Source(template))
    lines, ended = 1, False
    while not ended:
        shutil.copytree(begin, root)
        ended = run_to_line(lambda: perform(config_of(root), Source(template)), lines)
        perform(config_of(root), Source(template))
        assert (log_of(root), salvaged(root)) == (log_of(wanted), salvaged(wanted)), lines
        assert not list((root / "salvage").glob("*.tmp"))
        end = recover(config_of(root)).append_offset
        assert (
            end
            == {
                "cut": places(template)[40 if "copy" in action else 61],
                "rebase": 2 * FILE_BYTES,
                "adopt": template.end,
            }[order.action]
        )
        assert not (root / adoption_staging.FOLDER).exists()
        shutil.rmtree(root)
        lines = next_line(lines, is_thorough)
    assert lines > 40


@pytest.mark.parametrize("kept", [0, 100])
def test_a_death_before_the_copy_is_complete_leaves_the_store_as_it_was(
    template: MadeStore, tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch, is_thorough: bool
) -> None:
    """At any line: without its source afterwards the log is either as before, or wholly the other one's."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda descriptor: None)
    begin, root = tmp_path / "begin", tmp_path / "root"
    shutil.copytree(template.root, begin)
    diverge(begin, template, kept)
    persist_config(begin, "topics.json", {"topicConfigTable": {"Own": {}}})
    write_hold(begin, [held_for(template)])
    order = structs.replace(orders(template)["adopt"], offset=places(template)[min(kept, 61)])
    write_task(begin, order)
    before = log_of(begin)

    def take(folder: Path, address: str) -> list[str]:
        persist_config(folder, "topics.json", {"topicConfigTable": {"Theirs": {}}})
        return ["tables"]

    lines, ended, seen = 1, False, set()
    while not ended:
        shutil.copytree(begin, root)
        ended = run_to_line(lambda: perform(config_of(root), Source(template), take), lines)
        perform(config_of(root), broken_sources(template)["refused"])
        log, topics = log_of(root), load_config(root, "topics.json")["topicConfigTable"]
        is_adopted = log == log_of(template.root)
        assert is_adopted or (log, salvaged(root)) == (before, {}), lines
        assert list(topics) == (["Theirs"] if is_adopted and not kept else ["Own"]), lines
        assert read_hold(root) == (() if is_adopted else (held_for(template),)), lines
        assert not (root / adoption_staging.FOLDER).exists()
        seen.add(is_adopted)
        shutil.rmtree(root)
        lines = next_line(lines, is_thorough)
    assert seen == {False, True}
