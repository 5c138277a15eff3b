"""The name of a process for `ps`."""

from ringmq.ipc.process_title import title_bytes


def test_a_title_ends_at_its_first_zero_and_fits() -> None:
    assert title_bytes("ringmq write b", 20) == b"ringmq write b\0\0\0\0\0\x01"
    assert title_bytes("ringmq write broker", 10) == b"ringmq w\0\x01"
    assert title_bytes("a\nb", 9) == b"a\\x0ab\0\0\x01"
