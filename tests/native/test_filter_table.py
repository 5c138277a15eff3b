"""The table of compiled conditions: put, found by text, copied by version."""

import threading
from pathlib import Path

from plane_kit import Kit, filter_found, filter_put

from ringmq.native import ffi, lib


def test_an_expression_is_found_by_its_text(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    texts = [f"a = {number}".encode() for number in range(lib.RMQ_FILTERS_MAX)]
    for slot, text in enumerate(texts):
        assert filter_put(kit, slot, text, b"of " + text) == 1
    assert [filter_found(kit, text) for text in texts] == [b"of " + text for text in texts]
    assert filter_found(kit, b"a = ") is None and filter_found(kit, b"a = 1024") is None
    assert filter_put(kit, 7, b"b", b"x" * lib.RMQ_FILTER_PROGRAM_MAX) == 3
    assert filter_found(kit, b"a = 7") is None and filter_found(kit, b"b") == b"x" * lib.RMQ_FILTER_PROGRAM_MAX


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    long = b"x" * (lib.RMQ_FILTER_TEXT_MAX + 1)
    assert filter_put(kit, lib.RMQ_FILTERS_MAX, b"a", b"p") == 0
    assert filter_put(kit, 0, long, b"p") == 0
    assert filter_put(kit, 0, b"a", b"x" * (lib.RMQ_FILTER_PROGRAM_MAX + 1)) == 0
    assert filter_found(kit, long) is None
    room = ffi.new("char[]", lib.RMQ_FILTER_PROGRAM_MAX)
    for slot, version in ((0, 0), (0, 1), (0, 2), (lib.RMQ_FILTERS_MAX, 1), (0xFFFFFFFF, 1)):
        assert lib.rmq_filter_copy(kit.plane, slot, version, room) == 0


def test_a_copy_is_whole_while_the_slot_changes(tmp_path: Path) -> None:
    kit, stop = Kit(tmp_path), threading.Event()
    programs = [bytes([number]) * 20_000 for number in (1, 2)]

    def change() -> None:
        while not stop.is_set():
            for number, program in enumerate(programs):
                filter_put(kit, 3, b"ab"[number : number + 1], program)

    writer = threading.Thread(target=change)
    writer.start()
    room, version = ffi.new("char[]", lib.RMQ_FILTER_PROGRAM_MAX), ffi.new("uint32_t *")
    copied = 0
    try:
        while copied < 500:
            slot = lib.rmq_filter_find(kit.plane, b"a", 1, version)
            if slot != lib.RMQ_NONE and lib.rmq_filter_copy(kit.plane, slot, version[0], room):
                copied += 1
                assert bytes(ffi.buffer(room, 20_000)) == programs[0]
    finally:
        stop.set()
        writer.join()
