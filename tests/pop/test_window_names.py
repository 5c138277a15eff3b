"""Windows and the names that they belong to: where they begin, that a start finds them, that they end in time."""

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_stage import GROUP_ON, Stage, receipts

from ringmq.ipc.plane import NONE
from ringmq.native import ffi, lib
from ringmq.pop.desk import LOOK_STEP_MS
from ringmq.pop.role_words import Counter
from ringmq.pop.window_names import Window
from ringmq.store.topic_start_offsets import write_start_offsets


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Six messages in queue 0."""
    made = Stage(tmp_path / "store")
    (tmp_path / "store" / "config").mkdir()
    made.topic("T")
    made.group("G")
    made.send("T", 6)
    yield made


def commit(stage: Stage, offset: int) -> None:
    assert lib.rmq_offset_put(stage.kit.plane, 1, 0, offset) == 0


def set_min(stage: Stage, offset: int) -> None:
    stage.kit.queue(1, 0).min_offset = offset


@pytest.mark.parametrize(
    ("committed", "min_offset", "init_mode", "in_memory", "wanted"),
    [
        (3, 0, 0, True, 3), (3, 0, 1, True, 3), (0, 0, 1, False, 0), (99, 0, 0, True, 6),
        (None, 0, 0, True, 0), (None, 2, 0, True, 2), (None, 0, 1, True, 0), (None, 2, 1, True, 5),
        (None, 0, 1, False, 5),
    ],
)  # fmt: skip
def test_a_group_begins_where_stock_would(
    stage: Stage, committed: int | None, min_offset: int, init_mode: int, in_memory: bool, wanted: int
) -> None:
    if committed is not None:
        commit(stage, committed)
    set_min(stage, min_offset)
    stage.set(init_pop_offset_by_check_msg_in_mem=in_memory)
    answer = stage.pop(initMode=init_mode, maxMsgNums=1)
    window = stage.desk.window_of(1, 0)
    assert window is not None
    if wanted == 6:
        assert answer.code == 210
    else:
        assert answer.fields["startOffsetInfo"] == f"0 0 {wanted}"
    assert stage.desk.windows.native(window).committed == (-1 if committed is None else committed)


def test_an_empty_queue_begins_at_0(stage: Stage) -> None:
    stage.topic("E")
    assert stage.pop("E", initMode=1).code == 210
    stage.send("E", 1)
    assert stage.pop("E", initMode=1).fields["startOffsetInfo"] == "0 0 0"


def test_retention_overtakes_a_group(stage: Stage) -> None:
    stage.pop(maxMsgNums=1)
    set_min(stage, 4)
    assert stage.pop().fields["msgOffsetInfo"] == "0 0 4,5"


def test_retention_overtakes_returned_messages(stage: Stage) -> None:
    answer = stage.pop(maxMsgNums=4)
    stage.desk.native.unsent(answer.verdict.serial)
    set_min(stage, 3)
    assert stage.pop().fields["msgOffsetInfo"] == "0 0 3"
    set_min(stage, 4)
    assert stage.pop().fields["msgOffsetInfo"] == "0 0 4,5"
    window = stage.desk.window_of(1, 0)
    assert window is not None
    assert lib.rmq_pop_open_messages(stage.windows, window.place) == 3, "what is gone is not open"


def test_a_start_finds_the_windows(stage: Stage) -> None:
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    before = stage.desk.window_of(1, 0)
    stage.restart()
    assert stage.desk.window_of(1, 0) == before
    assert len(stage.desk.windows) == 1
    stage.ack(receipt)
    assert stage.desk.native.counted(Counter.ACKS) == 1
    assert len(stage.names.lines) == 1, "no other name was written"


def test_a_topic_that_was_made_anew_gets_another_window(stage: Stage, tmp_path: Path) -> None:
    """Its offsets begin at 0 again, and an old receipt must not acknowledge a new message."""
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    stage.die()
    write_start_offsets(tmp_path / "store", {"T": int(stage.kit.marks.append_offset)})
    stage.open()
    assert stage.desk.window_of(1, 0) is None
    set_min(stage, 0)
    assert stage.pop(maxMsgNums=1).fields["startOffsetInfo"] == "0 0 0"
    stage.ack(receipt)
    assert stage.desk.native.counted(Counter.ACKS) == 0
    window = stage.desk.window_of(1, 0)
    assert window is not None
    assert window.window_id == 2
    stage.restart()
    assert stage.desk.window_of(1, 0) == window


def test_the_birth_of_a_topic_may_be_forgotten(stage: Stage, tmp_path: Path) -> None:
    """The entry goes when the log begins behind it."""
    write_start_offsets(tmp_path / "store", {"T": 100})
    stage.pop(maxMsgNums=1)
    before = stage.desk.window_of(1, 0)
    stage.die()
    write_start_offsets(tmp_path / "store", {})
    stage.open()
    assert stage.desk.window_of(1, 0) == before


def test_windows_of_deleted_topics_and_groups_end(stage: Stage) -> None:
    stage.group("H")
    stage.topic("U")
    stage.send("U", 1)
    for topic, group in (("T", "G"), ("T", "H"), ("U", "G")):
        assert stage.pop(topic, group).code == 0
    lib.rmq_group_set(stage.kit.plane, 2, 0)
    lib.rmq_topic_set(stage.kit.plane, 2, 0)
    stage.now_ms += 2000
    stage.turn()
    assert len(stage.desk.windows) == 1
    assert some_window(stage).group_id == 1
    assert any("the window of" in line for line in stage.lines)
    lib.rmq_group_set(stage.kit.plane, 2, GROUP_ON)
    assert stage.pop("T", "H").fields["msgOffsetInfo"].startswith("0 0 0"), "its offset was deleted with it"


def test_a_look_at_deleted_topics_takes_few_windows_a_turn(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop answers consumers meanwhile, however many windows there are."""
    monkeypatch.setattr("ringmq.pop.desk.ENDED_PER_TURN", 8)
    windows = stage.desk.windows
    for number in range(20):
        stage.group(f"G{number}")
        assert stage.pop(group=f"G{number}", maxMsgNums=1).code == 0
    while windows.is_looking:
        stage.now_ms += LOOK_STEP_MS
        stage.desk.turn(stage.now_ms)
    lib.rmq_topic_set(stage.kit.plane, 1, 0)
    stage.now_ms += 1001
    left = []
    for _ in range(3):
        stage.desk.turn(stage.now_ms)
        left.append((len(windows), windows.is_looking))
        stage.desk.turn(stage.now_ms)
        assert len(windows) == left[-1][0], "the next ones have their time, and the worker sleeps until then"
        assert 0 < stage.desk.sleep_ms(stage.now_ms) <= LOOK_STEP_MS or not windows.is_looking
        stage.now_ms += LOOK_STEP_MS
    assert left == [(12, True), (4, True), (0, False)]


