"""Survey of the kernel's io_uring by the two system calls themselves (their ABI: linux/io_uring.h)."""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass

OPERATIONS = {"sendmsg": 9, "recv": 27, "send": 26, "accept": 13, "async cancel": 14, "poll": 6, "fsync": 3}
"""Operations that engine.c and flusher.c submit."""
FLAGS = {"COOP_TASKRUN": 1 << 8, "TASKRUN_FLAG": 1 << 9, "SINGLE_ISSUER": 1 << 12, "DEFER_TASKRUN": 1 << 13}
_SETUP, _REGISTER = 425, 427  # the same numbers on every architecture
_REGISTER_PROBE = 8
_PARAMS = struct.Struct("=10I80x")
_PARAMS_FLAGS = 2
_PROBE_HEAD_BYTES, _PROBE_ENTRY_BYTES, _OPERATIONS_MAX = 16, 8, 256
_SUPPORTED = 1


@dataclass(frozen=True, slots=True)
class RingSurvey:
    """`setup_errno` is 0 if a plain ring can be made. Only then the missing operations and flags are known."""

    setup_errno: int
    missing_flags: tuple[str, ...] = ()
    missing_operations: tuple[str, ...] = ()


def survey_ring() -> RingSurvey:
    """Make a plain ring, ask for its operations, and make a ring with the engine's flags.

    All rings are closed again.
    """
    descriptor, error = _setup(0)
    if error:
        return RingSurvey(error)
    try:
        operations = _supported(descriptor)
    finally:
        os.close(descriptor)
    flags = sum(FLAGS.values())
    descriptor, error = _setup(flags)
    if not error:
        os.close(descriptor)
    missing = tuple(name for name, flag in FLAGS.items() if error and _is_refused(flag))
    lacking = tuple(name for name, number in OPERATIONS.items() if number not in operations)
    return RingSurvey(0, missing, lacking)


def _is_refused(flag: int) -> bool:
    """Try one flag alone. Two of the flags need another one beside them."""
    needs = {FLAGS["TASKRUN_FLAG"]: FLAGS["COOP_TASKRUN"], FLAGS["DEFER_TASKRUN"]: FLAGS["SINGLE_ISSUER"]}
    descriptor, error = _setup(flag | needs.get(flag, 0))
    if not error:
        os.close(descriptor)
    return bool(error)


def _setup(flags: int) -> tuple[int, int]:
    """Return (descriptor, 0) or (-1, errno)."""
    numbers = [0] * 10
    numbers[_PARAMS_FLAGS] = flags
    params = ctypes.create_string_buffer(_PARAMS.pack(*numbers), _PARAMS.size)
    return _call(_SETUP, 4, params)


def _supported(descriptor: int) -> set[int]:
    room = ctypes.create_string_buffer(_PROBE_HEAD_BYTES + _OPERATIONS_MAX * _PROBE_ENTRY_BYTES)
    _, error = _call(_REGISTER, descriptor, _REGISTER_PROBE, room, _OPERATIONS_MAX)
    if error:
        return set()
    found = struct.iter_unpack("=BBHI", room.raw[_PROBE_HEAD_BYTES:])
    last = room.raw[0]
    return {number for number, _, flags, _ in found if flags & _SUPPORTED and number <= last}


def _call(number: int, *arguments: object) -> tuple[int, int]:
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), *arguments)
    return (result, 0) if result >= 0 else (-1, ctypes.get_errno())
