"""Refuse one system call to a child process, as container runtimes do with io_uring by default."""

import ctypes
import errno
import struct
from collections.abc import Callable

IO_URING_SETUP = 425
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_LOAD_NUMBER, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refusing(system_call: int, error: int = errno.EPERM) -> Callable[[], None]:
    """A `preexec_fn` after which `system_call` fails with `error`."""
    code = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD_NUMBER, 0, 0, 0),
            (_JUMP_EQUAL, 0, 1, system_call),
            (_RETURN, 0, 0, _ERRNO | error),
            (_RETURN, 0, 0, _ALLOW),
        )
    )

    def apply() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        program = _Program(4, code)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")

    return apply