def test_c_and_python_agree_which_windows_are_gone(stage: Stage) -> None:
    windows, rng = stage.desk.windows, random.Random(5)
    stage.topic("U")
    stage.send("U", 1)
    for number in range(12):
        stage.group(f"G{number}")
        for topic in ("T", "U"):
            assert stage.pop(topic, f"G{number}", maxMsgNums=1).code == 0
    for place in rng.sample(range(24), 3):
        lib.rmq_pop_window_drop(stage.windows, place)
    for number in rng.sample(range(12), 3):
        lib.rmq_group_set(stage.kit.plane, number + 2, 0)
    for topic_id in (None, 2):
        if topic_id:
            lib.rmq_topic_set(stage.kit.plane, topic_id, 0)
        at, found = ffi.new("uint32_t *"), set()
        while (place := lib.rmq_pop_index_gone(windows.index, stage.kit.plane, stage.windows, at, 5)) != NONE or at[0]:
            found |= {place} - {NONE}
        named = [windows.at(place) for place in range(24)]
        assert found == {
            place for place, window in enumerate(named)
            if window is None or not windows._is_wanted(windows._keys[window.window_id], window)
        }  # fmt: skip
        assert 3 < len(found) < 24


def test_a_window_may_begin_elsewhere(stage: Stage) -> None:
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    window = stage.desk.window_of(1, 0)
    assert window is not None
    stage.desk.windows.begin_at(window, 4)
    assert stage.pop().fields["msgOffsetInfo"] == "0 0 4,5"
    stage.ack(receipt)
    assert stage.desk.native.counted(Counter.ACKS) == 0


def some_window(stage: Stage) -> Window:
    found = stage.desk.window_of(1, 0)
    assert found is not None
    return found


def test_an_id_that_no_copy_has_is_given_again(stage: Stage) -> None:
    """There are 2^20 ids, and an operator may set offsets back as often as he likes."""
    for offset in (4, 2, 0):
        stage.pop(maxMsgNums=1)
        stage.desk.windows.begin_at(some_window(stage), offset)
    assert some_window(stage).window_id == 1
    assert (stage.names.lines, stage.names.forgotten) == ([(1, "G", "T", 0)], set())
    stage.desk.windows.end(some_window(stage))
    assert stage.pop(maxMsgNums=1).code == 0
    assert some_window(stage).window_id == 1, "its group may have been made anew"


def test_an_id_that_a_copy_may_have_is_not_given_again(stage: Stage) -> None:
    stage.pop(maxMsgNums=1)
    window, due = some_window(stage), ffi.new("struct rmq_pop_due[]", lib.RMQ_POP_ENTRY_MESSAGES)
    assert lib.rmq_pop_due(stage.windows, 1 << 60, due, lib.RMQ_POP_ENTRY_MESSAGES) == 1
    other = stage.desk.windows.begin_at(window, 0)
    assert other.window_id == 2
    assert stage.names.forgotten == {1}, "each name takes memory"
    lib.rmq_pop_copied(stage.windows, other.window_id, 5, 100)  # a start has found a mark in the log
    assert stage.desk.windows.begin_at(other, 0).window_id == 3


def test_a_window_stays_while_another_one_gets_no_id(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, or all ids are used up. The group goes on where it is."""
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    window = some_window(stage)
    lib.rmq_pop_copied(stage.windows, window.window_id, 5, 100)  # a copy has its id

    def fail(group: str, topic: str, queue_id: int, birth: int) -> int:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(stage.names, "add", fail)
        with pytest.raises(OSError, match="no room"):
            stage.desk.windows.begin_at(window, 0)
    assert some_window(stage) == window and not stage.names.forgotten
    assert stage.pop(maxMsgNums=1).fields["startOffsetInfo"] == "0 0 1"
    stage.ack(receipt)
    assert stage.desk.native.counted(Counter.ACKS) == 1
    assert stage.desk.windows.begin_at(window, 0).window_id == 2
    assert stage.names.forgotten == {1}


def test_a_window_begins_elsewhere_beyond_a_lowered_limit(stage: Stage) -> None:
    """Its number does not grow."""
    stage.group("H")
    for group in ("G", "H"):
        stage.pop(group=group, maxMsgNums=1)
    stage.set(offsets_max=1)
    stage.desk.windows.begin_at(some_window(stage), 3)
    assert stage.pop(maxMsgNums=1).fields["startOffsetInfo"] == "0 0 3"


def test_an_id_of_an_earlier_start_is_not_given_again(stage: Stage) -> None:
    """An older version, which does not note copies, may have run meanwhile."""
    stage.pop(maxMsgNums=1)
    stage.die()
    stage.kit.marks.start_id += 1
    stage.open()
    assert stage.desk.windows.begin_at(some_window(stage), 0).window_id == 2


def test_an_ended_window_is_made_again(stage: Stage) -> None:
    stage.pop(maxMsgNums=1)
    window = stage.desk.window_of(1, 0)
    assert window is not None
    lib.rmq_pop_window_drop(stage.windows, window.place)
    commit(stage, 2)
    assert stage.pop(maxMsgNums=1).fields["startOffsetInfo"] == "0 0 2"


def test_names_without_a_window_are_passed_over(stage: Stage) -> None:
    stage.die()
    for number in range(3):
        stage.names.add("G", "T", number, 0)
    stage.open()
    assert len(stage.desk.windows) == 0


def test_a_window_of_names_that_are_gone_ends_at_a_start(stage: Stage) -> None:
    stage.pop(maxMsgNums=1)
    stage.die()
    stage.names.lines[0] = (1, "OTHER", "T", 0)
    stage.open()
    assert len(stage.desk.windows) == 0
    assert stage.names.forgotten == {1}
    assert lib.rmq_pop_window_place(stage.windows, 1) == lib.RMQ_NONE


def test_the_index_agrees_with_a_dict() -> None:
    """Random pairs come and go; the lists of groups stay whole."""
    rng, places = random.Random(3), 64
    index = lib.rmq_pop_index_open(ffi.new("uint64_t[2]", [1, 2]), places, 8)
    known: dict[tuple[int, int], tuple[int, int]] = {}
    free, number = list(range(places)), 0
    for _ in range(4000):
        pair = rng.randrange(1, 9), rng.randrange(20)
        if pair in known and rng.random() < 0.5:
            lib.rmq_pop_index_forget(index, *pair)
            free.append(known.pop(pair)[0])
        elif pair not in known and free:
            number += 1
            known[pair] = free.pop(rng.randrange(len(free))), number
            assert lib.rmq_pop_index_put(index, *pair, *known[pair]) == 0
        found = ffi.new("uint32_t *")
        for asked in [(group, slot) for group in range(1, 9) for slot in range(20)][:: rng.randrange(1, 9)]:
            place = lib.rmq_pop_index_find(index, *asked, found)
            assert (place, found[0]) == known.get(asked, (lib.RMQ_NONE, 0))
        for group in range(1, 9):
            listed, at = set(), lib.rmq_pop_index_first(index, group)
            while at != lib.RMQ_NONE:
                assert at not in listed
                listed.add(at)
                at = lib.rmq_pop_index_next(index, at)
            assert listed == {place for (of, _), (place, _) in known.items() if of == group}
    assert lib.rmq_pop_index_put(index, 9, 0, 0, 1) < 0, "there is no such group"
    lib.rmq_pop_index_close(index)
